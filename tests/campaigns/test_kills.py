"""Kills, power loss and errors at every system call on the database's folder: no reported row is lost.

The next run continues; programs get correct results, and the command names the error. The sample of the default tier
is small; `GENSOR_CAMPAIGN=full pytest tests/campaigns` takes every point, errors once and from then on: four seeds have
all of them.
"""

import errno
import json
import random
import shutil
import signal
from itertools import product

import pytest

from tests.campaign_size import FULL, SEED, sample, tell

from .lives.checks import check, read_reports
from .lives.lives import Action, Gate, changes, points
from .lives.power import Disk, moments

#: name -> (what is run, from which state, on which shapes)
ACTS = {
    "open and tune": ("tune", "empty", "shapes.csv"),
    "resume and commit": ("tune", "tuned", "more.csv"),
    "merge": ("merge", "empty", ""),
}


@pytest.mark.parametrize("name", ACTS)
def test_a_kill_at_any_call_loses_nothing_that_was_reported(stage, name, journal, tmp_path):
    act, state, shapes = ACTS[name]
    log = tmp_path / "log"
    whole = stage.play(act, journal, stage.fresh(state, journal), shapes, log=log)
    assert whole.code == 0, whole.stderr
    total = check(stage.folder / "play" / "kernels.db", stage.lines())
    before = check(stage.fresh(state, journal) / "kernels.db", [])
    chosen = sample(list(points(log, whole.calls)), 6)
    for number, action in chosen:
        folder = stage.fresh(state, journal)
        killed = stage.play(act, journal, folder, shapes, at=number, action=action)
        assert killed.code == -signal.SIGKILL, (number, action, killed)
        assert before <= check(folder / "kernels.db", stage.lines()) <= total, (number, action)
        resumed = stage.play(act, journal, folder, shapes)
        assert resumed.code == 0, (number, action, resumed.stderr)
        assert check(folder / "kernels.db", stage.lines()) == total, (number, action)
    tell(f"kills, {name}, {journal}", len(chosen))
    assert len(chosen) >= (250 if FULL and act == "tune" else 6)


def test_a_kill_during_recovery_from_a_kill(stage, journal, tmp_path):
    """The first life dies within its last commit, the second while it recovers what the first has left."""
    log = tmp_path / "log"
    whole = stage.play("tune", journal, stage.fresh("empty", journal), log=log)
    writes = [number for number, action in points(log, whole.calls) if action == Action.TEAR]
    kills = 0
    for first in sample(writes[-24:], 2, 4):
        left = stage.fresh("empty", journal)
        assert stage.play("tune", journal, left, at=first, action=Action.TEAR).code == -signal.SIGKILL
        lines = stage.lines()
        stage.states["left", journal] = left.rename(stage.folder / f"left-{journal}-{first}")
        log.unlink()
        whole = stage.play("tune", journal, stage.fresh("left", journal), log=log)
        for number, action in sample(list(points(log, whole.calls)), 3, 60):
            folder = stage.fresh("left", journal)
            assert stage.play("tune", journal, folder, at=number, action=action).code == -signal.SIGKILL
            check(folder / "kernels.db", lines + stage.lines())
            assert stage.play("tune", journal, folder).code == 0
            assert check(folder / "kernels.db", lines + stage.lines()) == 3
            kills += 1
    tell(f"kills during recovery, {journal}", kills)
    assert kills >= 6


@pytest.mark.parametrize("state", ["empty", "tuned"])
def test_power_loss_after_any_call_loses_nothing_that_was_reported(stage, state, journal, tmp_path):
    log, left, generator = tmp_path / "log", tmp_path / "left", random.Random(SEED)
    assert stage.play("tune", journal, stage.fresh(state, journal), "more.csv", log=log).code == 0
    entries = list(changes(log))
    before = check(stage.fresh(state, journal) / "kernels.db", [])
    chosen = set(sample(range(len(entries)), 20))
    states = 0
    for index, (disk, acknowledged) in enumerate(moments(stage.states[state, journal], entries)):
        for chance in (0.0, 0.5, 1.0) if index in chosen else ():
            shutil.rmtree(left, ignore_errors=True)
            left.mkdir()
            disk.fail(generator, chance, left)
            (tmp_path / "out.json").write_text(acknowledged)
            found = check(left / "kernels.db", read_reports(tmp_path / "out.json"))
            assert before <= found <= 4, (index, chance)
            states += 1
    tell(f"power losses, {state}, {journal}", states)
    assert states >= 3 * min(20, len(chosen))


