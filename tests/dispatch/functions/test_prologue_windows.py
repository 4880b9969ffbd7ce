"""Prologues of depthwise, transposed and 1-D convolutions: declaration, tolerance, public calls."""

import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators import operator
from gensor_kernels.operators.tolerance import base as tolerance_base
from gensor_kernels.operators.types.dtypes import decode, encode
from gensor_kernels.operators.windows import conv, conv_prologue, depthwise, depthwise_prologue
from gensor_kernels.programs.registry import FAMILIES
from gensor_kernels.programs.space import FamilySpace, Space
from tests.programs.verified import is_right

from .test_prologue import theirs

torch = pytest.importorskip("torch")
F = torch.nn.functional
STEPS = ("mul", "bias", "sigmoid")


def spatial(**more):
    return depthwise.workload(n=2, h=9, w=8, c=6, r=3, s=3, pad_top=1, pad_left=2, **more)


def asked_and_wanted(x, channels, dtype, axis):
    """A normalisation as a caller writes it, and the image behind it by PyTorch."""
    rng = np.random.default_rng(3)
    gamma, beta = rng.standard_normal((2, channels)).astype(np.float32)
    beta += 3  # the padding is not 0 behind these, if it passes through them
    shape = [channels if i == axis else 1 for i in range(x.ndim)]
    steps = [("mul", gamma.reshape(shape)), ("bias", beta.reshape(shape)), ("sigmoid", None)]
    return [("mul", gamma), ("bias", beta), "sigmoid"], torch.from_numpy(theirs(x, steps, dtype))


@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
def test_the_reference_agrees_with_pytorch(layout):
    w = depthwise_prologue.workload(STEPS, spatial(layout=layout, dtype="float64", stride_w=2))
    rng, declared = np.random.default_rng(0), operator(w.operator)
    arrays = {each.name: rng.standard_normal(each.shape) for each in declared.operands(w)[:-1]}
    x = theirs(arrays["x"], [("mul", arrays["d"]), ("bias", arrays["e"]), ("sigmoid", None)], "float64")
    padded = np.pad(x.transpose(0, 3, 1, 2), ((0, 0), (0, 0), (1, 0), (2, 0)))
    filters = torch.from_numpy(arrays["w"].transpose(2, 0, 1)[:, None].copy())
    wanted = F.conv2d(torch.from_numpy(padded), filters, stride=(1, 2), groups=6).numpy()
    expected = declared.expect(w, arrays)
    np.testing.assert_allclose(expected.values.transpose(0, 3, 1, 2), wanted, rtol=1e-12, atol=1e-12)
    assert (expected.bound > 0).all() and expected.bound.max() < 1e-12
    plain = depthwise.OPERATOR.bytes_moved(spatial(layout=layout, dtype="float64", stride_w=2))
    assert declared.bytes_moved(w) == plain + 2 * 6 * 8


def test_the_tolerance_refuses_another_rounding_and_padding_that_is_not_zero():
    w = depthwise_prologue.workload(("bias", "tanh"), spatial(dtype="float16", out="float32"))
    rng, declared = np.random.default_rng(1), operator(w.operator)
    arrays = {each.name: encode("float16", rng.standard_normal(each.shape)) for each in declared.operands(w)[:-1]}
    expected = declared.expect(w, arrays)
    x, filters, d = (np.float32(decode("float16", arrays[name])) for name in "xwd")
    inner = ((0, 0), (1, 0), (2, 0), (0, 0))

    def convolved(image):
        return sum(image[:, r : r + 8, s : s + 8] * filters[r, s] for r in range(3) for s in range(3))

    once = np.tanh(x + d).astype(np.float16).astype(np.float32)
    outside = np.tanh(d).astype(np.float16).astype(np.float32) * np.ones_like(np.pad(once, inner))
    outside[:, 1:, 2:] = once
    found = {
        "rounded once": convolved(np.pad(once, inner)),
        "not rounded": convolved(np.pad(np.tanh(x + d), inner)),
        "padding prepared": convolved(outside),
    }
    verdicts = {name: tolerance_base.check(np.float32(value), expected).ok for name, value in found.items()}
    assert verdicts == {name: name == "rounded once" for name in found}


def test_types_without_such_functions():
    with pytest.raises(UnsupportedError, match="of real numbers"):
        depthwise_prologue.workload(("relu",), spatial(dtype="int8"))
    with pytest.raises(ValueError, match="with the prologue"):
        operator("depthwise_conv2d_prologue").operands(depthwise_prologue.workload(STEPS, spatial()))


