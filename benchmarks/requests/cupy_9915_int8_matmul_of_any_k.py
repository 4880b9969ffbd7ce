"""Send int8 products to cuBLAS, which needs k to be a multiple of 4: https://github.com/cupy/cupy/pull/9915

Partly: as cupy 6611, for any k.
"""

from .cupy_6611_int8_matmul import BY, call, meant, ours  # noqa: F401

ARRAYS = (("int8", 1024, 1023), ("int8", 1023, 1024))
SMALL = (("int8", 48, 61), ("int8", 61, 40))
