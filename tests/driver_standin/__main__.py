"""Run the tests of launches, all forms of launch, and all stored kernels on many versions of CuPy, without a GPU.

    python -m tests.driver_standin [--cupy 13.3.0 14.2.0] [--cuda 12 13] [--environments FOLDER] [--json FILE]

Each version has an environment, made by pip and kept. Without --cupy all releases that the package allows are taken.
Exit code 1 where anything is wrong.
"""

import argparse
import json
import pickle
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from gensor_kernels.build.nvrtc import toolchain

from .forms import every, form
from .planted import BUGS, FORM, HISTORICAL
from .runtime import ROOT, run_child
from .stored import DATABASES

#: by CUDA's major version, as in pyproject.toml
OLDEST = {12: (13, 3, 0), 13: (13, 6, 0)}


def main() -> int:
    """Run every version and print a line for each; 1 where something is wrong."""
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
                rows.append({"cuda": cuda, **row(environment(options.environments, cuda, version), forms)})
                print(json.dumps(rows[-1]), flush=True)
    if options.json:
        table = {"toolchain": toolchain(), "planted": sorted(BUGS), "rows": rows}
        Path(options.json).write_text(json.dumps(table, indent=1) + "\n")
    return int(not rows or any(each["findings"] for each in rows))


def releases(cuda: int) -> list[str]:
    command = [sys.executable, "-m", "pip", "index", "versions", f"cupy-cuda{cuda}x"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.search(r"Available versions: (.*)", listed)
    numbers = [tuple(map(int, each.split("."))) for each in (found[1].split(", ") if found else [])]
    return [".".join(map(str, each)) for each in sorted(numbers) if each >= OLDEST[cuda]]


def environment(folder: Path, cuda: int, version: str) -> str:
    """Return the interpreter of an environment with this package and a CuPy, made unless it is there."""
    path = folder / f"standin-cuda{cuda}-{version}"
    python = str(path / "bin" / "python")
    if not (path / "installed").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(path)], check=True)
        packages = ["-e", f"{ROOT}[test-cupy]", f"cupy-cuda{cuda}x=={version}"]
        subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True)
        (path / "installed").touch()
    return python


def row(python: str, forms: Path) -> dict[str, Any]:
    began = time.perf_counter()
    launched = run_child("launched", python=python, GENSOR_TUNE="predicted", GENSOR_DETERMINISTIC="1")
    threads = run_child("launched", "streams", python=python, CUPY_CUDA_PER_THREAD_DEFAULT_STREAM="1")
    executed = run_child("executed", str(forms), FORM, python=python)
    swept = run_child("swept", *sorted(each.stem for each in DATABASES.glob("sm_*.db")), python=python)
    findings = [*launched["failures"].values(), *threads["failures"].values()]
    findings += [line for each in swept.values() for line in each["wrong"]]
    findings += [f"{each['name']}: {each['detail']}" for each in executed["forms"] if each["outcome"] != "ok"]
    planted = executed["planted"][FORM]
    caught = {name for name, outcome in planted.items() if not outcome.startswith("ok")}
    expected = BUGS.keys() - (set() if launched["cupy"].startswith("13.") else {HISTORICAL})
    if caught != expected:
        findings.append(f"planted bugs: {sorted(caught ^ expected)}")
    return {
        **{name: launched[name] for name in ("cupy", "numpy", "python")},
        "forms": len(executed["forms"]),
        "cases": sum(each["cases"] for each in executed["forms"]),
        "calls": sum((Counter(each["calls"]) for each in executed["forms"]), Counter()),
        "stored_kernels": sum(each["kernels"] for each in swept.values()),
        "stored_launches": sum(each["launches"] for each in swept.values()),
        "planted": len(planted),
        "caught": len(caught),
        "findings": findings,
        "seconds": round(time.perf_counter() - began),
    }


if __name__ == "__main__":
    sys.exit(main())
