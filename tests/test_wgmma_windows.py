"""Convolutions by contraction_wgmma: right under every order of events, split and shared out tap by tap."""

import pytest

from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators import conv, matmul
from gensor_kernels.programs.space import FamilySpace
from gensor_tuner.pool import candidate
from gensor_tuner.verify import verify

from .lattices import WGMMA

SIZES = {"n": 8, "h": 28, "w": 28, "c": 128, "k_out": 128, "r": 3, "s": 3}
PLAIN = {"block_m": 64, "block_n": 64, "block_k": 64, "persistent": 0, "stages": 2, "consumers": 1, "split_k": 1}
ENDS = {"raster": 1, "epilogue_staged": 1, "epilogue_fixed": 1, "vector_c": 16, "min_blocks": 1}


def made(workload, **values):
    program = WGMMA.starters(workload, lookup("sm_90"))[0].replace(**PLAIN | ENDS | values)
    return candidate(WGMMA, program, workload)


@pytest.mark.parametrize(
    ("workload", "values"),
    [
        (conv.workload(**SIZES, dtype="bfloat16", weights="rsck"), {"split_k": 2}),
        (conv.workload(**SIZES, dtype="int8"), {"block_k": 128, "persistent": 2, "consumers": 2}),
    ],
    ids=["filters last, split", "in turns"],
)
def test_convolutions_match_float64(workload, values):
    verdict = verify(made(workload, **values), workload, use_cache=False)
    assert verdict.outcome == "ok", verdict.detail


def test_a_tap_has_whole_steps():
    workload = conv.workload(**SIZES | {"c": 72}, dtype="float16")
    space = FamilySpace(WGMMA, workload, lookup("sm_90"))

    def told(**values):
        return space.explain(space.point(made(workload, **values).program))

    assert told()["iterations"] == 9 * 2 and told(split_k=4)["iterations"] == 5
    # Behind the 72nd channel of a tap there is nothing to move.
    product = matmul.workload(8 * 26 * 26, 128, 9 * 72, trans_b=True)
    whole = FamilySpace(WGMMA, product, lookup("sm_90"))
    moved = whole.explain(whole.point(made(product).program))
    assert moved["iterations"] == 11
    assert told()["l2_bytes"] * 18 == pytest.approx(moved["l2_bytes"] * 9 * 72 / 64, rel=0.01)


def test_cases_have_one_group_and_taps_of_several_steps():
    workload = conv.workload(**SIZES, dtype="float16")
    made_of = made(workload)
    cases = WGMMA.cases(made_of.program, workload, ())
    assert {case.workload.size["groups"] for case in cases} == {1}
    assert all(WGMMA.serves(case.workload, lookup("sm_90")) is None for case in cases)
    assert {case.workload.size["c"] for case in cases} >= {0, 128, 72}
