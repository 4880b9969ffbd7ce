"""The disk fails at any call, once or from then on: programs get right results, the command says what is wrong.

`GENSOR_CAMPAIGN=full pytest tests/campaigns` takes every point, once and from then on, each with an error that the seed
decides: four seeds have all of them.
"""

import errno
import json
import subprocess
from itertools import product

import pytest

from tests import campaign_size as size
from tests.campaign_size import FULL, SEED, sample, tell

from .lives.checks import check
from .lives.lives import Action, Gate

FAILURES = (errno.ENOSPC, errno.EIO, errno.EACCES, errno.EROFS)
LASTING = (Action.ONCE, Action.FOREVER)


def faults(calls: int, few: int) -> list[tuple[int, Action, int]]:
    """Calls with what happens at them."""
    chosen = sample(list(product(range(1, calls + 1), LASTING)), few)
    return [(at, action, FAILURES[(at + action + SEED) % len(FAILURES)]) for at, action in chosen]


def survived(chosen, play, passes) -> int:
    """Plays every fault before it tells of those that did not pass; how many there were."""
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

    count = survived(faults(whole.calls, 8), play, passes)
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

    count = survived(faults(whole.calls, 8), play, passes)
    tell(f"faults, {act}, {journal}", f"{count}, exit codes {codes}")
    assert codes[0] + codes[2] == count and (all(codes.values()) or not FULL)


# ---- The seed of a campaign's sample: of the commit, of the environment, and fixed where there is neither


def test_the_commit_seeds_the_sample(tmp_path, monkeypatch):
    monkeypatch.delenv("GENSOR_CAMPAIGN_SEED", raising=False)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert size.seed_of(tmp_path) == size.WITHOUT_GIT
    own = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    for command in (["init", "-q"], [*own, "commit", "-q", "--allow-empty", "-m", "a"]):
        assert size.seed_of(tmp_path) == size.WITHOUT_GIT
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    log = subprocess.run(["git", "log", "--format=%H"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert size.seed_of(tmp_path) == int(log.stdout.strip()[:8], 16)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert size.seed_of(tmp_path) == size.WITHOUT_GIT
    monkeypatch.setenv("GENSOR_CAMPAIGN_SEED", "12")
    assert size.seed_of(tmp_path) == 12


def test_the_header_names_the_seed(pytestconfig):
    lines = pytestconfig.hook.pytest_report_header(config=pytestconfig, start_path=pytestconfig.rootpath)
    assert f"GENSOR_CAMPAIGN_SEED={size.SEED}" in str(lines)


def test_samples_are_spread_evenly_and_differ_by_seed(monkeypatch):
    monkeypatch.setattr(size, "FULL", False)
    drawn = set()
    for seed in range(20):
        monkeypatch.setattr(size, "SEED", seed)
        some = size.sample(range(1000), 10)
        assert [point // 100 for point in some] == list(range(10)) and some == size.sample(range(1000), 10)
        drawn |= set(some)
    assert len(drawn) > 150
    monkeypatch.setattr(size, "FULL", True)
    assert size.sample(range(1000), 10) == list(range(1000)) and len(size.sample(range(1000), 10, 60)) == 60
