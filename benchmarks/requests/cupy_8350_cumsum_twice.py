"""Guarantee the same bits in every run, of `cumsum` for one: https://github.com/cupy/cupy/issues/8350

Not: `cumsum` stays CuPy's. Products, reductions and norms have the same bits inside `deterministic`.
"""

ARRAYS = (("float64", 250000),)
BY = "CuPy"


def call(cupy, x):
    return cupy.cumsum(x)
