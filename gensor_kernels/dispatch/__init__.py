"""From a call to a launch.

api        the public functions, and which device a call is for
arguments  what the caller wrote -> shapes, dtypes, epilogue (NumPy's rules)
problem    arrays as they lie in memory -> a Workload and the strides of Params
stored     databases -> the kernels of one Arch, in memory
library    those kernels, indexed
tiers      which of them serves a call, and why
tierup     what may be done about a call that nothing good is stored for
plan       what a call does once all that is known
fallback   the same result from the array library
runtime    calls on one device, and the dictionary of Plans
"""

from .api import emulated, matmul, refresh

__all__ = ["emulated", "matmul", "refresh"]
