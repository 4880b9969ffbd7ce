"""Guarantee the same bits in every run, of `cumsum` for one: https://github.com/cupy/cupy/issues/8350

Served: by `gensor_kernels.cumsum` inside `deterministic`: kernels join elements in one order.
"""

import gensor_kernels

ARRAYS = (("float64", 250000),)
BY = "rows"


def call(cupy, x):
    return cupy.cumsum(x)


def ours(cupy, x):
    with gensor_kernels.deterministic():
        return gensor_kernels.cumsum(x)
