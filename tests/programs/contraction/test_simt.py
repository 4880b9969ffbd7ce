"""contraction_simt: right on the emulator, clean in SASS, and as its header says."""

import re

import pytest

from gensor_kernels.build.nvrtc import compile_many
from gensor_kernels.build.sass import SHARED_ACCESSES
from gensor_kernels.devices.emulator import build
from gensor_kernels.errors import BuildError
from tests.programs.contraction.machine_code import machine_code
from tests.programs.workloads.contraction_harness import Case, Problem, simt

TARGETS = ("sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90a", "sm_100", "sm_120")
# 256 threads of 8 x 8 outputs: the shape of a large SGEMM.
SGEMM = {
    "BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 16, "THREAD_M": 8, "THREAD_N": 8, "VTHREAD_M": 2, "VTHREAD_N": 2,
    "LANES_M": 4, "PAD": 1,
}  # fmt: skip
WIDE = {"BLOCK_M": 64, "BLOCK_N": 64, "THREAD_M": 4, "THREAD_N": 4, "VTHREAD_M": 2, "VTHREAD_N": 2}

# Complex numbers: four products as they are, or three.
COMPLEX = {"BLOCK_M": 32, "BLOCK_N": 32, "THREAD_M": 2, "THREAD_N": 4, "VTHREAD_N": 1, "FORM": 4}
GAUSS = COMPLEX | {"FORM": 3}

# Every dtype, layout, vector width, stage count, store route and virtual-thread shape occurs; sizes are ragged on
# every axis, as far as the vectors allow.
KERNELS = {
    "nn": (simt(), Case(70, 140, 44, raster=2)),
    "nt": (simt(b="k", STAGES=1, PAD=1, C_VECTOR=4), Case(70, 133, 44, epilogue=("scale", "bias", "relu"))),
    "tn": (simt(a="m", EPILOGUE_STAGED=1), Case(68, 140, 41, batch=(2, 1, 2), epilogue=("add", "silu"))),
    "tt": (
        simt(a="m", b="k", SPLIT=1, LANES_M=8, C_VECTOR=4),
        Case(100, 77, 100, split=3, epilogue=("bias", "gelu_tanh")),
    ),
    "ss": (simt(a="s", b="s", c="s", VTHREAD_M=2), Case(37, 67, 19, batch=(1, 1, 3))),
    "narrow": (simt(A_VECTOR=4, B_VECTOR=8, C_VECTOR=4, BLOCK_K=16), Case(33, 66, 37, epilogue=("mask",))),
    "f64": (simt("float64", **WIDE, EPILOGUE_STAGED=1), Case(70, 70, 42, epilogue=("bias", "gelu"))),
    "f64 split": (simt("float64", **WIDE, b="k", SPLIT=1, PAD=1), Case(65, 66, 90, split=4)),
    "f16": (simt("float16", BLOCK_K=16, EPILOGUE_STAGED=1), Case(70, 136, 72, epilogue=("bias", "cast", "add"))),
    "f16 odd": (simt("float16", "float32", A_VECTOR=2, B_VECTOR=2, C_VECTOR=4), Case(35, 65, 33)),
    "bf16": (simt("bfloat16", b="k", BLOCK_K=32, A_VECTOR=8), Case(70, 136, 72, epilogue=("mul", "relu6"))),
    "i8": (simt("int8", BLOCK_K=16), Case(33, 80, 48, epilogue=("bias", "relu"), integer_steps=2)),
    "i8 out": (simt("int8", "int8", a="s", EPILOGUE_STAGED=1), Case(33, 80, 45)),
    "c64": (
        simt("complex64", **COMPLEX, A_CONJUGATE=1, EPILOGUE_STAGED=1),
        Case(68, 70, 40, batch=(2, 1, 2), epilogue=("scale", "bias", "mul", "add")),
    ),
    "c64 split": (
        simt("complex64", **COMPLEX, a="m", b="k", B_CONJUGATE=1, SPLIT=1, PAD=1),
        Case(66, 68, 90, split=4, epilogue=("mask", "cast")),
    ),
    "c64 three": (
        simt("complex64", **GAUSS, a="s", A_VECTOR=8, B_CONJUGATE=1, STAGES=1),
        Case(65, 66, 41, epilogue=("mul",)),
    ),
    "c64 three split": (
        simt("complex64", **GAUSS, b="k", A_CONJUGATE=1, SPLIT=1, EPILOGUE_STAGED=1),
        Case(66, 70, 90, split=3),
    ),
    "c128": (simt("complex128", **COMPLEX, b="k", B_CONJUGATE=1), Case(67, 65, 41, epilogue=("bias", "scale", "mul"))),
    "c128 three": (
        simt("complex128", **GAUSS, a="m", c="s", EPILOGUE_STAGED=1),
        Case(65, 68, 44, raster=2, epilogue=("add", "mask")),
    ),
    "odd threads": (
        simt(BLOCK_M=96, BLOCK_N=48, THREAD_M=6, THREAD_N=6, VTHREAD_M=2, VTHREAD_N=3, B_VECTOR=8),
        Case(101, 52, 20),
    ),
    "row": (simt(BLOCK_M=1, THREAD_M=1, THREAD_N=2, LANES_M=1, BLOCK_K=32), Case(1, 132, 100)),
}