def test_the_disk_forgets_what_was_not_synced(tmp_path):
    """The simulation itself: unsynced bytes, lengths, names and deletions."""
    (tmp_path / "before").mkdir()
    (tmp_path / "before" / "a").write_bytes(b"old")
    entries = [("write", "a", 0, b"new"), ("create", "b", 0, b""), ("write", "b", 0, b"x" * 600)]
    entries += [("sync", "a", 0, b""), ("sync", "b", 0, b""), ("sync", "/", 0, b""), ("unlink", "a", 0, b"")]
    found = []
    disk = Disk(tmp_path / "before")
    for number, entry in enumerate(entries):
        disk.take(*entry)
        folder = tmp_path / str(number)
        folder.mkdir()
        disk.fail(random.Random(0), 0.0, folder)
        found.append({path.name: path.read_bytes() for path in folder.iterdir()})
    old, new, both = {"a": b"old"}, {"a": b"new"}, {"a": b"new", "b": b"x" * 600}
    assert found == [old, old, old, new, new, both, both]


FAILURES = (errno.ENOSPC, errno.EIO, errno.EACCES, errno.EROFS)
LASTING = (Action.ONCE, Action.FOREVER)


def faults(calls: int, few: int) -> list[tuple[int, Action, int]]:
    """Calls with what happens at them."""
    chosen = sample(list(product(range(1, calls + 1), LASTING)), few)
    return [(at, action, FAILURES[(at + action + SEED) % len(FAILURES)]) for at, action in chosen]


def play_all(chosen, play, passes) -> int:
    """Plays all faults, then fails with those that did not pass; the number of faults."""
    troubles = []
    for at, action, failure in chosen:
        try:
            passes(play(at=at, action=action, failure=failure))
        except Exception as error:
            troubles.append(f"call {at}, {action.name}, {errno.errorcode[failure]}: {error!r}")
    assert not troubles, "\n".join(troubles)
    return len(chosen)


@pytest.mark.parametrize("state", ["stocked", "absent"])
def test_a_program_gets_right_results_and_one_warning_at_most(stage, zygote, state, journal):
    def play(**gate):
        folder = stage.fresh(state, journal)
        return zygote.life(Gate(folder, **gate), "program", journal, folder / "kernels.db")

    whole = play()
    assert json.loads(whole.stdout) == {"right": 5, "warnings": []}, whole
    told = 0

    def passes(life):
        nonlocal told
        assert life.code == 0 and not life.stderr, life.stderr
        found = json.loads(life.stdout)
        assert found["right"] == 5 and len(found["warnings"]) <= 1, found
        told += len(found["warnings"])
        check(stage.folder / "play" / "kernels.db", [])

    count = play_all(faults(whole.calls, 4), play, passes)
    tell(f"faults, program, {state}, {journal}", f"{count}, of which {told} were worth a warning")
    assert told or not FULL


@pytest.mark.parametrize("act", ["tune", "merge"])
def test_the_command_says_what_is_wrong_and_keeps_what_it_reported(stage, act, journal):
    whole = stage.play(act, journal, stage.fresh("empty", journal), "more.csv")
    codes = {0: 0, 2: 0}

    def play(**gate):
        return stage.play(act, journal, stage.fresh("empty", journal), "more.csv", **gate)

    def passes(life):
        assert life.code in codes and "Traceback" not in life.stderr, life
        *_, last = life.stderr.splitlines() or [""]
        assert life.code == 0 or last.startswith("gensor-tune: "), life
        check(stage.folder / "play" / "kernels.db", stage.lines())
        codes[life.code] += 1

    count = play_all(faults(whole.calls, 6), play, passes)
    tell(f"faults, {act}, {journal}", f"{count}, exit codes {codes}")
    assert codes[0] + codes[2] == count and (all(codes.values()) or not FULL)
