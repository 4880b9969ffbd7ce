"""Arguments that do not fit or that no kernel takes, and words of the errors; tests/public_cases draws many more."""

import ml_dtypes
import numpy as np
import pytest

import gensor_kernels as gk

pytestmark = pytest.mark.usefixtures("no_databases")

AXIS, UNSUPPORTED, HUGE = np.exceptions.AxisError, gk.UnsupportedError, 10**400


def ones(*shape, dtype="float32"):
    return np.ones(shape, dtype)


def halves(*shape):
    return ones(*shape, dtype="float16")


def bytes_of(*shape):
    return ones(*shape, dtype="int8")


A, B, ROW, SQUARE = ones(4, 6), ones(6, 5), ones(5), ones(4, 4)

NO_GATES = "takes no gates and no norms$"
#: Rows of (arguments or None for (A, B), keywords, error, words) of matmul.
PRODUCTS = [
    ((A, A), {}, ValueError, "matmul: Input operand 1 has a mismatch in its core dimension"),
    ((A, [[1.0]]), {}, TypeError, "^b must be a numpy array, not list$"),
    ((A,), {}, TypeError, r"matmul\(\) missing .* argument"),
    (None, {"typo": 1}, TypeError, r"matmul\(\) got an unexpected keyword argument 'typo'"),
    ((A, B, None, 2), {}, TypeError, "too many positional arguments|takes from 2 to 3 positional"),
        ((SQUARE > 0, SQUARE > 0), {"dtype": "int64"}, UNSUPPORTED, "products of int64.*: .*cast to one of"),
    ((SQUARE.astype("uint16"),) * 2, {}, UNSUPPORTED, "uint16"),
    (None, {"bias": [1.0] * 5}, TypeError, "^bias must be a numpy array, not list$"),
    (None, {"bias": ROW * 1j}, TypeError, "bias takes no complex number where the result is float32"),
    (None, {"alpha": 1j}, TypeError, "scale takes no complex number"),
    (None, {"alpha": 1j, "prologue": ["relu"]}, TypeError, "scale takes no complex number"),
    (None, {"alpha": 1j, "epilogue": ["layernorm"]}, TypeError, "scale takes no complex number"),
    (None, {"alpha": "2"}, TypeError, "alpha must be a number or an array, not '2'"),
    (None, {"alpha": HUGE}, ValueError, "alpha is beyond the range of float64"),
    ((SQUARE * 1j, SQUARE * 1j), {"dtype": "float32"}, TypeError, "Cannot cast"),
    ((SQUARE * 1j, SQUARE * 1j), {"activation": "gelu_tanh"}, UNSUPPORTED, "'gelu_tanh' is not defined for complex"),
    # ---- epilogues
    (None, {"activation": "swish"}, ValueError, "swish"),
    (None, {"activation": "bias"}, ValueError, "activation must be one of relu, .*, sigmoid, not 'bias'"),
    (None, {"activation": "layernorm"}, ValueError, "activation must be"),
    (None, {"activation": ["relu"]}, ValueError, "sigmoid, not list$"),
    (None, {"epilogue": [("scale",)]}, ValueError, "takes 1 value, not 0"),
    (None, {"epilogue": [("mask", 1)]}, ValueError, "takes 2 values, not 1"),
    (None, {"epilogue": [("mask", A, 1j)]}, TypeError, "mask must be a real number"),
    (None, {"epilogue": ["swish"]}, ValueError, "'swish' is not one of scale, bias"),
    (None, {"epilogue": "relu"}, TypeError, r"a list such as \[\('bias', x\), 'relu'\], not 'relu'$"),
    (None, {"epilogue": 3}, TypeError, "not 3$"),
    (None, {"epilogue": [()]}, TypeError, "not tuple$"),
    (None, {"epilogue": [[["bias"], 1]]}, TypeError, "not list$"),
    (None, {"epilogue": [None]}, TypeError, "not None$"),
    (None, {"epilogue": ["relu"], "bias": ROW}, ValueError, "whole order"),
    (None, {"epilogue": ["relu"] * 7}, UNSUPPORTED, "7 epilogue operations"),
    # ---- gates and norms
    ((A, B[:, :4]), {"activation": "swiglu", "alpha": 2.0}, ValueError, "only one bias"),
    ((A, B[:, :4]), {"epilogue": ["relu", "swiglu"]}, ValueError, "only one bias"),
    ((A, B[:, :4]), {"epilogue": ["swiglu", "reglu"]}, ValueError, "one gate"),
    ((A, B[:, :4]), {"activation": "swiglu", "bias": ROW[:3]}, ValueError, "a bias has the shape"),
    (None, {"activation": "swiglu"}, ValueError, "side by side"),
    (None, {"epilogue": ["layernorm", "rmsnorm"]}, ValueError, "one gate or norm"),
    (None, {"epilogue": [("layernorm", 0.0)]}, ValueError, "eps above 0"),
    ((halves(4, 4), bytes_of(4, 4)), {"dtype_b": "int8", "activation": "swiglu"}, UNSUPPORTED, NO_GATES),
    # ---- prologues
    (None, {"prologue": [("add", A)]}, ValueError, "prologue operation 'add'"),
    (None, {"prologue": ["swiglu"]}, ValueError, "prologue operation"),
    (None, {"prologue": "relu"}, TypeError, "prologue must be a list"),
    (None, {"prologue": [("mul", ROW)]}, ValueError, r"mul of shape \(5,\) does not broadcast"),
    (None, {"prologue": [("mul", [1.0])]}, TypeError, "mul must be a numpy array"),
    (None, {"prologue": [("bias",)]}, ValueError, "takes 1 value"),
    ((bytes_of(4, 4),) * 2, {"prologue": ["relu"]}, TypeError, "floating-point"),
    ((SQUARE * 1j, SQUARE * 1j), {"prologue": ["relu"]}, UNSUPPORTED, "complex"),
]  # fmt: skip

