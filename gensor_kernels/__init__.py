"""Pretuned CUDA kernels for CuPy.

matmul(a, b, ...)          matrix product with a fused epilogue
linear(x, w, bias, ...)    activation(x @ w.T + bias)
grouped_matmul(x, w, ...)  products of groups with different rows
prepack(w)                 weights in the layout that products with few rows read fastest
einsum(subscripts, ...)    sums of products, as cupy.einsum; tensordot, dot, vdot, inner and outer likewise
define("ij,jk->ik", ...)   an operator of your own: a sum of products with an epilogue
conv2d(x, w, ...)          convolution with a fused epilogue; conv1d, conv_transpose2d
sum, mean, max, argmax, var, softmax, layer_norm, ...
                           reductions and what normalises rows
max_pool2d(x, ...)         pooling; avg_pool2d, global_avg_pool2d
attention(q, k, v, ...)    fused attention
explain(matmul, a, b, ...) which kernel would serve that call, and why
accelerate()               context manager: cupy.matmul, @, einsum, dot, tensordot of existing code come here
warmup("shapes.csv")       load what a program will need, before graph capture
emulated("sm_87")          context manager: run kernels on the CPU, with NumPy arrays
record("shapes.csv")       context manager: count the calls made, as a file for gensor-tune --shapes
counters()                 how many calls were hits, misses, races, tunes and fallbacks
refresh()                  forget plans, settings and databases read so far
"""

from .dispatch import (
    argmax,
    argmin,
    attention,
    avg_pool2d,
    conv1d,
    conv2d,
    conv_transpose2d,
    define,
    dot,
    einsum,
    emulated,
    global_avg_pool2d,
    grouped_matmul,
    inner,
    layer_norm,
    linear,
    log_softmax,
    logsumexp,
    matmul,
    max,
    max_pool2d,
    mean,
    min,
    norm,
    outer,
    prepack,
    prod,
    refresh,
    rms_norm,
    softmax,
    sum,
    tensordot,
    var,
    vdot,
)
from .dispatch.api.accelerate import accelerate
from .dispatch.api.explain import explain
from .dispatch.api.warmup import warmup
from .dispatch.observe.counters import counters
from .dispatch.observe.explanation import Explanation
from .dispatch.observe.record import record
from .errors import BuildError, ConfigError, GensorError, ToolMissingError, UnknownArchError, UnsupportedError

__all__ = [
    "BuildError",
    "ConfigError",
    "Explanation",
    "GensorError",
    "ToolMissingError",
    "UnknownArchError",
    "UnsupportedError",
    "accelerate",
    "argmax",
    "argmin",
    "attention",
    "avg_pool2d",
    "conv1d",
    "conv2d",
    "conv_transpose2d",
    "counters",
    "define",
    "dot",
    "einsum",
    "emulated",
    "explain",
    "global_avg_pool2d",
    "grouped_matmul",
    "inner",
    "layer_norm",
    "linear",
    "log_softmax",
    "logsumexp",
    "matmul",
    "max",
    "max_pool2d",
    "mean",
    "min",
    "norm",
    "outer",
    "prepack",
    "prod",
    "record",
    "refresh",
    "rms_norm",
    "softmax",
    "sum",
    "tensordot",
    "var",
    "vdot",
    "warmup",
]
