"""From a call to a launch: `key.py` looks up the Plan of a warm call, all else happens once per kind of call.

Imports between these folders point down this list:

accelerated   CuPy's own functions, which call those of api
api           the public functions: from what a caller wrote to the call of a Function
plans         first calls, copies, launches, trials, recorded and composed calls: one stack for all Functions
functions     what each public function means to kernels, and how the array library computes the same
contractions  einsum and its like as labels of axes: groups, windows, order of pairs
tuning        races, tuning in the background, and the way of their results into the user's database
selection     the stored kernels, predicted times, and the tier that serves a call
calls         arguments by NumPy's rules, the layouts of arrays, and the array library's element-wise operations
observe       counters, recordings, dry runs and explanations
"""

from .api.attention import attention
from .api.convolution import conv1d, conv2d, conv_transpose2d
from .api.current import emulated, refresh
from .api.deterministic import deterministic
from .api.grouped_matmul import grouped_matmul
from .api.linalg import define, dot, einsum, inner, outer, tensordot, vdot
from .api.linear import linear
from .api.matmul import matmul
from .api.nan_reductions import nanmax, nanmean, nanmin, nansum
from .api.norms import cumprod, cumsum, layer_norm, log_softmax, rms_norm, softmax
from .api.pooling import avg_pool2d, global_avg_pool2d, max_pool2d
from .api.prepack import prepack
from .api.reductions import argmax, argmin, logsumexp, max, mean, min, norm, prod, std, sum, var
from .api.scaled_matmul import scaled_matmul

__all__ = [
    "argmax",
    "argmin",
    "attention",
    "avg_pool2d",
    "conv1d",
    "conv2d",
    "conv_transpose2d",
    "cumprod",
    "cumsum",
    "define",
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
