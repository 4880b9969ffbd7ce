"""Cubins for the tests of the disassembly: one loop of each kind, accesses of every width, and real kernels."""

from functools import cache

from gensor_kernels.build import nvrtc, source
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products.matmul import workload
from gensor_kernels.programs.registry import FAMILIES
from tests.doubles.emulated_kernels import toy

ARCHS = ["sm_75", "sm_87", "sm_90", "sm_120"]

KERNEL = toy("loops")


@cache
def compiled(arch_name: str) -> tuple[tuple[bytes, str], ...]:
    """(cubin, target) of the kernels above and of one starter of each family that multiplies matrices."""
    arch, work = lookup(arch_name), workload(512, 512, 512, dtype="float16")
    texts = [KERNEL]
    for family in (each for each in FAMILIES.values() if each.serves(work, arch) is None):
        constants = family.constants(family.starters(work, arch)[0], work)
        texts.append(source.bind(source.flatten(family.source), constants))
    binaries = nvrtc.compile_many([(text, arch.target) for text in texts])
    assert [binary.error for binary in binaries] == [None] * len(texts)
    return tuple((binary.cubin, binary.target) for binary in binaries)
