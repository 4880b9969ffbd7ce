"""Workloads of contraction_weights_wgmma: weights of both sizes, every group, with zeros and without."""

from collections.abc import Mapping

from gensor_kernels.operators.products.quantised import workload
from gensor_kernels.operators.types.workload import Workload

from . import Contract


def resources(constants: Mapping[str, int | str], _: Workload) -> tuple[int, int]:
    """Threads and shared bytes by the rules at the top of contraction_weights_wgmma.cu."""
    rows, columns, depth, stages, consumers = (
        int(constants[name]) for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "STAGES", "CONSUMERS")
    )
    return 128 * (consumers + 1), 1024 + stages * (rows * depth * 2 + columns * 128) + consumers * 4096


CONTRACT = Contract(
    [
        ("sm_90", workload(1024, 4096, 4096, bits=8, group=0)),
        ("sm_90", workload(16, 4096, 4096, zeros=True)),
        ("sm_90", workload(300, 1000, 2048, bits=8, group=64, zeros=True, dtype="bfloat16", epilogue=("bias", "silu"))),
        ("sm_90", workload(64, 1024, 4096, group=32, dtype="bfloat16", out="float32")),
        ("sm_90", workload(2048, 4096, 4096, group=0, zeros=True, epilogue=("add",))),
        ("sm_90", workload(256, 1001, 2048, bits=8, group=128)),
    ],
    resources=resources,
    fewest_starters=4,
    compiled=4,
    spill_free=True,
)
