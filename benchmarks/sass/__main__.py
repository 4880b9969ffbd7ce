"""Our machine code beside Triton's and CUTLASS's: `python -m benchmarks.sass [--arch ARCH ...] [--workload NAME ...]`.

Every kernel is compiled here, without a GPU or a driver. Figures are read from the machine code: docs/machine-code.md
defines them. Results in --out of other archs and workloads, and of peers that --peers does not name, stay as they are;
compiled kernels are kept in --cache.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.sass import build as kernel
from benchmarks.sass import cutlass_peer, ours, paths, report, triton_peer, units
from benchmarks.sass import figures as figures_of
from benchmarks.sass.acceptance import failures
from benchmarks.sass.build import Build, Cache
from benchmarks.sass.figures import figures
from benchmarks.sass.workloads import ARCHS, FILE, Case, cases
from gensor_kernels.build import elf, instruction, loops, sass
from gensor_kernels.build.instruction import Instruction
from gensor_kernels.build.nvrtc import toolchain
from gensor_kernels.build.parallel import usable_cores
from gensor_kernels.config import cache_dir
from gensor_kernels.machine.arch import Arch, lookup
from gensor_kernels.programs.core.program import Program

RESULTS = Path(__file__).resolve().parent.parent / "results"
PRETUNED = Path(__file__).resolve().parent.parent.parent / "database" / "pretuned"
PEERS = {"triton": triton_peer, "cutlass": cutlass_peer}
#: The modules that compute figures, as they were when they were imported.
_MODULES = (figures_of, paths, units, kernel, elf, instruction, loops, sass)
_FIGURES = hashlib.sha256(b"".join(Path(each.__file__ or "").read_bytes() for each in _MODULES)).hexdigest()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 where every row is good enough, 1 where some are not."""
    options = _options(arguments)
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    chosen = cases(options.workload, options.workloads)
    old = report.load(options.out / "sass.json")
    rows: report.Rows = old.get("rows", [])
    versions = old.get("versions", {}) | _versions()
    for name in options.arch:
        for row in compared(chosen, lookup(name), options, rows):
            rows = report.merged(rows, [row])
            print(*list(report.table([row]))[2:], sep="\n", flush=True)
            report.save(options.out, rows, versions)
    if refused := report.plot(options.out / "sass.png", rows):
        print(refused, file=sys.stderr)
    mine = [row for row in rows if row["arch"] in options.arch and row["workload"] in {case.name for case in chosen}]
    print("", *report.table(mine), "", *report.notes(mine), "", *report.failing(mine), sep="\n")
    return 1 if any(row["failures"] for row in mine) else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    made = argparse.ArgumentParser(prog="python -m benchmarks.sass", description=(__doc__ or "").splitlines()[0])
    made.add_argument("--arch", nargs="+", default=list(ARCHS), help="compute capabilities (default: %(default)s)")
    made.add_argument("--workload", nargs="+", default=[], help="names in the workloads file (default: all)")
    made.add_argument("--workloads", type=Path, default=FILE, help="shapes file (default: %(default)s)")
    made.add_argument("--db", type=Path, help="database of our kernels (default: the shipped one of the arch)")
    made.add_argument("--tune", action="store_true", help="tune every workload, also where the database has a kernel")
    made.add_argument("--peers", nargs="*", choices=[*PEERS], default=[*PEERS], help="whom to compile anew")
    made.add_argument("--jobs", type=int, default=usable_cores(), help="processes of the tuner")
    made.add_argument("--cache", type=Path, default=cache_dir() / "sass", help="folder of compiled kernels")
    made.add_argument("--out", type=Path, default=RESULTS, help="folder for sass.json, .md and .png")
    return made.parse_args(arguments)


