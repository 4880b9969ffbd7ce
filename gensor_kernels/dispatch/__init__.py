"""From a call to a launch.

api        matmul, and which device a call is for
products   the other public functions
packing    weights copied into the layout that products with few rows read fastest
arguments  what the caller wrote -> shapes, dtypes, epilogue (NumPy's rules)
problem    arrays as they lie in memory -> a Workload and the strides of Params
stored     databases -> the kernels of one Arch, in memory; untrusted: what is taken from those of others
library    those kernels, indexed
tiers      which of them serves a call, and why
tierup     tuning: at once where that is asked for, in the background where a kind of call is hot
worker     the process that tunes
racing     kernels against the array library, on the caller's arrays; trials: the Plans that hold the races
notes      what races and tuning found out, on its way into the user's database
planning   which Plan a product gets; predicting: predicted times of stored kernels
plan       what a call does once all that is known; launching: where that is a kernel; keys: what it is found by
foreign    arrays of other libraries, PyTorch's among them
tally      counters
fallback   the same result from the array library
runtime    calls on one device, and the dictionary of Plans

for operators other than products:

function      what a public function says of itself, and what one call of it is
calls         the path of every call: its Plan, or which tier makes one
call_plans    those Plans
replaced      the inverse: the array library's call of a Workload, which benchmarks compare with
convolution, sliding_functions, row_functions, attention_function, gates, normed,
              prepared, prepared_convolution, ragged
              what each function means, and the same from the array library

and for contractions, which become products of windows on their operands:

forms         what each function means, as labels of axes, and as a call of the array library
grouping      which axes are batch, m, n and k, and which of them are one in memory
arranging     the windows; what is copied or summed first where there are none
contract      what a first call finds out
contractions  Plans of contractions
pairs         the path of every contraction of two arrays
chains        einsum of any number of operands
"""

from .api.attention import attention
from .api.convolution import conv1d, conv2d, conv_transpose2d
from .api.current import emulated, refresh
from .api.grouped_matmul import grouped_matmul
from .api.linalg import define, dot, einsum, inner, linear, outer, tensordot, vdot
from .api.matmul import matmul
from .api.pooling import avg_pool2d, global_avg_pool2d, max_pool2d
from .api.prepack import prepack
from .api.reductions import (
    argmax,
    argmin,
    layer_norm,
    log_softmax,
    logsumexp,
    max,
    mean,
    min,
    norm,
    prod,
    rms_norm,
    softmax,
    sum,
    var,
)

__all__ = [
    "argmax",
    "argmin",
    "attention",
    "avg_pool2d",
    "conv1d",
    "conv2d",
    "conv_transpose2d",
    "define",
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
    "norm",
    "outer",
    "prepack",
    "prod",
    "refresh",
    "rms_norm",
    "softmax",
    "sum",
    "tensordot",
    "var",
    "vdot",
]
