"""Calls that operators refuse, and words of their errors."""

from functools import partial

import numpy as np
import pytest

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators import operator
from gensor_kernels.operators.attention import attention, sequences
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.rows import views as rows
from gensor_kernels.operators.types.dtypes import product_type
from gensor_kernels.operators.types.epilogue import Step, apply, parse
from gensor_kernels.operators.types.workload import View, Workload, contiguous
from gensor_kernels.operators.windows import conv, depthwise, pooling

PRODUCT = partial(matmul.workload, 8, 8, 8)
CONV = partial(conv.workload, n=2, h=9, w=11, c=6, k_out=4, r=3, s=2)
DEPTHWISE = partial(depthwise.workload, n=1, h=9, w=9, c=1, r=3, s=3)
POOL = partial(pooling.workload, n=1, h=9, w=9, c=1, r=3, s=3)
PAGED = partial(sequences.workload, 2, 4, 300, head=8)
SQUARE, STRIDED = contiguous((4, 4), "float32"), View((4,) * 6, (9**6, 9**5, 9**4, 9**3, 9**2, 9), "float32")
Q, KEYS, FEW_KEYS = (contiguous((1, 2, each, 8), "float16") for each in (4, 6, 5))
ATTENTION = attention.workload_from_views
#: A call, its arguments, and words of the ValueError.
WRONG = [
    (PRODUCT().with_sizes, {"k": -1}, "size k is -1"),
    (PRODUCT().with_sizes, {"x": 1}, "not x"),
    (Workload.from_json, ["{}"], "fields"),
    (matmul.workload_from_operands, [contiguous((8, 9), "float32")] * 3, "do not fit"),
    (CONV, {"r": 12}, "does not fit the padded image along h"),
    (CONV, {"groups": 5}, "c = 6 is no multiple of groups = 5"),
    (CONV, {"stride_w": 0}, "stride_w is 0"),
    (CONV, {"depth": 1}, "no size depth"),
    (DEPTHWISE, {"h": 2}, "does not fit"),
    (DEPTHWISE, {"groups": 2}, "groups"),
    (DEPTHWISE, {"stride_h": 0}, "stride_h"),
    (partial(pooling.workload, "max_pool2d"), {"n": 1, "h": 9, "w": 9, "c": 1}, "needs r and s"),
    (partial(POOL, "avg_pool2d"), {"dilation_h": 2}, "dilation"),
    (rows.workload, ["reduce_sum", (4, 4), (1, -1), "float32"], "axes"),
    (rows.workload_from_views, ["softmax", SQUARE, contiguous((4,), "float32"), (1,)], "output of shape"),
    (partial(attention.workload, 4), {"heads": 3, "kv_heads": 2}, "multiple"),
    (partial(attention.workload, 4), {"causal": "diagonal"}, "causal is"),
    (ATTENTION, [Q, KEYS, FEW_KEYS, Q], "do not fit"),
    (ATTENTION, [contiguous((4, 8), "float16"), KEYS, KEYS, Q], "operands, not"),
    (partial(ATTENTION, Q, KEYS, KEYS, Q), {"mask": contiguous((1, 1, 4, 6), "bool")}, "mask is broadcast"),
    (apply, [np.ones((2, 2)), [Step("bias")], "float32"], "bias"),
]
#: A call, its arguments, and words of the UnsupportedError.
UNSUPPORTED = [
    (PRODUCT, {"dtype": "float8_e4m3"}, "float8_e4m3"),
    (PRODUCT, {"dtype": "float16", "math": "tf32"}, "float32 operands"),
    (PRODUCT, {"dtype": "float32", "dtype_b": "int8", "math": "tf32"}, "tf32"),
    (PRODUCT, {"math": "fast"}, "fast"),
    (PRODUCT, {"epilogue": "bias_swiglu"}, "swiglu"),
    (PRODUCT, {"epilogue": ["relu"] * 7}, "7 epilogue operations"),
    (PRODUCT, {"out": "complex64"}, "complex64"),
    (PRODUCT, {"dtype": "float32", "math": "3m"}, "for complex types"),
    (PRODUCT, {"dtype": "float64", "conjugate": "a"}, "for complex types"),
    (parse, ["bias_swiglu"], "swiglu"),
    (parse, ["_".join(["relu"] * 7)], "7 operations"),
    (operator, ["fourier"], "fourier"),
    (product_type, ["int8", "float8_e5m2"], "products of int8 and float8_e5m2"),
    (product_type, ["float16", "bfloat16"], "products of float16 and bfloat16"),
    (product_type, ["complex64", "int8"], "products of complex64 and int8"),
    (product_type, ["float64", "int8"], "products of float64 and int8"),
    (partial(POOL, "avg_pool2d"), {"dtype": "int8"}, "int8"),
    (partial(POOL, "min_pool2d"), {}, "no pooling"),
    (DEPTHWISE, {"dtype": "int32"}, "int32"),
    (rows.workload, ["reduce_mean", (4, 4), (1,), "int8"], r"mean takes float64, .*, got int8: cast"),
    (partial(rows.workload, "reduce_sum", (4, 4), (1,), "int8"), {"out": "int32"}, "int32"),
    (rows.workload, ["reduce_sum", (2**31,), (0,), "float32"], "32 bits"),
    (rows.workload_from_views, ["reduce_sum", STRIDED, contiguous((4,), "float32"), (0, 1, 2, 3, 4)], "apart"),
    (ATTENTION, [Q, KEYS, contiguous((1, 2, 6, 8), "bfloat16"), Q], "takes one dtype, float16 or bfloat16, got"),
    (PAGED, {"page_size": 3}, "powers of two"),
    (PAGED, {"page_size": 24}, "powers of two"),
    (PAGED, {"page_size": 100}, "powers of two"),
]


