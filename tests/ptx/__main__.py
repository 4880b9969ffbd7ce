"""Execute the PTX of stored kernels at the verifier's cases; compare with float64 and with the emulator's bits.

    python -m tests.ptx [--small | --planted] [--arch sm_87] [--family rows] [--since FOLDER] [--share 1/2] [--most 20]
        [--json FILE] [--table FILE]

Kernels that FILE of --json names already are not executed again, so that a run can be stopped and continued. Exit code
1 where a result is wrong, a rule of the ISA is broken, or PTX is not understood. Elements, and of them equal ones, are
counted by the causes of different bits (causes.py); --unfused, --plain and --truncated replace one or more, and have
separate lines in FILE.
"""

import argparse
import json
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any
from zlib import crc32

from gensor_kernels.build.nvrtc import toolchain
from tests.campaign_size import SEED
from tests.ptx.agreement import NOTHING, Replaced, agree, dtype_of, launch_form
from tests.ptx.planted import BUGS, CAUGHT, with_bug
from tests.ptx.planted_order import ORDER_BUGS
from tests.ptx.stored import Item, small, spread, stored

#: outcomes that are no finding
FINE = ("ok", "not executed")


def main() -> int:
    """Execute, print a line for each kernel and the table; 1 where something is not fine."""
    parser = argparse.ArgumentParser(prog="python -m tests.ptx", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--small", action="store_true", help="the mutator's small Programs in place of stored kernels")
    parser.add_argument("--arch", default="", help="only kernels for this arch")
    parser.add_argument("--family", default="", help="only families whose names contain this text")
    parser.add_argument("--since", type=Path, help="only stored kernels that the databases in this folder do not have")
    parser.add_argument("--share", default="1/1", help="2/3: the second third, so that processes share the work")
    parser.add_argument("--most", type=int, default=sys.maxsize, help="how many kernels at most")
    parser.add_argument("--unfused", action="store_true", help="leave products and sums apart that compilers fuse")
    parser.add_argument("--plain", action="store_true", help="take functions out of both sources; results are wrong")
    parser.add_argument("--truncated", action="store_true", help="cut sums of tensor cores as the emulator does")
    parser.add_argument("--alone", action="store_true", help="compare with float64, not with the emulator's bits")
    parser.add_argument("--planted", action="store_true", help="plant all bugs; 1 where one survives")
    parser.add_argument("--json", default="", help="file for a line per kernel; what it has is not executed again")
    parser.add_argument("--table", default="", help="file for the table of all lines")
    options = parser.parse_args()
    if options.planted:
        return plant()
    lines = _read(options.json)
    replaced = Replaced(options.unfused, options.plain, options.truncated)
    done = {(each["arch"], each["name"]) for each in lines if each["replaced"] == replaced.name}
    chosen = options.arch, options.family
    before = {(each.arch, each.name) for each in stored(*chosen, options.since)} if options.since else set()
    found = (small if options.small else stored)(*chosen)
    items = spread([each for each in found if (each.arch, each.name) not in before], SEED)
    part, parts = map(int, options.share.split("/"))
    mine = [each for each in items if crc32(each.name.encode()) % parts == part - 1]
    for item in [each for each in mine if (each.arch, each.name) not in done][: options.most]:
        line = execute(item, replaced, emulated=not options.alone)
        lines.append(line)
        print(_describe(line), flush=True)
        if options.json:
            with open(options.json, "a") as out:
                out.write(json.dumps(line, sort_keys=True) + "\n")
    made = table(lines)
    print(json.dumps(made, indent=1))
    if options.table:
        Path(options.table).write_text(json.dumps(made, indent=1) + "\n")
    return int(any(each["outcome"] not in FINE for each in lines))


def _read(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()] if path and Path(path).is_file() else []


def plant() -> int:
    """Plant every bug and print what became of it; 1 where one survives."""
    survivors = 0
    for bug in (*BUGS, *ORDER_BUGS):
        found = with_bug(bug)
        survivors += found.outcome not in CAUGHT
        print(f"{'caught' if found.outcome in CAUGHT else 'SURVIVES'}: {bug.name}: {found.outcome}", flush=True)
    planted = len(BUGS) + len(ORDER_BUGS)
    print(f"{planted - survivors} of {planted} caught")
    return int(survivors > 0)


def execute(item: Item, replaced: Replaced = NOTHING, *, emulated: bool = True) -> dict[str, Any]:
    """Return the line of one kernel."""
    began = time.perf_counter()
    found = agree(item.candidate, item.workload, item.target, source=item.source, emulated=emulated, replaced=replaced)
    line = {"name": item.name, "arch": item.arch, "target": item.target, "family": item.candidate.family.name}
    line |= {
        "replaced": replaced.name,
        "dtype": dtype_of(item.workload),
        "form": launch_form(item.candidate, item.workload),
    }
    return line | json.loads(found.to_json()) | {"seconds": round(time.perf_counter() - began, 1)}


def _describe(line: dict[str, Any]) -> str:
    shown = f"{line['family']} {line['arch']} {line['dtype']}, {line['form']}: {line['outcome']} {line['detail'][:200]}"
    return f"{shown} cases {line['cases']} worst {line['worst']:.3f} bits {line['equal']}/{line['elements']}"


def table(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Return totals, the rows by family, dtype and form of launch, and what was not executed, with the reasons.

    Lines with something replaced have separate totals.
    """
    every, lines = lines, [line for line in lines if not line["replaced"]]
    others = sorted({line["replaced"] for line in every} - {""})
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        groups[line["family"], line["dtype"], line["form"]].append(line)
    executed = [line for line in lines if line["outcome"] != "not executed"]
    rows = [{"family": f, "dtype": d, "form": form} | _sums(group) for (f, d, form), group in sorted(groups.items())]
    reasons = sorted({(line["family"], line["detail"]) for line in lines if line["outcome"] == "not executed"})
    return {
        "toolchain": toolchain(),
        "total": _sums(lines),
        "opcodes": sorted({opcode for line in executed for opcode in line["opcodes"]}),
        "not_executed": [{"family": family, "instruction": detail} for family, detail in reasons],
        "findings": [_describe(line) for line in lines if line["outcome"] not in FINE],
        "replaced": {name: _sums([line for line in every if line["replaced"] == name]) for name in others},
        "rows": rows,
    }


def _sums(group: list[dict[str, Any]]) -> dict[str, Any]:
    sums = {name: sum(line[name] for line in group) for name in ("cases", "runs", "elements", "equal")}
    kernels = {"kernels": len(group), "right": sum(line["outcome"] == "ok" for line in group)}
    kernels["not_executed"] = sum(line["outcome"] == "not executed" for line in group)
    causes: dict[str, list[int]] = {}
    for name, counts in sorted((name, counts) for line in group for name, counts in line["causes"].items()):
        causes[name] = [sum(each) for each in zip(causes.get(name, (0, 0)), counts, strict=True)]
    return (
        kernels
        | sums
        | {"causes": causes}
        | {"worst": round(max(line["worst"] for line in group), 3) if group else 0.0}
    )


if __name__ == "__main__":
    sys.exit(main())
