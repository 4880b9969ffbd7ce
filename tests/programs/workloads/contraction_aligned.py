"""Workloads of contraction_aligned: products of operands that tensor copies cannot read."""

from gensor_kernels.operators.products.matmul import workload
from gensor_kernels.programs.contraction.rewrite import align, copy_launch

from . import Contract, product_and_reduction


def check(lattice, program, launches, terms):
    """Copies of operands lie behind the partial sums."""
    places, end = copy_launch.offsets(align.copies(lattice.workload), program, lattice.workload)
    assert (program["split_k"] > 1) == (min(places.values()) > 0)
    assert lattice.family.workspace(program, lattice.workload) == (end, False)


CONTRACT = Contract(
    [
        ("sm_90", workload(1000, 1001, 517, dtype="bfloat16", epilogue=("bias", "gelu"))),
        ("sm_90", workload(512, 512, 516, dtype="bfloat16", epilogue=("bias", "gelu"))),
    ],
    entries=lambda program: ["contraction_align", *product_and_reduction(program)],
    check=check,
    executed=False,
)
