"""Arguments of public functions: wrong kinds, dtypes, layouts, indices and huge numbers, and the messages they give."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels.dispatch.api.current import rehearsed
from gensor_kernels.operators.types.dtypes import array_dtype
from gensor_kernels.shown import MOST, shown

pytestmark = pytest.mark.usefixtures("no_databases")

HALF = "float16"
LONGEST = 300


def ones(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.ones(shape, dtype)


def scores(a: Any, b: Any, *operands: Any) -> Any:
    return gk.define("ij,jk->ik", epilogue=[("add", "i k")])(a, b, *operands)


def image(**more: Any) -> dict[str, Any]:
    given = {"x": ones(1, 3, 8, 8), "w": ones(4, 3, 3, 3), "bias": ones(4), "stride": 1, "padding": 1, "dilation": 1}
    given |= {"groups": 1, "add": ones(1, 4, 8, 8), "activation": "relu", "layout": "NCHW", "out": ones(1, 4, 8, 8)}
    return given | {"precision": "ieee", "prologue": ["relu"]} | more


def signal() -> dict[str, Any]:
    rows = {"x": ones(1, 3, 8), "w": ones(4, 3, 3), "add": ones(1, 4, 8), "out": ones(1, 4, 8), "layout": "NCW"}
    return image(**rows)


def pooled(**more: Any) -> dict[str, Any]:
    given = {"x": ones(1, 3, 8, 8), "kernel_size": 2, "stride": 2, "padding": 0, "ceil_mode": False, "layout": "NCHW"}
    return given | {"out": ones(1, 3, 4, 4)} | more


def reduced(name: str) -> dict[str, Any]:
    dtype = "int64" if name.startswith("arg") else "float32"
    given = {"a": ones(4, 6), "axis": 1, "dtype": None, "out": ones(4, dtype=dtype), "keepdims": False, "ddof": 0}
    given |= {"x": ones(4, 6), "ord": 3, "return_sign": False}
    return {key: value for key, value in given.items() if key in inspect.signature(getattr(gk, name)).parameters}


def call(function: Callable[..., Any], **arguments: Any) -> tuple[Callable[..., Any], dict[str, Any]]:
    return function, arguments


A, B, OUT, ROW = ones(4, 6), ones(6, 5), ones(4, 5), ones(5)
HALVES, WIDE = ones(4, 6, dtype=HALF), ones(1, 2, 5, 6, dtype=HALF)
HEADS = {name: ones(1, 2, 4, 8, dtype=HALF) for name in "qkv"}
CACHE = ones(3, 2, 2, 6, dtype=HALF)
NORMED = {"x": A, "normalized_shape": 6, "weight": ones(6), "eps": 1e-5, "out": ones(4, 6)}
SCALED = {
    "a": ones(4, 16, dtype="uint8"),
    "b": ones(16, 5, dtype="uint8"),
    "scale_a": ones(4, 1),
    "scale_b": ones(1, 1),
}
REDUCTIONS = (
    *("sum", "mean", "prod", "max", "min", "argmax", "argmin", "var", "std", "nansum"),
    *("nanmean", "nanmax", "nanmin", "norm", "logsumexp"),
)
COMMON = {"bias": ROW, "activation": "relu"}
RESULT = {"out": OUT, "dtype": "float32"}
#: function, and arguments that fit, by parameter; those of `POSITIONAL` are given in this order.
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "matmul": call(gk.matmul, a=A, b=B, **COMMON, **RESULT, alpha=2.0, add=OUT, precision="ieee", prologue=["relu"]),
    "matmul, listed": call(gk.matmul, a=A, b=B, epilogue=["relu"], dtype_a="int8"),
    "linear": call(gk.linear, x=A, w=ones(5, 6), **COMMON, prologue=["relu"], out=OUT),
    "linear, quantised": call(
        gk.linear,
        **{"x": HALVES, "w": ones(5, 6, dtype="int8"), "scales": ones(5, dtype=HALF), "zeros": ones(5, dtype="int8")},
        group=6,
    ),
    "grouped_matmul": call(gk.grouped_matmul, x=A, w=ones(2, 6, 5), sizes=[1, 3], **COMMON, **RESULT, precision="ieee"),
    "grouped_matmul, offsets": call(gk.grouped_matmul, x=A, w=ones(2, 6, 5), offsets=[1, 4], epilogue=["relu"]),
    "scaled_matmul": call(
        gk.scaled_matmul, **SCALED, **COMMON, **RESULT, dtype_a="float8_e4m3fn", dtype_b="float8_e5m2"
    ),
    "prepack": call(gk.prepack, w=ones(8, 9), axis=-2, rows=1),
    "einsum": call(
        gk.einsum,
        **{"operands": "ij,jk->ik", "a": A, "b": B, "dtype": "float32", "optimize": False, "conjugate": 0},
        prologue=["relu"],
        out=OUT,
    ),
    "tensordot": call(gk.tensordot, a=A, b=B, axes=1, prologue=["relu"]),
    "dot": call(gk.dot, a=A, b=B, out=OUT),
    "inner": call(gk.inner, a=A, b=ones(5, 6)),
    "vdot": call(gk.vdot, a=A, b=A),
    "outer": call(gk.outer, a=ones(4), b=ROW, out=OUT),
    "define": call(scores, **{"a": A, "b": B, "operands[0]": OUT}),
    "conv2d": (gk.conv2d, image()),
    "conv2d, 1 x 1": (gk.conv2d, image(w=ones(4, 3, 1, 1), padding=0, prologue=None)),
    "conv1d": (gk.conv1d, signal()),
    "conv_transpose2d": (gk.conv_transpose2d, image(w=ones(3, 4, 3, 3), output_padding=0)),
    "max_pool2d": (gk.max_pool2d, pooled(dilation=1)),
    "avg_pool2d": (gk.avg_pool2d, pooled(count_include_pad=True)),
    "global_avg_pool2d": call(gk.global_avg_pool2d, x=ones(1, 3, 8, 8), layout="NCHW", out=ones(1, 3, 1, 1)),
    "attention": call(
        gk.attention,
        **{**HEADS, "mask": ones(4, 4, dtype="bool"), "causal": False, "window": (3, 0), "softcap": 5.0},
        **{"scale": 1.0, "precision": "ieee", "out": HEADS["q"]},
    ),
    "attention, sequences": call(
        gk.attention,
        **{"q": ones(1, 4, 5, 6, dtype=HALF), "k": CACHE, "v": CACHE, "sizes": [2, 3], "key_sizes": [4, 2]},
        block_table=[[0, 1], [2, 0]],
    ),
    "attention, packed": call(gk.attention, q=WIDE, k=WIDE, v=WIDE, offsets=[2, 5], key_offsets=[3, 5]),
    "softmax": call(gk.softmax, x=A, axis=-1, out=ones(4, 6)),
    "log_softmax": call(gk.log_softmax, x=A, axis=-1, out=ones(4, 6)),
    "elementwise": call(gk.elementwise, x=A, epilogue=["relu"], out=ones(4, 6)),
    "layer_norm": (gk.layer_norm, {**NORMED, "bias": ones(6)}),
    "rms_norm": (gk.rms_norm, NORMED),
    **{name: (getattr(gk, name), reduced(name)) for name in REDUCTIONS},
}
#: Public functions that take no arrays.
OTHERS = {
    *("accelerate", "counters", "deterministic", "emulated", "explain", "from_torch", "load", "record", "refresh"),
    *("bind", "warmup"),
}
#: Parameters without a name in a call.
POSITIONAL = ("operands", "a", "b", "operands[0]")
#: Parameters that are indices.
INDICES = {"offsets", "sizes", "key_offsets", "key_sizes", "block_table"}
BIG = np.arange(1000, 3000, dtype="float32").reshape(40, 50)
WRONG: dict[str, Any] = {
    "array": BIG,
    "vector": BIG[0],
    "integers": BIG.astype("int64"),
    "complex": BIG[:4, :6] * 1j,
    "objects": np.array([BIG, None], dtype=object),
    "arrays": [BIG, BIG],
    "lists": BIG.tolist(),
    "numbers": BIG[0].astype(int).tolist(),
    "word": "n" * 1000,
    "scalar": np.float64(1.5),
    "none": None,
}


def split(arguments: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments."""
    places = [arguments[name] for name in POSITIONAL if name in arguments]
    return places, {name: value for name, value in arguments.items() if name not in POSITIONAL}