def fails(error, call, arguments, words):
    with pytest.raises(error, match=words):
        call(**arguments) if isinstance(arguments, dict) else call(*arguments)


def test_wrong_arguments_are_named():
    for row in WRONG:
        fails(ValueError, *row)


def test_what_is_not_served_says_why():
    for row in UNSUPPORTED:
        fails(UnsupportedError, *row)


def geometry(w, scale=None, **strides):
    """The geometry of contiguous operands, but for some strides."""
    declared = operator(w.operator)
    usual = {each.name: each.strides() for each in declared.operands(w)}
    return declared.geometry(w, usual | strides, **scale or {})


@pytest.mark.parametrize(
    ("name", "word", "values"),
    [
        ("scale", "scale", (0.0, -1.0, float("nan"), float("inf"), 1e39, 1e-46)),
        ("softcap", "soft cap", (0.0, 257.0, float("nan"), 1e-40)),
    ],
)
def test_factors_that_no_kernel_takes_are_refused(name, word, values):
    w = attention.workload(3, head=8, softcap=name == "softcap")
    for value in values:
        fails(UnsupportedError, geometry, [w, {name: value}], word)


def test_operands_out_of_reach_are_refused():
    fails(UnsupportedError, geometry, [attention.workload(1, 2**31 - 200, head=8)], "2\\^31")
    fails(UnsupportedError, geometry, [sequences.workload(2, 1, 2**29, head=8)], "2\\^29")
    fails(UnsupportedError, geometry, [DEPTHWISE(h=2**30, w=7, c=16)], "too large")
    paged = sequences.workload(2, 1, 64, page_size=16, ragged=False, head=8)
    [_, _, values, *_] = operator(paged.operator).operands(paged)
    for axis in (0, 2):
        far = list(values.strides())
        far[axis] = -(2**30)
        fails(UnsupportedError, geometry, {"w": paged, "d": tuple(far)}, "bytes apart")
    view = View((1, 4, 4, 4), (64, 16, 4, 2), "float32", 16)  # the innermost axis has a stride of two
    pooled = partial(pooling.workload_from_views, "max_pool2d", view, View((1, 2, 2, 4), (16, 8, 4, 1), "float32"))
    fails(UnsupportedError, pooled, {"r": 2, "s": 2}, "stride 2")
