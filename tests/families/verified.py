"""Programs that pass verification, small ones that the emulator runs quickly, their machine code, and convolutions."""

from typing import Any

import numpy as np
import pytest

from gensor_kernels.build.nvrtc import Binary, compile_cubin
from gensor_kernels.build.resources import disassemble
from gensor_kernels.build.sass import Sass
from gensor_kernels.devices.emulator import Counters, build
from gensor_kernels.families.core.cases import Case
from gensor_kernels.families.core.family import Family
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.build.pool import Candidate, candidate
from gensor_tuner.verify.problem import Problem
from gensor_tuner.verify.verify import Verdict, verify
from tests.mutator.engine.configuration import Changed

THREAD = {"thread_m": 2, "thread_n": 4, "lanes_m": 4, "vthread_m": 1, "vthread_n": 1}
WARP = {"warp_m": 16, "warp_n": 16}
#: Coordinates of a small tile, by the name of the family.
SMALL = {
    "contraction_mma": {"block_m": 32, "block_n": 32} | WARP,
    "contraction_simt": {"block_m": 32, "block_n": 32} | THREAD,
    "gemv": {"threads_k": 4, "threads_l": 8, "items": 1, "small": 2},
}


def is_right(family: Family, program: Program, workload: Workload, **options: Any) -> Verdict:
    verdict = verify(candidate(family, program, workload), workload, **options)
    assert verdict.outcome == "ok", f"{program.to_json()}\n{verdict.detail}"
    return verdict


def small_is_right(workload: Workload, family: str, values: dict[str, int]) -> Verdict:
    """Assert that a legal Program of a small tile, with these coordinates, passes verification."""
    arch = lookup("sm_87")
    space = Space(workload, arch).family(family)
    program = space.family.starters(workload, arch)[0].replace(**SMALL[family] | values)
    assert space.legal(space.point(program)[None])[0]
    return is_right(space.family, program, workload, use_cache=False)


def multiplied(each: Candidate, a: np.ndarray, b: np.ndarray, **more: Any) -> tuple[np.ndarray, Counters]:
    """Return what the emulated kernel of a matrix product stores for these operands, and what it counted."""
    problem = Problem(Case("any", matmul.workload(a.shape[0], b.shape[1], a.shape[1], **more)), 7)
    for operand, values in (("a", a), ("b", b)):
        problem.inputs[operand].view()[...] = values
    counters = problem.run(each, build(each.source()), copies="late", order="forward")
    return problem.out.view().reshape(a.shape[0], b.shape[1]).copy(), counters


# ---- What verification says of a Program whose source has one text in place of another


def verdict_without(before: str, after: str, each: Candidate, workload: Workload) -> Verdict:
    """The verdict on a Program with `after` for `before`, which occurs once in the family's source."""

    def edit(text: str) -> str:
        assert text.count(before) == 1, before
        return text.replace(before, after)

    return verify(Changed(each.program, each.constants, edit), workload, use_cache=False)


def convolved(
    x: np.ndarray,
    w: np.ndarray,
    stride: tuple[int, int] = (1, 1),
    pads: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0)),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
) -> np.ndarray:
    padded = np.pad(x.astype(float), ((0, 0), (0, 0), *pads))
    reach = [(taps - 1) * step + 1 for taps, step in zip(w.shape[2:], dilation, strict=True)]
    pixels = np.lib.stride_tricks.sliding_window_view(padded, reach, (2, 3))
    pixels = pixels[:, :, :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]]
    pixels = pixels.reshape(len(x), groups, -1, *pixels.shape[2:])
    found = np.einsum("ngchwrs,gkcrs->ngkhw", pixels, w.astype(float).reshape(groups, -1, *w.shape[1:]))
    return found.reshape(len(x), -1, *found.shape[3:])


#: The part of families with warpgroup products, and values of a small tile and warpgroup.
ARCH = lookup("sm_90")
PLAIN = {
    "block_m": 64, "block_n": 64, "block_k": 64, "cluster": 0, "persistent": 0, "stages": 2, "consumers": 1,
    "split_k": 1, "raster": 1, "epilogue_staged": 1, "epilogue_fixed": 0, "min_blocks": 1,
}  # fmt: skip


def small(family: Family, workload: Workload, **values: int) -> Candidate:
    """A Program of one small tile and warpgroup, with these coordinates."""
    return candidate(family, family.starters(workload, ARCH)[0].replace(**PLAIN | values), workload)


def machine_code(family: Family, workload: Workload, part: str, **values: int) -> tuple[Binary, Sass]:
    """Return the binary of the first starter with other values, which spills nothing, and its main kernel's code."""
    program = family.starters(workload, lookup(part))[0].replace(**values)
    binary = compile_cubin(candidate(family, program, workload).source(), lookup(part).target)
    assert binary.error is None and binary.spill_bytes == binary.stack_bytes == 0, binary.log
    # ptxas says so where every product waits, or where it ignores the exchange of registers.
    assert "Potential Performance Loss" not in binary.log and "setmaxnreg" not in binary.log, binary.log
    sass = disassemble(binary.cubin, binary.target)
    if sass is None:
        pytest.skip("nvdisasm is not installed")
    return binary, sass[family.name]
