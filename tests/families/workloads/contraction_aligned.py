"""Workloads of contraction_aligned: products of operands that tensor copies cannot read."""

from gensor_kernels.families.contraction.rewrite import align
from gensor_kernels.operators.products.matmul import workload

from . import Contract, copies_lie_behind_partial_sums, product_and_reduction

CONTRACT = Contract(
    [
        ("sm_90", workload(1000, 1001, 517, dtype="bfloat16", epilogue=("bias", "gelu"))),
        ("sm_90", workload(512, 512, 516, dtype="bfloat16", epilogue=("bias", "gelu"))),
        ("sm_90", workload(512, 516, 588, dtype="float32", math="tf32", trans_a=True)),
        ("sm_90", workload(512, 516, 588, dtype="float8_e4m3fn", dtype_b="float8_e5m2")),
        ("sm_90", workload(512, 512, 528, dtype="float8_e5m2", dtype_b="float16", trans_a=True)),
        ("sm_90", workload(512, 513, 531, dtype="bfloat16", dtype_b="float8_e4m3fn")),
    ],
    entries=lambda program: ["contraction_align", *product_and_reduction(program)],
    check=copies_lie_behind_partial_sums(align.copies),
    executed=False,
)
