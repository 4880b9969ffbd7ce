"""Golden sources: the code of a stored Program must not change by accident.

tests/golden/cases.jsonl has Programs, independent of any potential or walk, and the digest of each one's text, which
`python -m tests.build.test_golden NAME ...` prints; sources.txt has the digests of the families' sources.
`--update-golden` rewrites both.
"""

import hashlib
import json
import sys
from pathlib import Path

import pytest

from gensor_kernels.families.core.source import bind, digest
from gensor_kernels.families.registry import FAMILIES, program_from_json
from gensor_kernels.operators.types.workload import Workload

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "golden"
CASES = {case["name"]: case for case in map(json.loads, (FOLDER / "cases.jsonl").read_text().splitlines())}
#: Shows what changed: the text that the last commit generates against the one of the working tree.
SHOW = """\
if it should have changed, run pytest --update-golden; to see the difference, run
git worktree add --detach build/golden/head HEAD
(cd build/golden/head && python -m tests.build.test_golden {name}) | diff - {path}
git worktree remove --force build/golden/head"""


def text(case):
    workload = Workload.from_json(json.dumps(case["workload"]))
    program = program_from_json(case["program"])
    family = FAMILIES[program.family]
    bound = bind(family.text, family.constants(program, workload))
    prelude = [line for line in bound.split("#line", 1)[0].splitlines() if line]
    launches = [f"// {each}" for launch in family.launches(program, workload) for each in (launch, *launch.maps)]
    notes = [f"// workspace {family.workspace(program, workload)}", f"// tile {sorted(family.tile(program).items())}"]
    return "\n".join([*launches, *notes, *prelude]) + "\n"


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_program_binds_the_same_source_and_launches(name, request):
    found = text(CASES[name])
    changed = hashlib.sha256(found.encode()).hexdigest()
    if request.config.getoption("--update-golden"):
        CASES[name]["digest"] = changed
        lines = (json.dumps(case, separators=(",", ":")) for case in CASES.values())
        (FOLDER / "cases.jsonl").write_text("\n".join(lines) + "\n")
    if changed != CASES[name]["digest"]:
        path = ROOT / "build" / "golden" / f"{name}.cuh"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(found)
        pytest.fail(f"{name} changed: {SHOW.format(name=name, path=path.relative_to(ROOT))}")


def test_sources_are_the_pinned_ones(request):
    lines = [f"{name} abi {family.abi} {digest(family.code)}" for name, family in sorted(FAMILIES.items())]
    path = FOLDER / "sources.txt"
    if request.config.getoption("--update-golden"):
        path.write_text("\n".join(lines) + "\n")
    assert path.read_text().splitlines() == lines


def test_every_family_and_generation_has_a_case():
    families = {case["program"]["family"] for case in CASES.values()}
    assert families == set(FAMILIES)
    assert {case["program"].get("copy") for case in CASES.values()} >= {0, 1}
    assert any(case["program"].get("split_k", 1) > 1 for case in CASES.values())
    assert any(case["workload"]["epilogue"] for case in CASES.values())


if __name__ == "__main__":
    for each in sys.argv[1:]:
        sys.stdout.write(text(CASES[each]))
