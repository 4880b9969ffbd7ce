"""Stream-K on warps and warpgroups: the same bits in every order, every tile once at any number of blocks, never more
blocks than fit, and what the potential says of it."""

from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest

from gensor_kernels.build import nvrtc
from gensor_kernels.devices.emulator import build
from gensor_kernels.families.core.cases import Case
from gensor_kernels.families.space import FamilySpace
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products.matmul import workload as matmul
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.operators.windows import conv
from gensor_tuner.build.pool import Candidate, candidate
from gensor_tuner.verify.problem import Problem
from tests.families.lattices import ALIGNED, MMA, WGMMA

HALF = matmul(256, 256, 256, trans_b=True)
WARPS = {
    "block_m": 32, "block_n": 32, "block_k": 32, "warp_m": 16, "warp_n": 16, "stages": 3, "copy": 1, "swizzle": 1,
    "split_k": 1, "raster": 2, "epilogue_staged": 1, "epilogue_fixed": 0, "min_blocks": 1, "instruction": 0,
}  # fmt: skip
GROUPS = {
    "block_m": 64, "block_n": 64, "block_k": 64, "cluster": 0, "persistent": 1, "stages": 2, "consumers": 1,
    "split_k": 1, "raster": 2, "epilogue_staged": 3, "epilogue_fixed": 1, "vector_c": 16, "min_blocks": 1,
}  # fmt: skip
#: Family -> arch, and values of a small Program.
SMALL = {MMA: ("sm_87", WARPS), WGMMA: ("sm_90", GROUPS)}
both = pytest.mark.parametrize("family", SMALL, ids=lambda family: family.name)


def streamed(family: Any, blocks: int = 8, workload: Workload = HALF, arch: str = "", **values: int) -> Candidate:
    own, small = SMALL[family]
    program = family.starters(workload, lookup(arch or own))[0].replace(**small | {"stream": blocks} | values)
    return candidate(family, program, workload)


def is_legal(each: Candidate, workload: Workload = HALF, arch: str = "") -> bool:
    space = FamilySpace(each.family, workload, lookup(arch or SMALL[each.family][0]))
    return bool(space.legal(space.point(each.program)[None])[0])


def run(
    each: Candidate, order: str | int, copies: str, problem: Workload = HALF, **sizes: int
) -> tuple[bytes, dict[str, int]]:
    """C of one run, after it was compared with the reference, and the branches that were taken."""
    call = Problem(Case("any", problem.with_sizes(**sizes)), 7)
    counters = call.run(each, build(each.source()), copies=copies, order=order)
    assert call.check() <= 1
    return call.out.view().tobytes(), counters.branches


def same_bits(each: Candidate, schedules: Iterable[tuple[str | int, str]], **sizes: Any) -> None:
    """Assert that blocks share tiles, and that every order of events gives the same C."""
    found = set()
    for order, copies in schedules:
        bits, branches = run(each, order, copies, **sizes)
        assert branches["stream_join"] and branches["stream_leave"]
        found.add(bits)
    assert len(found) == 1


@both
def test_every_order_gives_the_same_bits(family):
    sizes = {"m": 72, "n": 40, "k": 304} if family is MMA else {"m": 136, "n": 72, "k": 584}
    orders = ("forward", "reverse", 1, 2, *((3, 4) if family is MMA else ()))
    same_bits(streamed(family), product(orders, ("late", "early")), **sizes)


#: (m, n, k, batch): whole waves and a rest; fewer tiles than blocks; one step, and none; batches.
SIZES = {
    MMA: [(160, 64, 64, 1), (32, 32, 96, 1), (32, 32, 40, 1), (40, 40, 96, 3), (64, 64, 0, 1)],
    WGMMA: [(320, 64, 128, 1), (64, 64, 200, 1), (64, 64, 40, 1), (72, 72, 136, 2), (64, 72, 0, 1)],
}


@both
def test_any_number_of_blocks_computes_every_tile_once(family):
    for blocks in (1, 2, 3, 4, 5) if family is MMA else (1, 3, 5):
        for m, n, k, batch in SIZES[family]:
            run(streamed(family, blocks), blocks, "late", m=m, n=n, k=k, batch=batch)