def refusal(function: Callable[..., Any], arguments: dict[str, Any]) -> str:
    """The message of the error that a call raises, "" without one."""
    places, named = split(arguments)
    with gk.emulated("sm_87"):
        try:
            function(*places, **named) if function is scores else gk.explain(function, *places, **named)
        except (TypeError, ValueError, gk.GensorError) as error:
            return str(error)
    return ""


def fitting(name: str) -> dict[str, Any]:
    """Arguments that are accepted."""
    return {**CALLS[name][1], "dtype_a": None} if name == "matmul, listed" else CALLS[name][1]


def test_every_public_function_has_a_call():
    functions = {name for name in gk.__all__ if inspect.isroutine(getattr(gk, name))}
    assert functions - OTHERS == {name.partition(",")[0] for name in CALLS}


@pytest.mark.parametrize("name", CALLS)
def test_wrong_arguments_give_a_short_message(name):
    """Every argument is replaced by every wrong value; arrays also by a list, and by a masked array."""
    function, arguments = CALLS[name]
    assert name == "define" or refusal(function, fitting(name)) == ""
    refused = 0
    for parameter in arguments:
        for wrong in WRONG.values():
            message = refusal(function, {**arguments, parameter: wrong})
            assert len(message) < LONGEST and "\n" not in message, message
            assert not re.search(r"array\(|\[\[|1003|1\.00e|has no attribute", message), message
            refused += bool(message)
    assert refused > len(arguments)
    for parameter in [name for name, value in arguments.items() if isinstance(value, np.ndarray)]:
        message = refusal(function, {**arguments, parameter: [[1.0]]})
        # einsum numbers its operands, and takes lists
        assert function is gk.einsum or message == f"{parameter} must be a numpy array, not list"
    with rehearsed("sm_87"):
        with suppress(gk.UnsupportedError):
            places, named = split(fitting(name))
            function(*places, **named)
        for parameter, value in fitting(name).items():
            if isinstance(value, np.ndarray) or parameter in INDICES:
                places, named = split({**fitting(name), parameter: np.ma.masked_array(value)})
                with pytest.raises(TypeError, match="whose mask would be ignored: fill it first"):
                    function(*places, **named)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CALLS)