#: Subscripts, shapes of operands and words: refused as by NumPy.
SUBSCRIPTS = [
    ("ij,jk", [(2, 3)], "fewer operands"),
    ("ij", [(2, 3), (3, 4)], "more operands"),
    ("i,i", [(2, 3), (3,)], "has more dimensions than subscripts"),
    ("ijk,i", [(2, 3), (3,)], "too many subscripts for operand 0"),
    ("ij,jk", [(2, 3), (4, 5)], "could not be broadcast together"),
    ("ij,jk,kl", [(2, 3), (3, 4), (5, 6)], "could not be broadcast together"),
    ("ii,i", [(2, 3), (2,)], "collapsing index 'i'"),
    ("ii,i", [(1, 3), (3,)], "collapsing index 'i'"),
    ("ij,jk->z", [(2, 3), (3, 4)], "never appeared in an input"),
    ("ij->k", [(2, 3)], "never appeared in an input"),
    ("ij,jk->ii", [(2, 3), (3, 4)], "multiple times"),
    ("i1,jk", [(2, 3), (3, 4)], "invalid subscript '1'"),
    ("i.j,jk", [(2, 3), (3, 4)], "not part of an ellipsis"),
    ("......,jk", [(2, 3), (3, 4)], "not part of an ellipsis"),
    ("ij,jk-ik", [(2, 3), (3, 4)], "does not contain proper '->'"),
    ("ij,jk->i->k", [(2, 3), (3, 4)], "does not contain proper '->'"),
    ("...ij,jk->ik", [(2, 2, 3), (3, 4)], "output has more dimensions"),
]