@pytest.mark.parametrize(
    ("arch", "dtype", "math"),
    [
        ("sm_80", "float64", "ieee"),
        ("sm_90", "float64", "ieee"),
        ("sm_80", "complex128", "ieee"),
        ("sm_90", "complex128", "3m"),
    ],
)
def test_doubles_are_streamed_too(arch, dtype, math):
    """A block keeps twice as many words of doubles, four times as many of complex numbers."""
    problem = matmul(256, 256, 256, dtype=dtype, math=math)
    each = streamed(MMA, 8, problem, arch, block_k=16, stages=2, instruction=8)
    assert is_legal(each, problem, arch)
    schedules = (("forward", "late"), ("reverse", "early"), (3, "late"))
    same_bits(each, schedules, problem=problem, m=72, n=40, k=100)
    does_not_spill(each, arch)


def does_not_spill(each: Candidate, arch: str) -> None:
    binary = nvrtc.compile_cubin(each.source(), lookup(arch).target)
    assert binary.error is None and binary.spill_bytes == binary.stack_bytes == 0, binary.log
    assert "Potential Performance Loss" not in binary.log and "setmaxnreg" not in binary.log, binary.log


@pytest.mark.parametrize(("family", "stream"), [(MMA, 16), (WGMMA, 264)])
def test_no_more_blocks_are_launched_than_run_at_once(family, stream):
    """Properties of the device are read when the kernel is loaded: a slice of one has fewer multiprocessors."""
    [launch] = family.launches(streamed(family, stream, min_blocks=2).program, HALF)
    blocks = [min(2 * sms, stream) for sms in (1, 2, 8, 108, 132)]
    assert launch.together and [launch.blocks(sms) for sms in (1, 2, 8, 108, 132)] == blocks


LEGAL = [
    (MMA, {"stream": 16, "min_blocks": 0}, False),
    (MMA, {"stream": 16, "min_blocks": 1}, False),
    (MMA, {"stream": 16, "min_blocks": 2}, True),
    (WGMMA, {}, True),
    (WGMMA, {"persistent": 0}, False),
    (WGMMA, {"persistent": 2, "consumers": 2}, False),
    (WGMMA, {"cluster": 1}, False),
    (WGMMA, {"split_k": 2, "epilogue_staged": 1}, False),
    (WGMMA, {"stream": 264}, False),
]


def test_what_a_stream_needs():
    for family, values, legal in LEGAL:
        assert is_legal(streamed(family, **values)) == legal, values
    image = conv.workload(n=8, h=28, w=28, c=128, k_out=128, r=3, s=3, dtype="float16")
    for family, workload in ((WGMMA, image), (ALIGNED, matmul(512, 512, 588, trans_b=True))):
        assert "stream" not in {c.name for c in family.coordinates(workload, lookup("sm_90"))}


def test_the_potential_gains_where_a_wave_is_partial_and_not_where_waves_are_whole():
    arch = lookup("sm_80")
    values = {"block_m": 128, "block_n": 128, "block_k": 32, "warp_m": 64, "warp_n": 64, "split_k": 1, "min_blocks": 1}

    def seconds(m: int, n: int, stream: int) -> float:
        workload = matmul(m, n, 8064)
        program = MMA.starters(workload, arch)[0].replace(**values, stream=stream)
        space = FamilySpace(MMA, workload, arch)
        return float(space.potential(space.point(program)[None])[0])

    assert seconds(2688, 2688, 108) < 0.9 * seconds(2688, 2688, 0)  # 441 tiles: four waves of 108, and nine tiles
    assert seconds(128 * 12, 128 * 18, 108) > 0.98 * seconds(128 * 12, 128 * 18, 0)  # 216 tiles


#: Tiles of 128 x 128 by four warps, two blocks per multiprocessor: only a few registers are left for the stream.
LARGE = {"block_m": 128, "block_n": 128, "warp_m": 64, "warp_n": 64, "stages": 2, "raster": 1, "min_blocks": 2}
HOPPERS = {"block_m": 256, "block_n": 128, "consumers": 2, "stages": 3}
FULL_REGISTERS = [
    (MMA, 216, {"dtype": "float32", "math": "tf32"}, LARGE | {"block_k": 32, "instruction": 2}),
    (MMA, 216, {"dtype": "int8", "out": "int8"}, LARGE | {"block_k": 128, "instruction": 3}),
    (MMA, 216, {}, LARGE | {"block_k": 64, "epilogue_fixed": 1}),
    (WGMMA, 132, {}, HOPPERS),
]


@pytest.mark.parametrize(("family", "blocks", "kind", "values"), FULL_REGISTERS)
def test_streams_of_full_registers_do_not_spill(family, blocks, kind, values):
    arch = "sm_80" if family is MMA else "sm_90"
    does_not_spill(streamed(family, blocks, matmul(1536, 4096, 4096, trans_b=True, **kind), arch, **values), arch)
