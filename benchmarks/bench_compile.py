"""Seconds per kernel from bound source to cubin, on every core.

    pytest benchmarks/bench_compile.py

The set is what a walk hands over: the starters of each family that serves a matmul, on architectures with
asynchronous copies and without. `seconds_per_kernel` is wall time over the whole set, `cpu_seconds_per_kernel` the
processor time of all threads: with both cores free the first is half of the second.
"""

from __future__ import annotations

import time

import pytest

from gensor_kernels.build import nvrtc
from gensor_kernels.build.parallel import usable_cores
from gensor_kernels.families.core import source
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products.matmul import workload

CASES = [("float16", "sm_87"), ("float16", "sm_75"), ("int8", "sm_87"), ("float32", "sm_87"), ("float64", "sm_80")]


def requests(dtype: str, arch_name: str) -> list[tuple[str, str]]:
    """Return the distinct (bound source, target) pairs of the starters of one 1,024-cubed matmul."""
    arch, work = lookup(arch_name), workload(1024, 1024, 1024, dtype=dtype)
    pairs = [
        (source.bind(family.text, family.constants(program, work)), arch.target)
        for family in FAMILIES.values()
        if family.serves(work, arch) is None
        for program in family.starters(work, arch)
    ]
    return list(dict.fromkeys(pairs))


@pytest.mark.parametrize(("dtype", "arch_name"), CASES)
def test_compile(benchmark, dtype, arch_name):
    pairs = requests(dtype, arch_name)
    nvrtc.compile_cubin("__global__ void warm_up() {}", "sm_87")  # loads the library
    processor = time.process_time()
    binaries = benchmark.pedantic(nvrtc.compile_many, (pairs,), rounds=1)
    processor = time.process_time() - processor
    assert all(binary.error is None for binary in binaries)
    seconds = benchmark.stats.stats.mean
    benchmark.extra_info |= {"kernels": len(pairs), "cores": usable_cores(), "seconds_per_kernel": seconds / len(pairs)}
    benchmark.extra_info["cpu_seconds_per_kernel"] = processor / len(pairs)
