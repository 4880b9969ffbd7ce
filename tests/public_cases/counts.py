"""How many calls of each public function are drawn by default: 3,000 and more together."""

CASES = {
    "matmul": 200, "linear": 100, "einsum": 200, "tensordot": 100, "dot": 100, "inner": 90, "vdot": 90, "outer": 90,
    "define": 100, "grouped_matmul": 90, "scaled_matmul": 90,
    "conv1d": 90, "conv2d": 160, "conv_transpose2d": 120,
    "max_pool2d": 100, "avg_pool2d": 100, "global_avg_pool2d": 90,
    "sum": 110, "mean": 90, "prod": 90, "max": 110, "min": 90, "argmax": 100, "argmin": 90, "var": 90, "norm": 90,
    "logsumexp": 90, "softmax": 110, "log_softmax": 90, "layer_norm": 110, "rms_norm": 90,
    "elementwise": 90,
    "attention": 150,
}  # fmt: skip
