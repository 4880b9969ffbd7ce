"""Fuse a product with what follows it by `cupy.fuse`: https://github.com/cupy/cupy/issues/1096

Served: by keywords of `gensor_kernels.matmul` for bias, residual, scale, activation, gate and norm.
"""

import gensor_kernels

ARRAYS = (("float16", 128, 768), ("float16", 768, 3072), ("float16", 3072))
BY = "contraction_mma"


def call(cupy, x, w, bias):
    """Fail: the functions that `fuse` traces know no product."""
    return cupy.fuse(lambda x, w, bias: cupy.maximum(cupy.matmul(x, w) + bias, 0))(x, w, bias)


def ours(cupy, x, w, bias):
    return gensor_kernels.matmul(x, w, bias=bias, activation="relu")


def meant(numpy, x, w, bias):
    return numpy.maximum(numpy.matmul(x, w) + bias, 0)
