"""Maps of images (im2col): the emulator against the definition of a convolution, and the limits of a map."""

import numpy as np
import pytest

from gensor_kernels.devices.emulator import AddressSpace, KernelFault, build, run
from gensor_kernels.families.core import params
from gensor_kernels.families.core.family import Launch
from gensor_kernels.families.core.params import Tiling
from gensor_kernels.families.core.source import bind, flatten
from gensor_kernels.families.core.tensor_maps import Pixels, TensorMap
from gensor_kernels.operators import operator
from gensor_kernels.operators.windows import conv
from tests.doubles.emulated_kernels import toy
from tests.doubles.kernels import aligned

ROWS, UNIT = 64, 64
IMAGE, FILTERS = TensorMap("a", False, 2, ROWS, window="image"), TensorMap("b", True, 2, UNIT, window="filters")

KERNEL = toy("pixel_copies")


def workload(**sizes):
    usual = {"n": 2, "h": 9, "w": 10, "c": 72, "k_out": UNIT, "r": 3, "s": 2, "dtype": "float16"}
    return conv.workload(**usual | sizes)


def packed(of, x=0, w=1 << 30, out=0):
    strides = {each.name: each.strides() for each in operator(of.operator).operands(of)}
    geometry = operator(of.operator).geometry(of, strides)
    return params.pack(geometry, Tiling(1, 1, 1, UNIT, 1), pointers=(x, w, out))


def copied(of, x, **changes):
    """Return the copied elements: [piece of pixels, tap, piece of channels, pixel, channel]."""
    z = of.size
    pixels = z["n"] * conv.output_size(z, "h", False) * conv.output_size(z, "w", False)
    grid = (-(-pixels // ROWS), z["r"] * z["s"], -(-z["c"] // UNIT))
    out, space = np.full((*grid, ROWS, UNIT), np.nan, np.float16), AddressSpace()
    channels, passed = np.arange(z["c"]) % UNIT, np.arange(UNIT)[:, None]
    w = aligned((UNIT, z["r"] * z["s"], z["c"]), np.float16)
    w[...] = (channels == passed)[:, None]
    placed = [space.place(each.ctypes.data, each.nbytes, each is out) for each in (x, w, out)]
    library = build(bind(flatten("hopper.cuh") + '#line 1 "test.cu"\n' + KERNEL, changes))
    launch = Launch("test", int(np.prod(grid)), 128, 1024 + (ROWS + UNIT) * 128, (IMAGE, FILTERS))
    run(library, [launch], packed(of, *placed), space.buffers, order=3)
    return out


def image(of):
    x = aligned([of.size[name] for name in "nhwc"], np.float16)
    x[...] = np.random.default_rng(5).standard_normal(x.shape)
    return x


def wanted(of, x):
    z, rows = of.size, []
    out = [conv.output_size(z, side, False) for side in "hw"]
    for r in range(z["r"]):
        for s in range(z["s"]):
            for n, i, j in np.ndindex(z["n"], *out):
                h = i * z["stride_h"] - z["pad_top"] + r * z["dilation_h"]
                w = j * z["stride_w"] - z["pad_left"] + s * z["dilation_w"]
                inside = 0 <= h < z["h"] and 0 <= w < z["w"]
                rows.append(x[n, h, w] if inside else np.zeros(z["c"], np.float16))
    taps = np.array(rows).reshape(z["r"] * z["s"], -1, z["c"])
    pixels, channels = (-(-extent // ROWS) * ROWS for extent in taps.shape[1:])
    padded = np.zeros((len(taps), pixels, channels), np.float16)
    padded[:, : taps.shape[1], : taps.shape[2]] = taps
    return padded.reshape(len(taps), pixels // ROWS, ROWS, channels // UNIT, UNIT).transpose(1, 0, 3, 2, 4)


@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"stride_h": 2, "stride_w": 3, "pad_left": 1, "pad_right": 1, "pad_top": 2, "c": 64},
        {"dilation_h": 3, "dilation_w": 4, "pad_top": 5, "pad_bottom": 1, "pad_right": 9, "c": 136},
        {"r": 1, "s": 1, "stride_h": 8, "stride_w": 5, "pad_left": 3, "pad_bottom": 8, "n": 40, "c": 8},
        {"h": 1, "w": 1, "r": 5, "s": 5, "pad_top": 2, "pad_bottom": 2, "pad_left": 2, "pad_right": 2, "n": 70},
        {"h": 2, "w": 3, "r": 2, "s": 3, "pad_top": 3, "pad_bottom": 2, "pad_left": 100, "pad_right": 90, "n": 1},
    ],
)
def test_copies_of_pixels_are_patches(sizes):
    of = workload(**sizes)
    x = image(of)
    np.testing.assert_array_equal(copied(of, x), wanted(of, x))


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"ASTRAY": 1}, "outside of its box"), ({"ASTRAY": -2}, "of its box"), ({"FARTHER": 255}, "more than 255")],
)
def test_copies_from_nowhere_are_named(changes, words):
    of = workload(stride_w=2)
    with pytest.raises(KernelFault, match=words):
        copied(of, image(of), **changes)


def test_a_copy_of_the_other_kind_is_named(monkeypatch):
    of = workload()
    monkeypatch.setitem(globals(), "IMAGE", TensorMap("a", False, 2, ROWS))
    with pytest.raises(KernelFault, match="a map of the other kind"):
        copied(of, image(of))


def test_limits_of_pixel_boxes():
    for changed, possible in (
        ({}, True),
        ({"lower": (-128, -128), "upper": (127, -128), "step": (8, 8)}, True),
        ({"lower": (-129, 0)}, False),
        ({"upper": (0, 128)}, False),
        ({"step": (1, 9)}, False),
    ):
        assert Pixels(**{"lower": (0, 0), "upper": (0, 0), "step": (1, 1)} | changed).possible is possible, changed
    for upper, some in (((-9, -8), True), ((-10, 0), False), ((0, -9), False)):
        assert Pixels(lower=(0, 0), upper=upper, step=(1, 1)).any_in((10, 9)) is some, upper
