"""contraction_mma: right on the emulator under every order of events, clean in SASS, and as its header says."""

import pytest

from gensor_kernels.build.nvrtc import compile_many
from gensor_kernels.build.sass import GLOBAL_ACCESSES
from gensor_kernels.devices.emulator import build
from gensor_kernels.errors import BuildError
from tests.programs.contraction.machine_code import machine_code
from tests.programs.workloads.contraction_harness import Case, Problem, mma

SM75 = {"ASYNC": 0, "STAGES": 2}
TF32 = {"MATH_TF32": 1, "INSTRUCTION": 2, "BLOCK_K": 16}
FLOAT = {"INSTRUCTION": 5, "BLOCK_K": 32}
DOUBLE = {"INSTRUCTION": 8, "BLOCK_K": 8}
INT8 = {"INSTRUCTION": 3, "BLOCK_K": 64}
NARROW = SM75 | {"A_VECTOR": 2, "B_VECTOR": 2, "C_VECTOR": 2}
SKINNY = {"BLOCK_M": 16, "BLOCK_N": 128, "BLOCK_K": 64, "WARP_M": 16, "WARP_N": 16, "STAGES": 4}

# Every dtype, layout, instruction, copy path, vector width, stage count and store route occurs; sizes are ragged on
# every axis, as far as the vectors allow.
KERNELS = {
    "nn": (mma(), Case(130, 72, 232, raster=2, epilogue=("scale", "bias", "relu"))),
    "nt": (mma(b="k", STAGES=2, EPILOGUE_STAGED=0), Case(70, 136, 136, batch=(2, 1, 2), epilogue=("add", "gelu"))),
    "tn": (mma(a="m", STAGES=6, BLOCK_K=16), Case(136, 72, 200, epilogue=("mul", "cast", "silu"))),
    "tt": (mma(a="m", b="k", SPLIT=1, BLOCK_K=48), Case(72, 72, 320, split=3, epilogue=("mask", "gelu_tanh"))),
    "ss": (mma(a="s", b="s", c="s", **NARROW), Case(67, 69, 75, batch=(1, 1, 3), epilogue=("bias", "tanh"))),
    "odd": (mma(b="k", SPLIT=1, **NARROW), Case(67, 69, 139, split=2, epilogue=("bias", "sigmoid"))),
    "4 bytes": (mma(A_VECTOR=4, B_VECTOR=4, C_VECTOR=4, EPILOGUE_STAGED=0, SPLIT=1), Case(66, 70, 202, split=2)),
    "8 bytes": (mma(A_VECTOR=8, B_VECTOR=8, C_VECTOR=8), Case(66, 76, 140)),
    "sm_75": (mma(INSTRUCTION=1, b="k", **SM75), Case(70, 72, 136)),
    "skinny": (mma(**SKINNY), Case(1, 264, 520, epilogue=("bias", "relu6"))),
    "fragments": (mma(BLOCK_M=96, BLOCK_N=80, WARP_M=48, WARP_N=40, a="m"), Case(104, 88, 104)),
    "160": (mma(BLOCK_N=160, WARP_N=80, WARP_M=16, BLOCK_K=96), Case(72, 168, 232, epilogue=("bias",))),
    "no swizzle": (mma(SWIZZLE=0), Case(70, 72, 136)),
    "fixed": (mma(EPILOGUE_CODES=2 | 7 << 5 | 3 << 10), Case(70, 72, 40, epilogue=("bias", "gelu", "add"))),
    "none": (mma(EPILOGUE_CODES=31), Case(70, 72, 40)),
    "bf16": (mma("bfloat16", "float32"), Case(70, 72, 136)),
    "tf32 nn": (mma("float32", **TF32), Case(68, 76, 100, epilogue=("bias",))),
    "tf32 nt": (mma("float32", b="k", A_VECTOR=4, B_VECTOR=4, C_VECTOR=4, **TF32), Case(67, 69, 101)),
    "tf32 tn": (mma("float32", a="m", BLOCK_M=80, BLOCK_N=40, WARP_M=16, WARP_N=40, **TF32), Case(84, 44, 84)),
    "float nn": (mma("float32", **FLOAT), Case(68, 76, 100, epilogue=("bias",))),
    "float tt": (
        mma("float32", a="m", b="k", SPLIT=1, BLOCK_M=80, BLOCK_N=40, WARP_M=16, WARP_N=40, **FLOAT | {"BLOCK_K": 48}),
        Case(84, 44, 332, split=2),
    ),
    "float odd": (
        mma("float32", **FLOAT | SM75 | {"A_VECTOR": 4, "B_VECTOR": 4, "C_VECTOR": 4, "EPILOGUE_STAGED": 0}),
        Case(67, 69, 101),
    ),
    "double nn": (mma("float64", **DOUBLE), Case(67, 70, 38, epilogue=("bias", "gelu"))),
    "double nt": (mma("float64", b="k", SPLIT=1, **DOUBLE | {"BLOCK_K": 4}), Case(66, 74, 70, split=3)),
    "double tn": (
        mma("float64", a="m", INSTRUCTION=6, BLOCK_K=16, BLOCK_M=80, BLOCK_N=48, WARP_M=16, WARP_N=24),
        Case(82, 50, 90, raster=2, epilogue=("add", "tanh")),
    ),
    "double tt": (
        mma("float64", a="m", b="k", INSTRUCTION=7, BLOCK_K=32, STAGES=2),
        Case(66, 70, 132, batch=(1, 1, 3)),
    ),
    "double odd": (
        mma("float64", A_VECTOR=8, B_VECTOR=8, C_VECTOR=8, EPILOGUE_STAGED=0, **SM75, **DOUBLE),
        Case(67, 69, 101, epilogue=("scale", "relu")),
    ),
    "double ss": (mma("float64", a="s", b="s", c="s", **DOUBLE), Case(67, 69, 21, epilogue=("bias",))),
    "i8 nt": (mma("int8", b="k", **INT8), Case(80, 84, 208, epilogue=("bias", "relu"), integer_steps=2)),
    "i8 nn": (mma("int8", "int8", **INT8), Case(80, 80, 208)),
    "i8 tn": (mma("int8", "float16", a="m", **INT8), Case(80, 80, 208, epilogue=("scale", "bias"))),
    "i8 wide": (mma("int8", BLOCK_N=256, WARP_N=64, B_VECTOR=8, **INT8 | {"BLOCK_K": 32}), Case(72, 264, 112)),
    "i8 odd": (
        mma("int8", b="k", A_VECTOR=1, B_VECTOR=1, C_VECTOR=4, **INT8 | SM75 | {"INSTRUCTION": 4}),
        Case(67, 69, 209),
    ),
}
CONFLICTING = {"no swizzle"}


