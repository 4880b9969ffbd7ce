"""Pretuned CUDA kernels for CuPy.

Each function serves a call with the best kernel of its databases, or with CuPy where
no kernel is faster [1]_. `help` of a function lists its arguments.

Products
    matmul             matrix product with a fused epilogue
    linear             activation(x @ w.T + bias), also with quantised weights
    grouped_matmul     products of groups with different numbers of rows
    scaled_matmul      products of 8-bit and 4-bit floats with scales per block
    quantize           arrays in the formats MXFP8, MXFP4 and NVFP4; also dequantize
    prepack            weights in the layout that products with few rows read fastest
    einsum             sums of products; also tensordot, dot, vdot, inner, outer
    define             an operator of your own: a sum of products with an epilogue

Neural networks
    conv2d             convolution with a fused epilogue; also conv1d, conv3d,
                       conv_transpose2d
    max_pool2d         pooling; also avg_pool2d, global_avg_pool2d
    attention          fused attention
    lstm               recurrent layers over sequences; also gru
    softmax            maps of rows; also log_softmax, layer_norm, rms_norm
    elementwise        up to six operations on every element
    fuse               a decorator: a function of arrays, element by element, as one kernel

Reductions
    sum                also mean, prod, max, min, argmax, argmin, var, std,
                       nansum, nanmean, nanmax, nanmin, norm, logsumexp
    cumsum             running sums; also cumprod

Whole models
    load               a model from an ONNX file, as fused kernels
    from_torch         the same from a PyTorch module; torch.compile(module,
                       backend="gensor") compiles one in place

Tools
    explain            which kernel would serve a call, and why
    bind               a call on fixed arrays as a function that launches it again
    accelerate         context manager: products, reductions and softmax of existing
                       CuPy code come here
    warmup             load what a program will need, before graph capture
    emulated           context manager: run kernels on the CPU, with NumPy arrays
    deterministic      context manager: one kernel for each kind of call, whatever was
                       timed; with a list of kernels the same in every process
    record             context manager: count calls, as a file for gensor-tune --shapes
    counters           numbers of hits, misses, races, tunes and fallbacks
    refresh            forget plans, settings and databases read so far

`python -m gensor_kernels run program.py` runs a whole program inside `accelerate`.
`python -m gensor_kernels` prints a report about this machine for bug reports, and
`gensor_kernels.__version__` is the version.

Arrays are CuPy arrays of the current GPU, or NumPy arrays inside `emulated`. PyTorch
tensors and objects with `__cuda_array_interface__` or `__dlpack__` are accepted too;
the result is a tensor where the first array is one. There are no gradients.

References
----------
.. [1] Gensor, arXiv:2502.11407.

Examples
--------
The examples of all functions begin with

>>> import numpy as np
>>> import gensor_kernels

and run without a GPU. On a GPU, use CuPy arrays and leave `emulated` out.

>>> with gensor_kernels.emulated("sm_87"):
...     gensor_kernels.matmul(np.ones((2, 3), "float32"), np.ones((3, 2), "float32"))
array([[3., 3.],
       [3., 3.]], dtype=float32)
"""

import os as _os
from typing import TYPE_CHECKING as _TYPE_CHECKING

from gensor_database.lazy import public as _public