CHAIN = "ij,jk,kl", SQUARE, SQUARE, SQUARE
QUANTISED, EIGHT = (halves(4, 64), bytes_of(8, 64)), np.ones((4, 256), ml_dtypes.float8_e4m3fn)
SCALED = EIGHT, np.ones((200, 256), ml_dtypes.float8_e4m3fn).T, ones(4, 2), ones(2, 2)
GROUPED = ones(4, 8), ones(2, 8, 3)
PICTURE, FILTERS, SMALL = ones(2, 5, 8, 8), ones(4, 5, 3, 3), halves(1, 8, 8, 16)
Q, Q1, K1, PAGES = halves(1, 2, 6, 16), halves(1, 2, 4, 16), halves(1, 2, 5, 16), halves(4, 2, 8, 16)
FIT, AXES = (Q1, K1, K1), r"q, k and v have the axes \(batch, heads, rows, head\)"
TWO, TABLE = np.concatenate([Q, Q]), {"block_table": [[0, 1], [2, 3]]}
WITHOUT_KEYS = {"sizes": [2, 4], **TABLE}
CACHE = {"key_sizes": [3, 4], **WITHOUT_KEYS}
GEGLU = {"activation": "geglu", "layout": "NHWC"}
WIDE_PADDING = "at most half of the"
#: Rows of (function, arguments, keywords, error, words).
OTHERS = [
    # ---- products of other functions
    (gk.linear, (A, ones(4, 5)), {}, ValueError, r"linear: x is \(..., in\) and w \(out, in\), not \(4, 6\)"),
    (gk.linear, (A, ones(5, 6), None, "swiglu"), {}, ValueError, r"with swiglu, w is \(2 out, in\)"),
    (gk.linear, (A, ones(4, 5)), {"prologue": ["relu"]}, ValueError, r"x is \(..., in\)"),
    (gk.linear, (ones(2, 3, 8),) * 2, {}, ValueError, "linear: w has the shape"),
    (gk.linear, (A, ones(5, 6), 1.0), {}, TypeError, "bias must be a numpy array"),
    (gk.linear, (bytes_of(2, 4), bytes_of(6, 4), None, "swiglu"), {}, TypeError, "real floating-point"),
    (gk.linear, (ones(2, 2, dtype="int16"),) * 2, {}, UNSUPPORTED, "products of int16.*: .*cast to one of"),
    (gk.linear, QUANTISED, {"group": 32}, ValueError, "zeros and group belong to scales"),
    (gk.linear, QUANTISED, {"scales": halves(7, 2)}, ValueError, r"scales are \(8,\) or"),
    (gk.linear, QUANTISED, {"scales": halves(8, 2), "group": 64}, ValueError, "2 scales in a row do not belong"),
    (gk.linear, QUANTISED, {"scales": halves(8, 3)}, ValueError, "64 weights .* 3 equal groups.* group="),
    (gk.linear, QUANTISED, {"scales": halves(8, 2), "group": 32.0}, TypeError, "group must be an integer, not 32.0"),
    (gk.linear, QUANTISED, {"scales": halves(8, 2), "zeros": bytes_of(8, 64)}, ValueError, "zeros of shape"),
    (gk.linear, QUANTISED, {"scales": halves(8, 2), "zeros": halves(8, 2)}, TypeError, "zeros are of the weights"),
    (gk.linear, (halves(4, 64), ones(8, 64, dtype="uint8")), {"scales": halves(8)}, ValueError, r"x is \(..., 128\)"),
    (gk.linear, (halves(4, 64), ones(8, 64, dtype="int16")), {"scales": halves(8)}, TypeError, "int8 or .*uint8"),
    (gk.linear, (ones(2, 4), bytes_of(3, 4)), {"scales": ones(3)}, UNSUPPORTED, "bfloat16, got float32.*: cast x"),
    (gk.grouped_matmul, GROUPED, {"offsets": np.array([3, 1], "uint32")}, ValueError, "ascend"),
    (gk.grouped_matmul, GROUPED, {"sizes": [1, 2, 1]}, ValueError, "sizes have as many integers"),
    (gk.grouped_matmul, GROUPED, {}, ValueError, "offsets or sizes, one of them"),
    (gk.grouped_matmul, (ones(4, 7), ones(2, 8, 3), [1, 4]), {}, ValueError, "takes x"),
    (gk.grouped_matmul, (A, ones(2, 6, 4), [1, 4]), {"activation": "swiglu"}, UNSUPPORTED, NO_GATES),
    (gk.grouped_matmul, (A, ones(2, 6, 4), [1, 4]), {"epilogue": ["layernorm"]}, UNSUPPORTED, NO_GATES),
    (gk.scaled_matmul, (EIGHT, SCALED[1].T, *SCALED[2:]), {}, ValueError, r"not \(4, 256\) and \(200, 256\)"),
    (gk.scaled_matmul, (*SCALED[:2], ones(4, 1), SCALED[3]), {}, ValueError, r"scale_a has the shape .*take \(4, 2\)"),
    (gk.scaled_matmul, (*SCALED[:3], ones(2, 1)), {}, ValueError, r"scale_b has the shape \(2, 1\).*take \(2, 2\)"),
    (gk.scaled_matmul, (EIGHT.view("uint8"), *SCALED[1:]), {}, TypeError, "not uint8 and float8_e4m3fn"),
    (gk.scaled_matmul, (ones(4, 256), *SCALED[1:]), {}, TypeError, "not float32 and float8_e4m3fn"),
    (gk.scaled_matmul, SCALED, {"dtype_a": "float8_e5m2"}, TypeError, "does not hold float8_e5m2"),
    (gk.scaled_matmul, (*SCALED[:2], ones(4, 2, dtype="int32"), SCALED[3]), {}, TypeError, "numbers, not int32"),
    (gk.scaled_matmul, SCALED, {"dtype": "int8"}, TypeError, "is no int8"),
    (gk.scaled_matmul, SCALED, {"activation": "swiglu"}, UNSUPPORTED, NO_GATES),
    (gk.scaled_matmul, (EIGHT[:, :250], SCALED[1][:250], *SCALED[2:]), {}, UNSUPPORTED, "multiples of 16 as k"),
    (gk.scaled_matmul, SCALED, {"dtype": "float64"}, UNSUPPORTED, "float32, float16 or bfloat16, not float64"),
    (gk.prepack, ([[1.0]],), {}, TypeError, "numpy array"),
    (gk.prepack, (ROW,), {}, ValueError, "last two"),
    (gk.prepack, (ones(2, 3, 4),), {"axis": 0}, ValueError, "last two"),
    (gk.prepack, (A,), {"axis": 2**40}, ValueError, "axis is one of its last two"),
    (gk.prepack, (A,), {"rows": 0}, ValueError, "rows"),
    (gk.prepack, (A,), {"rows": 1.5}, TypeError, "rows"),
    # ---- contractions
    *((gk.einsum, (text, *(ones(*shape) for shape in shapes)), {}, ValueError, words)
      for text, shapes, words in SUBSCRIPTS),
    (gk.einsum, (), {}, ValueError, "must specify the einstein sum"),
    (gk.einsum, (SQUARE, [0, 52]), {}, ValueError, "valid range"),
    (gk.einsum, (SQUARE, [0, "j"]), {}, TypeError, "either an integer or an ellipsis"),
    (gk.einsum, ("ij,jk", SQUARE, SQUARE), {"out": A}, ValueError, "out is float32"),
    (gk.einsum, ("ij,jk", SQUARE, SQUARE), {"dtype": "int8"}, UNSUPPORTED, "operands of float32"),
    (gk.einsum, ("ij,kl->ik", *[SQUARE.astype("int64")] * 2), {}, UNSUPPORTED, "int64"),
    (gk.einsum, ("ki,kj->ij", A, A), {"conjugate": 2}, ValueError, "conjugate names operands 0 to 1"),
    (gk.einsum, CHAIN, {"optimize": "best"}, TypeError, "Did not understand the path"),
    (gk.einsum, ("ij,jk", SQUARE, SQUARE), {"optimize": ["greedy", "x"]}, TypeError, "Did not understand the path"),
    (gk.einsum, CHAIN, {"optimize": ["einsum_path", (0, 7)]}, ValueError, "the path takes operands"),
    (gk.einsum, ("ik,kl,lj->ij", A, B, B.T), {"prologue": ["swish"]}, ValueError, "prologue operation 'swish'"),
    (gk.einsum, ("ik,kj->ij", A, B), {"prologue": [("mul", ones(8, 5))]}, ValueError, "does not broadcast"),
    (gk.tensordot, (A, B.T, 1), {}, ValueError, "shape-mismatch for sum"),
    (gk.tensordot, (A, B, ([1], [0, 1])), {}, ValueError, "shape-mismatch for sum"),
    (gk.tensordot, (SQUARE, SQUARE, ([1, 1], [0, 1])), {}, ValueError, "summed over twice"),
    (gk.tensordot, (A, B, ([5], [0])), {}, AXIS, "axis 5 is out of bounds"),
    (gk.tensordot, (A, B, ([0, 1], (0, 2**40))), {}, AXIS, "out of bounds"),
    (gk.tensordot, (A, B, (1, 0, 0)), {}, ValueError, "a pair of axes"),
    (gk.dot, (A, A), {}, ValueError, r"shapes \(4, 6\) and \(4, 6\) not aligned: 6 \(dim 1\) != 4 \(dim 0\)"),
    (gk.dot, (A, ones(1, 5)), {}, ValueError, "not aligned"),
    (gk.inner, (A, SQUARE), {}, ValueError, "not aligned"),
    (gk.vdot, (A, SQUARE), {}, ValueError, "vectors of sizes 24 and 16"),
    # ---- images
    (gk.conv2d, (PICTURE, FILTERS), {"stride": 0}, ValueError, "stride must be 1 or more"),
    (gk.conv2d, (PICTURE, FILTERS), {"stride": 1.0}, TypeError, "stride must be an integer"),
    (gk.conv2d, (PICTURE, FILTERS), {"stride": [1, 1.0]}, TypeError, "stride must be an integer"),
    (gk.conv2d, (PICTURE, FILTERS), {"stride": (1, 2, 3)}, ValueError, "an integer or a pair"),
    (gk.conv2d, (PICTURE, FILTERS), {"padding": "reflect"}, ValueError, "'same' or 'valid'"),
    (gk.conv2d, (PICTURE, FILTERS), {"padding": "same", "stride": 2}, ValueError, "needs stride 1"),
    (gk.conv2d, (PICTURE, FILTERS), {"dilation": 1.5}, TypeError, "dilation must be an integer"),
    (gk.conv2d, (PICTURE, FILTERS), {"layout": "CHWN"}, ValueError, "'NCHW', 'NHWC'"),
    (gk.conv2d, (PICTURE, FILTERS), {"groups": 2}, ValueError, "x has 5 channels"),
    (gk.conv2d, (PICTURE, ones(4, 6, 3, 3)), {}, ValueError, "x has 5 channels, w is for 6"),
    (gk.conv3d, (ones(1, 2, 4, 4, 4), ones(3, 3, 2, 2, 2)), {}, ValueError, "x has 2 channels, w is for 3"),
    (gk.conv2d, (PICTURE, ones(4, 5, 1, 1)), {"out": ROW}, ValueError, r"out has shape \(5,\), the result \(2"),
    (gk.conv2d, (ones(1, 2, 5, 5, dtype="uint8"),) * 2, {}, UNSUPPORTED, "got uint8.*: .*cast x and w"),
    (gk.conv2d, (SMALL, halves(16, 3, 3, 16)), GEGLU, UNSUPPORTED, NO_GATES),
    (gk.conv_transpose2d, (SMALL, halves(16, 3, 3, 16)), GEGLU, UNSUPPORTED, NO_GATES),
    (gk.conv2d, (ones(1, 5, 5, 2), ones(4, 1, 1, 2), ROW), {"layout": "NHWC"}, ValueError, "w has 4 filters"),
    (gk.conv2d, (PICTURE, FILTERS, ROW), {}, ValueError, "bias has shape .*, w has 4 filters"),
    (gk.conv2d, (PICTURE, FILTERS, ones(1)), {"prologue": ["relu"]}, ValueError, "bias has shape .*, w has 4 filters"),
    (gk.conv2d, (PICTURE[:, :4], ones(4, 1, 3, 3), ones()), {"groups": 4}, ValueError, "w has 4 filters"),
    (gk.conv1d, (ones(1, 3, 8), ones(4, 3, 3), ones(4, 1)), {}, ValueError, "bias has shape .*, w has 4 filters"),
    (gk.conv_transpose2d, (ones(1, 2, 5, 5), ones(2, 2, 2, 2), ROW), {"groups": 2}, ValueError, "w has 4 filters"),
    (gk.conv1d, (ones(1, 3, 8), ones(4, 3, 3)), {"out": ROW}, ValueError, r"the result \(1, 4, 6\)"),
    (gk.conv1d, (ones(1, 3, 8), A), {}, ValueError, r"x and w have 3 axes \(NCW\)"),
    (gk.conv1d, (ones(1, 6, 15), ones(6, 1, 3)), {"groups": 6, "prologue": "relu"}, TypeError, "must be a list"),
    (gk.max_pool2d, (A, 2), {}, ValueError, r"max_pool2d: x has 4 axes \(NCHW\), not 2"),
    (gk.max_pool2d, (PICTURE, 2), {"padding": 3, "dilation": 4}, ValueError, WIDE_PADDING),
    (gk.max_pool2d, (ones(1, 2, 4, 4, dtype="int32"), 2), {}, UNSUPPORTED, "one dtype of .* got int32.*: cast"),
    (gk.max_pool2d, (PICTURE * 1j, 2), {}, UNSUPPORTED, "complex.*: .*the imaginary part apart"),
    *((function, (PICTURE,), keywords, ValueError, words) for function in (gk.max_pool2d, gk.avg_pool2d)
      for keywords, words in (
        ({"kernel_size": 0}, "kernel_size must be 1 or more"),
        ({"kernel_size": 20}, "does not fit|no output|window"),
        ({"kernel_size": 3, "stride": 0}, "stride must be 1"),
        ({"kernel_size": 3, "padding": 2}, WIDE_PADDING),
        ({"kernel_size": 4, "padding": ((2, 3), (0, 0))}, WIDE_PADDING),
    )),
    # ---- rows
    *((function, (A,), {"axis": axis}, AXIS, "out of bounds") for axis in (2**40, -(2**70), (0, 2**40), 2, -3)
      for function in (gk.sum, gk.argmax, gk.var, gk.norm, gk.logsumexp, gk.softmax)),
    (gk.var, (A,), {"axis": 1, "ddof": float("nan")}, ValueError, "ddof must be a number, not"),
    (gk.var, (A,), {"axis": 1, "ddof": 1j}, TypeError, "ddof must be a number, not"),
    (gk.argmax, (A,), {"axis": 1, "out": ones(4)}, TypeError, "out has dtype float32"),
    (gk.softmax, (A,), {"out": ROW}, ValueError, r"^out has shape \(5,\), the result \(4, 6\)"),
    (gk.softmax, (bytes_of(2, 2),), {}, UNSUPPORTED, "softmax takes float64, .* got int8.*: cast"),
    (gk.sum, (A > 0,), {}, UNSUPPORTED, "sum takes float64, .* got bool.*: cast"),
    (gk.sum, (A * 1j,), {}, UNSUPPORTED, "complex.*: .*the imaginary part apart"),
    (gk.sum, (ones(),), {}, UNSUPPORTED, "without axes.*: .*give it one"),
    (gk.layer_norm, (A, 4), {}, ValueError, "normalized_shape"),
    (gk.layer_norm, (A, 6, ROW), {}, ValueError, "weight has shape"),
    (gk.rms_norm, (A, A[0]), {}, TypeError, "normalized_shape must be an integer or a sequence of integers, not numpy"),
    (gk.rms_norm, (A, 6), {"eps": HUGE}, ValueError, "eps is beyond the range of float64"),
    (gk.elementwise, (A, [("scale", HUGE)]), {}, ValueError, "scale is beyond the range of float64"),
    (gk.elementwise, (A, ["square"]), {}, ValueError, "square"),
    # ---- attention
    (gk.attention, (Q1, K1, Q), {}, ValueError, "k and v have the shapes"),
    (gk.attention, (halves(1, 3, 4, 16), K1, K1), {}, ValueError, "no multiple of the 2"),
    (gk.attention, (Q1[0], K1[0], K1[0]), {}, ValueError, AXES),
    (gk.attention, (halves(1, 2, 4, 32), K1, K1), {}, ValueError, "batch and head must be equal"),
    (gk.attention, FIT, {"causal": "left"}, ValueError, "causal is False, True"),
    (gk.attention, FIT, {"mask": A > 0}, ValueError, "does not broadcast"),
    (gk.attention, (Q1, Q1, Q1), {"mask": bytes_of(4, 4)}, TypeError, r"mask is of bool .* or float .* int8"),
    (gk.attention, (Q1, Q1, Q1), {"mask": SQUARE * 1j}, TypeError, r"mask is of bool .* or float .* complex"),
    (gk.attention, FIT, {"window": (1,)}, ValueError, r"window is a pair \(left, right\)"),
    (gk.attention, FIT, {"window": 4}, ValueError, r"window is a pair \(left, right\)"),
    (gk.attention, FIT, {"window": (-2, 0)}, ValueError, "a side of window must be -1 or more"),
    (gk.attention, FIT, {"softcap": -1.0}, ValueError, "softcap is a number above 0"),
    (gk.attention, FIT, {"softcap": np.inf}, ValueError, "softcap is a number above 0"),
    (gk.attention, FIT, {"softcap": HUGE}, ValueError, "softcap is beyond the range of float64"),
    (gk.attention, FIT, {"softcap": 1000}, UNSUPPORTED, "soft cap of 1000"),
    (gk.attention, FIT, {"sinks": ones(3)}, ValueError, r"sinks of shape \(3,\): one number per head of q, \(2,\)"),
    (gk.attention, FIT, {"sinks": ones(2) > 0}, TypeError, "sinks are floating-point numbers, not bool"),
    (gk.attention, FIT, {"out": (Q1, Q1)}, ValueError, r"with return_lse a pair \(out, lse\)"),
    (gk.attention, FIT, {"out": (None, Q1)}, ValueError, r"with return_lse a pair \(out, lse\), not 2 arrays"),
    (gk.attention, FIT, {"out": (None, Q1), "return_lse": True}, ValueError, "lse is float32 of shape"),
    (gk.attention, FIT, {"out": (None, "x"), "return_lse": True}, TypeError, "out must be an array or a sequence"),
    (gk.attention, FIT, {"out": [Q1], "return_lse": True}, ValueError, "not 1 arrays"),
    (gk.attention, FIT, {"out": (Q1, Q1), "return_lse": True}, ValueError, "lse is float32 of shape"),
    (gk.attention, FIT, {"scale": HUGE}, ValueError, "scale is beyond the range of float64"),
    (gk.attention, (ones(1, 2, 4, 8),) * 3, {}, UNSUPPORTED, "takes float16 or bfloat16, got float32.*: .*cast q"),
    (gk.attention, (halves(1, 1, 2, 512),) * 3, {}, UNSUPPORTED, "up to 256 elements, got 512.*: .*compose it"),
    (gk.attention, (Q, Q, Q), {"offsets": [4, 2]}, ValueError, "sequence 1 ends at row 2, and begins at row 4"),
    (gk.attention, (Q, Q, Q), {"offsets": [4], "sizes": [4]}, ValueError, "offsets or sizes, one of them"),
    (gk.attention, (Q, Q, Q), {"sizes": [2, 4], "key_sizes": [1] * 3}, ValueError, r"are integers of the shape \(2,\)"),
    (gk.attention, (Q, Q, Q), {"key_sizes": [6]}, ValueError, "go with offsets or sizes, or with a block_table"),
    (gk.attention, (Q, Q, Q), {"sizes": [6], "mask": ones(6, 6) > 0}, ValueError, "for sequences of one length"),
    (gk.attention, (TWO, Q, Q), {"sizes": [6]}, ValueError, "k of shape|batch of 1|batch and head must be equal"),
    (gk.attention, (TWO, TWO, TWO), {"sizes": [6]}, ValueError, "have a batch of 1, not 2"),
    (gk.attention, (Q[0], Q, Q), {"sizes": [2, 4]}, ValueError, AXES),
    (gk.attention, (Q, PAGES, PAGES), WITHOUT_KEYS, ValueError, "key_sizes are the numbers of keys in the cache"),
    (gk.attention, (Q, PAGES, PAGES), WITHOUT_KEYS | {"key_sizes": [3]}, ValueError, r"shape \(2,\)"),
    (gk.attention, (Q, PAGES, PAGES), {"sizes": [6], "key_sizes": [3], **TABLE}, ValueError, "block_table are"),
    (gk.attention, (Q, PAGES, halves(5, 2, 8, 16)), CACHE, ValueError, "as many pages"),
    (gk.attention, (Q, *[halves(4, 2, 8, 32)] * 2), CACHE, ValueError, "head must be"),
    (gk.attention, (Q, *[halves(4, 2, 12, 16)] * 2), CACHE, UNSUPPORTED, "powers of two"),
    (gk.attention, (Q, PAGES, PAGES[..., :8]), CACHE, UNSUPPORTED, "of another size"),
]  # fmt: skip
REFUSED = [(gk.matmul, (A, B) if given is None else given, *more) for given, *more in PRODUCTS] + OTHERS


