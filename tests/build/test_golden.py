"""Golden sources: the code of a stored Program must not change by accident.

The Programs are written out in tests/golden/programs.json, so that nothing here depends on a potential or on a walk.
Each golden file holds the constants in front of the source and the launches; the sources themselves are pinned by their
digests, whose change shows beside the diff of the .cu files.
"""

import json
from pathlib import Path

import pytest

from gensor_kernels.build.source import bind, digest, flatten
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.programs.registry import FAMILIES, program_from_json

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
CASES = json.loads((GOLDEN / "programs.json").read_text())


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_program_binds_the_same_source_and_launches(name, golden):
    workload = Workload.from_json(json.dumps(CASES[name]["workload"]))
    program = program_from_json(json.dumps(CASES[name]["program"]))
    family = FAMILIES[program.family]
    bound = bind(flatten(family.source), family.constants(program, workload))
    prelude = [line for line in bound.split("#line", 1)[0].splitlines() if line]
    launches = [f"// {each}" for launch in family.launches(program, workload) for each in (launch, *launch.maps)]
    notes = [f"// workspace {family.workspace(program, workload)}", f"// tile {sorted(family.tile(program).items())}"]
    golden(f"{name}.cuh", "\n".join([*launches, *notes, *prelude]) + "\n")


def test_sources_are_the_pinned_ones(golden):
    lines = [f"{name} abi {family.abi} {digest(flatten(family.source))}" for name, family in sorted(FAMILIES.items())]
    golden("sources.txt", "\n".join(lines) + "\n")


def test_every_family_and_generation_has_a_case():
    families = {case["program"]["family"] for case in CASES.values()}
    assert families == set(FAMILIES)
    assert {case["program"].get("copy") for case in CASES.values()} >= {0, 1}
    assert any(case["program"].get("split_k", 1) > 1 for case in CASES.values())
    assert any(case["workload"]["epilogue"] for case in CASES.values())
