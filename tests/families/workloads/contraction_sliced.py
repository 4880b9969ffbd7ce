"""Workloads of contraction_sliced: products of float64 that may be cut into slices."""

from gensor_kernels.operators.products.matmul import workload

from . import Contract

CONTRACT = Contract(
    [
        ("rtx-4090", workload(512, 512, 512, dtype="float64", math="ozaki")),
        ("sm_87", workload(300, 301, 1003, dtype="float64", math="ozaki", trans_b=True, epilogue=("bias", "relu"))),
    ],
    entries=lambda program: ["contraction_slice", program.family],
    executed=False,
)
