"""CuPy's own tests of the functions that `accelerate` routes, with and without it.

They run from a checkout of CuPy (`--cupy-tests`: its folder, or the folder that has `cupy_tests`); none are ours. A
test that also fails without `accelerate` says nothing about it. A rehearsal collects the tests and runs none.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from .harness.session import Item, Session

STEP = "suite"
FILES = (
    *("math_tests/test_matmul.py", "linalg_tests/test_product.py", "linalg_tests/test_einsum.py"),
    *("math_tests/test_sumprod.py", "statistics_tests/test_meanvar.py", "statistics_tests/test_order.py"),
    *("sorting_tests/test_search.py", "linalg_tests/test_norms.py", "core_tests/test_ndarray_reduction.py"),
)
SECONDS = 240.0  # for one file, twice
PLUGIN = "benchmarks.gpu.accelerated"
ROOT = Path(__file__).parents[2]


def items(session: Session) -> Iterator[Item]:
    """Yield one item per file of tests."""
    for name in FILES:
        yield Item(name, partial(compare, session, name), limit=3 * SECONDS)


def folder(given: Path) -> Path | None:
    """Return the folder of CuPy's tests inside `given`, or None."""
    inside = (given, given / "cupy_tests", given / "tests" / "cupy_tests")
    return next((each for each in inside if (each / FILES[0]).is_file()), None)


def compare(session: Session, name: str) -> dict[str, Any]:
    """Return the tests of one file that fail only with `accelerate`, and how many calls kernels served."""
    place = folder(session.cupy_tests) if session.cupy_tests is not None else None
    if place is None or not (place / name).is_file():
        return {"outcome": "skipped", "reason": "CuPy's tests are not here: --cupy-tests names a checkout of CuPy"}
    if session.emulate:
        done = run(place / name, "--collect-only")
        return {"collected": sum("::" in line for line in done.stdout.splitlines()), "status": done.returncode}
    with tempfile.TemporaryDirectory() as scratch:
        plain, _ = outcomes(place / name, Path(scratch) / "plain.xml")
        ours, counters = outcomes(place / name, Path(scratch) / "ours.xml", accelerated=True)
    return judge(plain, ours, counters)


def judge(plain: dict[str, str], ours: dict[str, str], counters: dict[str, Any]) -> dict[str, Any]:
    """Return the verdict on `accelerate` from two runs of the same tests."""
    worse = sorted(name for name, outcome in ours.items() if outcome == "failed" and plain.get(name) == "passed")
    lost = sorted(set(plain) - set(ours))
    counts = {what: sum(each == what for each in ours.values()) for what in ("passed", "failed", "skipped")}
    found: dict[str, Any] = {"tests": len(ours), **counts, "failed only with accelerate": worse, "counters": counters}
    if worse or lost or not counts["passed"]:
        found |= {"outcome": "wrong", "error": "; ".join([*worse, *lost][:20]) or "no test passed"}
    return found


def outcomes(path: Path, report: Path, accelerated: bool = False) -> tuple[dict[str, str], dict[str, Any]]:
    """Return (test -> passed, failed or skipped; counters of the calls); empty where pytest could not run."""
    counters = report.with_suffix(".json")
    more = ["-p", PLUGIN] if accelerated else []
    run(path, *more, f"--junitxml={report}", GENSOR_SUITE_COUNTERS=str(counters), GENSOR_TUNE="predicted")
    found = {}
    for case in ElementTree.parse(report).iter("testcase") if report.exists() else ():
        kinds = {each.tag for each in case}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        found[f"{case.get('classname')}::{case.get('name')}"] = outcome
    return found, json.loads(counters.read_text()) if counters.exists() else {}


def run(path: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on one file, without any configuration file."""
    around = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "pytest", str(path), "-q", "-c", os.devnull, "--rootdir", str(path.parent)]
    command += ["-p", "no:cacheprovider", "-W", "ignore", *options]
    around |= {"PYTHONPATH": paths, **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=around)
