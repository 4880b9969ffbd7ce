"""Workloads of contraction_mma: every kind of operand, copy and layout."""

from gensor_kernels.operators.products.matmul import workload
from gensor_kernels.operators.products.quantised import workload as quantised
from gensor_kernels.operators.windows.conv import workload as convolution
from tests.families.workloads.launch_rules import mma_launch

from . import Contract, scattered

CONTRACT = Contract(
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
        ("sm_89", workload(256, 512, 4096, dtype="float8_e5m2", dtype_b="float8_e4m3fn", out="float16", trans_b=True)),
        ("sm_87", workload(256, 512, 4096, dtype="float16", dtype_b="float8_e5m2", trans_b=True)),
        ("sm_87", workload(256, 512, 4096, dtype="int8", dtype_b="float16", trans_b=True)),
        ("sm_87", workload(256, 512, 4096, dtype="float8_e5m2", dtype_b="float8_e4m3fn", trans_a=True, trans_b=True)),
        ("sm_80", convolution(n=4, h=14, w=14, c=64, k_out=64, r=3, s=3, layout="nchw", dtype="bfloat16")),
        ("sm_75", convolution(n=4, h=14, w=14, c=64, k_out=64, r=3, s=3, weights="rsck", dtype="int8")),
    ],
    resources=lambda constants, workload: mma_launch(constants),
    fewest_starters=4,
    executed=False,
    # Products of int8 (instructions 3 and 4) are read across rows.
    conflict_free=lambda program: program["swizzle"] == 1 and program["instruction"] not in (3, 4),
)
