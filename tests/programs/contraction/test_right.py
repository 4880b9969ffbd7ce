"""Programs of contraction_mma and contraction_simt match float64: layouts, dtypes, tiles and widths of accesses.

The Programs of the mutator (tests/mutator/programs) have all forms of their loops and stores.
"""

from dataclasses import replace

import pytest

from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products.matmul import workload as matmul
from gensor_kernels.operators.types.dtypes import facts
from tests.campaign_size import sample
from tests.mutator.programs import configurations
from tests.mutator.programs.contraction import MMA as SMALL_MMA
from tests.mutator.programs.contraction import SIMT as SMALL_SIMT
from tests.programs.lattices import MMA, SIMT
from tests.programs.verified import is_right


def scattered(workload):
    """The same product of operands in which no axis is contiguous."""
    single = {name: facts(dtype).itemsize for name, dtype in workload.dtypes}
    return replace(workload, layout=tuple((name, "s") for name in "abc"), alignment=tuple(single.items()))


TF32 = {"dtype": "float32", "math": "tf32"}
NT, TN, TT = {"trans_b": True}, {"trans_a": True}, {"trans_a": True, "trans_b": True}
COPIES, REGISTERS = {"copy": 1, "stages": 3}, {"copy": 0, "stages": 2}
HALF, DOUBLE = {"instruction": 0, "block_k": 32}, {"instruction": 8, "block_k": 8}
FLOAT, INT8 = {"instruction": 5, "block_k": 32}, {"instruction": 3, "block_k": 64}
#: Name -> (part, Workload, values)
TENSOR_CORES = {
    "n-contiguous": ("sm_87", matmul(256, 256, 256, epilogue="scale_bias_relu"), HALF | {"raster": 2}),
    "k-contiguous": ("sm_87", matmul(256, 256, 256, **NT, batch=2, epilogue="add_gelu"), HALF | {"stages": 2}),
    "six stages": ("sm_87", matmul(256, 256, 256, **TN, epilogue="mul_silu"), HALF | {"stages": 6, "block_k": 16}),
    "both turned, split": ("sm_87", matmul(256, 256, 256, **TT, epilogue="mask_gelu_tanh"), HALF | {"split_k": 3}),
    "scattered": ("sm_87", scattered(matmul(256, 256, 256, epilogue="bias_tanh")), HALF | REGISTERS),
    "4 bytes, split": ("sm_87", matmul(254, 254, 254), HALF | {"split_k": 2, "epilogue_staged": 0}),
    "8 bytes": ("sm_87", matmul(252, 252, 252), HALF),
    "skinny": ("sm_87", matmul(1, 264, 520, epilogue="bias_relu6"), HALF | {"block_m": 16, "block_n": 128}),
    "uneven fragments": (
        "sm_87",
        matmul(256, 256, 256, **TN),
        HALF | {"block_m": 96, "block_n": 80, "warp_m": 48, "warp_n": 40},
    ),
    "no swizzle": ("sm_87", matmul(256, 256, 256), HALF | {"swizzle": 0}),
    "bfloat16": ("sm_80", matmul(256, 256, 256, dtype="bfloat16", out="float32"), HALF),
    "tf32": ("sm_80", matmul(256, 256, 256, **TF32, **TN, epilogue="bias"), {"instruction": 2, "block_k": 16}),
    "tf32, 4 bytes": ("sm_80", matmul(255, 255, 255, **TF32, **NT), {"instruction": 2, "block_k": 16}),
    "floats, split": ("sm_80", matmul(512, 512, 512, dtype="float32", **TT), FLOAT | {"split_k": 2}),
    "floats, 4 bytes": ("sm_80", matmul(511, 511, 511, dtype="float32"), FLOAT | REGISTERS | {"epilogue_staged": 0}),
    "doubles": ("sm_80", matmul(256, 256, 256, dtype="float64", **NT, epilogue="bias_gelu"), DOUBLE | {"split_k": 3}),
    "doubles of sm_90": (
        "sm_90",
        matmul(256, 256, 256, dtype="float64", **TN, epilogue="add_tanh"),
        {"instruction": 6, "block_k": 16, "raster": 2},
    ),
    "doubles, scattered": (
        "sm_90",
        scattered(matmul(64, 64, 64, dtype="float64")),
        {"instruction": 7, "block_k": 16} | REGISTERS,
    ),
    "int8": ("sm_80", matmul(256, 256, 256, dtype="int8", **NT, epilogue="bias_relu"), INT8),
    "int8 to int8": ("sm_80", matmul(256, 256, 256, dtype="int8", out="int8"), INT8),
    "int8 to float16": ("sm_80", matmul(256, 256, 256, dtype="int8", out="float16", **TN), INT8),
    "int8, single elements": (
        "sm_75",
        matmul(255, 255, 255, dtype="int8", **NT),
        {"instruction": 4, "block_k": 64} | REGISTERS,
    ),
}
#: Conflicts depend on the number of 16-byte chunks in a shared row: odd, 2, 4 and 8 times odd.
for warp_n, block_n in ((8, 8), (24, 72), (16, 48), (48, 48), (56, 112), (32, 96), (64, 64)):
    tile = {"block_n": block_n, "warp_n": warp_n, "stages": 2, "instruction": 0}
    TENSOR_CORES |= {
        f"{block_n} columns by {warp_n}": ("sm_87", matmul(256, 256, 256), tile | {"block_k": 16}),
        f"{block_n} columns by {warp_n}, k": ("sm_87", matmul(256, 256, 256, **NT), tile | {"block_k": 80}),
    }
