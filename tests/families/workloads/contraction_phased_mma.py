"""Workloads of contraction_phased_mma: transposed convolutions by phases on tensor cores."""

from dataclasses import replace

from .contraction_phased import CONTRACT as BY_CUDA_CORES
from .contraction_phased import transposed

CONTRACT = replace(
    BY_CUDA_CORES,
    served=[
        ("sm_87", transposed(dtype="float16", epilogue="bias_add_relu")),
        ("sm_80", transposed(dtype="bfloat16", weights="rsck", groups=2)),
        ("sm_75", transposed(dtype="int8")),
        ("sm_89", transposed(dtype="float32", math="tf32")),
        ("sm_87", transposed(dtype="float32", c=128)),
        ("sm_90", transposed(dtype="float64", weights="rsck")),
    ],
)
