"""Kernels, the library and outside references agree on drawn calls; `python -m tests.public_cases` draws more.

A sample by the commit's hash, calls that once differed, and faults that have to be noticed.
"""

import inspect
from collections import Counter
from contextlib import suppress

import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels.dispatch.functions import rows
from gensor_kernels.operators.products.quantised import FORMATS
from gensor_kernels.operators.types.dtypes import EIGHT_BIT_FLOATS
from tests.campaign_size import SEED

from . import arguments
from .drawing import ARRAYS, FLOATS, FORMS, Draw
from .serving import serving
from .ways import CASES, nth_call, three_ways, verdict

CALLS, SHARES = 150, 3
#: Public functions that compute nothing, or have no kernels; `linear` is drawn with weights of `prepack`.
OTHERS = {
    "accelerate", "bind", "counters", "dequantize", "deterministic", "emulated", "explain", "from_torch", "fuse",
    "load", "prepack", "record", "refresh", "warmup",
}  # fmt: skip


def rms_norm(x):
    return (x / np.sqrt((x * x).mean(-1, keepdims=True) + 1)).astype(x.dtype)


@pytest.mark.usefixtures("needs_emulator")
@pytest.mark.parametrize("first", range(SHARES))
def test_three_ways_agree(first):
    print(f"GENSOR_CAMPAIGN_SEED={SEED}")
    with three_ways() as ways:
        outcomes = [ways.run(*nth_call(number, SEED)) for number in range(first, CALLS, SHARES)]
    assert not [each.wrong for each in outcomes if each.wrong]
    assert sum(each.ways == {"kernel": "ok", "library": "ok"} for each in outcomes) > len(outcomes) / 2


X, HALF = np.linspace(-2, 2, 16).reshape(4, 4).astype(np.float32), np.full((1, 3), 1.375, np.float16)
SMALL, DATES, ROWS = np.full((1, 3), 30001, np.int16), np.zeros((4, 4), "M8[s]"), np.ones((1, 1, 4, 16), np.float16)
HALVES, EIGHTS = np.ones((2, 64), np.float16), np.ones((2, 64), np.int8)
EXACT = np.full((1, 1), 5.671875, np.float32)
#: Calls on which kernels and the library once differed: (call, the right values or the error).
FIXED = [
    (lambda: gk.dot(X, X, np.zeros((4, 8), np.float32)[:, ::2]), X @ X),
    (lambda: gk.norm(SMALL, axis=1), np.array([30001 * 3**0.5])),
    (lambda: gk.elementwise(SMALL, [("scale", 3)]), SMALL * np.int16(3)),
    (lambda: gk.logsumexp(np.array([[0j, 3j]]), 1), np.log(1 + np.exp([3j]))),
    (lambda: gk.matmul(HALF, HALF.T, dtype="float32"), EXACT),
    (lambda: gk.matmul(HALF, HALF.T, dtype="float32", prologue=["relu"]), EXACT),
    (lambda: gk.linear(X, X, epilogue=[("rmsnorm", 1.0)]), rms_norm(X @ X.T)),
    (lambda: gk.attention(ROWS, ROWS, ROWS, causal=np.False_), ROWS),
    (lambda: gk.var(X[:0], 0, ddof=-1), np.zeros(4, np.float32)),
    (lambda: gk.linear(HALVES, EIGHTS, scales=HALVES[:2, :2], group=np.int64(32)), HALVES[:, :2] * 64),
    (lambda: gk.elementwise(X, ["swiglu"]), gk.UnsupportedError),
    (lambda: gk.matmul(X, X, epilogue=[("swiglu", 0.0)]), ValueError),
    (lambda: gk.grouped_matmul(np.array(2.0), X[None], [0]), ValueError),
    (lambda: gk.max_pool2d(ROWS, 1, ceil_mode=float("inf")), ROWS),
    (lambda: gk.matmul(X, X, add=DATES), TypeError),
    (lambda: gk.layer_norm(DATES[:0], 4), TypeError),
]


@pytest.mark.parametrize("way", ["kernel", "library"])
def test_calls_that_once_differed(way, needs_emulator):
    with three_ways() as ways, ways.by(way):
        for call, wanted in FIXED:
            try:
                result = call()
            except gk.UnsupportedError as error:
                assert wanted is gk.UnsupportedError or way == "kernel", error
            except (TypeError, ValueError) as error:
                assert type(error) is wanted, error
            else:
                assert result.dtype == wanted.dtype
                np.testing.assert_allclose(result, wanted, rtol=1e-6)


@pytest.mark.parametrize("change", [arguments._swap_bytes, arguments._alias_out])
def test_every_function_with_a_change_of_its_arguments(monkeypatch, needs_emulator, change):
    """Arrays of the other byte order, and results over operands."""
    monkeypatch.setattr(arguments, "CHANGES", [change])
    with three_ways() as ways:
        outcomes = [ways.run(name, 12 * SEED % 2**40 + 1) for name in CASES]
    assert not [each.wrong for each in outcomes if each.wrong]


# ---- what is drawn


class Drawn(Exception):
    """Raised in place of the call."""


class Drawing:
    """In place of `Served`: nothing is called."""

    emulated = True

    def call(self, *arguments, **keywords):
        raise Drawn