def test_staged_kernels_prepare_an_element_once_per_block():
    w = depthwise_prologue.workload(("gelu",), spatial(layout="nchw"))
    space = FamilySpace(FAMILIES["window"], w, lookup("sm_87"))
    base = space.family.starters(w, space.arch)[0]
    values = {"block_c": 2, "block_h": 8, "block_w": 16, "thread_h": 2, "thread_w": 4, "filter_held": 0, "split": 1}
    issued = {}
    for staged in (0, 1):
        program = base.replace(**values, window=3311, staged=staged)
        verdict = is_right(space.family, program, w, use_cache=False)
        issued[staged] = verdict.branches["prologue"], space.explain(space.point(program))["issue"]
    assert issued[1][0] < issued[0][0] and issued[1][1] < issued[0][1]


@pytest.mark.parametrize(("dtype", "layout"), [("float16", "nhwc"), ("float32", "nchw")])
def test_transposed_kernels_pass_the_verifier(dtype, layout):
    plain = conv.workload(
        n=1, h=5, w=6, c=8, k_out=8, r=3, s=3, stride_h=2, dtype=dtype, layout=layout, transposed=True
    )
    w = conv_prologue.workload(STEPS, plain)
    family = "contraction_mma" if dtype == "float16" else "contraction_simt"
    (space,) = (each for each in Space(w, lookup("sm_87")).families if each.family.name == family)
    tile = {"warp_m": 16, "warp_n": 16} if dtype == "float16" else {"thread_m": 2, "thread_n": 4, "lanes_m": 4}
    program = space.family.starters(w, space.arch)[0].replace(block_m=32, block_n=32, split_k=1, **tile)
    verdict = is_right(space.family, program, w, use_cache=False)
    assert verdict.branches["prologue_outside"]


@pytest.mark.parametrize(("dtype", "layout"), [("float16", "NHWC"), ("float64", "NCHW")])
def test_depthwise_calls_agree_with_pytorch(dtype, layout):
    rng = np.random.default_rng(4)
    x, w = rng.standard_normal((2, 8, 6, 7)).astype(dtype), rng.standard_normal((8, 1, 3, 3)).astype(dtype)
    asked, image = asked_and_wanted(x, 8, dtype, 1)
    wanted = F.conv2d(image, torch.from_numpy(w.astype(np.float64)), padding=(1, 2), groups=8).numpy()
    image, filters = (np.ascontiguousarray(v.transpose(0, 2, 3, 1)) if layout == "NHWC" else v for v in (x, w))
    more = {"padding": (1, 2), "groups": 8, "layout": layout, "prologue": asked}
    with gk.emulated("sm_87"):
        found, why = gk.conv2d(image, filters, **more), gk.explain(gk.conv2d, image, filters, **more)
    assert why.family == "window" and '"depthwise_conv2d_prologue2"' in why.workload
    found = found.transpose(0, 3, 1, 2) if layout == "NHWC" else found
    error = 4e-3 if dtype == "float16" else 1e-12
    np.testing.assert_allclose(found, wanted, rtol=error, atol=error)


def test_one_dimensional_calls_agree_with_pytorch():
    rng = np.random.default_rng(5)
    x, w = rng.standard_normal((2, 6, 15)).astype(np.float32), rng.standard_normal((6, 1, 3))
    asked, image = asked_and_wanted(x, 6, "float32", 1)
    by_column = rng.standard_normal((6, 15)).astype(np.float32)
    cases = [("NCW", asked, image), ("NWC", asked, image)]
    cases += [("NCW", [("mul", by_column)], torch.from_numpy((x * by_column).astype(np.float64)))]
    for layout, steps, prepared in cases:
        wanted = F.conv1d(prepared, torch.from_numpy(w), padding=1, groups=6).numpy()
        axes = (0, 2, 1) if layout == "NWC" else (0, 1, 2)
        given = (np.ascontiguousarray(v.transpose(axes)) for v in (x, w.astype(np.float32)))
        with gk.emulated("sm_87"):
            found = gk.conv1d(*given, padding=1, groups=6, layout=layout, prologue=steps)
        np.testing.assert_allclose(found.transpose(axes), wanted, rtol=1e-5, atol=1e-5)
    with gk.emulated("sm_87"), pytest.raises(TypeError, match="prologue must be a list"):
        gk.conv1d(x, w, groups=6, prologue="relu")


def test_transposed_calls_agree_with_pytorch():
    rng = np.random.default_rng(6)
    x, w = rng.standard_normal((1, 4, 5, 5)).astype(np.float32), rng.standard_normal((4, 3, 3, 3))
    asked, image = asked_and_wanted(x, 4, "float32", 1)
    wanted = F.conv_transpose2d(image, torch.from_numpy(w), stride=2, padding=1).numpy()
    with gk.emulated("sm_87"):
        found = gk.conv_transpose2d(x, w.astype(np.float32), stride=2, padding=1, prologue=asked)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
