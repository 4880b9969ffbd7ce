"""`kill -9` of gensor-tune at random moments: no reported row is lost, the next run continues, no process outlives it.

Nightly: 1,000 lives, or the number that GENSOR_CAMPAIGN_LIVES gives. One in four is a whole process, half of them with
walkers, killed with its group or alone. The others are forked from the zygote, which spares them the time before the
database is touched: in them the kill is more likely to meet it.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.campaign_size import SEED, tell

from .lives.checks import check, read_reports
from .lives.lives import Gate

LIVES = int(os.environ.get("GENSOR_CAMPAIGN_LIVES") or 1000)
WHOLE = 4  # every which life is a whole process
SHAPES = "name,op,shape,dtype\n" + "".join(
    f"{op}-{extent},{op},8x{extent},fp32\n" for op in ("relu", "reduce_sum") for extent in range(32, 256, 32)
)
ROWS = SHAPES.count("\n") - 1
PATIENCE = 120.0  # seconds within which orphans must have noticed: on a busy machine one may still be starting


@dataclass
class Campaign:
    """Lives one after the other on one database; a new one when all its rows are there."""

    folder: Path
    zygote: object
    generator: random.Random
    lines: list[dict] = field(default_factory=list)  # reported, of the current database
    database: int = 0
    ends: Counter = field(default_factory=Counter)
    longest: dict[bool, float] = field(default_factory=dict)  # seconds of an undisturbed life

    @property
    def path(self) -> Path:
        return self.folder / str(self.database) / "kernels.db"

    def options(self, jobs: int) -> list[str]:
        options = ["--arch", "sm_87", "--shapes", self.folder / "shapes.csv", "--top", 1, "--jobs", jobs]
        return [str(each) for each in [*options, "--db", self.path, "--json", self.folder / "out.json"]]

    def step(self, whole: bool) -> None:
        """One life, killed if it is still there at a random moment, and what must hold then."""
        (self.folder / "out.json").unlink(missing_ok=True)
        moment = self.generator.uniform(0.0, self.longest[whole]) if whole in self.longest else None
        began = time.monotonic()
        killed = (self._process if whole else self._fork)(moment)
        fresh = read_reports(self.folder / "out.json")
        self.lines += fresh
        records = check(self.path, self.lines)
        self.ends["killed" if killed else "ended"] += 1
        self.ends["killed after rows were reported"] += bool(killed and fresh)
        if not killed:
            self.longest.setdefault(whole, time.monotonic() - began)
            assert records == len(fresh) == ROWS
            self.lines, self.database = [], self.database + 1

    def _fork(self, moment: float | None) -> bool:
        life = self.zygote.life(Gate(self.path.parent), "cli", "wal", *self.options(1), limit=moment or 600.0)
        assert life.code in (0, -signal.SIGALRM), life
        return life.code != 0

    def _process(self, moment: float | None) -> bool:
        command = [sys.executable, "-m", "gensor_tuner.cli.app", *self.options(self.generator.choice([1, 2]))]
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            _, said = process.communicate(timeout=moment)
            assert process.returncode == 0, said
        except subprocess.TimeoutExpired:
            process.kill() if self.generator.random() < 0.5 else os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            process.stderr.close()
        assert nobody_left(process.pid), "a process outlived the command"
        return process.returncode != 0


@pytest.mark.nightly
def test_random_kills_of_the_command_and_its_group(zygote, tmp_path):
    """`Campaign.step` asserts after each life what must hold then."""
    (tmp_path / "shapes.csv").write_text(SHAPES)
    campaign = Campaign(tmp_path, zygote, random.Random(SEED))
    zygote.warm("cli_to_its_end", *campaign.options(1))
    campaign.database += 1
    for whole in (False, True):  # undisturbed, to know how long that takes
        campaign.step(whole)
    for number in range(LIVES):
        campaign.step(whole=number % WHOLE == WHOLE - 1)
        if number % 50 == 49 or number == LIVES - 1:
            tell(f"random kills, seed {SEED}", dict(campaign.ends))
    campaign.longest.clear()
    campaign.step(whole=False)


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


def members(group: int) -> list[int]:
    """The processes of a group."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group:
            found.append(int(status.parent.name))
    return found