#: Classes that some calls of a function belong to, besides those of arrays.
CLASSES = {
    "matmul": ("int8", "complex64", "complex128", "out", "tf32", "activation", "prologue", "epilogue"),
    "linear": ("int8", "complex64", "complex128", "bias", "activation", "prepacked", "prologue"),
    "grouped_matmul": ("int8", "out", "activation"),
    "scaled_matmul": (*EIGHT_BIT_FLOATS, "uint8", "out", "bias", "activation"),
    "quantize": (*FORMATS, "alpha"),
    "tensordot": ("int8", "complex64", "complex128", "prologue"),
    "einsum": ("int8", "complex64", "complex128", "batch", "summed letter", "two k", "no k", "diagonal", "conjugate",
               "prologue", "ellipsis"),
    "define": ("complex64", "batch", "two k", "no k", "scale", "bias", "add", "mul", "mask", "activation"),
    "attention": ("out", "boolean mask", "added mask", "causal True", "causal upper_left", "causal False", "window",
                  "soft cap", "heads of another size"),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "conv_transpose2d"), ("int8", "out", "channels last", "activation")),
    **dict.fromkeys(("max_pool2d", "avg_pool2d", "global_avg_pool2d"), ("out", "channels last")),
    **dict.fromkeys(("mean", "nanmean", "prod", "var", "std"), ("out", "several axes")),
    **dict.fromkeys(("sum", "nansum", "max", "min", "nanmax", "nanmin"), ("out", "several axes", "int8", "int32")),
    **dict.fromkeys(("argmax", "argmin"), ("out", "int8", "int32")),
    "norm": ("out", "several axes", "order", "matrix"),
    "cumsum": ("out", "bool", "int8", "int32", "int64"),
    "cumprod": ("out",),
    "logsumexp": ("out", "several axes", "weights", "sign"),
    **dict.fromkeys(("softmax", "log_softmax", "layer_norm", "rms_norm", "elementwise", "dot", "outer"), ("out",)),
}  # fmt: skip


def test_every_public_function_and_every_class_is_drawn():
    public = {name for name in gk.__all__ if inspect.isfunction(getattr(gk, name))}
    assert set(CASES) == public - OTHERS
    missing = {name: rare for name in CASES if (rare := rare_classes(name))}
    assert not missing


def rare_classes(name):
    """Classes that 200 plain calls of a function have at most once."""
    seen = Counter()
    with gk.emulated("sm_87"), np.errstate(all="ignore"):
        for seed in range(0, 800, 4):
            draw = Draw(seed)
            with suppress(Drawn):
                CASES[name](draw, Drawing())
            seen.update(draw.traits)
    floats = {"attention": ("float16", "bfloat16"), "scaled_matmul": ()}.get(name, FLOATS)
    wanted = {*ARRAYS, *floats, "nan", "inf", *CLASSES.get(name, ())}
    return {each: seen[each] for each in wanted if seen[each] < 2}


def test_forms_have_their_properties():
    draw = Draw(1)
    values = draw.rng.standard_normal((6, 7)).astype(np.float32)
    seen = {form: draw.lay_out(values, form) for form in FORMS}
    assert all(np.array_equal(array, values) for form, array in seen.items() if form != "broadcast")
    assert seen["contiguous"].ctypes.data % 16 == 0 and seen["unaligned"].ctypes.data % 16 == 4
    assert min(seen["negative strides"].strides) < 0 and 0 in seen["broadcast"].strides
    assert not seen["non-contiguous"].flags.forc and not seen["odd strides"].flags.forc


# ---- faults are noticed


def test_a_wrong_library_is_noticed(monkeypatch, needs_emulator):
    monkeypatch.setattr(rows, "_squares", lambda x: x * x + 1)
    with three_ways() as ways:
        outcomes = [ways.run("norm", nth_call(number, 0)[1]) for number in range(8)]
    assert any(each.ways["library"] == "wrong" and f"norm:{each.seed}: library: " in each.wrong for each in outcomes)


def test_a_plain_call_without_a_kernel_is_noticed(monkeypatch, needs_emulator):
    def call(draw, served):
        served.call(gk.sum, np.ones(3, np.int64), nothing=False)

    monkeypatch.setitem(CASES, "sum", call)
    with three_ways() as ways:
        assert "plain arguments" in ways.run("sum", 4).wrong and not ways.run("sum", 5).wrong


def test_a_result_without_a_launch_is_noticed(monkeypatch):
    with serving(monkeypatch) as served:
        with pytest.raises(AssertionError, match="0 launches"):
            served.call(np.sum, np.ones(3))
        with pytest.raises(AssertionError, match="1 launches"):
            served.call(lambda x: gk.sum(x)[None][:0], np.ones(3, np.float32))


def test_verdicts():
    """By the outcomes of the kernel and the library, and why arguments are refused."""
    agree = [("ok", "ok", ""), ("no kernel", "ok", ""), ("refused", "refused", "bad"), ("no kernel", "refused", "bad")]
    differ = [("ok", "refused", "bad"), ("refused", "ok", "bad"), ("refused", "refused", ""), ("refused", "ok", "")]
    differ += [("ok", "refused", ""), ("ok", "wrong", ""), ("wrong", "refused", "bad")]
    words = {"kernel": "words", "library": "words"}
    for kernel, library, refused in agree + differ:
        wrong = verdict({"kernel": kernel, "library": library}, words, refused)
        assert bool(wrong) == ((kernel, library, refused) in differ), (kernel, library, refused)
