"""Stream-K: the same bits in every order, every tile once at any number of blocks, never more blocks than fit, and
what the potential says of it."""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import pytest

from gensor_kernels.build import nvrtc
from gensor_kernels.devices.emulator import build
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products.matmul import workload as matmul
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.programs.contraction import stream_k
from gensor_kernels.programs.core.cases import Case
from gensor_kernels.programs.registry import FAMILIES
from gensor_kernels.programs.space import FamilySpace
from gensor_tuner.build.pool import Candidate, candidate
from gensor_tuner.verify.problem import Problem

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


def every_tile_once(each: Candidate, blocks: int, sizes: Sequence[tuple[int, int, int, int]]) -> None:
    """Run calls of (m, n, k, batch): whole waves and a rest; fewer tiles than blocks; one step, and none; batches."""
    for m, n, k, batch in sizes:
        run(each, blocks, "late", m=m, n=n, k=k, batch=batch)


def test_every_order_gives_the_same_bits():
    same_bits(streamed(), product(("forward", "reverse", 1, 2, 3, 4), ("late", "early")), m=72, n=40, k=304)


@pytest.mark.parametrize("blocks", [1, 2, 3, 4, 5])
def test_any_number_of_blocks_computes_every_tile_once(blocks):
    sizes = [(160, 64, 64, 1), (32, 32, 96, 1), (32, 32, 40, 1), (40, 40, 96, 3), (64, 64, 0, 1)]
    every_tile_once(streamed(blocks), blocks, sizes)


@pytest.mark.parametrize(
    ("arch_name", "dtype", "math"),
    [
        ("sm_80", "float64", "ieee"), ("sm_90", "float64", "ieee"),
        ("sm_80", "complex128", "ieee"), ("sm_90", "complex128", "3m"),
    ],
)  # fmt: skip
def test_doubles_are_streamed_too(arch_name, dtype, math):
    """A block keeps twice as many words of doubles, four times as many of complex numbers."""
    arch, problem = lookup(arch_name), matmul(256, 256, 256, dtype=dtype, math=math)
    own = {"block_k": 16, "stages": 2, "instruction": 8, "stream": 8}
    each = candidate(FAMILY, FAMILY.starters(problem, arch)[0].replace(**TILE | own), problem)
    space = FamilySpace(FAMILY, problem, arch)
    assert space.legal(space.point(each.program)[None])[0]
    schedules = (("forward", "late"), ("reverse", "early"), (3, "late"))
    same_bits(each, schedules, problem=problem, m=72, n=40, k=100)
    binary = nvrtc.compile_cubin(each.source(), arch.target)
    assert binary.error is None and not binary.spill_bytes


def test_no_more_blocks_are_launched_than_run_at_once():
    """Properties of the device are read when the kernel is loaded: a slice of one has fewer multiprocessors."""
    [launch] = FAMILY.launches(streamed(16, min_blocks=2).program, HALF)
    assert launch.together and [launch.blocks(sms) for sms in (1, 2, 8, 108)] == [2, 4, 16, 16]
    space = FamilySpace(FAMILY, HALF, ARCH)
    for promised, legal in [(0, False), (1, False), (2, True)]:
        program = streamed(16, min_blocks=promised).program
        assert space.legal(space.point(program)[None])[0] == legal


def test_flags_hold_what_memory_does_not():
    """A mark is drawn by each process; workspaces need not be zero."""
    low, high = stream_k.MARK
    assert 0 <= low < 2**31 and 0 <= high < 2**31 and (low or high)
    size, zero = FAMILY.workspace(streamed(8).program, HALF)
    assert (size, zero) == (8 * (16 + 32 * 32 * 4), False)


def test_the_potential_gains_where_a_wave_is_partial_and_not_where_waves_are_whole():
    arch = lookup("sm_80")
    space = FamilySpace(FAMILY, matmul(2688, 2688, 2688), arch)
    values = {"block_m": 128, "block_n": 128, "block_k": 32, "warp_m": 64, "warp_n": 64, "split_k": 1, "min_blocks": 1}

    def seconds(m: int, n: int, stream: int) -> float:
        workload = matmul(m, n, 2688)
        program = FAMILY.starters(workload, arch)[0].replace(**values, stream=stream)
        space = FamilySpace(FAMILY, workload, arch)
        return float(space.potential(space.point(program)[None])[0])

    assert space.legal(space.point(FAMILY.starters(space.workload, arch)[0].replace(**values))[None])[0]
    assert seconds(2688, 2688, 108) < 0.9 * seconds(2688, 2688, 0)  # 441 tiles: four waves of 108, and nine tiles
    assert seconds(128 * 12, 128 * 18, 108) > 0.98 * seconds(128 * 12, 128 * 18, 0)  # 216 tiles


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ({"dtype": "float32", "math": "tf32"}, {"block_k": 32, "instruction": 2}),
        ({"dtype": "int8", "out": "int8"}, {"block_k": 128, "instruction": 3}),
        ({}, {"block_k": 64, "epilogue_fixed": 1}),
    ],
    ids=["tf32", "int8", "float16"],
)
def test_streams_of_full_registers_do_not_spill(kind: dict[str, str], values: dict[str, int]):
    """Tiles of 128 x 128 by four warps, two blocks per multiprocessor: only a few registers are left for the stream."""
    arch, problem = lookup("sm_80"), matmul(1536, 4096, 4096, trans_b=True, **kind)
    large = {"block_m": 128, "block_n": 128, "warp_m": 64, "warp_n": 64, "stages": 2, "raster": 1, "min_blocks": 2}
    program = FAMILY.starters(problem, arch)[0].replace(**TILE | large | values | {"stream": 2 * arch.sms})
    binary = nvrtc.compile_cubin(candidate(FAMILY, program, problem).source(), arch.target)
    assert binary.error is None and binary.spill_bytes == binary.stack_bytes == 0