@pytest.mark.parametrize("name", KERNELS)
def test_matches_float64(name):
    kernel, case = KERNELS[name]
    problem = Problem(kernel, case)
    for order, copies in (("forward", "late"), ("reverse", "early"), (5, "late")):
        counters = problem.right(order=order, copies=copies)
        assert (counters.bank_conflicts > 0) == (name in CONFLICTING), dict(counters)
    expected = {"edge_n", "edge_k", "steady", "drain"} | ({"split_reduce"} if case.split > 1 else set())
    assert all(counters.branches[branch] for branch in expected - ({"steady"} if case.k < 64 else set()))
    Problem(kernel, case.without_products()).right()


@pytest.mark.parametrize(
    ("kernel", "widths"),
    [
        (mma(), {16}),
        (mma(SPLIT=1), {16}),
        (mma(EPILOGUE_STAGED=0, A_VECTOR=8), {4, 8, 16}),
        (mma("int8", "int8", b="k", **INT8), {16}),
    ],
)
def test_global_access_widths(kernel, widths):
    counters = Problem(kernel, Case(80, 80, 208, split=1 + kernel.value("SPLIT"))).run()
    assert set(counters.global_widths()) == widths


def test_splits_without_work_add_zeros():
    Problem(KERNELS["tt"][0], Case(16, 16, 48, split=4)).right()


