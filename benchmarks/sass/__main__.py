"""Our machine code compared with Triton's and CUTLASS's: `python -m benchmarks.sass [--arch ARCH ...]`.

Every kernel of ours is compiled here, without a GPU or a driver. Figures are read from the machine code:
docs/machine-code.md defines them. Figures of Triton and CUTLASS are those in the results file, of the versions that it
names. Results in --out of other archs and workloads stay as they are; figures of kernels are kept in --cache.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.sass import build as kernel
from benchmarks.sass import figures as figures_of
from benchmarks.sass import ours, paths, report, units
from benchmarks.sass.acceptance import failures
from benchmarks.sass.build import cached
from benchmarks.sass.figures import figures
from benchmarks.sass.workloads import ARCHS, FILE, Case, cases
from gensor_kernels.build import elf, instruction, loops, sass
from gensor_kernels.build.nvrtc import toolchain
from gensor_kernels.config import cache_dir
from gensor_kernels.families.core.program import Program
from gensor_kernels.machine.arch import Arch, lookup

RESULTS = Path(__file__).resolve().parent.parent / "results" / "sass.json.gz"
#: The modules that compute figures, at the time of their import.
_MODULES = (figures_of, paths, units, kernel, elf, instruction, loops, sass)
_FIGURES = hashlib.sha256(b"".join(Path(each.__file__ or "").read_bytes() for each in _MODULES)).hexdigest()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 where every row is good enough, 1 where some are not."""
    options = _options(arguments)
    chosen = cases(options.workload, options.workloads)
    old = report.load(options.out)
    rows: report.Rows = old.get("rows", [])
    versions = old.get("versions", {}) | {"ours": toolchain()}
    for name in options.arch:
        for row in compare(chosen, lookup(name), options, rows):
            rows = report.merge(rows, [row])
            print(*list(report.table([row]))[2:], sep="\n", flush=True)
            report.save(options.out, rows, versions)
    mine = [row for row in rows if row["arch"] in options.arch and row["workload"] in {case.name for case in chosen}]
    print("", *report.table(mine), "", *report.notes(mine), "", *report.failing(mine), sep="\n")
    return 1 if any(row["failures"] for row in mine) else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    made = argparse.ArgumentParser(prog="python -m benchmarks.sass", description=(__doc__ or "").splitlines()[0])
    made.add_argument("--arch", nargs="+", default=list(ARCHS), help="compute capabilities (default: %(default)s)")
    made.add_argument("--workload", nargs="+", default=[], help="names in the workloads file (default: all)")
    made.add_argument("--workloads", type=Path, default=FILE, help="shapes file (default: %(default)s)")
    made.add_argument("--cache", type=Path, default=cache_dir() / "sass", help="folder of computed figures")
    made.add_argument("--out", type=Path, default=RESULTS, help="file of results (default: %(default)s)")
    return made.parse_args(arguments)


def compare(
    chosen: Sequence[Case], arch: Arch, options: argparse.Namespace, old: report.Rows
) -> Iterator[dict[str, Any]]:
    """Yield one row for each workload: our figures, those of every peer in the `old` rows, and what is too slow."""
    before = {row["workload"]: row for row in old if row["arch"] == arch.name}
    programs = ours.served_programs([case.row for case in chosen], arch)
    for case in chosen:
        known = before.get(case.name, {})
        reasons = {name: reason for name, reason in known.get("refused", {}).items() if name != "ours"}
        mine, reason = None, "no stored kernel serves it"
        if case.name in programs:
            mine, reason = _figures(programs[case.name], case, arch, options.cache)
        if mine is None:
            reasons["ours"] = reason
        peers = known.get("peers", {})
        failing = failures(mine, peers, case.name, arch.name, case.rows)
        row = {"arch": arch.name, "part": arch.part, "workload": case.name, "ours": mine, "peers": peers}
        yield row | {"rows": case.rows, "refused": reasons, "failures": failing}


def _figures(program: Program, case: Case, arch: Arch, folder: Path) -> tuple[dict[str, Any] | None, str]:
    """Return the figures of our kernel, or None and why it has none."""

    def computed() -> str:
        build = ours.build_kernel(program, case.workload, arch)
        try:
            if build.refused:
                raise ValueError(build.refused)
            return json.dumps(figures(build, build.code(), arch, case.depth, case.stream).to_dict())
        except ValueError as error:
            return json.dumps({"error": str(error)})

    made_of = [toolchain(), ours.source_of(program, case.workload), program.to_json(), case.workload.key(), repr(arch)]
    found = json.loads(cached(folder, "\0".join([*made_of, str(case.depth), case.stream, _FIGURES]), computed))
    return (None, found["error"]) if "error" in found else (found, "")


if __name__ == "__main__":
    raise SystemExit(main())
