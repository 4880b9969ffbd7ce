"""Stored Programs and the text each of them has: its bound constants and its launches.

`python -m tests.build.golden NAME ...` prints the text of cases of tests/golden/cases.jsonl. The Programs are written
out there, independent of any potential or walk.
"""

import json
import sys
from pathlib import Path
from typing import Any

from gensor_kernels.families.core.source import bind
from gensor_kernels.families.registry import FAMILIES, program_from_json
from gensor_kernels.operators.types.workload import Workload

FOLDER = Path(__file__).resolve().parents[1] / "golden"
CASES: dict[str, dict[str, Any]] = {
    case["name"]: case for case in map(json.loads, (FOLDER / "cases.jsonl").read_text().splitlines())
}


def text(case: dict[str, Any]) -> str:
    workload = Workload.from_json(json.dumps(case["workload"]))
    program = program_from_json(case["program"])
    family = FAMILIES[program.family]
    bound = bind(family.text, family.constants(program, workload))
    prelude = [line for line in bound.split("#line", 1)[0].splitlines() if line]
    launches = [f"// {each}" for launch in family.launches(program, workload) for each in (launch, *launch.maps)]
    notes = [f"// workspace {family.workspace(program, workload)}", f"// tile {sorted(family.tile(program).items())}"]
    return "\n".join([*launches, *notes, *prelude]) + "\n"


if __name__ == "__main__":
    for each in sys.argv[1:]:
        sys.stdout.write(text(CASES[each]))
