"""The hour in which a user decides, played and timed: from a fresh clone to a table, a report, a model and the site.

    python -m benchmarks.hour                 # every step, in a new folder that is deleted at the end
    python -m benchmarks.hour --keep FOLDER   # leave the clone and all files there
    python -m benchmarks.hour --skip site     # without steps of these names

Each step is a command of the README or docs/start/jetson.md. Packages come from where this machine's pip takes them.
Prints a table: time that passes and that of all processors, and whether the step ended as it should; exit code 1 where
one did not. `own rows` ends with exit code 1: four of the 25 rows of hour.csv are mistakes.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TUNE = ".venv/bin/gensor-tune"
ARCH, SIZE = "orin-nano-8gb", ("--input", "images=1x3x32x32")
#: Writes the small model of examples/resnet50.py.
MODEL = """import sys
sys.path.insert(0, "examples")
import onnx, resnet50
onnx.save(resnet50.build(resnet50.SMALL), "small.onnx")
"""


@dataclass(frozen=True)
class Step:
    """A command of the hour, run in the clone; it should end with `code` and leave the file `makes`."""

    name: str
    command: tuple[str, ...]
    makes: str = ""
    code: int = 0


STEPS = (
    Step("clone", ("git", "clone", "--quiet", str(ROOT), "."), "README.md"),
    Step("demo", ("make", "demo"), TUNE),
    Step("help", (TUNE, "--help")),
    Step("example rows", (TUNE, "shapes", "--example", "-o", "example.csv"), "example.csv"),
    Step("own rows", (TUNE, "--arch", ARCH, "--shapes", "hour.csv", "--db", "own.db"), "own.db", 1),
    Step("again", (TUNE, "--arch", ARCH, "--shapes", "hour.csv", "--db", "own.db"), code=1),
    Step("show", (TUNE, "show", "--db", "own.db")),
    Step("report", (TUNE, "report", "--db", "own.db", "-o", "report.html"), "report.html"),
    Step("export", (TUNE, "export", "board.db", "--db", "own.db", "--arch", "sm_87"), "board.db"),
    Step("extra onnx", (".venv/bin/python", "-m", "pip", "install", "-q", "-e", ".[onnx]")),
    Step("write a model", (".venv/bin/python", "-c", MODEL), "small.onnx"),
    Step("tune a model", (TUNE, "--arch", ARCH, "--model", "small.onnx", *SIZE, "--db", "model.db"), "model.db"),
    Step("run a model", (TUNE, "run", "small.onnx", *SIZE, "--emulate", ARCH, "--db", "model.db")),
    Step("site", ("make", "docs"), "build/site/index.html"),
)


@dataclass(frozen=True)
class Played:
    """A step that was run: seconds that passed, seconds of all processors, and what is wrong."""

    step: Step
    wall: float
    cpu: float
    fault: str

    def line(self) -> str:
        """Return a row of the table."""
        return f"{self.step.name:<14} {self.wall:>8.1f} {self.cpu:>8.1f}  {self.fault or 'ok'}"


def last_line(log: Path) -> str:
    """Return the last line of a log."""
    return (log.read_text(errors="replace").strip().splitlines() or ["no output"])[-1][:200]


def play(step: Step, folder: Path, log: Path) -> Played:
    """Run a step in a folder; its output goes to a log."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with log.open("w") as out:
        code = subprocess.run(step.command, cwd=folder, stdout=out, stderr=subprocess.STDOUT, check=False).returncode
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    fault = f"exit code {code}, not {step.code}: {last_line(log)}" if code != step.code else ""
    if not fault and step.makes and not (folder / step.makes).exists():
        fault = f"{step.makes} is missing"
    return Played(step, wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, fault)


def hour(folder: Path, skipped: Collection[str] = ()) -> int:
    """Play the steps in a folder and print the table; return 1 if one did not end as it should, which ends the hour."""
    clone, logs = folder / "clone", folder / "logs"
    for each in (clone, logs):
        each.mkdir(parents=True)
    print(f"{'step':<14} {'wall, s':>8} {'CPU, s':>8}", flush=True)
    played = []
    for number, step in enumerate(each for each in STEPS if each.name not in skipped):
        played.append(play(step, clone, logs / f"{number:02}.txt"))
        print(played[-1].line(), flush=True)
        if played[-1].fault:
            return 1
        if step.name == "clone":
            shutil.copy(Path(__file__).with_name("hour.csv"), clone)
    whole = Played(Step("together", ()), sum(each.wall for each in played), sum(each.cpu for each in played), "")
    print(whole.line())
    return 0


def main() -> int:
    """Play the hour."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="a new folder to leave everything in")
    parser.add_argument("--skip", nargs="*", default=[], choices=[each.name for each in STEPS], metavar="STEP")
    given = parser.parse_args()
    if given.keep is not None:
        return hour(given.keep.absolute(), given.skip)
    with tempfile.TemporaryDirectory(prefix="hour-") as folder:
        return hour(Path(folder), given.skip)


if __name__ == "__main__":
    sys.exit(main())