def test_any_dtype_is_served_or_refused(name):
    """Errors other than the package's own name the dtype that they refuse."""
    function, arguments = CALLS[name]
    for dtype in ("bfloat16", "int8", "int16", "uint32", "bool", "complex128"):
        changed = {
            parameter: value.astype(array_dtype(dtype)) if isinstance(value, np.ndarray) else value
            for parameter, value in arguments.items()
            if parameter != "out"
        }
        places, named = split(changed)
        with rehearsed("sm_120"), suppress(gk.GensorError):
            try:
                function(*places, **named)
            except (TypeError, ValueError) as error:
                assert dtype in str(error) or "complex" in str(error), error


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_3m_is_served_without_starters(dtype):
    a = np.ones((8, 8), dtype)
    for arch in ("sm_87", "h200", "sm_120"):
        with rehearsed(arch):
            for x, y in ((a, a), (a, a.T), (a.T, a), (a.T, a.T)):
                assert gk.matmul(x, y, precision="3m").shape == (8, 8)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: gk.rms_norm(BIG, BIG[0]), "normalized_shape must be an integer or a sequence of integers, not numpy"),
        (lambda: gk.linear(ones(2, 3), ones(4, 5)), r"linear: x is \(..., in\) and w \(out, in\), not \(2, 3\)"),
        (lambda: gk.linear(ones(2, 3), ones(5, 3), activation="swiglu"), r"with swiglu, w is \(2 out, in\)"),
        (lambda: gk.linear(ones(2, 3), ones(4, 5), prologue=["relu"]), r"x is \(..., in\)"),
        (lambda: gk.conv2d(ones(1, 3, 8, 8), ones(4, 5, 3, 3)), "x has 3 channels, w is for 5"),
        (lambda: gk.conv2d(ones(1, 3, 8, 8), ones(4, 3, 1, 1), out=ones(2)), r"out has shape \(2,\), the result \(1"),
        (lambda: gk.conv1d(ones(1, 3, 8), ones(4, 3, 3), out=ones(2)), r"the result \(1, 4, 6\)"),
        (lambda: gk.conv1d(ones(1, 3, 8), ones(4, 3)), r"x and w have 3 axes \(NCW\)"),
        (lambda: gk.softmax(ones(2, 3), out=ones(3)), r"^out has shape \(3,\), the result \(2, 3\)"),
        (lambda: gk.max_pool2d(ones(3, 4), 2), r"max_pool2d: x has 4 axes \(NCHW\), not 2"),
        (lambda: gk.explain(BIG), r"not numpy.ndarray of shape \(40, 50\) and dtype float32"),
        (lambda: gk.emulated(BIG).__enter__(), "arch must be a name such as 'sm_87', not numpy.ndarray of shape"),
        (lambda: gk.define(BIG), "define takes a string such as 'ij,jk->ik', not numpy.ndarray of shape"),
        *(
            (lambda call=call: call(10**400), f"{name} is beyond the range of float64")
            for name, call in (
                ("alpha", lambda huge: gk.matmul(BIG[:4, :4], BIG[:4, :4], alpha=huge)),
                ("scale", lambda huge: gk.elementwise(BIG, [("scale", huge)])),
                ("scale", lambda huge: gk.attention(**HEADS, scale=huge)),
                ("softcap", lambda huge: gk.attention(**HEADS, softcap=huge)),
                ("eps", lambda huge: gk.rms_norm(BIG, 50, eps=huge)),
            )
        ),
    ],
)
def test_messages_use_the_callers_names(call, words):
    with gk.emulated("sm_87"), pytest.raises((TypeError, ValueError), match=words) as raised:
        call()
    assert len(str(raised.value)) < LONGEST
    assert raised.value.__context__ is None or raised.value.__suppress_context__  # one error is printed, not two


