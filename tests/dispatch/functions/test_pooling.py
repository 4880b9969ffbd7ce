"""Pooling and depthwise convolution against PyTorch: the reference of drawn calls, and what does not fit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gensor_kernels
from tests.public_cases.images import Pool

functional = pytest.importorskip("torch.nn.functional")


def tensor(array):
    from torch import from_numpy

    return from_numpy(np.ascontiguousarray(array))


@st.composite
def calls(draw):
    """(image (n, c, h, w), window, arguments) of a pooling."""
    n, c, h, w = draw(st.integers(1, 3)), draw(st.integers(1, 9)), draw(st.integers(5, 12)), draw(st.integers(5, 12))
    window = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    more = {
        "stride": (draw(st.integers(1, 3)), draw(st.integers(1, 3))),
        "padding": tuple(draw(st.integers(0, extent // 2)) for extent in window),
        "ceil_mode": draw(st.booleans()),
    }
    x = np.random.default_rng(draw(st.integers(0, 99))).standard_normal((n, c, h, w)).astype(np.float32)
    if draw(st.booleans()):
        x = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    return x, window, more


@settings(max_examples=50)
@given(calls(), st.booleans())
def test_the_windows_drawn_calls_are_compared_with_are_pytorchs(call, counted):
    x, window, more = call
    for name, own in (("max_pool2d", {}), ("avg_pool2d", {"count_include_pad": counted})):
        pool = Pool(name, window, more["stride"], more["padding"], (1, 1), more["ceil_mode"], counted)
        wanted = getattr(functional, name)(tensor(x.astype(np.float64)), window, **more, **own).numpy()
        np.testing.assert_allclose(pool(x.astype(np.float64)), wanted, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_depthwise_convolutions_have_kernels_of_their_own(layout):
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 6, 9, 8), (6, 1, 3, 3), 6))
    wanted = functional.relu6(functional.conv2d(*map(tensor, (x, w, b)), 2, 1, 1, 6)).numpy()
    if layout == "NHWC":
        x, w, wanted = (each.transpose(0, 2, 3, 1) for each in (x, w, wanted))
    with gensor_kernels.emulated("sm_87"):
        found = gensor_kernels.conv2d(x, w, b, 2, 1, 1, 6, activation="relu6", layout=layout)
        why = gensor_kernels.explain(gensor_kernels.conv2d, x, w, b, 2, 1, 1, 6, layout=layout)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    assert why.family == "window"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [((0,), "kernel_size must be 1 or more"), ((20,), "does not fit|no output|window"), ((3, 0), "stride must be 1")],
)
def test_what_does_not_fit(arguments, words):
    with gensor_kernels.emulated("sm_87"), pytest.raises(ValueError, match=words):
        gensor_kernels.max_pool2d(np.zeros((1, 2, 8, 8), np.float32), *arguments)
