"""`kill -9` of gensor-tune at random moments: no reported row is lost, the next run continues, no process outlives it.

Nightly: 250 processes, or the number that GENSOR_CAMPAIGN_LIVES gives, half of them with walkers, killed with their
group or alone. test_kills.py kills at every system call on the database.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from tests.campaign_size import SEED, tell

from .lives.checks import check, read_reports

LIVES = int(os.environ.get("GENSOR_CAMPAIGN_LIVES") or 250)
SHAPES = "name,op,shape,dtype\n" + "".join(
    f"{op}-{extent},{op},8x{extent},fp32\n" for op in ("relu", "reduce_sum") for extent in range(32, 256, 32)
)
ROWS = SHAPES.count("\n") - 1
PATIENCE = 120.0  # seconds within which orphans must have noticed: on a busy machine one may still be starting


def tune(path, jobs, generator, moment):
    """Whether gensor-tune was still at work at a moment, and was killed."""
    options = ["--arch", "sm_87", "--shapes", "shapes.csv", "--top", 1, "--jobs", jobs, "--db", path]
    command = [sys.executable, "-m", "gensor_tuner.cli.app", *map(str, options), "--json", "out.json"]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        _, said = process.communicate(timeout=moment)
        assert process.returncode == 0, said
    except subprocess.TimeoutExpired:
        process.kill() if generator.random() < 0.5 else os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stderr.close()
    assert nobody_left(process.pid), "a process outlived the command"
    return process.returncode != 0


@pytest.mark.nightly
def test_random_kills_of_the_command_and_its_group(tmp_path, monkeypatch):
    """All lives on one database, and on a new one when all its rows are there."""
    monkeypatch.chdir(tmp_path)
    Path("shapes.csv").write_text(SHAPES)
    generator, ends, longest = random.Random(SEED), Counter(), None
    lines, database = [], 0
    for number in range(LIVES + 1):
        Path("out.json").unlink(missing_ok=True)
        path, began = tmp_path / str(database) / "kernels.db", time.monotonic()
        moment = None if number in (0, LIVES) else generator.uniform(0.0, longest)  # the first and last one end
        killed = tune(path, generator.choice([1, 2]), generator, moment)
        fresh = read_reports(Path("out.json"))
        lines += fresh
        records = check(path, lines)
        ends["killed" if killed else "ended"] += 1
        ends["killed after rows were reported"] += bool(killed and fresh)
        if not killed:
            longest = longest or time.monotonic() - began
            assert records == len(fresh) == ROWS
            lines, database = [], database + 1
    tell(f"random kills, seed {SEED}", dict(ends))


def members(group: int) -> list[str]:
    """The processes of a group."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(ProcessLookupError):
            found += [path.name] if os.getpgid(int(path.name)) == group else []
    return found


def nobody_left(group: int) -> bool:
    """Whether a process group has ended, or does so soon."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    os.killpg(group, signal.SIGKILL)
    return False


def test_walkers_end_with_a_command_that_is_killed_alone():
    code = """
import time
from contextlib import suppress
from gensor_tuner.tasks.local import PARALLEL_FROM, Local
from tests.doubles.tasks import Counted
with Local(2) as executor:
    executor.map([Counted(number) for number in range(PARALLEL_FROM)])
    time.sleep(60)
"""
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and len(members(process.pid)) < 3:
        time.sleep(0.05)
    assert len(members(process.pid)) >= 3
    process.kill()
    process.wait()
    assert nobody_left(process.pid)
