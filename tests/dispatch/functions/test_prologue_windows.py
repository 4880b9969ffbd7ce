"""Prologues of depthwise, transposed and 1-D convolutions: tolerance and public calls."""

import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators import operator
from gensor_kernels.operators.tolerance import base as tolerance_base
from gensor_kernels.operators.types.dtypes import decode, encode
from gensor_kernels.operators.windows import depthwise, depthwise_prologue

STEPS = ("mul", "bias", "sigmoid")


def spatial(**more):
    return depthwise.workload(n=2, h=9, w=8, c=6, r=3, s=3, pad_top=1, pad_left=2, **more)


def convolve(image, filters):
    return sum(image[:, r : r + 8, s : s + 8] * filters[r, s] for r in range(3) for s in range(3))


INNER = ((0, 0), (1, 0), (2, 0), (0, 0))


def test_the_tolerance_refuses_another_rounding_and_padding_that_is_not_zero():
    w = depthwise_prologue.workload(("bias", "tanh"), spatial(dtype="float16", out="float32"))
    rng, declared = np.random.default_rng(1), operator(w.operator)
    arrays = {each.name: encode("float16", rng.standard_normal(each.shape)) for each in declared.operands(w)[:-1]}
    expected = declared.expect(w, arrays)
    x, filters, d = (np.float32(decode("float16", arrays[name])) for name in "xwd")
    once = np.tanh(x + d).astype(np.float16).astype(np.float32)
    outside = np.tanh(d).astype(np.float16).astype(np.float32) * np.ones_like(np.pad(once, INNER))
    outside[:, 1:, 2:] = once
    found = {
        "rounded once": convolve(np.pad(once, INNER), filters),
        "not rounded": convolve(np.pad(np.tanh(x + d), INNER), filters),
        "padding prepared": convolve(outside, filters),
    }
    verdicts = {name: tolerance_base.check(np.float32(value), expected).ok for name, value in found.items()}
    assert verdicts == {name: name == "rounded once" for name in found}


def test_types_without_such_functions():
    with pytest.raises(UnsupportedError, match="of real numbers"):
        depthwise_prologue.workload(("relu",), spatial(dtype="int8"))
    with pytest.raises(ValueError, match="with the prologue"):
        operator("depthwise_conv2d_prologue").operands(depthwise_prologue.workload(STEPS, spatial()))


def test_depthwise_and_one_dimensional_calls():
    rng = np.random.default_rng(5)
    x, w = rng.standard_normal((2, 6, 15)).astype(np.float32), rng.standard_normal((6, 1, 3)).astype(np.float32)
    by_column = rng.standard_normal((6, 15)).astype(np.float32)
    padded = np.pad(x * by_column, ((0, 0), (0, 0), (1, 1)))
    with gk.emulated("sm_87"):
        result = gk.conv1d(x, w, padding=1, groups=6, prologue=[("mul", by_column)])
        image, filters = x.reshape(2, 6, 3, 5), w.reshape(6, 1, 3, 1)
        why = gk.explain(gk.conv2d, image, filters, groups=6, prologue=[("mul", x[0, :, 0]), "relu"])
        with pytest.raises(TypeError, match="prologue must be a list"):
            gk.conv1d(x, w, groups=6, prologue="relu")
    assert why.family == "window" and '"depthwise_conv2d_prologue' in why.workload
    np.testing.assert_allclose(
        result, sum(padded[:, :, s : s + 15] * w[:, 0, s, None] for s in range(3)), rtol=1e-4, atol=1e-5
    )
