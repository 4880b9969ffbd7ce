"""All measurements that need a GPU, in one command and within a time budget: `python -m benchmarks.device`.

    python -m benchmarks.device --budget 540 --out results-h200 --db kernels.db
    python -m benchmarks.device --steps facts,claims --out results-h200 --db kernels.db
    python -m benchmarks.device --emulate --out rehearsal

benchmarks/README.md describes the steps, and the files in the output folder. The same command again resumes where it
stopped.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import math
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from gensor_database import PRETUNED
from gensor_database.store import Store
from gensor_kernels.errors import ToolMissingError, UnknownArchError
from gensor_kernels.families.registry import FAMILIES

from .gpu import claims, summary
from .gpu.families import OPERATORS
from .gpu.harness.journal import Journal
from .gpu.harness.session import Session
from .gpu.harness.supervise import UNUSABLE, Step, Supervisor

BUDGET = 540.0
SANITIZED_END = 7.5  # seconds for the last kernel under compute-sanitizer to end
#: `--only` this: the rows of `claims` that are to be timed again.
AGAIN = "claims2"
VENDOR_STEPS = (summary.CLAIMS, *summary.TIMED)
VENDORS = "cupy,cublaslt,torch,flash,cudnn,compiled"
STEPS = (
    Step("facts", 0.05),
    Step("claims", 0.35),
    Step("families", 0.2),
    Step("shipped", 0.25),
    Step("timing", 0.35),
    Step("graphs", 0.3),
    Step("compiled", 0.12),
    Step("public", 0.05),
    Step("felt", 0.2),
    Step("suite", 0.15),
    Step("fault_injection", 0.04),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 where every result is correct, 1 where one is wrong, 2 where nothing can run."""
    options = parser().parse_args(arguments)
    if options.only in {step.name for step in STEPS}:
        options.steps, options.only = options.only, ""
    if options.only == AGAIN:
        options.steps, options.only = claims.STEP, claims.again()
    options.out.mkdir(0o700, parents=True, exist_ok=True)
    journal = Journal(options.out / "results.jsonl")
    if options.worker:
        return work(options, journal)
    if options.retry:
        options.since = time.time()
    steps = [step for step in STEPS if not options.steps or step.name in options.steps.split(",")]
    supervisor = Supervisor(
        journal,
        lambda step, seconds: worker_command(options, step, seconds),
        options.budget,
        inputs(options),
    )
    if not supervisor.run(steps):
        return UNUSABLE
    _tidy(options.out / "device.db")
    found = summary.collect(journal, [step.name for step in STEPS])
    (options.out / "summary.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    row = summary.arch_row(journal)
    if row is not None:
        (options.out / "arch.toml").write_text(row, encoding="utf-8")
    print("\n".join(summary.lines(found)))
    return 1 if found["broken"] else 0


def _tidy(path: Path) -> None:
    """Leave one file without a journal, ready to be copied or committed."""
    if path.exists():
        with Store.open(path) as store:
            store.connection.execute("PRAGMA journal_mode=DELETE")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options; options without help are for the supervisor's own workers."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.device", description=__doc__.splitlines()[0])
    made.add_argument("--budget", type=float, default=BUDGET, help="seconds in all (default %(default)s)")
    made.add_argument("--out", type=Path, default=Path("device-results"), help="folder for results")
    made.add_argument("--db", type=Path, help="database of kernels (default: the package's)")
    made.add_argument("--vendors", default=VENDORS, help="vendors to compare with (default %(default)s)")
    made.add_argument("--cupy-tests", type=Path, help="checkout of CuPy: its tests run inside accelerate")
    made.add_argument("--arch", help="the GPU's part, where several are listed for its name")
    made.add_argument("--emulate", action="store_true", help="rehearse all steps on the emulator, at tiny sizes")
    made.add_argument("--retry", action="store_true", help="run broken items again")
    made.add_argument("--steps", help="only these steps, separated by commas")
    made.add_argument(
        "--only",
        default="",
        metavar="REGEX",
        help="only items whose name matches; a step's name, or claims2: only it",
    )
    made.add_argument("--worker", choices=[step.name for step in STEPS], help=argparse.SUPPRESS)
    made.add_argument("--seconds", type=float, default=60.0, help=argparse.SUPPRESS)
    made.add_argument("--since", type=float, default=0.0, help=argparse.SUPPRESS)
    made.add_argument("--sanitized", action="store_true", help=argparse.SUPPRESS)
    return made


def worker_command(options: argparse.Namespace, step: str, seconds: float) -> list[str]:
    """Return the command line of a worker."""
    command = [sys.executable, "-m", "benchmarks.device", "--worker", step, "--seconds", f"{seconds:.1f}"]
    return [*command, "--since", str(options.since), *options_of(options)]


def options_of(options: argparse.Namespace) -> list[str]:
    """Return the options that every worker and every part of a run has, as they were given."""
    words = ["--out", str(options.out)]
    for name in ("db", "arch", "vendors", "cupy_tests", "only"):
        if getattr(options, name) not in (None, parser().get_default(name)):
            words += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    return words + (["--emulate"] if options.emulate else [])


def inputs(options: argparse.Namespace) -> str:
    """Return the digest of everything that results depend on: other kernels or another database reopen the steps."""
    digest = hashlib.sha256(
        repr((options.emulate, options.arch, options.since, options.vendors, options.only)).encode()
    )
    for family in FAMILIES.values():
        digest.update(family.text.encode())
    for path in [*([options.db] if options.db else sorted(PRETUNED.glob("*.db"))), OPERATORS, claims.FILE]:
        digest.update(path.read_bytes() if path.exists() else b"")
    return digest.hexdigest()


def work(options: argparse.Namespace, journal: Journal) -> int:
    """Run one step in this process, as a worker."""
    session = Session(
        options.out,
        journal,
        time.monotonic() + options.seconds,
        options.emulate,
        options.arch,
        options.db,
        options.since,
        options.only,
        options.sanitized,
        tuple(options.vendors.split(",")),
        options.cupy_tests,
        options.worker in VENDOR_STEPS,
    )
    if options.sanitized:
        signal.alarm(math.ceil(options.seconds + SANITIZED_END))  # a hanging kernel ends this process, not the tool
    module = importlib.import_module(f"benchmarks.gpu.{options.worker}")
    try:
        known = {end["part"] for end in journal.results("facts").values() if "part" in end}
        if known - {session.part}:
            raise ToolMissingError(f"{options.out} holds results of {known.pop()}; this is {session.part}")
    except (ToolMissingError, UnknownArchError) as error:
        print(f"benchmarks.device: {error}", file=sys.stderr)
        return UNUSABLE
    return session.work(options.worker, module.items(session))


if __name__ == "__main__":
    sys.exit(main())