if _TYPE_CHECKING:
    from .dispatch.accelerated.accelerate import accelerate
    from .dispatch.api.attention import attention
    from .dispatch.api.bind import bind
    from .dispatch.api.conv3d import conv3d
    from .dispatch.api.convolution import conv1d, conv2d, conv_transpose2d
    from .dispatch.api.current import emulated, refresh
    from .dispatch.api.deterministic import deterministic
    from .dispatch.api.explain import explain
    from .dispatch.api.grouped_matmul import grouped_matmul
    from .dispatch.api.linalg import define, dot, einsum, inner, outer, tensordot, vdot
    from .dispatch.api.linear import linear
    from .dispatch.api.matmul import matmul
    from .dispatch.api.nan_reductions import nanmax, nanmean, nanmin, nansum
    from .dispatch.api.norms import cumprod, cumsum, elementwise, layer_norm, log_softmax, rms_norm, softmax
    from .dispatch.api.pooling import avg_pool2d, global_avg_pool2d, max_pool2d
    from .dispatch.api.prepack import prepack
    from .dispatch.api.reductions import argmax, argmin, logsumexp, max, mean, min, norm, prod, std, sum, var
    from .dispatch.api.scaled_matmul import dequantize, quantize, scaled_matmul
    from .dispatch.api.warmup import warmup
    from .dispatch.fusion.fused import fuse
    from .dispatch.observe.counters import counters
    from .dispatch.observe.explanation import Explanation
    from .dispatch.observe.record import record
    from .dispatch.recurrent.networks import gru, lstm
    from .errors import (
        BuildError,
        ConfigError,
        GensorError,
        MachineError,
        ModelError,
        PinError,
        ToolMissingError,
        UnknownArchError,
        UnsupportedError,
    )
    from .graph.execution.from_torch import from_torch
    from .graph.execution.model import load

__all__ = [
    "BuildError",
    "ConfigError",
    "Explanation",
    "GensorError",
    "MachineError",
    "ModelError",
    "PinError",
    "ToolMissingError",
    "UnknownArchError",
    "UnsupportedError",
    "accelerate",
    "argmax",
    "argmin",
    "attention",
    "avg_pool2d",
    "bind",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose2d",
    "counters",
    "cumprod",
    "cumsum",
    "define",
    "dequantize",
    "deterministic",
    "dot",
    "einsum",
    "elementwise",
    "emulated",
    "explain",
    "from_torch",
    "fuse",
    "global_avg_pool2d",
    "grouped_matmul",
    "gru",
    "inner",
    "layer_norm",
    "linear",
    "load",
    "log_softmax",
    "logsumexp",
    "lstm",
    "matmul",
    "max",
    "max_pool2d",
    "mean",
    "min",
    "nanmax",
    "nanmean",
    "nanmin",
    "nansum",
    "norm",
    "outer",
    "prepack",
    "prod",
    "quantize",
    "record",
    "refresh",
    "rms_norm",
    "scaled_matmul",
    "softmax",
    "std",
    "sum",
    "tensordot",
    "var",
    "vdot",
    "warmup",
]


#: Modules of these names, in the order in which they are searched.
_MODULES = (
    "errors",
    *(f"dispatch.api.{name}" for name in ("attention", "bind", "conv3d", "convolution", "current", "deterministic")),
    *(f"dispatch.api.{name}" for name in ("explain", "grouped_matmul", "linalg", "linear", "matmul", "nan_reductions")),
    *(f"dispatch.api.{name}" for name in ("norms", "pooling", "prepack", "reductions", "scaled_matmul", "warmup")),
    *(f"dispatch.observe.{name}" for name in ("counters", "explanation", "record")),
    "dispatch.accelerated.accelerate",
    "dispatch.recurrent.networks",
    "dispatch.fusion.fused",
    *(f"graph.execution.{name}" for name in ("from_torch", "model")),
)

if not _TYPE_CHECKING:
    _imported = _public(__name__, __all__, _MODULES)

    def __getattr__(name):
        """Import a public name at its first use, and read `__version__` then: the metadata takes milliseconds."""
        return _version() if name == "__version__" else _imported(name)


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("gensor-kernels")
    except metadata.PackageNotFoundError:
        return "unknown"  # a folder that is not installed


def __dir__() -> list[str]:
    """Return the public names: helpers and sub-packages are imported from their modules."""
    return [*__all__, "__version__"]


if "GENSOR_ACCELERATE" in _os.environ:
    from .dispatch.accelerated.accelerate import accelerate_process as _accelerate_process

    _accelerate_process()
