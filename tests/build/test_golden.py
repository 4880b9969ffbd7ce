"""Golden sources: the code of a stored Program must not change by accident.

tests/golden/cases.jsonl has the digest of each case's text (golden.py), sources.txt those of the families' sources,
whose change shows next to the diff of the .cu files. `--update-golden` rewrites both.
"""

import hashlib
import json

import pytest

from gensor_kernels.families.core.source import digest
from gensor_kernels.families.registry import FAMILIES

from .golden import CASES, FOLDER, text

ROOT = FOLDER.parents[1]
#: Shows what changed: the text that the last commit generates against the one of the working tree.
SHOW = """\
if it should have changed, run pytest --update-golden; to see the difference, run
git worktree add --detach build/golden/head HEAD
(cd build/golden/head && python -m tests.build.golden {name}) | diff - {path}
git worktree remove --force build/golden/head"""


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
