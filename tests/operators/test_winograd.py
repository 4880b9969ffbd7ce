"""Winograd's algorithm as callers see it: where it is allowed, how far it may be off, NaN, PyTorch and SciPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gensor_kernels
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.machine.arch import lookup
from gensor_kernels.machine.roofline import bound_us
from gensor_kernels.operators import operator
from gensor_kernels.operators.products.matmul import workload as matmul
from gensor_kernels.operators.tolerance import base as tolerance_base
from gensor_kernels.operators.tolerance.winograd import AT, BT, G
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.operators.windows import conv
from gensor_tuner.shapes.reader import read_shapes
from tests.programs.workloads.window import padded
from tests.programs.workloads.winograd import convolution

SQUARE = dict(n=1, h=9, w=9, c=4, k_out=4, r=3, s=3, math="winograd")


def test_it_is_allowed_where_it_fits():
    assert conv.workload(**SQUARE).math == "winograd"
    for other in (dict(r=5), dict(stride_h=2), dict(dilation_w=2), dict(groups=2), dict(transposed=True)):
        assert conv.workload(**SQUARE | other).math == "ieee"
    product = conv.workload(**SQUARE | dict(r=1, s=1))
    assert (product.operator, product.math) == ("matmul", "ieee")
    assert Workload.from_json(conv.workload(**SQUARE).key()).kind == "float32 winograd"
    for wrong in ("float64", "float16"):
        with pytest.raises(UnsupportedError, match="needs float32"):
            conv.workload(**SQUARE | dict(dtype=wrong))
    with pytest.raises(UnsupportedError, match="for convolutions"):
        matmul(8, 8, 8, dtype="float32", math="winograd")


def test_the_bound_counts_the_saving():
    large = convolution(56, 256, 256, n=32, **padded())
    direct = conv.workload(**{**large.size, "math": "ieee"})
    assert large.flops() == direct.flops()
    part = lookup("rtx-3090")  # where multiply-adds are the fastest float32 products
    assert bound_us(direct, part) == pytest.approx(bound_us(large, part) * 9 / 4)


def test_shapes_files_name_it(tmp_path):
    path = tmp_path / "shapes.csv"
    path.write_text("op,dtype,h,w,c,k_out,r,s\nconv2d,fp32_winograd,9,9,4,4,3,3\nconv2d,fp32_winograd,9,9,4,4,1,1\n")
    first, second = read_shapes(path)
    assert (first.workload.math, second.workload.math) == ("winograd", "ieee")


# ---- the tolerance: float32 Winograd in NumPy, channel after channel as kernels do


def single(x: np.ndarray, w: np.ndarray, accumulate=np.float32) -> np.ndarray:
    """y (h - 2, w - 2, k) of x (h, w, c) and w (k, 3, 3, c); even sizes. Transforms and sums are rounded."""

    def both(matrix, data):
        once = np.einsum("ij,...jk->...ik", matrix.astype(np.float32), data)
        return np.einsum("...ij,kj->...ik", once, matrix.astype(np.float32))

    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float32), (4, 4), axis=(0, 1))[::2, ::2]
    v, u = both(BT, windows), both(G, np.moveaxis(w.astype(np.float32), 3, 1))
    m = np.zeros((*v.shape[:2], len(u), 4, 4), accumulate)
    for c in range(x.shape[2]):
        m = (m + v[:, :, None, c] * u[None, None, :, c]).astype(accumulate)
    y = both(AT, m.astype(np.float32))
    return y.transpose(0, 3, 1, 4, 2).reshape(2 * v.shape[0], 2 * v.shape[1], len(u))


def verdict(actual: np.ndarray, x: np.ndarray, w: np.ndarray, structured: bool = False) -> tolerance_base.Check:
    h, width, c = x.shape
    problem = conv.workload(n=1, h=h, w=width, c=c, k_out=len(w), r=3, s=3, math="winograd")
    arrays = {"x": x[None, :, :, None].astype(np.float32), "w": w[None].astype(np.float32)}
    expected = operator("conv2d").expect(problem, arrays, structured=structured)
    return tolerance_base.check(actual.astype(np.float32)[None, :, :, None], expected)


@pytest.mark.parametrize("c", [1, 16, 256])
@pytest.mark.parametrize("data", ["normal", "positive", "offset"])
def test_right_results_lie_inside_and_wrong_ones_outside(c, data):
    rng = np.random.default_rng(c)
    x, w = rng.standard_normal((10, 12, c)), rng.standard_normal((5, 3, 3, c))
    if data == "positive":
        x, w = np.abs(x), np.abs(w)
    if data == "offset":
        x = x + 100
    found = verdict(single(x, w), x, w)
    assert found.ok and 0.01 < found.ratio < 0.7, found.message
    assert verdict(single(x, w), x, w, structured=True).ok
    assert not verdict(single(x, w, np.float16), x, w).ok
    short = single(x, w)
    short[3, 4, 1] += np.float32(1e-4) * np.abs(short).max()
    assert not verdict(short, x, w).ok


def test_one_missing_channel_is_outside():
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((6, 6, 64)), rng.standard_normal((3, 3, 3, 64))
    assert not verdict(single(x[..., 1:], w[..., 1:]), x, w).ok


@settings(max_examples=60)
@given(st.integers(0, 2**31), st.integers(1, 6), st.sampled_from([1.0, 1e-20, 1e15]))
def test_structured_data_stays_inside_its_bound(seed, c, scale):
    """Few magnitudes, many equal elements: cancellation in the transforms."""
    rng = np.random.default_rng(seed)
    x = scale * rng.choice([0, 1, -1, 1 + 2.0**-23, 4097, 1e6], (6, 8, c))
    w = rng.choice([0, 1, -1, 3, 1e-3], (2, 3, 3, c))
    found = verdict(single(x, w), x, w, structured=True)
    assert found.ok, found.message


def test_the_direct_sum_keeps_its_own_bound():
    """The bound is wider under math "winograd" only."""
    x, w = np.ones((1, 9, 9, 1, 4), np.float32), np.ones((1, 4, 3, 3, 4), np.float32)
    allowed, plain = (conv.workload(**SQUARE | {"math": math}) for math in ("winograd", "ieee"))
    wide, narrow = (operator("conv2d").expect(each, {"x": x, "w": w}) for each in (allowed, plain))
    assert (wide.bound > narrow.bound).all() and (wide.values == narrow.values).all()
    assert narrow.lost is False and wide.lost is True


# ---- through the public function


def ask(x, w, **more):
    with gensor_kernels.emulated("sm_87"):
        family = gensor_kernels.explain(gensor_kernels.conv2d, x, w, precision="winograd", **more).family
        return gensor_kernels.conv2d(x, w, precision="winograd", **more), family


@pytest.mark.parametrize("pads", [0, 1, 2, ((1, 2), (0, 3))])
def test_it_agrees_with_pytorch(pads):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(2)
    x, w, bias = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 19, 11, 10), (33, 19, 3, 3), (33,)))
    around = ((pads, pads), (pads, pads)) if isinstance(pads, int) else pads
    image = np.pad(x, ((0, 0), (0, 0), *around))
    inputs = [torch.from_numpy(each.astype(np.float64)) for each in (image, w, bias)]
    wanted = torch.relu(torch.nn.functional.conv2d(*inputs)).numpy()
    found, family = ask(x, w, bias=bias, padding=pads, activation="relu")
    assert family == "winograd"
    np.testing.assert_allclose(found, wanted, atol=2e-5 * np.abs(wanted).max())
    last = [np.ascontiguousarray(each.transpose(0, 2, 3, 1)) for each in (x, w)]
    found, family = ask(*last, bias=bias, padding=pads, activation="relu", layout="NHWC")
    assert family == "winograd"
    np.testing.assert_allclose(found.transpose(0, 3, 1, 2), wanted, atol=2e-5 * np.abs(wanted).max())


def test_it_agrees_with_scipy():
    signal = pytest.importorskip("scipy.signal")
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((1, 32, 12, 13)), rng.standard_normal((48, 32, 3, 3))
    wanted = [sum(signal.correlate2d(a, b, "valid") for a, b in zip(x[0], filters, strict=True)) for filters in w]
    found, family = ask(x.astype(np.float32), w.astype(np.float32))
    assert family == "winograd"
    np.testing.assert_allclose(found[0], wanted, atol=1e-4)


def test_nan_and_infinity_reach_what_reads_them():
    rng = np.random.default_rng(4)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 16, 12, 12), (64, 16, 3, 3)))
    clean, _ = ask(x, w, padding=1)
    for value in (np.nan, np.inf):
        for row, column in ((4, 5), (5, 6), (0, 11)):
            changed = x.copy()
            changed[0, 2, row, column] = value
            found, family = ask(changed, w, padding=1)
            reads = np.zeros((12, 12), bool)
            reads[max(row - 1, 0) : row + 2, max(column - 1, 0) : column + 2] = True
            assert family == "winograd"
            assert (~np.isfinite(found[0][:, reads])).all()
            np.testing.assert_array_equal(found[0][:, ~reads], clean[0][:, ~reads])
            np.testing.assert_array_equal(found[1], clean[1])


def test_words_for_precision():
    x, w = np.zeros((1, 4, 8, 8), np.float32), np.zeros((4, 4, 3, 3), np.float32)
    with gensor_kernels.emulated("sm_87"):
        with pytest.raises(ValueError, match="'winograd', not 'fast'"):
            gensor_kernels.conv2d(x, w, precision="fast")
        assert gensor_kernels.conv2d(x, w[:, :, :1, :1], precision="winograd").shape == (1, 4, 8, 8)
        strided = gensor_kernels.explain(gensor_kernels.conv2d, x, w, stride=2, precision="winograd")
        assert '"math":"ieee"' in strided.workload and strided.family == "contraction_simt"
