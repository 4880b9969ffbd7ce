"""The power fails after any call: what was reported is on the disk, whichever unsynced sectors got there."""

import random
import shutil

import pytest

from tests.campaign_size import SEED, sample, tell

from .lives.checks import check, reported
from .lives.power import Disk, moments
from .lives.stage import changes


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
            found = check(left / "kernels.db", reported(tmp_path / "out.json"))
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
