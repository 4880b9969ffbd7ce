"""Let `einsum` follow `CUPY_TF32` as `matmul` does: https://github.com/cupy/cupy/issues/4584

Served: every contraction follows the switch.
"""

ARRAYS = (("float32", 1024, 1024), ("float32", 1024, 1024))
BY = "contraction_mma"
TF32 = True


def call(cupy, a, b):
    return cupy.einsum("ab,bc->ac", a, b)
