"""Multiply dense by sparse matrices with the same bits in every run: https://github.com/cupy/cupy/issues/9323

Partly: with a dense copy of the sparse matrix inside `deterministic`. Sparse products stay CuPy's.
"""

import gensor_kernels

ARRAYS = (("float32", 1000, 1000), ("float32", 1000, 1000))
BY = "contraction_simt"


def call(cupy, a, b):
    from cupyx.scipy.sparse import csr_matrix

    return a @ csr_matrix(cupy.where(b > 0.67, b, 0))


def ours(cupy, a, b):
    with gensor_kernels.deterministic():
        return gensor_kernels.matmul(a, cupy.where(b > 0.67, b, 0))


def meant(numpy, a, b):
    return a @ numpy.where(b > 0.67, b, 0)