@pytest.mark.parametrize("huge", [2**31, 2**40, 2**70])
def test_huge_integers_are_served_or_refused(huge):
    x, w = ones(1, 2, 5, 5), ones(2, 2, 3, 3)
    with rehearsed("sm_87"):
        for name in ("stride", "padding", "dilation"):
            for call in (
                lambda more: gk.conv2d(x, w, **more),
                lambda more: gk.conv2d(x, w[:, :1], groups=2, **more),
                lambda more: gk.conv_transpose2d(x, w, **more),
                lambda more: gk.max_pool2d(x, 2, **more),
            ):
                with suppress(gk.UnsupportedError, ValueError):
                    call({name: huge})
        assert gk.attention(**HEADS, window=(huge, huge)).shape == HEADS["q"].shape
        assert gk.var(x, ddof=huge).shape == ()


HEAD, IMAGE = (1, 2, 4, 8), (1, 2, 4, 4)


@pytest.mark.parametrize(
    ("call", "reason", "remedy"),
    [
        (lambda x: gk.attention(*(x(*HEAD, dtype="float32"),) * 3), "takes float16 or bfloat16, got float32", "cast q"),
        (lambda x: gk.attention(*(x(1, 1, 2, 512, dtype=HALF),) * 3), "up to 256 elements, got 512", "compose it"),
        (lambda x: gk.matmul(x(2, 2, dtype="int64"), x(2, 2, dtype="int64")), "products of int64", "cast to one of"),
        (lambda x: gk.linear(x(2, 2, dtype="int16"), x(2, 2, dtype="int16")), "products of int16", "cast to one of"),
        (lambda x: gk.conv2d(x(*IMAGE, dtype="uint8"), x(3, 2, 3, 3, dtype="uint8")), "got uint8", "cast x and w"),
        (lambda x: gk.max_pool2d(x(*IMAGE, dtype="int32"), 2), "max_pool2d takes one dtype of .* got int32", "cast"),
        (lambda x: gk.max_pool2d(x(*IMAGE, dtype="complex64"), 2), "complex64", "the imaginary part apart"),
        (lambda x: gk.softmax(x(2, 2, dtype="int8")), "softmax takes float64, .* got int8", "cast"),
        (lambda x: gk.sum(x(2, 2, dtype="bool")), "sum takes float64, .* got bool", "cast"),
        (lambda x: gk.sum(x(2, 2, dtype="complex64")), "complex64", "the imaginary part apart"),
        (lambda x: gk.sum(x()), "without axes", "give it one"),
        (
            lambda x: gk.linear(x(2, 4), x(3, 4, dtype="int8"), scales=x(3)),
            "scales of float16 or bfloat16, got float32",
            "cast x",
        ),
    ],
)
def test_refusals_are_one_reason_and_one_remedy(call, reason, remedy):
    with gk.emulated("sm_90"), pytest.raises(gk.UnsupportedError, match=f"{reason}.*: .*{remedy}") as refused:
        call(ones)
    message = str(refused.value)
    assert len(message) < 200 and message.startswith("no kernel serves this call: ") and ";" not in message


