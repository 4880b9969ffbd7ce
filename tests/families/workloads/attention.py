"""Workloads of the families of attention: every kind of operand, mask, copy and instruction."""

from gensor_kernels.operators.attention import sequences
from gensor_kernels.operators.attention.attention import workload

from . import Contract

SHARED = {"heads": 8, "kv_heads": 2}
PAGES = {"window": (511, 7), "softcap": True, "heads": 4, "kv_heads": 1, "epilogue": "add"}
CONTRACTS = {
    "attention": Contract(
        [
            ("sm_87", workload(1024, heads=12, head=64, causal=True)),
            ("sm_90", workload(512, head=128, dtype="bfloat16", mask="bool", **SHARED)),
            ("sm_75", workload(384, heads=12, head=64, epilogue="scale_add")),
            ("sm_80", workload(1, 1025, head=92, mask="float16", **SHARED)),
            ("sm_120", workload(77, 99, head=255, out="float32", mask="float32", mask_axes=("queries",), **SHARED)),
            ("sm_87", workload(1024, head=64, causal=True, window=(300, None), **SHARED)),
            (
                "sm_86",
                workload(400, head=96, dtype="bfloat16", causal="upper_left", softcap=True, epilogue="scale", **SHARED),
            ),
            ("sm_75", workload(300, 500, head=64, mask="bool", mask_axes=("keys",), window=(70, 9), softcap=True)),
            ("sm_90", workload(1, 4096, head=128, mask="float16", window=(1023, 0), softcap=True, **SHARED)),
            ("sm_87", sequences.workload(8, 2048, 2048, head=64, causal=True, **SHARED)),
            (
                "sm_75",
                sequences.workload(16, 256, 9000, head=92, causal="upper_left", softcap=True, epilogue="bias_relu"),
            ),
            (
                "sm_80",
                sequences.workload(16, 1, 16384, ragged=False, page_size=16, table=64, head=128, causal=True, **SHARED),
            ),
            ("sm_90", sequences.workload(16, 700, 16384, page_size=32, table=32, head=64, dtype="bfloat16", **PAGES)),
            ("sm_89", workload(16, 4096, head=32, dtype="bfloat16", epilogue="scale_mul", **SHARED)),
            ("sm_87", workload(512, head=64, causal=True, sinks="bfloat16", dtype="bfloat16", **SHARED)),
            ("sm_75", workload(1, 2048, head=64, mask="float32", lse=True, epilogue="scale", **SHARED)),
            ("sm_87", sequences.workload(8, 300, 2048, page_size=16, table=32, sinks="float32", lse=True, **PAGES)),
        ],
        entries=lambda program: ["attention"] + ["attention_combine"] * (program["split_k"] > 1),
        starters=lambda starters, index: starters[: 2 if index in (0, 13) else 1],
        compiled=2,
        conflict_free=lambda program: program["swizzle"] == 1,
    ),
    "attention_wgmma": Contract(
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
            ("sm_90", workload(512, head=128, causal=True, sinks="float16", lse=True, **SHARED)),
            ("sm_90", workload(77, 1040, head=64, mask="float16", softcap=True, lse=True, **SHARED)),
            ("sm_90", sequences.workload(8, 2048, 2048, head=64, sinks="bfloat16", causal=True, **SHARED)),
        ],
        entries=lambda program: ["attention_wgmma"] + ["attention_combine"] * (program["split_k"] > 1),
        starters=lambda starters, index: starters[: 2 if index in (0, 4) else 1],
        compiled=2,
        spills={},
    ),
    "attention_tcgen05": Contract(
        [
            ("sm_100", workload(1024, heads=12, head=64, causal=True)),
            ("sm_100", workload(512, head=128, dtype="bfloat16", mask="bool", **SHARED)),
            ("sm_100", workload(1, 1025, head=96, mask="float16", epilogue="scale_add", **SHARED)),
            ("sm_100", workload(77, 104, head=256, out="float32", mask="float32", mask_axes=("queries",), **SHARED)),
            ("sm_100", workload(16, 4096, head=80, dtype="bfloat16", epilogue="scale_mul", **SHARED)),
            ("sm_100", workload(512, 640, head=64, causal=True, window=(100, None), mask="bool", **SHARED)),
            ("sm_100", workload(300, head=64, window=(64, 16), softcap=True)),
            ("sm_100", sequences.workload(8, 2048, 2048, head=64, causal=True, **SHARED)),
            (
                "sm_100",
                sequences.workload(16, 256, 9000, head=80, causal="upper_left", softcap=True, epilogue="bias_relu"),
            ),
            ("sm_100", workload(512, head=128, causal=True, sinks="float16", lse=True, **SHARED)),
            ("sm_100", sequences.workload(8, 2048, 2048, head=64, sinks="bfloat16", causal=True, **SHARED)),
            ("sm_100", workload(1024, heads=96, kv_heads=2, head=128, dtype="bfloat16", causal=True, mask="bool")),
        ],
        entries=lambda program: ["attention_tcgen05"] + ["attention_combine"] * (program["split_k"] > 1),
        starters=lambda starters, index: starters[: 2 if index in (0, 4) else 1],
        compiled=2,
        # ptxas keeps a few words of a sequence in memory while roles part, however many registers are free.
        spills={"attention_tcgen05": 64},
    ),
}
