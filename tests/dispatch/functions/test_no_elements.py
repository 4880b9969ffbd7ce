"""Each extent of the arrays of every public function set to zero: the results of NumPy and PyTorch, or their errors."""

import numpy as np
import pytest

import gensor_kernels as gk
from tests.doubles.device import FakeDevice
from tests.doubles.kernels import put, runtime_of

#: Words of the errors for calls without a result.
REFUSED = {
    "does not fit": "an image smaller than the filter",
    "expected 1 or more": "a filter without taps",
    "row without": "the largest of no elements",
    "rows and columns": "a pooling of no pixels",
}
HALF = "float16"
BIAS = 2


def ones(*shape, dtype="float32"):
    return np.ones(shape, dtype)


def twos(*shape, dtype="float32"):
    return np.full(shape, BIAS, dtype)


def image(layout, n, c, h, w):
    return ones(*((n, c, h, w) if layout == "NCHW" else (n, h, w, c)))


def convolution(layout, r=3, pad=0, groups=1, transposed=False, biased=True, **more):
    """(call, sizes, value of empty sums) of a convolution of n, c, h, w by k filters of r x s."""

    def call(n, c, h, w, k, r, s):
        function = gk.conv_transpose2d if transposed else gk.conv2d
        filters = image(layout, *((c, k) if transposed else (k * groups, c // groups)), r, s)
        bias = twos(k * groups) if biased else None
        result = function(image(layout, n, c, h, w), filters, bias, padding=pad, groups=groups, layout=layout, **more)
        oh, ow = (h + r - 1, w + s - 1) if transposed else (h + 2 * pad - r + 1, w + 2 * pad - s + 1)
        assert result.shape == image(layout, n, k * groups, oh, ow).shape
        return result

    return call, dict(n=2, c=4, h=5, w=6, k=3, r=r, s=r), BIAS if biased else 0


def int4(m, k, n):
    w, scales, bias = ones(n, k, dtype="uint8"), ones(n, dtype=HALF), twos(n, dtype=HALF)
    return gk.linear(ones(m, 2 * k, dtype=HALF), w, bias, scales=scales, zeros=ones(n, dtype="uint8"))


def int8(m, k, n):
    w, scales, bias = ones(n, k, dtype="int8"), ones(n, dtype=HALF), twos(n, dtype=HALF)
    return gk.linear(ones(m, k, dtype=HALF), w, bias, scales=scales)


def scaled_product(m, k, n):
    types = {"dtype_a": "float8_e4m3fn", "dtype_b": "float8_e4m3fn"}
    a, b = np.full((m, k), 0x38, "uint8"), np.full((n, k), 0x38, "uint8").T
    scales = ones(m, -(-k // 128)), ones(-(-k // 128), -(-n // 128))
    return gk.scaled_matmul(a, b, *scales, bias=twos(n), **types)


def grouped_product(g, m, k, n):
    ends = np.linspace(0, m, g + 1)[1:].astype("int32")
    return gk.grouped_matmul(ones(m, k), ones(g, k, n), ends, bias=twos(n))


def attention(b, h, q, k, d):
    return gk.attention(*(ones(b, h, rows, d, dtype=HALF) for rows in (q, k, k)))


DEFINED = gk.define("i j, j k -> i k", epilogue=[("bias", "k")])
MKN, IJK, IMAGE = dict(m=2, k=3, n=4), dict(i=2, j=3, k=4), dict(n=2, c=4, h=5, w=7)
#: name -> (call, sizes, value where nothing is summed; None: there is none)
CASES = {
    "matmul": (lambda m, k, n: gk.matmul(ones(m, k), ones(k, n), bias=twos(n)), MKN, BIAS),
    "batched": (lambda b, m, k, n: gk.matmul(ones(b, m, k), ones(b, k, n), bias=twos(n)), MKN | {"b": 2}, BIAS),
    "vector": (lambda k, n: gk.matmul(ones(k), ones(k, n), bias=twos(n)), dict(k=3, n=4), BIAS),
    "prologue": (lambda m, k, n: gk.matmul(ones(m, k), ones(k, n), bias=twos(n), prologue=["relu"]), MKN, BIAS),
    "linear": (lambda m, k, n: gk.linear(ones(m, k), ones(n, k), twos(n)), MKN, BIAS),
    "int4": (int4, dict(m=2, k=16, n=8), BIAS),
    "int8": (int8, dict(m=2, k=16, n=8), BIAS),
    "scaled_matmul": (scaled_product, dict(m=2, k=16, n=8), BIAS),
    "grouped_matmul": (grouped_product, dict(g=2, m=4, k=3, n=4), BIAS),
    "define": (lambda m, k, n: DEFINED(ones(m, k), ones(k, n), twos(n)), MKN, BIAS),
    "attention": (attention, dict(b=2, h=2, q=3, k=4, d=16), 0),
    "einsum": (lambda i, j, k: gk.einsum("ij,jk->ki", ones(i, j), ones(j, k)), IJK, 0),
    "einsum of three": (lambda i, j, k: gk.einsum("ij,jk,ki->i", ones(i, j), ones(j, k), ones(k, i)), IJK, 0),
    "tensordot": (lambda i, j, k: gk.tensordot(ones(i, j), ones(j, k), 1), IJK, 0),
    "inner": (lambda i, j, k: gk.inner(ones(i, j), ones(k, j)), IJK, 0),
    "dot": (lambda i, j, k: gk.dot(ones(i, j), ones(j, k)), IJK, 0),
    "vdot": (lambda i: gk.vdot(ones(i), ones(i)), dict(i=2), 0),
    "outer": (lambda i, j: gk.outer(ones(i), ones(j)), dict(i=2, j=3), None),
    "layer_norm": (lambda i, j: gk.layer_norm(ones(i, j), j, ones(j), ones(j)), dict(i=2, j=3), None),
    "rms_norm": (lambda i, j: gk.rms_norm(ones(i, j), j, ones(j)), dict(i=2, j=3), None),
    "global_avg_pool2d": (lambda n, c, h, w: gk.global_avg_pool2d(ones(n, c, h, w)), IMAGE, None),
}
for name, value in dict(
    sum=0, nansum=0, mean=np.nan, prod=1, var=np.nan, std=np.nan, norm=0, max=None, min=None, argmax=None,
    argmin=None, logsumexp=None, nanmean=np.nan, nanmax=None, nanmin=None,
    softmax=None, log_softmax=None,
).items():  # fmt: skip
    CASES[name] = (lambda i, j, k, f=name: getattr(gk, f)(ones(i, j, k), axis=1)), IJK, value
for layout in ("NCHW", "NHWC"):
    for name, more in {
        "plain": {}, "padding": {"pad": 3}, "1x1, padding": {"r": 1, "pad": 1}, "groups": {"groups": 2},
        "prologue": {"prologue": ["relu"]}, "transposed": {"transposed": True, "biased": False},
    }.items():  # fmt: skip
        CASES[f"convolution, {name}, {layout}"] = convolution(layout, **more)
    for name in ("max_pool2d", "avg_pool2d"):
        CASES[f"{name}, {layout}"] = (
            lambda n, c, h, w, f=name, own=layout: getattr(gk, f)(image(own, n, c, h, w), 2, padding=1, layout=own),
            IMAGE, None,
        )  # fmt: skip


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("emulated", [True, False], ids=["emulator", "library"])
def test_each_extent_of_zero(monkeypatch, emulated):
    """On devices without kernels; an emulated device has no library either."""
    refused = set()
    for name, (call, sizes, value) in CASES.items():
        arch = "sm_90" if name == "scaled_matmul" else "sm_87"
        put(monkeypatch, runtime_of(FakeDevice(arch, emulated=emulated)))
        shape = call(**sizes).shape
        for extent in sizes:
            empty = sizes | {extent: 0}
            try:
                result = call(**empty)
            except ValueError as error:
                found = {words for words in REFUSED if words in str(error)}
                assert found, f"{name}, {extent}: {error}"
                refused |= found
                continue
            assert len(result.shape) == len(shape), (name, extent)
            if result.size and not emulated:
                np.testing.assert_array_equal(result, value, err_msg=f"{name}, {extent}")
    assert refused == set(REFUSED)