@pytest.mark.parametrize("name", KERNELS)
def test_matches_float64(name):
    kernel, case = KERNELS[name]
    problem, branches = Problem(kernel, case), {}
    for order in ("forward", "reverse", 5):
        branches = problem.right(order=order).branches
    expected = {"edge_n", "steady", "drain"} | ({"split_reduce"} if case.split > 1 else set())
    assert expected <= set(branches)
    Problem(kernel, case.without_products()).right()


def test_wide_loads_and_no_bank_conflicts():
    half = KERNELS["f16"][0].with_constants(B_VECTOR=8)  # 8 bytes become one store of 16
    wide = COMPLEX | {"BLOCK_M": 64, "BLOCK_N": 64, "THREAD_M": 4, "VTHREAD_M": 2, "VTHREAD_N": 2, "LANES_M": 4}
    complexes = [
        simt("complex64", b="k", **wide | {"FORM": form, "LANES_M": lanes}) for form, lanes in ((4, 4), (3, 4))
    ]
    for kernel in (simt(**SGEMM), simt(a="m", b="k", **SGEMM | {"PAD": 0}), half, KERNELS["f64"][0], *complexes):
        counters = Problem(kernel, Case(132, 136, 40)).right(races=False)
        assert set(counters.global_widths()) == {16, kernel.value("B_VECTOR")}
        assert counters.bank_conflicts == 0, dict(counters)


def test_splits_without_work_add_zeros():
    Problem(KERNELS["tt"][0], Case(12, 9, 4, split=4)).right()


def test_compiles_for_every_target_without_spills():
    # Without MIN_BLOCKS ptxas may spill a few bytes of the epilogue to reach a round number of registers.
    kernels = [KERNELS[name][0].with_constants(MIN_BLOCKS=1) for name in ("nn", "f16", "f64 split", "i8")]
    fixed = [kernel.with_constants(EPILOGUE_CODES=2 | 5 << 5) for kernel in kernels]
    requests = [((kernels, fixed)[i // 4][i % 4].source(), target) for i, target in enumerate(TARGETS)]
    complexes = [KERNELS[name][0].with_constants(MIN_BLOCKS=1) for name in ("c64", "c64 three", "c128", "c128 three")]
    requests += [(complexes[i % 4].source(), target) for i, target in enumerate(TARGETS)]
    for (_, target), binary in zip(requests, compile_many(requests), strict=True):
        assert binary.error is None, f"{target}: {binary.error}"
        assert binary.entries["contraction_simt"].spill_bytes == 0, target


def test_hot_loop_of_sgemm_is_multiply_adds():
    binary, entry = machine_code(simt(**SGEMM, EPILOGUE_CODES=31), "sm_87")
    assert binary.spill_bytes == 0 and binary.registers <= 168
    assert entry.hot_loop["FFMA"] == 16 * 64
    assert entry.hot_loop["FFMA"] >= 0.88 * sum(entry.hot_loop.values())
    assert entry.accesses["LDS"] == {16: 4 * 16} and set(entry.accesses["LDG"]) == {16}
    assert set(entry.widths(SHARED_ACCESSES)) <= {4, 16}


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"THREAD_M": 5}, "Thread tiles must fill the block tile"),
        ({"LANES_M": 16}, "Warps must fill the block tile along M"),
        ({"A_UNIT": 0}, "A is loaded element by element"),
        ({"FORM": 3}, "FORM is 3 or 4 for complex accumulators and 1 for real ones"),
        ({"IN_TYPE": "c64"}, "must be all complex or all real"),
        ({"A_CONJUGATE": 1}, "Only complex operands can be conjugated"),
    ],
)
def test_illegal_constants_are_refused_with_a_sentence(wrong, sentence):
    with pytest.raises(BuildError) as caught:
        build(simt(**wrong).source())
    assert re.search(sentence, caught.value.log)
