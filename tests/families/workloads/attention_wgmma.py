"""Workloads of attention_wgmma: every kind of mask and type, heads of every size, few queries and many, sequences."""

from collections.abc import Mapping

from gensor_kernels.operators.attention import sequences
from gensor_kernels.operators.attention.attention import workload
from gensor_kernels.operators.types.workload import Workload

from . import Contract

SHARED = {"heads": 8, "kv_heads": 2}


def resources(constants: Mapping[str, int | str], _: Workload) -> tuple[int, int]:
    """Threads and shared bytes by the rules at the top of attention_wgmma.cu."""
    rows, head, keys, stages, staged = (
        int(constants[name]) for name in ("BLOCK_Q", "HEAD", "BLOCK_KEYS", "STAGES", "EPILOGUE_STAGED")
    )
    tiles = -(-head // 64) * 128 * (rows + 8 + stages * keys)
    return 128 * (rows // 64 + 1), 1024 + max(tiles, staged * rows * head * 4)


CONTRACT = Contract(
    [
        ("sm_90", workload(1024, heads=12, head=64, causal=True)),
        ("sm_90", workload(512, head=128, dtype="bfloat16", mask="bool", **SHARED)),
        ("sm_90", workload(1, 1025, head=96, mask="float16", epilogue="scale_add", **SHARED)),
        ("sm_90", workload(77, 104, head=256, out="float32", mask="float32", mask_axes=("queries",), **SHARED)),
        ("sm_90", workload(16, 4096, head=80, dtype="bfloat16", epilogue="scale_mul", **SHARED)),
        ("sm_90", workload(512, 640, head=64, causal=True, window=(100, None), mask="bool", **SHARED)),
        ("sm_90", workload(300, head=64, window=(64, 16), softcap=True)),
        ("sm_90", sequences.workload(8, 2048, 2048, head=64, causal=True, **SHARED)),
        (
            "sm_90",
            sequences.workload(16, 256, 9000, head=80, causal="upper_left", softcap=True, epilogue="bias_relu"),
        ),
    ],
    entries=lambda program: ["attention_wgmma"] + ["attention_combine"] * (program["split_k"] > 1),
    resources=resources,
    starters=lambda starters, index: starters[: 2 if index in (0, 4) else 1],
    compiled=2,
    spill_free=True,
)
