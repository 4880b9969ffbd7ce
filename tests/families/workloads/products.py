"""Workloads of the families of products: every kind of operand, copy and layout."""

from dataclasses import replace

from gensor_kernels.operators.products.block_scaled import workload as block_scaled
from gensor_kernels.operators.products.gated import workload as gated
from gensor_kernels.operators.products.matmul import workload
from gensor_kernels.operators.products.matmul_prologue import workload as prepared
from gensor_kernels.operators.products.quantised import FORMATS, formatted
from gensor_kernels.operators.products.quantised import workload as quantised
from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.operators.windows.conv import workload as convolution

from . import Contract, product_and_reduction


def scattered(workload: Workload) -> Workload:
    """Return the same product of operands in which no axis is contiguous."""
    single = {name: facts(dtype).itemsize for name, dtype in workload.dtypes}
    return replace(workload, layout=tuple((name, "s") for name in "abc"), alignment=tuple(single.items()))


SQUARE = {"n": 2, "h": 28, "w": 28, "c": 64, "k_out": 64, "r": 3, "s": 3}
#: A, whose rows begin at odd elements.
ODD = workload(300, 512, 1000, trans_b=True)
CONTRACTS = {
    "contraction_mma": Contract(
        [
            ("sm_80", workload(1000, 1004, 520)),
            ("sm_87", workload(1, 4096, 4096, trans_b=True)),
            ("sm_75", workload(512, 512, 512, trans_a=True)),
            ("sm_90", workload(77, 33, 1001, dtype="bfloat16", epilogue=("bias", "gelu"))),
            ("sm_89", workload(640, 640, 640, dtype="float32", math="tf32", trans_b=True)),
            ("sm_120", workload(256, 256, 256, dtype="int8", out="int8", trans_a=True)),
            ("sm_75", workload(256, 256, 256, dtype="int8")),
            ("sm_87", workload(64, 2112, 7168, dtype="float8_e4m3fn", trans_b=True)),
            ("sm_90", workload(100, 256, 1024, dtype="bfloat16", dtype_b="int8")),
            ("sm_87", quantised(16, 512, 1024, bits=4, group=64, zeros=True)),
            ("sm_90", workload(300, 300, 300, dtype="float64", trans_a=True, epilogue=("bias",))),
            ("sm_80", workload(300, 300, 300, dtype="complex128", trans_b=True, epilogue=("scale", "add"))),
            ("sm_90", workload(300, 300, 300, dtype="complex128", math="3m", trans_a=True, conjugate="a")),
            ("sm_80", convolution(n=2, h=28, w=28, c=64, k_out=64, r=3, s=3, dtype="float16")),
            ("sm_87", scattered(workload(256, 256, 256, epilogue="bias_tanh"))),
            ("sm_87", workload(254, 254, 254, epilogue="mask_gelu_tanh")),
            ("sm_90", scattered(workload(64, 64, 64, dtype="float64"))),
            ("sm_80", workload(511, 511, 511, dtype="float32", trans_a=True)),
            ("sm_75", workload(255, 255, 255, dtype="int8", trans_b=True)),
            ("sm_80", workload(256, 256, 256, dtype="int8", out="float16", trans_a=True)),
            (
                "sm_89",
                workload(256, 512, 4096, dtype="float8_e5m2", dtype_b="float8_e4m3fn", out="float16", trans_b=True),
            ),
            ("sm_87", workload(256, 512, 4096, dtype="float16", dtype_b="float8_e5m2", trans_b=True)),
            ("sm_87", workload(256, 512, 4096, dtype="int8", dtype_b="float16", trans_b=True)),
            (
                "sm_87",
                workload(256, 512, 4096, dtype="float8_e5m2", dtype_b="float8_e4m3fn", trans_a=True, trans_b=True),
            ),
            ("sm_80", convolution(n=4, h=14, w=14, c=64, k_out=64, r=3, s=3, layout="nchw", dtype="bfloat16")),
            ("sm_75", convolution(n=4, h=14, w=14, c=64, k_out=64, r=3, s=3, weights="rsck", dtype="int8")),
        ],
        fewest_starters=4,
        executed=False,
        # Products of int8 (instructions 3 and 4) are read across rows.
        conflict_free=lambda program: program["swizzle"] == 1 and program["instruction"] not in (3, 4),
    ),
    "contraction_blocks": Contract(
        [
            ("sm_87", formatted(16, 512, 1024, "nvfp4", dtype="bfloat16")),
            ("sm_120", formatted(256, 512, 1024, "nvfp4", epilogue=("mul", "bias", "gelu"))),
            ("sm_80", formatted(100, 264, 1120, "mxfp4", dtype="float16", out="float32")),
            ("sm_90", formatted(300, 256, 1024, "mxfp4", out="float16")),
            ("sm_87", formatted(1, 512, 2048, "mxfp8", dtype="float16", out="float16", epilogue=("bias",))),
            ("sm_89", formatted(512, 512, 512, "mxfp8")),
            ("sm_80", formatted(64, 256, 512, "mxfp8_e5m2")),
            ("sm_120", workload(100, 264, 1120, dtype="float8_e5m2", dtype_b="float8_e4m3fn", trans_b=True, batch=2)),
            ("sm_120", block_scaled(512, 1024, 1024)),
            ("sm_89", block_scaled(16, 520, 1104, dtype_b="float8_e5m2", out="float32", epilogue=("bias", "silu"))),
        ],
        fewest_starters=2,
        spills=None,
    ),
    "contraction_simt": Contract(
        [
            ("sm_89", workload(4096, 4096, 4096, dtype="float32")),
            ("sm_75", workload(129, 127, 65, dtype="float32", trans_a=True, trans_b=True)),
            ("sm_80", workload(300, 300, 300, dtype="float64", epilogue=("relu",))),
            ("sm_90", workload(100, 200, 304, dtype="float16", trans_b=True)),
            ("sm_86", workload(100, 200, 304, dtype="int8")),
            ("sm_87", workload(256, 256, 256, dtype="complex64", math="3m", trans_a=True, conjugate="a")),
            ("sm_80", workload(129, 127, 65, dtype="complex128", epilogue=("scale", "add"))),
            ("sm_87", convolution(**SQUARE, stride_h=2, stride_w=2, pad_top=1, pad_left=1)),
            ("sm_90", convolution(**SQUARE, layout="nchw", dtype="float64", transposed=True)),
            ("sm_87", scattered(workload(64, 64, 64, dtype="float32"))),
            ("sm_87", workload(254, 254, 254, dtype="float32", epilogue="mask_gelu_tanh")),
            ("sm_87", workload(256, 256, 256, dtype="bfloat16", trans_b=True, epilogue="mul_relu6")),
            ("sm_87", workload(255, 256, 255, dtype="int8", out="int8")),
            ("sm_87", workload(95, 79, 63, dtype="complex64", math="3m", trans_a=True, trans_b=True, conjugate="b")),
            ("sm_90", workload(95, 79, 63, dtype="complex128", trans_a=True, conjugate="ab")),
        ],
        fewest_starters=4,
        executed=False,
    ),
    "contraction_wgmma": Contract(
        [
            ("sm_90", workload(1000, 1008, 520, trans_b=True)),
            ("sm_90", workload(512, 512, 512, dtype="float8_e4m3fn", dtype_b="float8_e5m2", trans_b=True)),
            ("sm_90", workload(512, 512, 512, dtype="float32", math="tf32", trans_b=True)),
            ("sm_90", workload(512, 512, 512, dtype="int8", trans_b=True)),
            ("sm_90", workload(256, 4096, 4096, dtype="bfloat16", trans_a=True, out="float32", epilogue=("bias",))),
            ("sm_90", gated("swiglu", 512, 1376, 1024, trans_b=True, epilogue=("add",))),
            ("sm_90", convolution(n=8, h=28, w=28, c=72, k_out=96, r=3, s=3, stride_h=2, dtype="float16")),
            ("sm_90", convolution(n=8, h=28, w=28, c=128, k_out=128, r=3, s=3, dtype="int8")),
            ("sm_90", convolution(n=8, h=28, w=28, c=128, k_out=128, r=3, s=3, weights="rsck", dtype="bfloat16")),
            ("sm_90", block_scaled(512, 1024, 1024)),
            ("sm_90", block_scaled(512, 512, 1024, dtype_b="float8_e5m2", out="float32")),
            ("sm_90", gated("reglu", 256, 512, 256, out="float32", batch=2)),
            ("sm_90", gated("swiglu", 256, 512, 256, dtype="float8_e4m3fn", out="float16", trans_b=True)),
            ("sm_90", gated("geglu_tanh", 256, 512, 256, dtype="float32", math="tf32", trans_b=True)),
            ("sm_90", workload(512, 512, 512, dtype="int8", out="int8", trans_b=True, epilogue="relu")),
            ("sm_90", workload(512, 511, 512, trans_b=True)),
        ],
        fewest_starters=3,
        executed=False,
        randoms=2,
        conflict_free=lambda program: True,
    ),
    "contraction_tcgen05": Contract(
        [
            ("sm_100", workload(1000, 1008, 520, trans_b=True)),
            ("sm_100", workload(512, 512, 512, dtype="float8_e4m3fn", dtype_b="float8_e5m2", trans_b=True)),
            ("sm_100", workload(512, 512, 512, dtype="float32", math="tf32", trans_b=True)),
            ("sm_100", workload(512, 512, 512, dtype="int8", out="int8", trans_b=True, epilogue="relu")),
            ("sm_100", workload(256, 4096, 4096, dtype="bfloat16", trans_a=True, out="float32", epilogue=("bias",))),
            ("sm_100", block_scaled(512, 1024, 1024)),
            ("sm_100", block_scaled(512, 512, 1024, dtype_b="float8_e5m2", out="float32")),
            ("sm_100", gated("swiglu", 512, 1376, 1024, trans_b=True, epilogue=("add",))),
            ("sm_100", gated("reglu", 256, 512, 256, out="float32", batch=2)),
            ("sm_100", convolution(n=8, h=28, w=28, c=72, k_out=96, r=3, s=3, stride_h=2, dtype="float16")),
            ("sm_100", convolution(n=8, h=28, w=28, c=128, k_out=128, r=3, s=3, weights="rsck", dtype="bfloat16")),
            ("sm_100", workload(512, 511, 512, trans_b=True)),
            *(("sm_100", formatted(512, 512, 2048, form)) for form in FORMATS),
            ("sm_100", formatted(1000, 1008, 4160, "nvfp4", out="float32", epilogue=("scale", "bias"))),
        ],
        fewest_starters=2,
        executed=False,
        randoms=2,
        conflict_free=lambda program: True,
    ),
    "contraction_aligned": Contract(
        [
            ("sm_90", workload(1000, 1001, 517, dtype="bfloat16", epilogue=("bias", "gelu"))),
            ("sm_90", workload(512, 512, 516, dtype="bfloat16", epilogue=("bias", "gelu"))),
            ("sm_90", workload(512, 516, 588, dtype="float32", math="tf32", trans_a=True)),
            ("sm_90", workload(512, 516, 588, dtype="float8_e4m3fn", dtype_b="float8_e5m2")),
            ("sm_90", workload(512, 512, 528, dtype="float8_e5m2", dtype_b="float16", trans_a=True)),
            ("sm_90", workload(512, 513, 531, dtype="bfloat16", dtype_b="float8_e4m3fn")),
        ],
        entries=lambda program: ["contraction_align", *product_and_reduction(program)],
        executed=False,
    ),
    "contraction_sliced": Contract(
        [
            ("rtx-4090", workload(512, 512, 512, dtype="float64", math="ozaki")),
            ("sm_87", workload(300, 301, 1003, dtype="float64", math="ozaki", trans_b=True, epilogue=("bias", "relu"))),
        ],
        entries=lambda program: ["contraction_slice", program.family],
        executed=False,
    ),
    "contraction_weights_wgmma": Contract(
        [
            ("sm_90", quantised(1024, 4096, 4096, bits=8, group=0)),
            ("sm_90", quantised(16, 4096, 4096, zeros=True)),
            (
                "sm_90",
                quantised(300, 1000, 2048, bits=8, group=64, zeros=True, dtype="bfloat16", epilogue=("bias", "silu")),
            ),
            ("sm_90", quantised(64, 1024, 4096, group=32, dtype="bfloat16", out="float32")),
            ("sm_90", quantised(2048, 4096, 4096, group=0, zeros=True, epilogue=("add",))),
            ("sm_90", quantised(256, 1001, 2048, bits=8, group=128)),
            ("sm_90", workload(512, 1000, 1024, dtype="float32", math="tf32", batch=3, epilogue=("bias", "relu"))),
        ],
        fewest_starters=4,
        compiled=4,
        spills={},
    ),
    "contraction_prepared_wgmma": Contract(
        [
            ("sm_90", prepared(("gelu",), workload(1024, 1024, 1024, trans_b=True))),
            ("sm_90", prepared(("bias", "silu"), workload(512, 1000, 512, dtype="bfloat16", trans_a=True), "float32")),
            ("sm_90", prepared(("mul", "bias"), replace(ODD, alignment=ODD.align | {"a": 2}))),
            (
                "sm_90",
                prepared(
                    ("scale", "tanh"), workload(128, 256, 512, batch=3, dtype="float32", math="tf32", trans_b=True)
                ),
            ),
        ],
        entries=lambda program: ["contraction_prepare", *product_and_reduction(program)],
        fewest_starters=4,
    ),
    "gemv": Contract(
        [
            ("sm_87", workload(1, 4096, 4096, trans_b=True)),
            ("sm_90", workload(1, 4096, 4096, dtype="bfloat16")),
            ("sm_90", workload(8, 4096, 4096, dtype="float16", epilogue=("bias", "gelu"))),
            ("sm_75", workload(1, 1000, 1000, dtype="float32")),
            ("sm_80", workload(3, 1001, 999, dtype="float32", trans_b=True)),
            ("sm_80", workload(1001, 3, 999, dtype="float64", epilogue=("relu",))),
            ("sm_87", workload(1024, 1, 1024, dtype="float16", trans_a=True)),
            ("sm_89", workload(16, 512, 512, dtype="int8", trans_b=True)),
            ("sm_86", workload(2, 511, 512, dtype="int8", epilogue=("bias", "relu"))),
            ("sm_87", workload(4, 512, 512, dtype="complex64", conjugate="b", math="3m")),
            ("sm_80", workload(300, 2, 257, dtype="complex128", trans_a=True, conjugate="a")),
            ("sm_90", workload(1, 1, 100000, dtype="float32")),
            ("sm_120", workload(7, 9, 1000, dtype="float16", batch=3)),
        ],
        fewest_starters=2,
        # One block promised: the compiler may take the registers it wants.
        starters=lambda starters, index: [starters[index % len(starters)].replace(min_blocks=1)],
    ),
}
