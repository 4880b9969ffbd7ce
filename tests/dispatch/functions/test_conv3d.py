"""conv3d next to sums of shifted volumes in float64."""

import itertools

import numpy as np
import pytest

import gensor_kernels as gk

RNG = np.random.default_rng(3)
TOLERANCE = {"float16": 4e-3, "float32": 1e-5, "float64": 1e-12}


@pytest.fixture(autouse=True)
def emulator():
    with gk.emulated("sm_87"):
        yield


def convolved(x, w, stride, pads, dilation, groups):
    """Return the convolution (n, k, d, h, w) of float64 operands."""
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *pads])
    sizes = zip(x.shape[2:], w.shape[2:], stride, dilation, strict=True)
    size = [(extent - (taps - 1) * hole - 1) // step + 1 for extent, taps, step, hole in sizes]
    total = np.zeros((x.shape[0], w.shape[0], *size))
    k, c = w.shape[0] // groups, w.shape[1]
    for tap in itertools.product(*map(range, w.shape[2:])):
        sizes = zip(tap, dilation, stride, size, strict=True)
        part = x[(..., *(slice(t * hole, t * hole + step * (n - 1) + 1, step) for t, hole, step, n in sizes))]
        for group in range(groups):
            own, rows = slice(group * c, group * c + c), slice(group * k, group * k + k)
            taken = w[(rows, slice(None), *tap)].astype(np.float64)
            total[:, rows] += np.einsum("ncdhw, kc -> nkdhw", part[:, own], taken)
    return total


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    "dtype, taps, stride, pads, dilation, groups",
    [
        ("float32", (3, 3, 3), (1, 1, 1), ((1, 1),) * 3, (1, 1, 1), 1),
        ("float16", (2, 3, 3), (2, 1, 2), ((1, 0), (0, 1), (2, 1)), (2, 1, 1), 1),
        ("float32", (3, 3, 1), (1, 2, 1), ((0, 2), (1, 1), (0, 0)), (1, 1, 1), 2),
        ("float64", (3, 1, 1), (2, 1, 1), ((2, 1), (0, 0), (0, 0)), (1, 1, 1), 1),
        ("float16", (1, 3, 3), (1, 1, 1), ((0, 0), (1, 1), (1, 1)), (1, 1, 1), 4),
        ("float32", (1, 1, 1), (2, 2, 2), ((0, 0),) * 3, (1, 1, 1), 1),
    ],
)
def test_results_are_sums_of_shifted_volumes(dtype, taps, stride, pads, dilation, groups, last):
    x = RNG.standard_normal((2, 8, 5, 6, 7)).astype(dtype)
    w = RNG.standard_normal((4, 8 // groups, *taps)).astype(dtype)
    bias = RNG.standard_normal(4).astype(dtype)
    wanted = convolved(x, w, stride, pads, dilation, groups)
    add = RNG.standard_normal(wanted.shape[1:]).astype(dtype)
    wanted = np.maximum(wanted + bias[:, None, None, None] + add.astype(np.float64), 0)
    order = (0, 2, 3, 4, 1) if last else (0, 1, 2, 3, 4)
    given = [np.ascontiguousarray(each.transpose(order)) for each in (x, w, add[None])]
    more = {"add": given[2][0], "activation": "relu", "layout": "NDHWC" if last else "NCDHW"}
    found = gk.conv3d(*given[:2], bias, stride, pads, dilation, groups, **more)
    out = np.empty_like(found)
    assert gk.conv3d(*given[:2], bias, stride, pads, dilation, groups, out=out, **more) is out
    most = TOLERANCE[dtype] * max(np.abs(wanted).max(), 1)
    assert found.dtype == dtype and np.abs(found.transpose(np.argsort(order)) - wanted).max() < most
    np.testing.assert_array_equal(out, found)


def test_words_of_padding_integers_and_explanations():
    x, w = np.ones((1, 2, 4, 5, 6), "int8"), np.ones((3, 2, 3, 3, 3), "int8")
    assert gk.conv3d(x, w, padding="valid").shape == (1, 3, 2, 3, 4)
    same = gk.conv3d(x, w, padding="same")
    assert same.shape == (1, 3, 4, 5, 6) and same.dtype == np.int32 and same.max() == 54
    found = gk.explain(gk.conv3d, x.astype("float32"), w.astype("float32")).workload
    assert '"c":6,' in found and '"n":2,' in found  # two slices of the result, three taps of two channels


@pytest.mark.parametrize(
    "error, text, x, w, more",
    [
        (ValueError, "x and w have 5 axes", (1, 2, 3, 3), (1, 2, 3, 3, 3), {}),
        (ValueError, "layout must be one of 'NCDHW', 'NDHWC'", (1, 2, 3, 3, 3), (1, 2, 3, 3, 3), {"layout": "NCHW"}),
        (ValueError, "x has 2 slices", (1, 2, 2, 3, 3), (1, 2, 3, 3, 3), {}),
        (ValueError, "stride must be an integer or three", (1, 2, 3, 3, 3), (1, 2, 3, 3, 3), {"stride": (1, 1)}),
        (ValueError, "needs stride 1", (1, 2, 3, 3, 3), (1, 2, 3, 3, 3), {"padding": "same", "stride": 2}),
        (ValueError, r"add has shape \(2, 2\), the result \(1, 1, 1, 1, 1\)", (1, 2, 3, 3, 3), (1, 2, 3, 3, 3),
         {"add": np.ones((2, 2), "float32")}),
        (ValueError, r"out has shape \(1,\)", (1, 2, 3, 3, 3), (1, 2, 3, 3, 3), {"out": np.ones(1, "float32")}),
        (ValueError, "channels|groups", (1, 3, 3, 3, 3), (1, 2, 3, 3, 3), {}),
        (TypeError, "stride must be an integer", (1, 2, 3, 3, 3), (1, 2, 3, 3, 3), {"stride": 1.5}),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(error, text, x, w, more):
    with pytest.raises(error, match=text):
        gk.conv3d(np.ones(x, "float32"), np.ones(w, "float32"), **more)
