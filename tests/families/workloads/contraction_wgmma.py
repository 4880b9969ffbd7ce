"""Workloads of contraction_wgmma: every kind of operand, copy and layout."""

from gensor_kernels.operators.products.block_scaled import workload as block_scaled
from gensor_kernels.operators.products.gated import workload as gated
from gensor_kernels.operators.products.matmul import workload
from gensor_kernels.operators.windows.conv import workload as convolution
from tests.families.workloads.launch_rules import wgmma_launch

from . import Contract

CONTRACT = Contract(
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
    resources=lambda constants, workload: wgmma_launch(constants),
    fewest_starters=3,
    executed=False,
    randoms=2,
    conflict_free=lambda program: True,
)
