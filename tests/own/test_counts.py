"""Counting from machine code: executed blocks compute the right numbers, and their counts are what they do."""

import numpy as np
import pytest

from gensor_kernels.build.instruction import Instruction
from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.build.resources import instructions
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.tolerance.own import own_bound
from gensor_kernels.own.configuration import draw, entry_of
from gensor_tuner.own.counts import Fault, Prepared, read_entry, sampled
from gensor_tuner.own.decode import decode
from gensor_tuner.own.verify import expect
from tests.campaign_size import sample
from tests.own.faults import CASES, KERNELS, configuration

pytestmark = pytest.mark.usefixtures("needs_emulator")  # the machine is compiled by g++
PARTS = ("t4", "a100-40gb", "orin-nano-8gb", "rtx-4090", "h100-sxm", "b200", "rtx-5090")


def prepared(text: str, name: str, part: str) -> Prepared:
    arch = lookup(part)
    binary = compile_cubin(text, arch.target)
    assert not binary.error, binary.log
    (functions,) = instructions([binary.cubin], arch.target)
    entry = entry_of(name, list(functions))
    return Prepared(read_entry(binary.cubin, entry, functions[entry]), arch)


@pytest.mark.parametrize(("kernel", "part"), sample([(k, p) for k in sorted(CASES) for p in PARTS], 3))
def test_executed_blocks_compute_the_reference(kernel: str, part: str):
    knobs, sizes, reference = CASES[kernel]
    described = KERNELS[kernel].description
    made = configuration(kernel)
    arguments, constants = draw(described, {**knobs, **sizes}, seed=3)
    (right,) = expect(described, KERNELS[reference], arguments, constants, sizes)
    grid, block, shared = described.launch({**knobs, **sizes})
    every = {number: 1.0 for number in range(int(np.prod(grid)))}
    counts = prepared(made.text, described.name, part).count(grid, block, arguments, constants, shared, every)
    out = arguments[0]
    assert np.abs(out - right).max() <= own_bound(right, out.dtype.name, 225).max()
    assert counts.issued.sum() > counts.blocks and counts.written >= out.nbytes / 32
    assert counts.read * 32 >= arguments[1].nbytes / 2


COPY = """extern "C" __global__ void copy(float *out, const float *in, int stride) {
    __shared__ float held[32 * 33];
    held[threadIdx.x * stride] = in[blockIdx.x * 32 + threadIdx.x];
    __syncwarp();
    out[blockIdx.x * 32 + threadIdx.x] = held[threadIdx.x * stride];
}"""


@pytest.mark.parametrize(("stride", "passes"), [(1, 2), (2, 4), (32, 64), (33, 2)])
def test_sectors_and_bank_conflicts_are_counted(stride: int, passes: int):
    ready = prepared(COPY, "copy", "orin-nano-8gb")
    arrays = [np.zeros(64, np.float32), np.arange(64, dtype=np.float32)]
    counts = ready.count((2, 1, 1), (32, 1, 1), [*arrays, np.int32(stride).tobytes()], {}, 0, {0: 2.0})
    assert counts.wavefronts.sum() == 2 * passes  # a store and a load, of two blocks
    assert counts.sectors.sum() == 2 * (4 + 4) and counts.lines.sum() == 4
    assert (counts.read, counts.written, counts.blocks) == (8, 8, 2)
    assert np.array_equal(arrays[0][:32], arrays[1][:32])


def test_blocks_that_do_the_same_are_alike_and_dram_takes_longer():
    arguments = [np.zeros(96, np.float32), np.zeros(96, np.float32), np.int32(1).tobytes()]
    same = prepared(COPY, "copy", "orin-nano-8gb").count((3, 1, 1), (32, 1, 1), arguments, {})
    arch = lookup("orin-nano-8gb")
    assert same.alike and same.clocks_from_dram - same.clocks == int(arch.dram_latency) - int(arch.l2_latency)
    edged = COPY.replace("__syncwarp();", "if (blockIdx.x == 2) return;")
    assert not prepared(edged, "copy", "orin-nano-8gb").count((3, 1, 1), (32, 1, 1), arguments, {}).alike


def test_faults_of_counted_kernels():
    ready = prepared(COPY, "copy", "orin-nano-8gb")
    with pytest.raises(Fault, match="reads 128 bytes from the start of argument 1, which has 128"):
        out, short = np.zeros(64, np.float32), np.zeros(32, np.float32)
        ready.count((2, 1, 1), (32, 1, 1), [out, short, np.int32(1).tobytes()], {}, 0, {1: 1.0})
    with pytest.raises(Fault, match="copy has 3 parameters: 1 are given"):
        ready.count((1, 1, 1), (32, 1, 1), [np.zeros(1)], {})


def test_unknown_instructions_are_refused_by_name():
    with pytest.raises(UnsupportedError, match=r"the instruction HMMA\.16816\.F32 is not counted"):
        decode([Instruction("", "HMMA.16816.F32", " R4, R8, R10, R4")])


def test_sampled_blocks_stand_for_all():
    assert sampled((5, 1, 2)) == {0: 1, 4: 1, 2: 3, 5: 1, 9: 1, 7: 3}
    assert sum(sampled((128, 64, 3)).values()) == 128 * 64 * 3
