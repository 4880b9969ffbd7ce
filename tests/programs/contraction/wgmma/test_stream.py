"""Stream-K on warpgroups: the same bits in every order, every tile once, what it needs, and where it gains."""

from itertools import product

import pytest

from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.devices.emulator import build
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products.matmul import workload as matmul
from gensor_kernels.operators.windows import conv
from gensor_kernels.programs.core.cases import Case
from gensor_kernels.programs.space import FamilySpace
from gensor_tuner.build.pool import Candidate, candidate
from gensor_tuner.verify.problem import Failure, Problem
from tests.programs.contraction.test_stream_k import HALF, every_tile_once, same_bits
from tests.programs.lattices import ALIGNED, WGMMA

ARCH = lookup("sm_90")
TILE = {
    "block_m": 64, "block_n": 64, "block_k": 64, "cluster": 0, "persistent": 1, "stages": 2, "consumers": 1,
    "split_k": 1, "raster": 2, "epilogue_staged": 3, "epilogue_fixed": 1, "vector_c": 16, "min_blocks": 1,
}  # fmt: skip


def streamed(blocks: int = 8, **values: int) -> Candidate:
    return candidate(WGMMA, WGMMA.starters(HALF, ARCH)[0].replace(**TILE | {"stream": blocks} | values), HALF)


def test_every_order_gives_the_same_bits():
    same_bits(streamed(), product(("forward", "reverse", 1, 2), ("late", "early")), m=136, n=72, k=584)


@pytest.mark.parametrize("blocks", [1, 3, 5])
def test_any_number_of_blocks_computes_every_tile_once(blocks):
    sizes = [(320, 64, 128, 1), (64, 64, 200, 1), (64, 64, 40, 1), (72, 72, 136, 2), (64, 72, 0, 1)]
    every_tile_once(streamed(blocks), blocks, sizes)


@pytest.mark.parametrize(
    "before",
    ["StreamSums::store(params, sum);\n        warp_barrier();", "stream_mark(params));\n        warp_barrier();"],
)
def test_sums_of_a_warp_are_ordered_by_its_barriers(before):
    source = streamed().source()
    assert source.count(before) == 1
    broken = build(source.replace(before, before.replace("warp_barrier();", "")))
    with pytest.raises(Failure, match=r"race|uninitialised"):
        for order in ("forward", "reverse"):
            problem = Problem(Case("any", HALF.with_sizes(m=136, n=72, k=584)), 7)
            problem.run(streamed(), broken, copies="late", order=order)


def test_what_a_stream_needs():
    [launch] = WGMMA.launches(streamed(264, min_blocks=2).program, HALF)
    assert launch.together and [launch.blocks(sms) for sms in (2, 132)] == [4, 264]
    # 16 bytes, the sums of 256 threads, and a flag for each of their warps
    assert WGMMA.workspace(streamed(8).program, HALF) == (8 * (16 + 2 * 64 * 64 * 4 + 8 * 8), False)
    space = FamilySpace(WGMMA, HALF, ARCH)
    for values, legal in (
        ({}, True),
        ({"persistent": 0}, False),
        ({"persistent": 2, "consumers": 2}, False),
        ({"cluster": 1}, False),
        ({"split_k": 2, "epilogue_staged": 1}, False),
        ({"stream": 264}, False),
    ):
        assert space.legal(space.point(streamed(**values).program)[None])[0] == legal
    image = conv.workload(n=8, h=28, w=28, c=128, k_out=128, r=3, s=3, dtype="float16")
    odd = matmul(512, 512, 588, trans_b=True)
    for family, workload in ((WGMMA, image), (ALIGNED, odd)):
        assert "stream" not in {c.name for c in family.coordinates(workload, ARCH)}


def test_a_stream_does_not_spill():
    workload = matmul(4096, 4096, 4096, trans_b=True)
    program = WGMMA.starters(workload, ARCH)[0].replace(
        **TILE | {"block_m": 256, "block_n": 128, "consumers": 2, "stages": 3, "stream": 132}
    )
    binary = compile_cubin(candidate(WGMMA, program, workload).source(), "sm_90a")
    assert binary.error is None and binary.spill_bytes == 0, binary.log
    assert "Potential Performance Loss" not in binary.log and "setmaxnreg" not in binary.log, binary.log