def test_shown_values_are_short():
    assert shown((1, 2)) == "(1, 2)" and shown(None) == "None" and shown("relu") == "'relu'"
    assert shown(BIG) == "numpy.ndarray of shape (40, 50) and dtype float32"
    assert shown(BIG[0]) == "numpy.ndarray of shape (50,) and dtype float32"
    assert shown([BIG]) == shown(list(range(1000))) == "list"
    assert max(len(shown(each)) for each in ("x" * 1000, np.ones((1,) * 30), 10**100, np.zeros(2, "f4,f4"))) < 3 * MOST


# ---- indices


X, W = ones(6, 8, dtype=HALF), ones(2, 8, 8, dtype=HALF)
Q, K, PAGES = (ones(*shape, dtype=HALF) for shape in ((1, 2, 6, 16), (1, 1, 9, 16), (4, 1, 8, 16)))
#: argument: (a call with it, a value that fits)
INDEXED: dict[str, tuple[Callable[[Any], Any], list[int]]] = {
    "offsets": (lambda given: gk.grouped_matmul(X, W, given), [2, 6]),
    "sizes": (lambda given: gk.grouped_matmul(X, W, sizes=given), [2, 4]),
    "offsets of queries": (lambda given: gk.attention(Q, K, K, offsets=given, key_sizes=[4, 5]), [2, 6]),
    "sizes of queries": (lambda given: gk.attention(Q, K, K, sizes=given, key_sizes=[4, 5]), [2, 4]),
    "key_offsets": (lambda given: gk.attention(Q, K, K, sizes=[2, 4], key_offsets=given), [4, 9]),
    "key_sizes": (lambda given: gk.attention(Q, K, K, sizes=[2, 4], key_sizes=given), [4, 5]),
    "key_sizes of pages": (lambda given: paged([[0, 1], [2, 3]], given), [9, 3]),
}


def paged(table: Any, sizes: Any) -> Any:
    return gk.attention(Q, PAGES, PAGES, sizes=[2, 4], key_sizes=sizes, block_table=table)


def with_index(values: Any, place: Any, wrong: int) -> list[Any]:
    """Indices with a wrong one, as an array and, where a list can hold it, as a list."""
    array = np.array(values, np.int64 if wrong < 2**63 else np.uint64)
    array[place] = wrong
    return [array, *([array.tolist()] if wrong < 2**63 else [])]


@pytest.mark.parametrize("name", INDEXED)
def test_wrong_indices_are_refused_before_they_are_narrowed_to_32_bits(name, emulated):
    call, fits = INDEXED[name]
    for wrong in (-1, 10_000, 2**31, 2**32 + 2, 2**63 - 1, 2**64 - 1, -(2**63)):
        for given in with_index(fits, 0, wrong) + with_index(fits, 1, wrong):
            with pytest.raises(ValueError, match=r"expected to ascend|from 0 to 16"):
                call(given)
    for given in ([1.0, 2.0], [True, False], "ab", [[1], [2, 3]], [2**70, 1], [fits]):
        with pytest.raises(ValueError, match=r"one integer per|numbers of keys"):
            call(given)
    with pytest.raises(TypeError, match=r"not numpy\.ma"):
        call(np.ma.masked_array(fits, [False, True]))


def test_block_tables_hold_numbers_of_pages(emulated):
    table = [[0, 1], [2, 3]]
    for wrong in (4, -1, 2**31, 2**32 + 1, 2**64 - 1, -(2**63)):
        for sizes, place in (([9, 3], (0, 1)), ([9, 3], (1, 0)), ([16, 16], (1, 1))):
            for given in with_index(table, place, wrong):
                with pytest.raises(ValueError, match=rf"block_table\[{place[0]}, {place[1]}\] is page {wrong}, of 4"):
                    paged(given, sizes)
        unread = with_index(table, (1, 1), wrong)[0]  # after the last page of 3 keys
        assert np.array_equal(paged(unread, [9, 3]), paged(table, [9, 3]))
    for given in ([0, 1], [[0.0, 1.0], [2.0, 3.0]], [[0], [1, 2]], "ab"):
        with pytest.raises(ValueError, match="block_table are numbers of pages, a row per sequence"):
            paged(given, [9, 3])
    with pytest.raises(TypeError, match=r"not numpy\.ma"):
        paged(np.ma.masked_array(table), [9, 3])