COMPLEX = {"dtype": "complex64", "math": "3m"}
CUDA_CORES = {
    "k-contiguous": ("sm_87", matmul(256, 255, 256, dtype="float32", **NT, epilogue="scale_bias_relu"), {"pad": 1}),
    "m-contiguous": (
        "sm_87",
        matmul(256, 256, 255, dtype="float32", **TN, batch=2, epilogue="add_silu"),
        {"epilogue_staged": 1},
    ),
    "both turned, split": ("sm_87", matmul(256, 255, 256, dtype="float32", **TT, epilogue="gelu_tanh"), {"split_k": 3}),
    "scattered": ("sm_87", scattered(matmul(64, 64, 64, dtype="float32")), {}),
    "8 bytes": ("sm_87", matmul(254, 254, 254, dtype="float32", epilogue="mask"), {"block_k": 16}),
    "doubles, split": ("sm_87", matmul(254, 254, 254, dtype="float64", **NT, epilogue="bias_gelu"), {"split_k": 4}),
    "half": ("sm_87", matmul(256, 256, 256, dtype="float16", epilogue="bias_cast_add"), {"block_k": 16}),
    "half to float32": ("sm_87", matmul(255, 255, 255, dtype="float16", out="float32"), {}),
    "bfloat16": ("sm_87", matmul(256, 256, 256, dtype="bfloat16", **NT, epilogue="mul_relu6"), {"block_k": 32}),
    "int8 to int8": ("sm_87", matmul(255, 256, 255, dtype="int8", out="int8"), {"epilogue_staged": 1}),
    "complex": (
        "sm_87",
        matmul(256, 256, 256, dtype="complex64", conjugate="a", batch=2, epilogue="scale_bias_mul_add"),
        {"epilogue_staged": 1},
    ),
    "complex, three products, split": ("sm_87", matmul(254, 254, 254, **COMPLEX, **NT, conjugate="a"), {"split_k": 3}),
    "complex128": ("sm_87", matmul(255, 255, 255, dtype="complex128", **NT, conjugate="b", epilogue="bias_scale"), {}),
    "rows of one": ("sm_87", matmul(1, 132, 100, dtype="float32"), {"block_m": 4, "thread_m": 1, "lanes_m": 4}),
}
CASES = [
    *(pytest.param(MMA, SMALL_MMA | COPIES, *row, id=f"mma: {name}") for name, row in TENSOR_CORES.items()),
    *(pytest.param(SIMT, SMALL_SIMT, *row, id=f"simt: {name}") for name, row in CUDA_CORES.items()),
]


@pytest.mark.parametrize(("family", "small", "part", "workload", "values"), sample(CASES, 24))
def test_a_program_matches_float64(family, small, part, workload, values):
    program = family.starters(workload, lookup(part))[0].replace(**small | values)
    verdict = is_right(family, program, workload)
    if family is MMA and workload.dtype["a"] != "int8":
        assert (verdict.counters["bank_conflicts"] > 0) == (program["swizzle"] == 0)


@pytest.mark.parametrize("each", sample(configurations(), 12), ids=lambda each: f"{each.group}: {each.name}")
def test_programs_of_the_mutator_match_float64(each):
    is_right(each.candidate.family, each.candidate.program, each.workload)
