"""Workloads of the families that slide windows, shared by tests: operators, layouts, dtypes, kinds of alignment."""

from gensor_kernels.operators.windows import conv, depthwise, pooling

from . import Contract


def padded(pad: int = 1) -> dict[str, int]:
    """The same padding on every side."""
    return {f"pad_{end}": pad for end in ("top", "bottom", "left", "right")}


def convolution(side: int, c: int, window: int, **more):
    return depthwise.workload(**{"n": 2, "h": side, "w": side, "c": c, "r": window, "s": window, **more})


def pool(op: str, side: int, c: int, window: int, **more):
    return pooling.workload(op, **{"n": 2, "h": side, "w": side, "c": c, "r": window, "s": window, **more})


def grouped(side: int, groups: int, c: int, k: int, taps: int = 3, **more):
    """A convolution of `groups` groups of `c` channels and `k` filters each."""
    sizes = {"n": 2, "h": side, "w": side, "c": groups * c, "k_out": groups * k, "r": taps, "s": taps, "groups": groups}
    return conv.workload(**sizes | padded(taps // 2) | more)


FIRST = {"layout": "nchw"}
GROUPED = [
    ("sm_87", grouped(28, 32, 4, 4, dtype="float16", epilogue="bias_relu")),
    ("sm_90", grouped(28, 32, 8, 8, dtype="bfloat16", stride_h=2, stride_w=2)),
    ("sm_75", grouped(28, 5, 5, 6, **FIRST)),
    ("sm_80", grouped(14, 12, 3, 5, dtype="float16", weights="rsck", dilation_w=2, epilogue="bias_add_relu")),
    ("sm_89", grouped(14, 6, 24, 12, 1, dtype="int8", epilogue="relu")),
    ("sm_90", grouped(14, 9, 6, 2, dtype="float64", stride_h=2)),
    ("sm_86", grouped(17, 10, 24, 24, 5, dtype="float16")),
    ("sm_87", grouped(24, 32, 4, 4, dtype="float16", epilogue="bias_add_relu", **FIRST)),
    ("sm_90", grouped(14, 3, 16, 24, dtype="float32", math="tf32", out="float64")),
]
SERVED = [
    ("sm_87", convolution(112, 96, 3, stride_h=2, stride_w=2, dtype="float16", epilogue="bias_relu6", **padded())),
    ("sm_87", convolution(42, 84, 7, layout="nchw", **padded(3))),
    ("sm_75", convolution(44, 84, 5, layout="nchw", **padded(2))),
    ("sm_87", convolution(60, 3, 17, layout="nchw", dtype="float16", epilogue="bias_relu", **padded(8))),
    ("sm_90", convolution(14, 512, 3, dtype="int8", **padded())),
    ("sm_90", convolution(14, 66, 3, dtype="float64", **padded())),
    ("sm_80", convolution(30, 36, 3, dtype="bfloat16", dilation_h=2, dilation_w=2, **padded())),
    ("sm_90", pool("max_pool2d", 112, 64, 3, stride_h=2, stride_w=2, dtype="float16", **padded())),
    ("sm_87", pool("max_pool2d", 14, 33, 2, dtype="int8")),
    ("sm_75", pool("max_pool2d", 30, 36, 3, dtype="float16", layout="nchw", ceil_mode=1, **padded())),
    ("sm_80", pool("max_pool2d", 30, 36, 3, dtype="float64", layout="nchw", dilation_h=2, dilation_w=3, **padded())),
    ("sm_75", pool("avg_pool2d", 21, 67, 3, stride_h=1, stride_w=1, layout="nchw", **padded())),
    ("sm_89", pool("avg_pool2d", 21, 64, 3, stride_h=2, stride_w=2, dtype="bfloat16", count_include_pad=1, **padded())),
    ("sm_87", pool("avg_pool2d", 7, 2048, 7, dtype="float16")),
    ("sm_90", pool("avg_pool2d", 56, 64, 56, layout="nchw")),
]
CONTRACTS = {
    "window": Contract(
        SERVED,
        compiled=3,
        archs=("sm_75", "sm_87", "sm_90"),
        starters=lambda starters, index: starters,
        randoms=3,
    ),
    "window_groups": Contract(
        GROUPED,
        compiled=3,
        archs=("sm_75", "sm_87", "sm_90"),
        starters=lambda starters, index: starters[:3],
        randoms=3,
    ),
}
