"""Cubins as the strict double of the driver reads them, compared with the compiler's report."""

import pytest

from gensor_kernels.build import nvrtc
from tests.doubles.strict import elf

SOURCE = """
struct Params { char bytes[480]; };
extern "C" __global__ void __launch_bounds__(96) plain(const Params p) { *(float *)*(void **)p.bytes = 1; }
extern "C" __global__ void static_shared(const Params p, int n) {
    __shared__ float numbers[64];
    numbers[threadIdx.x & 63] = p.bytes[threadIdx.x];
    __syncthreads();
    *(float *)*(void **)p.bytes = numbers[n];
}
"""
CLUSTERED = 'extern "C" __global__ void __cluster_dims__(2, 2, 1) clustered(int n) {}'
REQUIRED = 'extern "C" __global__ void __block_size__((64, 2, 1)) required(int n) {}'


@pytest.mark.parametrize("target", ["sm_75", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_120"])
def test_a_cubin_says_what_the_compiler_says(target):
    hopper = int(target[3:].rstrip("a")) >= 90
    built = nvrtc.compile_cubin(SOURCE + (CLUSTERED + REQUIRED if hopper else ""), target)
    assert built.error is None, built.error
    image = elf.parse(built.cubin)
    assert f"sm_{image.capability[0]}{image.capability[1]}{'a' * image.specific}" == target
    told = {name: (each.registers, each.shared_bytes, each.stack_bytes) for name, each in built.entries.items()}
    assert {name: (e.registers, e.shared_bytes, e.local_bytes) for name, e in image.entries.items()} == told
    plain, shared = image.entries["plain"], image.entries["static_shared"]
    assert (plain.parameters, plain.most_threads, plain.cluster) == ((480,), 96, 1)
    assert (shared.parameters, shared.most_threads, shared.shared_bytes) == ((480, 4), 1024, 256)
    if hopper:
        assert image.entries["clustered"].cluster == 4 and image.entries["required"].threads == 128
