"""Programs of Hopper's product families match float64 on the emulator, in every order of events."""

import pytest

from gensor_kernels.operators.products import block_scaled, gated, matmul, normed
from gensor_kernels.operators.windows import conv
from gensor_kernels.programs.registry import FAMILIES
from tests.campaign_size import sample
from tests.programs.lattices import ALIGNED, WGMMA
from tests.programs.warpgroups import is_right, small
from tests.programs.workloads import contraction_packed_wgmma as packed
from tests.programs.workloads.contraction_floats_wgmma import FIRST, ONE_TAP, image
from tests.programs.workloads.window import padded

PACKED, FLOATS = FAMILIES["contraction_packed_wgmma"], FAMILIES["contraction_floats_wgmma"]
TF32 = {"dtype": "float32", "math": "tf32"}
E4M3, E5M2 = "float8_e4m3fn", "float8_e5m2"
SIZES = {"n": 8, "h": 28, "w": 28, "c": 128, "k_out": 128, "r": 3, "s": 3}
TURNS = {"persistent": 2, "consumers": 2}
PAIRS = TURNS | {"cluster": 2}


def norm(name, **more):
    """A product whose rows are normalised after some operations."""
    return normed.with_norm(name, matmul.workload(512, 768, 768, epilogue=("bias", "add", "mul", "bias"), **more), 2)


def floats(m=512, n=511, k=1003, **more):
    return matmul.workload(m, n, k, dtype="float32", **more)


