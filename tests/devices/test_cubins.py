"""Cubins as the strict double of the driver reads them, compared with the compiler's report; and damaged ones."""

import random
from contextlib import suppress

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


def test_written_cubins_are_read_as_they_were_meant():
    entries = {
        "first": elf.Entry(parameters=(840,), shared_bytes=64, cluster=2),
        "second": elf.Entry(registers=99, parameters=(8, 4), threads=128, most_threads=128, local_bytes=16),
    }
    for capability, specific in (((7, 5), False), ((8, 9), False), ((9, 0), True), ((10, 0), True), ((12, 0), False)):
        image = elf.parse(elf.written(capability, entries, specific))
        assert image == elf.Image(capability, specific, entries)


def test_damaged_files_are_refused():
    built = nvrtc.compile_cubin(SOURCE, "sm_86").cubin
    whole = elf.parse(built)
    for length in range(0, len(built), 97):
        with pytest.raises(elf.DamagedImageError):
            elf.parse(built[:length])
    for place, value in ((4, 1), (7, 0x77), (18, 62), (40, 0xFF), (60, 0xFF)):  # class, ABI, machine, table, count
        with pytest.raises(elf.DamagedImageError):
            elf.parse(built[:place] + bytes([value]) + built[place + 1 :])
    choose = random.Random(0)
    for _ in range(300):  # whatever is flipped, the answer is an image or the refusal
        place = choose.randrange(len(built))
        flipped = built[:place] + bytes([built[place] ^ 1 << choose.randrange(8)]) + built[place + 1 :]
        with suppress(elf.DamagedImageError):
            assert isinstance(elf.parse(flipped), elf.Image)
    assert elf.parse(built) == whole
