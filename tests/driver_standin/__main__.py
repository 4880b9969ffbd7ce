"""Run the tests of launches, all forms of launch, and all stored kernels on many versions of CuPy, without a GPU.

    python -m tests.driver_standin [--cupy 13.3.0 14.2.0] [--cuda 12 13] [--environments FOLDER] [--json FILE]

Each version gets an environment of its own by pip, which is kept. Without --cupy all releases from the oldest that the
package allows on are taken. Exit code 1 where anything is not fine.
"""

import argparse
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from gensor_kernels.build.nvrtc import toolchain

from .forms import every, form
from .library import child
from .planted import BUGS, FORM, HISTORICAL
from .stored import DATABASES

ROOT = Path(__file__).resolve().parents[2]
#: by CUDA's major version, as in pyproject.toml
OLDEST = {12: (13, 3, 0), 13: (13, 6, 0)}


def main() -> int:
    """Run every version and print a line for each; 1 where something is not fine."""
    parser = argparse.ArgumentParser(prog="python -m tests.driver_standin", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cupy", nargs="*", default=[], help="versions; without it all releases that are allowed")
    parser.add_argument("--cuda", nargs="*", type=int, default=sorted(OLDEST), help="major versions of CUDA")
    parser.add_argument("--environments", type=Path, default=ROOT / ".venv-cupy", help="folder of the environments")
    parser.add_argument("--json", default="", help="file for the table")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        forms = Path(folder, "forms.pickle")
        forms.write_bytes(pickle.dumps([form(each) for each in every()]))
        for cuda in options.cuda:
            for version in [each for each in releases(cuda) if each in (options.cupy or [each])]:
                python = environment(options.environments, cuda, version)
                rows.append(row(cuda, python, Path(folder), forms))
                print(json.dumps(rows[-1]), flush=True)
    names = [set(each["looked_up"]) for each in rows]
    common = sorted(set.intersection(*names)) if names else []
    for each in rows:
        each["looked_up"] = sorted(set(each["looked_up"]) - set(common))  # beside the common names
    table = {"toolchain": toolchain(), "planted": sorted(BUGS), "looked_up": common, "rows": rows}
    if options.json:
        Path(options.json).write_text(json.dumps(table, indent=1) + "\n")
    return int(not rows or any(each["findings"] for each in rows))


def releases(cuda: int) -> list[str]:
    """Return the versions of CuPy that pip offers to this Python and the package allows, the oldest first."""
    command = [sys.executable, "-m", "pip", "index", "versions", f"cupy-cuda{cuda}x"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.search(r"Available versions: (.*)", listed)
    numbers = [tuple(map(int, each.split("."))) for each in (found[1].split(", ") if found else [])]
    return [".".join(map(str, each)) for each in sorted(numbers) if each >= OLDEST[cuda]]


def environment(folder: Path, cuda: int, version: str) -> str:
    """Return the interpreter of an environment with this package and a CuPy, made unless it is there."""
    path = folder / f"standin-cuda{cuda}-{version}"
    if not (path / "installed").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(path)], check=True)
        install = [str(path / "bin" / "python"), "-m", "pip", "install", "-q", "-e", str(ROOT)]
        subprocess.run([*install, f"cupy-cuda{cuda}x=={version}"], check=True)
        (path / "installed").touch()
    return str(path / "bin" / "python")


def row(cuda: int, python: str, folder: Path, forms: Path) -> dict[str, Any]:
    """Return what one CuPy does: counts, and under "findings" whatever is not fine."""
    began = time.perf_counter()
    settings = {"GENSOR_TUNE": "predicted", "GENSOR_DETERMINISTIC": "1"}
    launched = child(folder, "launched", python=python, **settings)
    executed = child(folder, "executed", str(forms), FORM, python=python)
    swept = child(folder, "swept", *sorted(each.stem for each in DATABASES.glob("sm_*.db")), python=python)
    tests, failures = tested(python)
    findings = [*failures, *(line for each in swept.values() for line in each["wrong"])]
    findings += [f"{each['name']}: {each['detail']}" for each in executed["forms"] if each["outcome"] != "ok"]
    planted = executed["planted"][FORM]
    caught = sorted(name for name, outcome in planted.items() if not outcome.startswith("ok"))
    expected = sorted(BUGS.keys() - (set() if launched["cupy"].startswith("13.") else {HISTORICAL}))
    if caught != expected:
        findings.append(f"planted bugs: {sorted(set(caught) ^ set(expected))}")
    calls: dict[str, int] = {}
    for each in executed["forms"]:
        for name, count in each["calls"].items():
            calls[name] = calls.get(name, 0) + count
    return {
        "cuda": cuda,
        "cupy": launched["cupy"],
        "numpy": launched["numpy"],
        "python": launched["python"],
        "looked_up": sorted([*launched["looked_up"]["found"], *launched["looked_up"]["missing"]]),
        "tests": tests,
        "forms": len(executed["forms"]),
        "families": len({each["family"] for each in executed["forms"]}),
        "cases": sum(each["cases"] for each in executed["forms"]),
        "calls": {name: calls[name] for name in sorted(calls) if not name.startswith("cuModule")},
        "stored_kernels": sum(each["kernels"] for each in swept.values()),
        "stored_launches": sum(each["launches"] for each in swept.values()),
        "planted": len(planted),
        "caught": len(caught),
        "historical_bug_caught": HISTORICAL in caught,
        "findings": findings,
        "seconds": round(time.perf_counter() - began),
    }


def tested(python: str) -> tuple[int, list[str]]:
    """Return how many tests of launches pass with the CuPy of an interpreter, and the lines of failures."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        str(Path(__file__).parent / "test_launched.py"),
    ]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "STANDIN_PYTHON": python}, capture_output=True, text=True
    )
    passed = re.search(r"(\d+) passed", done.stdout)
    return int(passed[1]) if passed else 0, done.stdout.splitlines()[-20:] if done.returncode else []


if __name__ == "__main__":
    sys.exit(main())
