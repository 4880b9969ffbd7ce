"""Every public function with every extent of its arrays set to zero in turn: what NumPy and PyTorch give, or raise."""

import numpy as np
import pytest

import gensor_kernels as gk
from tests.doubles.device import FakeDevice
from tests.doubles.kernels import put, runtime_of

#: What a call gives in place of a result, by a word of its error.
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


def convolved(layout, r=3, pad=0, groups=1, transposed=False, dtype="float32", biased=True, **more):
    """(call, sizes, result's shape) of a convolution of n, c, h, w by k filters of r x s."""

    def image(n, channels, h, w):
        return ones(*((n, channels, h, w) if layout == "NCHW" else (n, h, w, channels)), dtype=dtype)

    def filters(k, c, r, s):
        first, second = (c, k) if transposed else (k, c)
        return ones(*((first, second, r, s) if layout == "NCHW" else (first, r, s, second)), dtype=dtype)

    def call(n, c, h, w, k, r, s):
        function = gk.conv_transpose2d if transposed else gk.conv2d
        bias = twos(k * groups, dtype=dtype) if biased else None
        weights = filters(k * groups, c // groups, r, s)
        return function(image(n, c, h, w), weights, bias, padding=pad, groups=groups, layout=layout, **more)

    def shape(n, c, h, w, k, r, s):
        oh, ow = (h + r - 1, w + s - 1) if transposed else (h + 2 * pad - r + 1, w + 2 * pad - s + 1)
        return (n, k * groups, oh, ow) if layout == "NCHW" else (n, oh, ow, k * groups)

    return call, dict(n=2, c=4, h=5, w=6, k=3, r=r, s=r), shape


def products():
    """name -> (call, sizes, shape of the result) of what sums over k, of ones, and adds twos."""
    mkn = dict(m=2, k=3, n=4)

    def whole(m, k, n):
        return m, n

    def int4(m, k, n):
        w, scales = ones(n, k, dtype="uint8"), ones(n, dtype=HALF)
        return gk.linear(
            ones(m, 2 * k, dtype=HALF), w, twos(n, dtype=HALF), scales=scales, zeros=ones(n, dtype="uint8")
        )

    def scaled(m, k, n):
        types = {"dtype_a": "float8_e4m3fn", "dtype_b": "float8_e4m3fn"}
        a, b = np.full((m, k), 0x38, "uint8"), np.full((n, k), 0x38, "uint8").T
        scales = ones(m, -(-k // 128)), ones(-(-k // 128), -(-n // 128))
        return gk.scaled_matmul(a, b, *scales, bias=twos(n), **types)

    def grouped(g, m, k, n):
        ends = np.linspace(0, m, g + 1)[1:].astype("int32")
        return gk.grouped_matmul(ones(m, k), ones(g, k, n), ends, bias=twos(n))

    yield "matmul", lambda m, k, n: gk.matmul(ones(m, k), ones(k, n), bias=twos(n)), mkn, whole
    yield "batched", lambda b, m, k, n: gk.matmul(ones(b, m, k), ones(b, k, n), bias=twos(n)), mkn | {"b": 2}, None
    yield "vector", lambda k, n: gk.matmul(ones(k), ones(k, n), bias=twos(n)), dict(k=3, n=4), lambda k, n: (n,)
    yield "prologue", lambda m, k, n: gk.matmul(ones(m, k), ones(k, n), bias=twos(n), prologue=["relu"]), mkn, whole
    yield "linear", lambda m, k, n: gk.linear(ones(m, k), ones(n, k), twos(n)), mkn, whole
    quantised = dict(m=2, k=16, n=8)
    yield "int4", int4, quantised, whole
    yield (
        "int8",
        lambda m, k, n: gk.linear(
            *(ones(m, k, dtype=HALF), ones(n, k, dtype="int8"), twos(n, dtype=HALF)), scales=ones(n, dtype=HALF)
        ),
        quantised,
        whole,
    )
    yield "scaled_matmul", scaled, dict(m=2, k=16, n=8), whole
    yield "grouped_matmul", grouped, dict(g=2, m=4, k=3, n=4), lambda g, m, k, n: (m, n)
    defined = gk.define("i j, j k -> i k", epilogue=[("bias", "k")])
    yield "define", lambda m, k, n: defined(ones(m, k), ones(k, n), twos(n)), mkn, whole
    for layout in ("NCHW", "NHWC"):
        yield f"conv2d {layout}", *convolved(layout)
        yield f"conv2d, padding, {layout}", *convolved(layout, pad=3)
        yield f"conv2d 1x1 {layout}", *convolved(layout, r=1)
        yield f"conv2d 1x1, padding, {layout}", *convolved(layout, r=1, pad=1)
        yield f"conv2d, groups, {layout}", *convolved(layout, groups=2)
        yield f"conv2d of int8 {layout}", *convolved(layout, dtype="int8")
        yield f"conv2d of float16 {layout}", *convolved(layout, dtype=HALF, activation="relu")
        yield f"conv2d, prologue, {layout}", *convolved(layout, prologue=["relu"])
        yield f"conv_transpose2d {layout}", *convolved(layout, transposed=True)


def others():
    """name -> (call, sizes, shape of the result, value where nothing is summed)."""
    rows = dict(i=2, j=3, k=4)
    for name, value in dict(sum=0, mean=np.nan, prod=1, var=np.nan, norm=0, max=None, min=None).items():
        yield name, lambda i, j, k, f=name: getattr(gk, f)(ones(i, j, k), 1), rows, lambda i, j, k: (i, k), value
    for name in ("argmax", "argmin", "logsumexp"):
        yield name, lambda i, j, k, f=name: getattr(gk, f)(ones(i, j, k), 1), rows, lambda i, j, k: (i, k), None
    for name in ("softmax", "log_softmax"):
        yield name, lambda i, j, k, f=name: getattr(gk, f)(ones(i, j, k), 1), rows, lambda i, j, k: (i, j, k), None
    for name in ("max_pool2d", "avg_pool2d"):
        image = dict(n=2, c=4, h=5, w=7)
        yield name, lambda n, c, h, w, f=name: getattr(gk, f)(ones(n, c, h, w), 2, padding=1), image, None, None
        yield (
            f"{name} NHWC",
            lambda n, c, h, w, f=name: getattr(gk, f)(ones(n, h, w, c), 2, padding=1, layout="NHWC"),
            image,
            None,
            None,
        )
    pixels = dict(n=2, c=4, h=5, w=7)
    yield (
        "global_avg_pool2d",
        lambda n, c, h, w: gk.global_avg_pool2d(ones(n, c, h, w)),
        pixels,
        lambda n, c, h, w: (n, c, 1, 1),
        None,
    )
    yield "layer_norm", lambda i, j: gk.layer_norm(ones(i, j), j, ones(j), ones(j)), dict(i=2, j=3), None, None
    yield "rms_norm", lambda i, j: gk.rms_norm(ones(i, j), j, ones(j)), dict(i=2, j=3), None, None
    yield (
        "attention",
        lambda b, h, q, k, d: gk.attention(*(ones(b, h, rows, d, dtype=HALF) for rows in (q, k, k))),
        dict(b=2, h=2, q=3, k=4, d=16),
        lambda b, h, q, k, d: (b, h, q, d),
        0,
    )
    ijk = dict(i=2, j=3, k=4)
    yield "einsum", lambda i, j, k: gk.einsum("ij,jk->ki", ones(i, j), ones(j, k)), ijk, lambda i, j, k: (k, i), 0
    yield (
        "einsum of three",
        lambda i, j, k: gk.einsum("ij,jk,ki->i", ones(i, j), ones(j, k), ones(k, i)),
        ijk,
        lambda i, j, k: (i,),
        0,
    )
    yield "tensordot", lambda i, j, k: gk.tensordot(ones(i, j), ones(j, k), 1), ijk, lambda i, j, k: (i, k), 0
    yield "inner", lambda i, j, k: gk.inner(ones(i, j), ones(k, j)), ijk, lambda i, j, k: (i, k), 0
    yield "vdot", lambda i: gk.vdot(ones(i), ones(i)), dict(i=2), lambda i: (), 0
    yield "outer", lambda i, j: gk.outer(ones(i), ones(j)), dict(i=2, j=3), lambda i, j: (i, j), None
    yield "dot", lambda i, j, k: gk.dot(ones(i, j), ones(j, k)), ijk, lambda i, j, k: (i, k), 0
    for layout in ("NCHW", "NHWC"):
        yield f"conv2d without a bias {layout}", *convolved(layout, biased=False), 0
        yield f"conv_transpose2d without a bias {layout}", *convolved(layout, transposed=True, biased=False), 0


CASES = [(*case, BIAS) for case in products()] + list(others())


@pytest.fixture(params=["emulator", "library"])
def anywhere(request, monkeypatch):
    """A device without kernels; the emulator has no library to step in, the other one nothing but that."""
    arch = "sm_90" if "scaled_matmul" in request.node.name else "sm_87"  # the parts that serve it
    return put(monkeypatch, runtime_of(FakeDevice(arch, emulated=request.param == "emulator"))).device


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("name", "call", "sizes", "shape", "value"), CASES, ids=[case[0] for case in CASES])
def test_every_extent_of_zero(anywhere, name, call, sizes, shape, value):
    expected = call(**sizes).shape
    assert shape is None or expected == shape(**sizes)
    for extent in sizes:
        empty = sizes | {extent: 0}
        try:
            found = call(**empty)
        except ValueError as error:
            assert any(word in str(error) for word in REFUSED), f"{extent}: {error}"
            continue
        assert shape is None or found.shape == shape(**empty), extent
        if found.size and not anywhere.emulated:
            np.testing.assert_array_equal(found, value)


def test_what_is_refused():
    """Nothing that has a result: filters and images of convolutions, extrema, poolings, as PyTorch refuses them."""
    with gk.emulated("sm_87"):
        for call in (
            lambda: gk.conv2d(ones(2, 3, 0, 4), ones(4, 3, 1, 1)),
            lambda: gk.conv2d(ones(2, 3, 4, 4), ones(4, 3, 0, 1)),
            lambda: gk.max(ones(2, 0), 1),
            lambda: gk.avg_pool2d(ones(2, 3, 0, 4), 2, padding=1),
        ):
            with pytest.raises(ValueError, match="|".join(REFUSED)):
                call()


def test_on_the_emulator():
    with gk.emulated("sm_87"):
        out = np.empty((2, 3, 4, 5), "float32")
        assert gk.conv2d(ones(2, 0, 4, 5), ones(3, 0, 3, 3), twos(3), padding=1, activation="relu", out=out) is out
        assert (out == BIAS).all()
        assert (gk.conv2d(ones(2, 4, 0, 5), ones(4, 1, 3, 3), twos(4), padding=2, groups=4) == BIAS).all()
        assert (gk.grouped_matmul(ones(3, 4), ones(0, 4, 5), sizes=[], bias=twos(5)) == BIAS).all()
        last = gk.conv2d(ones(2, 0, 4, 5).transpose(0, 1, 3, 2), ones(3, 0, 3, 3), twos(3))
        assert last.shape == (2, 3, 3, 2) and (last == BIAS).all()
        assert gk.explain(gk.conv2d, ones(2, 0, 4, 5), ones(3, 0, 3, 3), twos(3)).tier == 0


def test_calls_without_terms_are_recorded(tmp_path):
    with gk.emulated("sm_87"), gk.record(tmp_path / "s.csv"):
        gk.conv2d(ones(2, 0, 4, 5), ones(3, 0, 3, 3))
        gk.conv2d(ones(2, 0, 4, 5), ones(3, 0, 3, 3), twos(3))
    assert len((tmp_path / "s.csv").read_text().splitlines()) == 3
