"""Cubins for the tests of the disassembly: one loop of each kind, accesses of every width, and real kernels."""

from functools import cache

import pytest

from gensor_kernels.build import nvrtc, resources
from gensor_kernels.families.core import source
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products.matmul import workload
from tests.doubles.emulated_kernels import toy

ARCHS = ["sm_75", "sm_87", "sm_90", "sm_120"]

KERNEL = toy("loops")

HOPPER, DOUBLES = lookup("sm_90"), workload(64, 64, 64, dtype="float64")
USUAL = FAMILIES["contraction_mma"].starters(DOUBLES, HOPPER)[0]


def miscompiled() -> Program:
    """Return a Program for DOUBLES: a DMMA of its main loop reads the other one's sums without a wait for them."""
    if resources.find_nvdisasm() is None:
        pytest.skip("nvdisasm is not installed")
    if not nvrtc.toolchain().startswith("nvrtc 12.9."):
        pytest.skip("ptxas of another NVRTC may not leave out the wait")
    return USUAL.replace(block_m=16, block_n=16, block_k=32, stages=6, warp_m=16, warp_n=8, instruction=6)


@cache
def compiled(arch_name: str) -> tuple[tuple[bytes, str], ...]:
    arch, work = lookup(arch_name), workload(512, 512, 512, dtype="float16")
    texts = [KERNEL]
    for family in (each for each in FAMILIES.values() if each.serves(work, arch) is None):
        constants = family.constants(family.starters(work, arch)[0], work)
        texts.append(source.bind(family.text, constants))
    binaries = nvrtc.compile_many([(text, arch.target) for text in texts])
    assert [binary.error for binary in binaries] == [None] * len(texts)
    return tuple((binary.cubin, binary.target) for binary in binaries)