def compared(
    chosen: Sequence[Case], arch: Arch, options: argparse.Namespace, old: report.Rows
) -> Iterator[dict[str, Any]]:
    """Yield one row for each workload: our figures, every peer's, and what is not good enough.

    Figures of peers that are not compiled anew are those of `old` rows.
    """
    cache = Cache(options.cache)
    before = {row["workload"]: row for row in old if row["arch"] == arch.name}
    programs, refused = _programs(chosen, arch, options)
    for case in chosen:
        reasons: dict[str, str] = {}
        mine = None
        if case.name in programs:
            build_ours = ours.compiled(programs[case.name], case.workload, arch, cache)
            found = _figures([build_ours], case, arch, cache)
            mine, reasons = next(iter(found[0]), None), ({"ours": found[1][0]} if found[1] else {})
        else:
            reasons["ours"] = refused.get(case.name, "not tuned")
        peers: dict[str, list[dict[str, Any]]] = {}
        dropped: dict[str, list[str]] = {}
        for name in PEERS:
            if name in options.peers:
                peers[name], dropped[name], reason = _peer(name, case, arch, cache)
            else:
                known = before.get(case.name, {})
                peers[name], dropped[name] = (known.get(part, {}).get(name, []) for part in ("peers", "dropped"))
                reason = known.get("refused", {}).get(name, "")
            reasons |= {name: reason} if reason else {}
        failing = failures(mine, peers, case.name, arch.name, case.rows)
        row = {"arch": arch.name, "part": arch.part, "workload": case.name, "ours": mine, "peers": peers}
        yield row | {"rows": case.rows, "refused": reasons, "dropped": dropped, "failures": failing}


def _programs(
    chosen: Sequence[Case], arch: Arch, options: argparse.Namespace
) -> tuple[dict[str, Program], dict[str, str]]:
    """Return our Programs by workload, stored or tuned now, and why the others have none."""
    rows = [case.row for case in chosen]
    db = options.db or PRETUNED / f"{arch.name}.db"
    found = ours.stored(rows, arch, db) if db.is_file() and not options.tune else {}
    rest = [row for row in rows if row.name not in found]
    if not rest:
        return found, {}
    print(f"tuning {len(rest)} workloads for {arch.name}", file=sys.stderr)
    kept = options.cache / f"{arch.name}-{ours.sources_digest()}.db"
    programs, refused = ours.tuned(rest, arch, kept, options.jobs)
    return found | programs, refused


def _peer(name: str, case: Case, arch: Arch, cache: Cache) -> tuple[list[dict[str, Any]], list[str], str]:
    """Return the figures of a peer's kernels, what became of its other configurations, and why it has none."""
    peer = PEERS[name]
    if reason := case.refusal(arch) or peer.missing():
        return [], [], reason
    if name == "cutlass" and (reason := cutlass_peer.refusal(case)):
        return [], [], reason
    lines, dropped = _figures(list(peer.builds(case, arch, cache)), case, arch, cache)
    return lines, dropped, "" if lines else (dropped or ["no configuration"])[0]


def _figures(builds: Sequence[Build], case: Case, arch: Arch, cache: Cache) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the figures of kernels, and why some have none."""
    lines = []
    dropped = [f"{each.configuration}: {each.refused}" for each in builds if each.refused]
    compiled = [each for each in builds if not each.refused]
    for each, code in zip(compiled, cache.codes(compiled), strict=True):
        told = json.loads(cache.text(_key(each, case, arch), partial(_told, each, code, case, arch)))
        if "error" in told:
            dropped.append(f"{each.configuration}: {told['error']}")
        else:
            lines.append(told)
    return lines, dropped


def _told(each: Build, code: tuple[Instruction, ...] | None, case: Case, arch: Arch) -> str:
    try:
        return json.dumps(figures(each, code, arch, case.depth, case.stream).to_dict())
    except ValueError as error:
        return json.dumps({"error": str(error)})


def _key(each: Build, case: Case, arch: Arch) -> str:
    return "\0".join(["line", each.to_json(), repr(arch), str(case.depth), str(case.stream), _FIGURES])


def _versions() -> dict[str, str]:
    found = {"ours": toolchain()}
    return found | {name: peer.version() for name, peer in PEERS.items() if not peer.missing()}


if __name__ == "__main__":
    raise SystemExit(main())
