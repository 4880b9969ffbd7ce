"""Workloads of contraction_prepared_wgmma: operations with vectors and without, A in every layout and alignment."""

from dataclasses import replace

from gensor_kernels.operators.products.matmul import workload as matmul
from gensor_kernels.operators.products.matmul_prologue import workload as prepared
from tests.families.workloads.launch_rules import wgmma_launch

from . import Contract

#: A, whose rows begin at odd elements.
ODD = matmul(300, 512, 1000, trans_b=True)

CONTRACT = Contract(
    [
        ("sm_90", prepared(("gelu",), matmul(1024, 1024, 1024, trans_b=True))),
        ("sm_90", prepared(("bias", "silu"), matmul(512, 1000, 512, dtype="bfloat16", trans_a=True), "float32")),
        ("sm_90", prepared(("mul", "bias"), replace(ODD, alignment=ODD.align | {"a": 2}))),
        (
            "sm_90",
            prepared(("scale", "tanh"), matmul(128, 256, 512, batch=3, dtype="float32", math="tf32", trans_b=True)),
        ),
    ],
    entries=lambda program: (
        ["contraction_prepare", "contraction_prepared_wgmma"] + ["contraction_reduce"] * (program["split_k"] > 1)
    ),
    resources=lambda constants, workload: wgmma_launch(constants),
    fewest_starters=4,
)