# What an extent has to do with banks is the number of 16-byte chunks in a shared row: odd, 2, 4 and 8 times odd.
@pytest.mark.parametrize(("warp_n", "block_n"), [(8, 8), (24, 72), (16, 48), (48, 48), (56, 112), (32, 96), (64, 64)])
def test_no_bank_conflicts_at_any_row_length(warp_n, block_n):
    tile = {"BLOCK_M": 32, "WARP_M": 16, "BLOCK_N": block_n, "WARP_N": warp_n}
    for block_k, b in ((16, "n"), (80, "k")):
        counters = Problem(mma(b=b, BLOCK_K=block_k, STAGES=2, **tile), Case(40, block_n + 8, 168)).right(races=False)
        assert counters.bank_conflicts == 0, dict(counters)


TARGETS = ("sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90a", "sm_100", "sm_120")


def test_compiles_for_every_target_without_spills():
    fixed = {"EPILOGUE_CODES": 2 | 5 << 5}
    old = [mma(INSTRUCTION=1, **SM75), mma("int8", b="k", **INT8 | SM75 | fixed | {"INSTRUCTION": 4})]
    kernels = {"sm_75": old, "sm_87": [mma(SPLIT=1), mma("int8", b="k", **INT8, **fixed)]}
    floats = [mma("float32", b=b, BLOCK_M=128, WARP_M=64, **FLOAT, **fixed) for b in "kn"]
    doubles = [mma("float64", b=b, BLOCK_M=128, WARP_M=64, **DOUBLE, **fixed) for b in "kn"]
    kernels |= {"sm_80": [mma(**fixed), *floats, *doubles], "sm_90a": [mma(**fixed), *floats, *doubles]}
    kernels["sm_90a"] += [kernel.with_constants(INSTRUCTION=code, BLOCK_K=16) for kernel in doubles for code in (6, 7)]
    kernels |= {"sm_86": [mma("float32", **TF32, **fixed)], "sm_89": [mma("bfloat16", **fixed)]}
    requests = [(k.source(), target) for target in TARGETS for k in kernels.get(target, [mma(**fixed)])]
    for (_, target), binary in zip(requests, compile_many(requests), strict=True):
        assert binary.error is None, (target, binary.error)
        assert binary.spill_bytes == binary.stack_bytes == 0, (target, binary.log)


# Instructions of the hot loop per matrix instruction, tile by tile: a loop that is not unrolled, a spill or an
# address computed anew doubles them.
@pytest.mark.parametrize(
    ("tile", "most"),
    [
        ({"BLOCK_M": 128, "BLOCK_N": 128, "WARP_M": 64, "WARP_N": 64, "STAGES": 4}, 2.3),
        ({"BLOCK_M": 128, "BLOCK_N": 256, "WARP_M": 64, "WARP_N": 64}, 2.3),
        ({"BLOCK_M": 64, "BLOCK_N": 64, "WARP_M": 32, "WARP_N": 32, "BLOCK_K": 64}, 3.6),
        (SKINNY, 8.0),
    ],
)
def test_hot_loop_and_access_widths_in_sass(tile, most):
    _, entry = machine_code(mma(**tile, EPILOGUE_CODES=31), "sm_87")
    matrix = sum(count for name, count in entry.hot_loop.items() if name.startswith("HMMA"))
    assert sum(entry.hot_loop.values()) <= most * matrix, entry.hot_loop
    assert set(entry.widths(GLOBAL_ACCESSES)) == {16}


@pytest.mark.parametrize(
    ("constants", "sentence"),
    [
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
)
def test_an_illegal_program_is_told_why(constants, sentence):
    with pytest.raises(BuildError) as failure:
        build(mma(**constants).source())
    assert sentence in failure.value.log