@pytest.mark.parametrize(("function", "arguments", "keywords", "error", "words"), REFUSED)
def test_calls_and_their_explanation_raise(function, arguments, keywords, error, words):
    with gk.emulated("sm_90"):
        for call in (function, lambda *given, **more: gk.explain(function, *given, **more)):
            if error is UNSUPPORTED and call is not function:
                continue  # the library may serve it elsewhere
            with pytest.raises(error, match=words) as raised:
                call(*arguments, **keywords)
            message = str(raised.value)
            assert len(message) < 300 and not any(word in message for word in ("_explain", "builtins", "unhashable"))
            if ": ." in words:  # a remedy
                assert message.startswith("no kernel serves this call: ") and ";" not in message


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("ij,jk",), "axes of the result"),
        (("ij,jk->il",), "the result's axes"),
        (("ij,jk->ik", ["swish"]), "'swish' is not one of"),
        (("ij,jk->ik", ["bias"]), "needs the axes"),
        (("ij,jk->ik", [("bias", "j")]), "some of the result's"),
        (("ij,jk->ik", ["scale"]), "takes a number"),
        (("ij,jk->ik", ["relu"] * 7), "at most 6"),
        ((A,), "define takes a string such as 'ij,jk->ik', not numpy.ndarray of shape"),
    ],
)
def test_definitions_are_refused(arguments, words):
    with pytest.raises((TypeError, ValueError), match=words):
        gk.define(*arguments)


def test_operands_of_a_definition_are_counted():
    function = gk.define("ij,jk->ik", epilogue=[("bias", "k")])
    with gk.emulated("sm_87"):
        with pytest.raises(TypeError, match=r"takes 2 \+ 1 arrays, 2 are given"):
            function(A, B)
        with pytest.raises(ValueError, match=r"does not broadcast|shape"):
            function(A, B, ones(6))


def test_names_of_tools():
    for call, words in (
        (lambda: gk.explain(A), r"not numpy.ndarray of shape \(4, 6\) and dtype float32"),
        (lambda: gk.explain(np.matmul, A, B), r"explain knows gensor_kernels\.matmul"),
        (lambda: gk.emulated(A).__enter__(), "arch must be a name such as 'sm_87', not numpy.ndarray of shape"),
    ):
        with pytest.raises(TypeError, match=words):
            call()
    with pytest.raises(gk.UnknownArchError, match="sm_87"), gk.emulated("sm_1"):
        pass
    with gk.emulated("sm_86"), pytest.raises(UNSUPPORTED, match="as they are stored"):
        gk.scaled_matmul(*SCALED)
