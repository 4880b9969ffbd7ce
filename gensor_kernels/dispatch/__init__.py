"""From a call to a launch.

api        matmul, and which device a call is for
products   the other public functions
arguments  what the caller wrote -> shapes, dtypes, epilogue (NumPy's rules)
problem    arrays as they lie in memory -> a Workload and the strides of Params
stored     databases -> the kernels of one Arch, in memory
library    those kernels, indexed
tiers      which of them serves a call, and why
tierup     what may be done about a call that nothing good is stored for
plan       what a call does once all that is known
fallback   the same result from the array library
runtime    calls on one device, and the dictionary of Plans

and for contractions, which become products of windows on their operands:

forms         what each function means, as labels of axes, and as a call of the array library
grouping      which axes are batch, m, n and k, and which of them are one in memory
arranging     the windows; what is copied or summed first where there are none
contract      what a first call finds out
contractions  Plans of contractions
pairs         the path of every contraction of two arrays
chains        einsum of any number of operands
"""

from .api import emulated, matmul, refresh
from .products import dot, einsum, inner, linear, outer, tensordot, vdot

__all__ = [
    "dot",
    "einsum",
    "emulated",
    "inner",
    "linear",
    "matmul",
    "outer",
    "refresh",
    "tensordot",
    "vdot",
]
