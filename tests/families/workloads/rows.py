"""Workloads of the rows family: every form, layout, dtype and accumulator."""

from gensor_kernels.operators.rows.views import workload

from . import Contract

#: arch, operator, shape, axes, dtype, epilogue
SERVED = [
    ("sm_87", "reduce_sum", (4096, 1024), (1,), "float32", ""),
    ("sm_90", "reduce_mean", (1000, 300), (0,), "float16", "relu"),
    ("sm_75", "reduce_max", (64, 77, 5), (1,), "float32", ""),
    ("sm_80", "reduce_sum", (8, 16, 33, 64), (0, 2), "float64", ""),
    ("sm_87", "reduce_prod", (8, 16, 33, 20), (1, 3), "bfloat16", ""),
    ("sm_89", "argmax", (512, 1000), (1,), "float16", ""),
    ("sm_90", "argmin", (512, 1000), (0,), "int8", ""),
    ("sm_87", "reduce_sum", (100, 999), (1,), "int32", ""),
    ("sm_87", "l2_norm", (1, 4096, 1024), (1, 2), "float32", ""),
    ("sm_90", "reduce_var", (300, 2048), (1,), "float32", ""),
    ("sm_80", "logsumexp", (300, 2048), (0,), "float32", "scale"),
    ("sm_87", "softmax", (4096, 4096), (1,), "float16", ""),
    ("sm_75", "softmax", (100, 197), (1,), "float16", ""),
    ("sm_120", "log_softmax", (16, 1000, 64), (1,), "float32", ""),
    ("sm_90", "layernorm", (1024, 768), (1,), "float16", "mul_bias"),
    ("sm_87", "rmsnorm", (512, 4096), (1,), "bfloat16", "mul"),
    ("sm_87", "rmsnorm", (512, 100), (0,), "float64", ""),
    ("sm_87", "elementwise", (128, 256, 14, 14), (), "float32", "relu"),
    ("sm_90", "softmax", (65536, 7), (1,), "float16", "relu"),
    ("sm_80", "argmax", (65536, 31), (1,), "float32", ""),
    ("sm_75", "reduce_max", (65536, 3), (1,), "int8", ""),
    ("sm_87", "cumsum", (1, 2**20), (1,), "float32", "scale"),
    ("sm_90", "cumsum", (1000, 300), (0,), "float64", ""),
    ("sm_75", "cumsum", (65536, 7), (1,), "float16", ""),
    ("sm_120", "cumsum", (64, 1001), (1,), "int64", ""),
    ("sm_80", "cumsum", (64, 1000), (1,), "int8", ""),
    ("sm_100", "cumprod", (8, 1000, 64), (1,), "bfloat16", ""),
    ("sm_89", "cumprod", (300, 2048), (1,), "float32", ""),
]


CONTRACTS = {
    "rows": Contract(
        [
            (arch, workload(name, shape, axes, dtype, epilogue=steps))
            for arch, name, shape, axes, dtype, steps in SERVED
        ],
        entries=lambda program: ["rows"] + ["rows_reduce"] * (program["split_k"] > 1),
        fewest_starters=4,
        starters=lambda starters, index: starters[index % 3 :: 3],
        compiled=0,
        randoms=2,
        relaxed={"min_blocks": 0},
        # ptxas sometimes takes fewer registers than it may, and spills a few words instead.
        spills={"rows": 32, "rows_reduce": 256},
        conflict_free=lambda program: program["keep"] != 2 and not program.get("staged"),  # the model counts theirs
    ),
}
