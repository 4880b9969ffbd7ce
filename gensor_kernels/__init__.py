"""Pretuned CUDA kernels for CuPy.

matmul(a, b, ...)          matrix product with a fused epilogue
linear(x, w, bias, ...)    activation(x @ w.T + bias)
einsum(subscripts, ...)    sums of products, as cupy.einsum; tensordot, dot, vdot, inner and outer likewise
define("ij,jk->ik", ...)   an operator of your own: a sum of products with an epilogue
conv2d(x, w, ...)          convolution with a fused epilogue; conv1d, conv_transpose2d
explain(matmul, a, b, ...) which kernel would serve that call, and why
emulated("sm_87")          context manager: run kernels on the CPU, with NumPy arrays
record("shapes.csv")       context manager: count the calls made, as a file for gensor-tune --shapes
refresh()                  forget plans, settings and databases read so far
"""

from .dispatch import (
    conv1d,
    conv2d,
    conv_transpose2d,
    define,
    dot,
    einsum,
    emulated,
    inner,
    linear,
    matmul,
    outer,
    refresh,
    tensordot,
    vdot,
)
from .errors import BuildError, ConfigError, GensorError, ToolMissingError, UnknownArchError, UnsupportedError
from .explain import Explanation, explain
from .recording import record

__all__ = [
    "BuildError",
    "ConfigError",
    "Explanation",
    "GensorError",
    "ToolMissingError",
    "UnknownArchError",
    "UnsupportedError",
    "conv1d",
    "conv2d",
    "conv_transpose2d",
    "define",
    "dot",
    "einsum",
    "emulated",
    "explain",
    "inner",
    "linear",
    "matmul",
    "outer",
    "record",
    "refresh",
    "tensordot",
    "vdot",
]
