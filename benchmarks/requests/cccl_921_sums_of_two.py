"""Sum rows of two elements as fast as `x[..., 0] + x[..., 1]`: https://github.com/NVIDIA/cccl/issues/921

Served: as cupy 8092. The request reports 1,927 µs for CUB's sums and 56 µs for the addition.
"""

ARRAYS = (("float64", 1000000, 2),)
BY = "rows"


def call(cupy, x):
    return x.sum(-1)