NT = {"trans_b": True}
TWO = {"block_m": 128, "consumers": 2}
COPIED = {"epilogue_staged": 3}
PRODUCTS = {
    "k-contiguous": (matmul.workload(512, 512, 512, **NT, epilogue="scale_bias_relu"), {"raster": 2}),
    "n-contiguous": (matmul.workload(512, 512, 512, batch=2, epilogue="add"), {}),
    "both turned, split": (matmul.workload(512, 512, 512, trans_a=True, **NT), {"split_k": 3, "block_n": 80}),
    "long steps": (matmul.workload(512, 512, 512, trans_a=True), {"block_k": 128}),
    "bfloat16, eight stages": (
        matmul.workload(512, 512, 512, dtype="bfloat16", out="float32", **NT, batch=3),
        {"block_n": 16, "stages": 8},
    ),
    "stored from registers": (matmul.workload(512, 512, 512, **NT), {"block_n": 144, "epilogue_staged": 0}),
    "single columns": (matmul.workload(512, 511, 512, **NT), {"vector_c": 2}),
    "two warpgroups": (matmul.workload(512, 512, 512, epilogue="bias"), TWO | {"block_m": 256, "block_n": 128}),
    "three warpgroups": (matmul.workload(512, 512, 512, **NT), {"block_m": 192, "consumers": 3, "block_n": 192}),
    "tf32": (matmul.workload(512, 512, 512, **TF32, **NT, epilogue="add"), {"block_k": 32}),
    "int8": (matmul.workload(512, 512, 512, dtype="int8", **NT), {"block_m": 128, "block_k": 128}),
    "int8 to int8": (
        matmul.workload(512, 512, 512, dtype="int8", out="int8", **NT),
        {"block_k": 256, "epilogue_staged": 0},
    ),
    "8-bit floats": (
        matmul.workload(512, 512, 512, dtype=E4M3, dtype_b=E5M2, out="bfloat16", **NT),
        {"block_m": 128, "block_k": 128},
    ),
    "8-bit floats, split": (
        matmul.workload(512, 512, 512, dtype=E5M2, dtype_b=E4M3, **NT),
        {"block_k": 128, "split_k": 3},
    ),
    "8-bit floats, in turns": (matmul.workload(512, 512, 512, dtype=E4M3, **NT), TURNS | {"block_k": 128}),
    "walking": (matmul.workload(512, 512, 512, trans_a=True, **NT, epilogue="bias"), {"persistent": 1}),
    "in turns": (matmul.workload(512, 512, 512, batch=2), TURNS | {"epilogue_staged": 0}),
    "three in turns": (matmul.workload(512, 512, 512, **NT), {"persistent": 2, "consumers": 3, "split_k": 3}),
    "two blocks": (matmul.workload(512, 512, 512, **NT, epilogue="bias_gelu"), {"min_blocks": 2, "epilogue_fixed": 1}),
    "pairs along m": (matmul.workload(512, 512, 512, **NT), {"cluster": 1}),
    "pairs along n, walking": (matmul.workload(512, 512, 512, trans_a=True), {"cluster": 2, "persistent": 1}),
    "pairs in turns": (
        matmul.workload(512, 512, 512, dtype=E4M3, **NT, batch=2),
        TURNS | {"block_k": 128, "cluster": 1, "epilogue_staged": 0},
    ),
    # Boxes that are partial, one to seven to a row; outputs of 32 bits change places in their batches, and those of
    # 8 bits fill a box in four.
    "stored by copies": (matmul.workload(512, 512, 512, **NT, epilogue="bias"), COPIED),
    "stored by copies, float32": (
        matmul.workload(512, 512, 512, dtype="bfloat16", out="float32", **NT, batch=2, epilogue="add"),
        COPIED | {"block_n": 224},
    ),
    "stored by copies, one box to a row": (
        matmul.workload(512, 512, 512, **TF32, **NT, epilogue="bias_relu"),
        COPIED | {"block_k": 32, "block_n": 32, "persistent": 1},
    ),
    "stored by copies, three boxes": (
        matmul.workload(512, 512, 512, dtype=E4M3, out="float32", **NT, batch=2),
        COPIED | TURNS | {"block_k": 128, "block_n": 96},
    ),
    "stored by copies, int32": (
        matmul.workload(512, 512, 512, dtype="int8", **NT),
        COPIED | {"block_k": 128, "block_n": 128, "persistent": 1, "cluster": 1},
    ),
    "stored by copies, int8": (
        matmul.workload(512, 512, 512, dtype="int8", out="int8", **NT, epilogue="relu"),
        COPIED | TURNS | {"block_k": 128, "block_n": 256},
    ),
    "stored by copies, pairs": (
        matmul.workload(512, 512, 512, dtype="bfloat16", **NT, batch=2),
        COPIED | {"block_m": 128, "cluster": 2, "persistent": 1},
    ),
    "stored by copies, in turns": (matmul.workload(512, 512, 512, **NT, batch=2), COPIED | TURNS | {"block_n": 192}),
}
SCALED = block_scaled.workload(512, 512, 1024)
ALIGNED_PRODUCTS = {
    "both, split": (matmul.workload(512, 511, 587), {"split_k": 2}),
    "one of two, walking": (
        matmul.workload(512, 512, 588, dtype="bfloat16", trans_a=True, trans_b=True),
        {"persistent": 1},
    ),
    "int8 turned": (matmul.workload(512, 516, 588, dtype="int8"), {"block_k": 128, "vector_c": 16}),
    "tf32 turned": (matmul.workload(512, 516, 588, **TF32, trans_a=True), {"block_k": 32, "vector_c": 16}),
    "8-bit floats": (matmul.workload(512, 516, 588, dtype=E4M3, dtype_b=E5M2), {"block_k": 128, "vector_c": 16}),
    "widened b": (matmul.workload(512, 512, 528, dtype_b="int8", trans_b=True, epilogue=("mul",)), {"vector_c": 16}),
    "widened b, split": (matmul.workload(512, 513, 531, dtype="bfloat16", dtype_b=E4M3), {"split_k": 2}),
    "widened a": (matmul.workload(512, 512, 528, dtype=E5M2, dtype_b="float16", trans_a=True), {"vector_c": 16}),
}
FLOAT_PRODUCTS = {
    "split": (floats(), {"split_k": 2}),
    "walking": (floats(512, 516, 1004, trans_a=True, trans_b=True), {"persistent": 1, "vector_c": 16}),
    "epilogue": (
        floats(512, 512, 1024, epilogue=("bias", "gelu")),
        {"block_m": 128, "consumers": 2, "epilogue_fixed": 1},
    ),
    "in turns of pairs": (floats(batch=3), PAIRS | {"epilogue_staged": 0}),
    "pairs along m": (floats(512, 512, 1024, trans_b=True), {"block_n": 32, "cluster": 1, "stages": 4}),
    "image, split": (image(), {"split_k": 2}),
    "image, filters last, in turns of pairs": (image(c=255, weights="rsck"), PAIRS),
    "image, odd window": (
        image(n=3, h=9, w=23, c=200, k_out=77, s=5, stride_h=2, dilation_w=2),
        {"block_n": 16, "cluster": 1},
    ),
    "image, one tap": (
        image(**ONE_TAP, stride_h=2, epilogue=("bias", "relu", "add")),
        {"epilogue_staged": 0, "persistent": 1},
    ),
    "image, stored by copies": (
        image(),
        {"block_m": 128, "block_n": 128, "consumers": 2, "epilogue_staged": 3, "vector_c": 16},
    ),
    "channels first, split": (image(**FIRST), {"split_k": 2}),
    "channels first, in turns of pairs": (image(**FIRST, c=255, k_out=77, n=3, h=9, w=11, stride_w=2), PAIRS),
    "channels first, one column": (
        image(**FIRST, c=512, s=1, pad_left=0, pad_right=0, stride_w=2, epilogue=("bias", "relu")),
        {"cluster": 1},
    ),
}
SCALED_PRODUCTS = {
    "one tile": (SCALED, {}),
    "split": (block_scaled.workload(512, 512, 1024, dtype_b=E5M2, out="float32"), {"block_n": 32, "split_k": 3}),
    "pairs": (SCALED, {"block_m": 128, "block_n": 128, "consumers": 2, "persistent": 1, "stages": 3, "cluster": 2}),
    "in turns, two tiles of sums": (SCALED, {"block_m": 128, "block_n": 16} | TURNS),
    "two scales, pairs": (SCALED, {"block_m": 128, "block_n": 112, "consumers": 2, "persistent": 1, "cluster": 1}),
    "two scales, split": (block_scaled.workload(512, 512, 1024, out="float32"), {"block_n": 96, "split_k": 2}),
    "two scales, two tiles of sums": (SCALED, {"block_m": 128, "block_n": 80, "epilogue_staged": 0}),
    "stream": (
        block_scaled.workload(512, 512, 1024, out="float16"),
        {"block_m": 128, "stream": 8, "persistent": 1},
    ),
}
GATED_PRODUCTS = {
    "bias, walking": (
        gated.workload("bias_swiglu", 256, 512, 256, trans_b=True, epilogue="add"),
        {"block_n": 32, "persistent": 1},
    ),
    "pairs, in turns, stored by copies": (
        gated.workload("geglu", 256, 512, 256, dtype="bfloat16", trans_a=True),
        PAIRS | {"block_n": 64, "epilogue_staged": 3},
    ),
    "n-contiguous": (
        gated.workload("reglu", 256, 512, 256, out="float32", batch=2),
        {"block_n": 128, "epilogue_staged": 0},
    ),
    "8-bit floats": (
        gated.workload("swiglu", 256, 512, 256, dtype=E4M3, out="float16", trans_b=True),
        {"block_k": 128, "block_n": 48},
    ),
    "tf32": (gated.workload("geglu_tanh", 256, 512, 256, **TF32, trans_b=True), {"block_k": 32, "block_n": 16}),
}
NORMS = {
    "one part": (norm("layernorm"), {}),
    "split, walking": (
        norm("rmsnorm", dtype="bfloat16", trans_b=True),
        {"split_k": 2, "epilogue_staged": 0, "persistent": 1},
    ),
    "in turns of pairs": (norm("layernorm", batch=2), PAIRS | {"split_k": 3}),
    "8-bit floats": (
        norm("layernorm", dtype=E4M3, trans_b=True, out="float16"),
        {"block_k": 128, "block_m": 128, "consumers": 2},
    ),
    "tf32": (norm("rmsnorm", **TF32, trans_b=True), {"block_k": 32, "cluster": 1}),
}
PACKED_IMAGES = {
    "groups, split": (packed.workload(groups=2, epilogue="bias_add_relu"), {"split_k": 2}),
    "pairs share pixels": (
        packed.workload(dtype="bfloat16", **padded()),
        {"cluster": 1, "persistent": 1, "block_n": 16},
    ),
    "pairs share filters": (
        packed.workload(**padded()),
        {"cluster": 2, "block_n": 128, "epilogue_staged": 3, "vector_c": 16},
    ),
    "in turns": (packed.workload(dtype="int8"), TURNS | {"block_k": 128, "vector_c": 4}),
    "tf32": (packed.workload(**TF32), {"block_k": 32, "vector_c": 4, "epilogue_staged": 0}),
}
IMAGES = {
    "filters last, split": (conv.workload(**SIZES, dtype="bfloat16", weights="rsck"), {"split_k": 2}),
    "in turns": (conv.workload(**SIZES, dtype="int8"), TURNS | {"block_k": 128}),
}
#: Kind of product -> its family, the values of all its Programs, and Programs.
KINDS = {
    "product": (WGMMA, {"vector_c": 16}, PRODUCTS),
    "aligned": (ALIGNED, {"vector_c": 2}, ALIGNED_PRODUCTS),
    "floats": (FLOATS, {"vector_c": 4}, FLOAT_PRODUCTS),
    "block-scaled": (WGMMA, {"block_k": 128, "vector_c": 16}, SCALED_PRODUCTS),
    "gate": (WGMMA, {"vector_c": 16}, GATED_PRODUCTS),
    "norm": (WGMMA, {"vector_c": 16}, NORMS),
    "packed": (PACKED, {"vector_c": 2}, PACKED_IMAGES),
    "image": (WGMMA, {"vector_c": 16, "epilogue_fixed": 1}, IMAGES),
}
#: Programs whose verification takes ten seconds and more.
DEAR = (
    "image, stored by copies",
    "channels first, split",
    "channels first, in turns of pairs",
    "channels first, one column",
)
PROGRAMS = [
    pytest.param(
        family,
        workload,
        usual | values,
        id=f"{kind}: {name}",
        marks=[pytest.mark.nightly] if name in DEAR else [],
    )
    for kind, (family, usual, programs) in KINDS.items()
    for name, (workload, values) in programs.items()
]


@pytest.mark.parametrize(("family", "workload", "values"), sample(PROGRAMS, 30))
def test_a_program_matches_float64(family, workload, values):
    verdict = is_right(small(family, workload, **values), workload)
    assert family is not WGMMA or verdict.counters["bank_conflicts"] == 0
