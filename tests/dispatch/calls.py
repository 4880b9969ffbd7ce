"""Calls of every public function that computes, in all of their forms, on small NumPy arrays."""

import inspect
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import gensor_kernels as gk

RNG = np.random.default_rng(7)
#: Public functions that take no arrays.
TOOLS = {
    *("accelerate", "bind", "counters", "deterministic", "emulated", "explain", "from_torch", "fuse", "load", "record"),
    *("refresh", "warmup"),
}
PUBLIC = {name for name in gk.__all__ if inspect.isfunction(getattr(gk, name))} - TOOLS
REDUCTIONS = (
    *("sum", "mean", "prod", "max", "min", "argmax", "argmin", "var", "std", "norm", "logsumexp"),
    *("nansum", "nanmean", "nanmax", "nanmin"),
)


def drawn(*shape: int, dtype: Any = "float32") -> np.ndarray:
    """Whole numbers from 1 to 4, and their negatives where there are any."""
    values = RNG.integers(1, 5, shape)
    return (values if np.dtype(dtype).kind == "u" else values * RNG.choice([-1, 1], shape)).astype(dtype)


HALF, BRAIN = "float16", ml_dtypes.bfloat16
X, W, BIAS, SCALE = drawn(16, 32), drawn(8, 32), drawn(8), drawn(32)
HALVES, HEADS, MANY = drawn(4, 33, 64, dtype=HALF), drawn(1, 2, 8, 16, dtype=HALF), drawn(1, 4, 8, 16, dtype=HALF)
IMAGE, LAST, TAPS = drawn(1, 4, 6, 6), drawn(1, 6, 6, 4), drawn(8, 4, 3, 3)
PAGES = drawn(3, 2, 2, 16, dtype=HALF)
BYTES, NARROW = np.full((16, 256), 0x38, np.uint8), {"dtype_a": "float8_e4m3fn", "dtype_b": "float8_e5m2"}
SCALES = np.ones((16, 2), np.float32), np.ones((2, 1), np.float32)
FOURS, ONES, POWERS = drawn(16, 32, dtype="uint8"), np.full((16, 4), 0x38, np.uint8), np.full((16, 2), 128, np.uint8)
KEEP = np.tri(8, dtype=bool)
QUARTERS = {"scales": drawn(24, 2, dtype=HALF), "zeros": drawn(24, 2, dtype=np.uint8)}
#: Name -> (function, arguments, keywords).
CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "matmul": (gk.matmul, (X, W.T), {}),
    "matmul, fused": (gk.matmul, (X, W.T), dict(alpha=2.0, bias=BIAS, add=drawn(16, 8), activation="relu")),
    "matmul, listed": (gk.matmul, (X, W.T), dict(epilogue=[("mask", X[:, :8] > 0, -1.0), "gelu", "tanh"])),
    "matmul, gate": (gk.matmul, (X, W.T), dict(bias=BIAS, activation="swiglu")),
    "matmul, norm": (gk.matmul, (X, W.T), dict(epilogue=["layernorm", ("mul", BIAS)])),
    "matmul, prologue": (gk.matmul, (X, W.T), dict(prologue=["relu"])),
    "matmul, batched": (gk.matmul, (drawn(3, 1, 20, 24), drawn(2, 24, 16)), dict(precision="tf32")),
    "matmul, rows with gaps": (gk.matmul, (drawn(3, 20, 24)[:, :16], drawn(24, 8)), {}),
    "matmul, vectors": (gk.matmul, (drawn(5, 1, 16), drawn(16, 8)), {}),
    "matmul, many axes": (gk.matmul, (drawn(2, 4, 2, 4, 3, 5)[:, ::2, :, ::2], drawn(1, 5, 4)), {}),
    "matmul, 8-bit floats": (gk.matmul, (BYTES, BYTES.T), NARROW),
    "matmul, strided": (gk.matmul, (HALVES[0].T[::-1], np.repeat(HALVES[0], 2, 1)[:, ::2]), dict(dtype="float32")),
    "matmul, unaligned": (gk.matmul, (HALVES[0, 1:, 1:60], HALVES[1, :, 5:].T[:, :31]), {}),
    "matmul, integers": (gk.matmul, (drawn(48, 33, dtype="int8"), drawn(33, 48, dtype="int8")), dict(dtype="int32")),
    "matmul, mixed": (gk.matmul, (HALVES[0], BYTES[:8].reshape(64, 32)), dict(dtype_b="float8_e5m2")),
    "linear": (gk.linear, (X, W), {}),
    "linear, fused": (gk.linear, (X, W, BIAS, "relu"), {}),
    "linear, prologue": (gk.linear, (HALVES, HALVES[0, :16], None, "silu"),
                         dict(prologue=[("mul", HALVES[0, 0]), ("bias", drawn(64)), "relu"])),
    "linear, prologue of an array": (gk.linear, (HALVES, HALVES[0, :16]), dict(prologue=["tanh", ("mul", HALVES)])),
    "linear, int8 weights": (gk.linear, (HALVES, drawn(24, 64, dtype="int8")), dict(scales=HALVES[0, :24, 0])),
    "linear, int4 weights": (gk.linear, (HALVES, drawn(24, 32, dtype="uint8")), dict(group=32, **QUARTERS)),
    "grouped_matmul": (gk.grouped_matmul, (X, drawn(2, 32, 8), [6, 16]), dict(bias=BIAS, activation="relu")),
    "grouped_matmul, sizes": (gk.grouped_matmul, (X, drawn(2, 32, 8)), dict(sizes=np.array([6, 10]))),
    "scaled_matmul": (gk.scaled_matmul, (BYTES, BYTES.T, *SCALES), dict(bias=drawn(16), **NARROW)),
    "linear, nvfp4": (gk.linear, (HALVES, FOURS), dict(scales=ONES, format="nvfp4", alpha=0.5)),
    "scaled_matmul, mxfp4": (gk.scaled_matmul, (FOURS, FOURS.T, POWERS, POWERS.T), dict(format="mxfp4")),
    "quantize": (gk.quantize, (drawn(16, 64), "mxfp8"), {}),
    "dequantize": (gk.dequantize, (FOURS, ONES, "nvfp4"), {}),
    "prepack": (gk.prepack, (drawn(32, 9),), dict(axis=-2, rows=1)),
    "einsum": (gk.einsum, ("ij,kj->ik", X, W), {}),
    "einsum of heads": (gk.einsum, ("bhid,bhjd->bhij", HEADS, HEADS), {}),
    "einsum, copied": (gk.einsum, ("iji,jk->ik", drawn(8, 9, 8), drawn(9, 5)), {}),
    "einsum of one": (gk.einsum, ("ij->j", X), {}),
    "einsum of three": (gk.einsum, ("ij,kj,kl->il", X, W, drawn(8, 4)), {}),
    "einsum, prologue": (gk.einsum, ("ij,kj->ik", X, W), dict(prologue=["relu"])),
    "tensordot": (gk.tensordot, (X, SCALE, 1), {}),
    "dot": (gk.dot, (X, W.T), {}),
    "inner": (gk.inner, (X, W), {}),
    "vdot": (gk.vdot, (X, X), {}),
    "outer": (gk.outer, (SCALE, BIAS), {}),
    "define": (gk.define("i k, j k -> i j", [("add", "i j"), ("scale", 0.5), "relu"]), (X, W, drawn(16, 8)), {}),
    "conv2d": (gk.conv2d, (IMAGE, TAPS), dict(bias=BIAS, padding=1, activation="relu")),
    "conv2d, plain": (gk.conv2d, (IMAGE, TAPS), {}),
    "conv2d, channels last": (gk.conv2d, (LAST, TAPS.transpose(0, 2, 3, 1)), dict(stride=2, layout="NHWC")),
    "conv2d, copied": (gk.conv2d, (IMAGE, TAPS[:, :, ::-1]), dict(add=drawn(1, 8, 4, 4), prologue=["relu"])),
    "conv2d, 1 x 1": (gk.conv2d, (IMAGE, TAPS[:, :, :1, :1]), {}),
    "conv2d, groups": (gk.conv2d, (IMAGE, TAPS[:, :2]), dict(groups=2)),
    "conv2d, depthwise": (gk.conv2d, (IMAGE, TAPS[:4, :1]), dict(groups=4, padding=(1, 0))),
    "conv2d, prologue": (gk.conv2d, (IMAGE, TAPS), dict(padding=1, prologue=[("bias", drawn(4)), "gelu"])),
    "conv1d": (gk.conv1d, (IMAGE[:, :, 0], TAPS[:, :, 0]), dict(padding=1)),
    "conv3d": (gk.conv3d, (IMAGE[:, :, None].repeat(3, 2), TAPS[:, :, None].repeat(2, 2)), dict(padding=1)),
    "conv3d, rows": (gk.conv3d, (IMAGE[:, :, None].repeat(3, 2), drawn(8, 4, 2, 1, 1)), {}),
    "conv_transpose2d": (gk.conv_transpose2d, (IMAGE, TAPS[:4]), dict(stride=2)),
    "max_pool2d": (gk.max_pool2d, (IMAGE, 3, 2, 1), dict(ceil_mode=True)),
    "avg_pool2d": (gk.avg_pool2d, (IMAGE, 2), {}),
    "avg_pool2d, channels last": (gk.avg_pool2d, (LAST, 2), dict(layout="NHWC")),
    "global_avg_pool2d": (gk.global_avg_pool2d, (IMAGE,), {}),
    "attention": (gk.attention, (HEADS, HEADS, HEADS), dict(causal=True)),
    "attention, shared heads": (gk.attention, (MANY, HEADS, HEADS), dict(window=(1, 0))),
    "attention, mask": (gk.attention, (HEADS, HEADS, HEADS, KEEP), dict(softcap=5.0)),
    "attention, sinks": (gk.attention, (HEADS, HEADS, HEADS), dict(sinks=HEADS[0, :, 0, 0].astype("float32"))),
    "attention, added mask": (gk.attention, (HEADS, HEADS, HEADS, KEEP.astype("float32")), dict(scale=1.0)),
    "attention, sequences": (gk.attention, (HEADS,) * 3, dict(offsets=[3, 8], key_offsets=np.array([2, 8]))),
    "attention, pages": (gk.attention, (HEADS[:, :, :5], PAGES, PAGES),
                         dict(sizes=[2, 3], key_sizes=[4, 2], block_table=[[0, 1], [2, 0]])),
    "lstm": (gk.lstm, (drawn(3, 2, 8), drawn(24, 8), drawn(24, 6), drawn(24)), {}),
    "lstm, both directions": (gk.lstm, (drawn(3, 2, 8), drawn(2, 24, 8), drawn(2, 24, 6)),
                              dict(hx=(drawn(2, 2, 6), drawn(2, 2, 6)), lengths=[3, 1])),
    "gru": (gk.gru, (drawn(3, 2, 8), drawn(18, 8), drawn(18, 6), drawn(18), drawn(18)), {}),
    "softmax": (gk.softmax, (X,), {}),
    "softmax of columns": (gk.softmax, (HALVES, 1), {}),
    "log_softmax": (gk.log_softmax, (X,), {}),
    "layer_norm": (gk.layer_norm, (X, 32, SCALE, SCALE), {}),
    "layer_norm, plain": (gk.layer_norm, (X, 32), {}),
    "rms_norm": (gk.rms_norm, (HALVES, 64, HALVES[0, 0]), {}),
    "elementwise": (gk.elementwise, (X, [("scale", 2.0), "relu"]), {}),
    **{name: (getattr(gk, name), (X[:, :5],), dict(axis=1)) for name in REDUCTIONS},
    "sum of all": (gk.sum, (X,), {}),
    "sum of bytes": (gk.sum, (drawn(8, 32, dtype="int8"), -1), {}),
    "sum of axes": (gk.sum, (IMAGE, (0, 2)), dict(dtype="float64")),
    "max of integers": (gk.max, (drawn(8, 32, dtype="int32"),), dict(axis=0)),
    "mean of strides": (gk.mean, (HALVES[:, ::2, ::2], 1), dict(keepdims=True)),
    "var of bfloat16": (gk.var, (HALVES.astype(BRAIN), 2), dict(ddof=1)),
    "cumsum": (gk.cumsum, (X,), {}),
    "cumsum of columns": (gk.cumsum, (HALVES, 1), {}),
    "cumsum of strides": (gk.cumsum, (drawn(16, 33, 64, dtype="int32")[:, ::2, ::2],), {}),
    "cumprod": (gk.cumprod, (X, 1), dict(dtype="float64")),
    "norm of order 3": (gk.norm, (X, 3, 1), {}),
    "norm of a matrix": (gk.norm, (X, np.inf), {}),
    "norm of a matrix, 2": (gk.norm, (X, 2), {}),
    "logsumexp, weighted": (gk.logsumexp, (X, 1, SCALE), dict(keepdims=True)),
}  # fmt: skip


def takes_out(name: str) -> bool:
    """Whether the function of a call has a parameter `out`."""
    return "out" in inspect.signature(CALLS[name][0]).parameters
