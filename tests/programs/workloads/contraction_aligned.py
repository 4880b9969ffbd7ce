"""Workloads of contraction_aligned: products of operands that tensor copies cannot read."""

from gensor_kernels.operators.products.matmul import workload
from gensor_kernels.programs.contraction.rewrite import align

from . import Contract, copies_lie_behind_partial_sums, product_and_reduction

CONTRACT = Contract(
    [
        ("sm_90", workload(1000, 1001, 517, dtype="bfloat16", epilogue=("bias", "gelu"))),
        ("sm_90", workload(512, 512, 516, dtype="bfloat16", epilogue=("bias", "gelu"))),
    ],
    entries=lambda program: ["contraction_align", *product_and_reduction(program)],
    check=copies_lie_behind_partial_sums(align.copies),
    executed=False,
)
