"""The public names of this folder; those that few programs use are found in their modules."""

from .attention import attention
from .convolution import conv1d, conv2d, conv3d, conv_transpose2d
from .current import emulated, refresh
from .deterministic import deterministic
from .grouped_matmul import grouped_matmul
from .linalg import define, dot, einsum, inner, outer, tensordot, vdot
from .linear import linear
from .matmul import matmul
from .nan_reductions import nanmax, nanmean, nanmin, nansum
from .norms import cumprod, cumsum, layer_norm, log_softmax, rms_norm, softmax
from .pooling import avg_pool2d, global_avg_pool2d, max_pool2d
from .prepack import prepack
from .reductions import argmax, argmin, logsumexp, max, mean, min, norm, prod, std, sum, var
from .scaled_matmul import dequantize, quantize, scaled_matmul

__all__ = [
    "argmax",
    "argmin",
    "attention",
    "avg_pool2d",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose2d",
    "cumprod",
    "cumsum",
    "define",
    "dequantize",
    "deterministic",
    "dot",
    "einsum",
    "emulated",
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
    "nanmax",
    "nanmean",
    "nanmin",
    "nansum",
    "norm",
    "outer",
    "prepack",
    "prod",
    "quantize",
    "refresh",
    "rms_norm",
    "scaled_matmul",
    "softmax",
    "std",
    "sum",
    "tensordot",
    "var",
    "vdot",
]
