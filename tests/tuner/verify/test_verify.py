"""The verifier: right kernels pass every case, and each kind of wrong one is told by its outcome."""

import json

import pytest

from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul
from gensor_kernels.programs.contraction.cases import granularity
from gensor_kernels.programs.core.cases import generic_epilogue
from gensor_kernels.programs.registry import FAMILIES
from gensor_kernels.programs.space import Space
from gensor_tuner.build.pool import Candidate, candidate
from gensor_tuner.verify.verify import verify


def smallest(family: str, workload, arch="sm_87", **values) -> Candidate:
    """A small legal Program of a family: the smallest starter, with some coordinates changed."""
    space = Space(workload, lookup(arch)).family(family)
    starters = FAMILIES[family].starters(workload, lookup(arch))
    program = min(starters, key=lambda each: each["block_m"] * each["block_n"]).replace(**values)
    assert space.legal(space.point(program)[None])[0], program
    return candidate(FAMILIES[family], program, workload)


HALF = matmul.workload(256, 256, 4096, dtype="float16")
FLOAT = matmul.workload(256, 256, 4096, dtype="float32")


@pytest.mark.parametrize(("family", "workload"), [("contraction_mma", HALF), ("contraction_simt", FLOAT)])
def test_cases_meet_the_definition_of_verified(family, workload):
    for split in (1, 4):
        each = smallest(family, workload, split_k=split)
        tile = each.family.tile(each.program)
        found = [each.workload.size for each in each.family.cases(each.program, workload, generic_epilogue(workload))]
        main = found[0]
        assert main["m"] >= 2 * tile["m"] + 1 and main["m"] % tile["m"]
        assert main["n"] >= 2 * tile["n"] + 1 and main["n"] % tile["n"]
        iterations = -(-main["k"] // tile["k"])
        per_split = -(-iterations // split)
        last = iterations - per_split * (split - 1)
        assert main["k"] % tile["k"] and last > tile["stages"] + 2
        assert (per_split != last) == (split > 1)
        assert {case["k"] for case in found} >= {0, main["k"]} and max(case["batch"] for case in found) > 1
        step = granularity(workload)
        assert all(case["n"] % step["n"] == 0 and case["k"] % step["k"] == 0 for case in found)


@pytest.mark.parametrize(
    ("family", "workload", "arch"),
    [
        ("contraction_mma", HALF, "sm_87"),
        ("contraction_mma", HALF, "sm_75"),
        ("contraction_mma", matmul.workload(64, 64, 64, dtype="int8", trans_b=True), "sm_80"),
        ("contraction_simt", FLOAT, "sm_87"),
        ("contraction_simt", matmul.workload(63, 61, 59, dtype="float64", trans_a=True), "sm_90"),
    ],
)
def test_right_kernels_pass_with_every_branch_taken(family, workload, arch):
    each = smallest(family, workload, arch)
    verdict = verify(each, workload)
    assert verdict.outcome == "ok", verdict.detail
    assert 0 < verdict.worst <= 1 or workload.accumulator == "int32"
    assert all(verdict.branches[name] for name in each.family.branches(each.program, workload))
    assert verdict.runs >= 7


@pytest.mark.parametrize("out", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("epilogue", [("bias",), ("relu", "add"), ("mul", "relu")])
def test_integer_sums_take_operands_of_a_float_result(out, epilogue):
    """The steps in front of the first float operand are exact."""
    workload = matmul.workload(64, 64, 64, dtype="int8", out=out, epilogue=epilogue)
    for family in ("contraction_simt", "contraction_mma"):
        assert verify(smallest(family, workload, epilogue_fixed=1), workload).outcome == "ok"


BUGS = {
    "a wait that is too short": ("copy_async_wait<STAGES - 2>", "copy_async_wait<STAGES - 1>", "contraction_mma"),
    "a bound that is off by one": ("within(at.row, params.m)", "within(at.row, params.m + 1)", "contraction_mma"),
    "a missing barrier": ("barrier();", ";", "contraction_simt"),
    "a k that is read beyond its end": ("within(at, k_end)", "within(at, k_end + 1)", "contraction_simt"),
    "an address that sm_75 asks of a lane without a row": ("ODD && COUNT == 1 ? 0 : bit4", "bit4", "contraction_mma"),
    "a row of the next tile": ("2 * read - (ODD && read > 0 ? 1 : 0)", "2 * read", "contraction_mma"),
}
ODD = {"an address that sm_75 asks of a lane without a row": 8, "a row of the next tile": 24}  # columns of a warp


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_caught(bug, monkeypatch):
    before, after, family = BUGS[bug]
    workload = HALF if family == "contraction_mma" else FLOAT
    odd = {"block_m": 16, "warp_m": 16, "block_n": 2 * ODD[bug], "warp_n": ODD[bug]} if bug in ODD else {}
    each = smallest(family, workload, "sm_75" if odd else "sm_87", **odd)
    source = each.source()
    if before not in source:
        pytest.fail(f"the source no longer contains {before!r}: plant the bug elsewhere")
    broken = source.replace(before, after)
    monkeypatch.setattr(Candidate, "source", lambda self: broken)
    verdict = verify(each, workload, use_cache=False)
    assert verdict.outcome in ("wrong", "failed"), verdict
    assert verdict.detail


def test_a_source_that_does_not_compile_is_a_verdict(monkeypatch):
    each = smallest("contraction_simt", FLOAT)
    monkeypatch.setattr(Candidate, "source", lambda self: "this is not C++")
    assert verify(each, FLOAT, use_cache=False).outcome == "not_compiled"


def test_verdicts_are_cached_and_a_damaged_one_is_made_again(monkeypatch, tmp_path):
    monkeypatch.setenv("GENSOR_CACHE_DIR", str(tmp_path))
    each = smallest("contraction_simt", FLOAT)
    first = verify(each, FLOAT)
    (path,) = (tmp_path / "verdicts").glob("*.json")
    assert json.loads(path.read_text())["outcome"] == "ok"
    assert verify(each, FLOAT) == first
    path.write_text('{"outcome": "ok"')
    assert verify(each, FLOAT).outcome == "ok"
