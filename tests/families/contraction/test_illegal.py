"""Constants that no legal Program has are refused by a static_assert, with a sentence."""

import json

import pytest

from gensor_kernels.devices.emulator import build
from gensor_kernels.errors import BuildError
from gensor_kernels.families.core.source import bind
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products.block_scaled import workload as block_scaled
from gensor_kernels.operators.products.matmul import workload as matmul
from gensor_kernels.operators.products.quantised import formatted
from gensor_tuner.build.pool import candidate
from tests.families.lattices import BLOCKS, MMA, SIMT, TCGEN05, WGMMA
from tests.families.verified import PLAIN
from tests.mutator.programs.contraction import COPIES
from tests.mutator.programs.contraction import MMA as SMALL_MMA
from tests.mutator.programs.contraction import SIMT as SMALL_SIMT

HALF = {"instruction": 0, "block_k": 32}
SCALED = {"BLOCK_SCALED": 1, "CONSUMERS": 2, "A_STORED": "e4m3_t", "B_STORED": "e4m3_t", "BLOCK_K": 128}
#: Family, part, Workload and values of a legal Program.
LEGAL = {
    "mma": (MMA, "sm_87", matmul(256, 256, 256), SMALL_MMA | COPIES["cp.async"] | HALF),
    "simt": (SIMT, "sm_87", matmul(256, 256, 256, dtype="float32"), SMALL_SIMT),
    "wgmma": (WGMMA, "sm_90", matmul(512, 512, 512, trans_b=True), PLAIN | {"vector_c": 16}),
    "tcgen05": (TCGEN05, "sm_100", matmul(512, 512, 512, trans_b=True), {"block_n": 64, "cluster": 0}),
    "float scales": (BLOCKS, "sm_89", block_scaled(512, 512, 1024), {"block_n": 64}),
    "scales": (TCGEN05, "sm_100", formatted(512, 512, 1024, "nvfp4"), {"block_n": 64, "cluster": 0}),
}
E4M3 = {"BLOCK_K": 128, "B_LAYOUT": 0}
ILLEGAL = {
    "mma": [
        ({"WARP_M": 24, "BLOCK_M": 48}, "whole fragments"),
        ({"BLOCK_N": 72}, "whole warp tiles"),
        ({"BLOCK_K": 24}, "32 bytes"),
        ({"STAGES": 7}, "2 to 6 stages"),
        ({"ASYNC": 0}, "2 to 6 stages"),
        ({"A_VECTOR": 2}, "cp.async copies"),
        ({"INSTRUCTION": 2}, "does not multiply"),
        ({"INSTRUCTION": 5, "IN_TYPE": "float", "BLOCK_K": 24}, "whole fragments of 64 bytes"),
        ({"INSTRUCTION": 6, "IN_TYPE": "double", "ACC_TYPE": "double", "BLOCK_K": 8}, "fragments of the instruction"),
        ({"C_UNIT": 0}, "one by one"),
        ({"A_UNIT": 0}, "one by one"),
    ],
    "simt": [
        ({"THREAD_M": 5}, "Thread tiles must fill the block tile"),
        ({"LANES_M": 16}, "Warps must fill the block tile along M"),
        ({"A_UNIT": 0}, "A is loaded element by element"),
        ({"FORM": 3}, "FORM is 3 or 4 for complex accumulators and 1 for real ones"),
        ({"IN_TYPE": "c64"}, "must be all complex or all real"),
        ({"A_CONJUGATE": 1}, "Only complex operands can be conjugated"),
    ],
    "wgmma": [
        ({"CONSUMERS": 4, "BLOCK_M": 256}, "One to three warpgroups"),
        ({"BLOCK_M": 96}, "whole tiles of 64 rows"),
        ({"BLOCK_N": 20}, "in steps of 8 of plain 16-bit products"),
        ({"BLOCK_N": 24, "PARTS": 3, "IN_TYPE": "bfloat16_t", "OUT_TYPE": "float"}, "else of 16"),
        ({"BLOCK_N": 24, "CLUSTER": 1}, "whole periods of the swizzle"),
        ({"BLOCK_K": 32}, "rows of 128 bytes"),
        ({"STAGES": 9}, "2 to 8 buffers"),
        ({"MIN_BLOCKS": 0}, "change hands"),
        ({"BLOCK_M": 256, "BLOCK_N": 256}, "do not fit the registers"),
        ({"BLOCK_M": 128, "BLOCK_N": 208, "PERSISTENT": 1}, "do not fit the registers"),
        ({"BLOCK_M": 256, "BLOCK_N": 200, "EPILOGUE_STAGED": 0, "STORE_COPIES": 1}, "do not fit the registers"),
        ({"PERSISTENT": 2}, "several warpgroups"),
        ({"C_UNIT": 0}, "one by one"),
        ({"IN_TYPE": "float", "B_LAYOUT": 1}, "Only 16-bit rows of k"),
        ({"A_STORED": "e4m3_t"} | E4M3, "elements of one size"),
        ({"A_STORED": "i8", "B_STORED": "i8"} | E4M3, "by one another"),
        ({"A_STORED": "e4m3_t", "B_STORED": "e4m3_t"} | E4M3 | {"BLOCK_K": 256}, "one of 8-bit floats"),
    ],
    "tcgen05": [
        ({"BLOCK_M": 64}, "A block has 128 rows"),
        ({"BLOCK_N": 24}, "in steps of 16"),
        ({"BLOCK_N": 48, "PAIR": 1}, "of a pair of 32"),
        ({"BLOCK_N": 96, "B_LAYOUT": 1}, "whole boxes in each block"),
        ({"BLOCK_N": 256, "MIN_BLOCKS": 2}, "Tensor memory has the sums"),
        ({"BLOCK_K": 32}, "rows of 128 bytes"),
        ({"STAGES": 9}, "2 to 8 buffers"),
        ({"IN_TYPE": "float", "B_LAYOUT": 1}, "Only 16-bit rows of k"),
        ({"A_STORED": "e4m3_t"} | E4M3, "elements of one size"),
        ({"PAIR": 1, "RAGGED_ROWS": 1}, "matrices of their own"),
        ({"CONSUMERS": 2}, "Eight warps store scaled sums"),
        ({"BLOCK_SCALED": 1, "CONSUMERS": 2}, "A plain product of 8-bit floats is scaled"),
        (SCALED | {"BLOCK_N": 224}, "by one scale of B or two"),
        (SCALED | {"BLOCK_N": 128, "MIN_BLOCKS": 2}, "Tensor memory has the sums"),
    ],
    "float scales": [
        ({"BLOCK_K": 64}, "Float scales are of a step"),
        ({"GROUP": 32}, "Float scales are of a step"),
        ({"INSTRUCTION": 0}, "Float scales are of a step"),
        ({"WARP_N": 48, "BLOCK_N": 48}, "The columns of a warp share a float scale"),
        ({"WARP_M": 64, "BLOCK_M": 64, "WARP_N": 64}, "fragments of B of a step must fit"),
    ],
    "scales": [
        ({"ROW_SCALES": 1}, "Numbers of four bits have two or four scales"),
        ({"A_STORED": "e4m3_t", "B_STORED": "e4m3_t"}, "8-bit floats one or none"),
        ({"BLOCK_K": 256}, "up to four words"),
        ({"GATE": 1, "RAGGED_ROWS": 0}, "Plain products"),
        ({"BLOCK_N": 144, "MIN_BLOCKS": 2}, "Tensor memory has the sums"),
    ],
}


@pytest.mark.parametrize("name", LEGAL)
def test_illegal_constants_are_refused_with_a_sentence(name):
    family, part, workload, values = LEGAL[name]
    program = family.starters(workload, lookup(part))[0].replace(**values)
    constants = json.loads(candidate(family, program, workload).constants)
    for wrong, sentence in ILLEGAL[name]:
        with pytest.raises(BuildError) as failure:
            build(bind(family.text, constants | wrong))
        assert sentence in failure.value.log, wrong
