"""attention: every form by the library and by kernels, sequences against each by itself, what does not fit.

test_library.py and tests/public_cases draw more calls.
"""

from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gensor_kernels
from gensor_kernels.dispatch.api.current import current_runtime
from gensor_kernels.dispatch.functions import attention
from gensor_kernels.dispatch.functions.attention_sequences import SEQUENCES
from gensor_kernels.operators.attention import sequences
from gensor_kernels.operators.attention.attention import workload
from gensor_kernels.operators.attention.forms import VERIFIED_SOFTCAP
from tests.programs.attention_cases import exact, exact_sequences, operands

NUMPY = SimpleNamespace(xp=np, product=lambda a, b, math: a @ b)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


@pytest.mark.parametrize(
    ("shapes", "more", "words"),
    [
        (((1, 2, 4, 16), (1, 2, 5, 16), (1, 2, 6, 16)), {}, "k and v have the shapes"),
        (((1, 3, 4, 16), (1, 2, 5, 16), (1, 2, 5, 16)), {}, "no multiple of the 2"),
        (((2, 4, 16), (2, 5, 16), (2, 5, 16)), {}, r"q, k and v have the axes \(batch, heads, rows, head\)"),
        (((1, 2, 4, 32), (1, 2, 5, 16), (1, 2, 5, 16)), {}, "batch and head must be equal"),
        (((1, 2, 4, 16), (1, 2, 5, 16), (1, 2, 5, 16)), {"causal": "left"}, "causal is False, True"),
        (((1, 2, 4, 16), (1, 2, 5, 16), (1, 2, 5, 16)), {"mask": np.ones((3, 5), bool)}, "does not broadcast"),
        (((1, 2, 4, 16), (1, 2, 5, 16), (1, 2, 5, 16)), {"window": (1,)}, r"window is a pair \(left, right\)"),
        (((1, 2, 4, 16), (1, 2, 5, 16), (1, 2, 5, 16)), {"window": 4}, r"window is a pair \(left, right\)"),
        (((1, 2, 4, 16), (1, 2, 5, 16), (1, 2, 5, 16)), {"window": (-2, 0)}, "a side of window must be -1 or more"),
        (((1, 2, 4, 16), (1, 2, 5, 16), (1, 2, 5, 16)), {"softcap": -1.0}, "softcap is a number above 0"),
        (((1, 2, 4, 16), (1, 2, 5, 16), (1, 2, 5, 16)), {"softcap": np.inf}, "softcap is a number above 0"),
    ],
)
def test_what_does_not_fit(shapes, more, words):
    arrays = [np.zeros(shape, np.float16) for shape in shapes]
    with gensor_kernels.emulated("sm_87"), pytest.raises(ValueError, match=words):
        gensor_kernels.attention(*arrays, **more)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "complex64"])
def test_a_mask_is_of_booleans_or_floats(dtype):
    q = np.ones((1, 2, 4, 16), np.float16)
    for arrays in ((q, q, q), (q.astype(np.float32),) * 3):
        with (
            gensor_kernels.emulated("sm_87"),
            pytest.raises(TypeError, match=rf"mask is of bool .* or float .* {dtype}"),
        ):
            gensor_kernels.attention(*arrays, np.ones((4, 4), dtype))


@st.composite
def problems(draw):
    window = draw(st.sampled_from([(None, None), (0, 0), (2, None), (None, 1), (3, 2)]))
    mask = draw(st.sampled_from(["", "bool", "float32"]))
    return workload(
        draw(st.integers(1, 9)), draw(st.integers(1, 12)), heads=4, kv_heads=draw(st.sampled_from([1, 2, 4])), head=8,
        causal=draw(st.sampled_from([False, True, "upper_left"])), mask=mask, window=window,
        softcap=draw(st.booleans()),
    )  # fmt: skip


@settings(deadline=None, max_examples=80)
@given(problems())
def test_the_library_computes_every_form(w):
    arrays = operands(w, seed=len(w.key()))
    called = attention.ATTENTION.called(w, {name: x.astype(x.dtype) for name, x in arrays.items()})
    found = attention.ATTENTION.library(NUMPY, called.inputs, called.parameters, None)
    np.testing.assert_allclose(found, exact(w, arrays), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("softcap", [None, VERIFIED_SOFTCAP, 40.0])
@pytest.mark.parametrize("window", [None, (20, 0), (-1, 7)])
def test_kernels_agree_with_the_library(window, softcap):
    rng = np.random.default_rng(0)
    q, k, v = (
        rng.standard_normal((1, heads, rows, 32)).astype(np.float16) for heads, rows in ((4, 40), (2, 70), (2, 70))
    )
    with gensor_kernels.emulated("sm_87"):
        found = gensor_kernels.attention(q, k, v, scale=1.5, window=window, softcap=softcap)
        why = gensor_kernels.explain(gensor_kernels.attention, q, k, v, scale=1.5, window=window, softcap=softcap)
    parameters = attention.Parameters(False, 1.5, tuple(window or (None, None)), softcap)
    wanted = attention.composed(NUMPY, (q, k, v, None), parameters, None)
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=2e-2, atol=2e-2)
    assert why.family == "attention"


def test_soft_caps_that_no_kernel_takes_go_to_the_library():
    q = np.zeros((1, 1, 4, 16), np.float16)
    with gensor_kernels.emulated("sm_87"), pytest.raises(gensor_kernels.UnsupportedError, match="soft cap of 1000"):
        gensor_kernels.attention(q, q, q, softcap=1000)


# ---- sequences of different lengths


def alone(q, k, v, rows, keys, parameters):
    """Every sequence by itself; zeros for queries of no sequence."""
    value = np.zeros(q.shape)
    for entry, (own, span) in enumerate(zip(rows, keys, strict=True)):
        at = slice(0, 1) if q.shape[0] == 1 else slice(entry, entry + 1)
        part = q[at, :, own].astype(np.float64), *(x[entry][None, :, span].astype(np.float64) for x in (k, v)), None
        value[at, :, own] = attention.composed(NUMPY, part, parameters, None)
    return value


@st.composite
def calls(draw):
    """(arguments, keywords, what they compute): packed keys, pages, pages of batch entries."""
    kind, rng = (
        draw(st.sampled_from(["packed", "same", "pages", "entries"])),
        np.random.default_rng(draw(st.integers(0, 99))),
    )
    kv_heads, group, head = draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.sampled_from([16, 20, 64]))
    dtype = draw(st.sampled_from([np.dtype(np.float16), BFLOAT16]))
    sizes = draw(st.lists(st.integers(0, 40), min_size=1, max_size=5)) + [0] * draw(st.sampled_from([0, 0, 33]))
    if kind == "entries":
        sizes = [draw(st.sampled_from([1, 1, 7]))] * len(sizes)
    key_sizes = sizes if kind == "same" else [draw(st.sampled_from([0, 1, 16, 33, 70])) for _ in sizes]
    rest, total = draw(st.sampled_from([0, 0, 5])), sum(sizes)
    one = kind != "entries"
    shape = (1, kv_heads * group, total + rest, head) if one else (len(sizes), kv_heads * group, sizes[0], head)
    ends, key_ends = np.cumsum(sizes), np.cumsum(key_sizes)
    rows = (
        [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)] if one else [slice(None)] * len(sizes)
    )
    q, array = rng.standard_normal(shape).astype(dtype), np.asarray(sizes, draw(st.sampled_from([np.int32, np.int64])))
    given = {} if not one else {"sizes": array} if draw(st.booleans()) else {"offsets": np.cumsum(array)}
    p = attention.Parameters(draw(st.sampled_from([False, True, "upper_left"])), 0.3, *draw(st.sampled_from([
        ((None, None), None), ((9, 0), None), ((None, 3), 2.0), ((20, None), 30.0)])))  # fmt: skip
    if kind in ("packed", "same"):
        k, v = (rng.standard_normal((1, kv_heads, sum(key_sizes) + rest, head)).astype(dtype) for _ in "kv")
        if kind == "packed":
            given |= {"key_sizes": key_sizes} if draw(st.booleans()) else {"key_offsets": key_ends.tolist()}
        spans = [slice(end - size, end) for end, size in zip(key_ends, key_sizes, strict=True)]
        gathered = [np.broadcast_to(x, (len(sizes), *x.shape[1:])) for x in (k, v)]
    else:
        page = draw(st.sampled_from([1, 4, 16, 64]))
        table = max(-(-max(key_sizes) // page), 1)
        number = len(sizes) * table + 2
        k, v = (rng.standard_normal((number, kv_heads, page, head)).astype(dtype) for _ in "kv")
        pages = rng.permutation(number)[: len(sizes) * table].reshape(len(sizes), table)
        given |= {"key_sizes": key_sizes, "block_table": pages.tolist() if draw(st.booleans()) else pages}
        gathered = [x[pages].swapaxes(1, 2).reshape(len(sizes), kv_heads, table * page, head) for x in (k, v)]
        spans = [slice(0, size) for size in key_sizes]
        if draw(st.booleans()):  # the order of FlashAttention's caches
            k, v = (np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2) for x in (k, v))
    named = {"causal": p.causal, "scale": p.scale, "window": p.window, "softcap": p.softcap}
    return (q, k, v), given | named, alone(q, *gathered, rows, spans, p), kind


@settings(max_examples=40, deadline=None)
@given(calls(), st.sampled_from(["sm_87", "sm_90"]))
def test_any_call_agrees_with_each_sequence_by_itself(call, arch):
    arrays, named, wanted, kind = call
    with gensor_kernels.emulated(arch):
        found = gensor_kernels.attention(*arrays, **named)
        why = gensor_kernels.explain(gensor_kernels.attention, *arrays, **named)
    assert found.shape == arrays[0].shape and found.dtype == arrays[0].dtype
    error = 1e-2 if found.dtype == np.float16 else 6e-2
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=error, atol=error)
    if why.tier:
        form = {"entries": "_paged", "pages": "_ragged_paged"}.get(kind, "_ragged")
        families = {"attention", "attention_wgmma"} if form == "_ragged" else {"attention"}
        assert why.family in families and f'"operator":"attention{form}' in why.workload


@pytest.mark.parametrize("kind", [{}, {"page_size": 4, "table": 6}, {"page_size": 4, "table": 6, "ragged": False}])
@pytest.mark.parametrize("seed", range(6))
def test_the_library_computes_every_form_of_sequences(kind, seed):
    more = {"causal": [False, True, "upper_left"][seed % 3], "window": [(None, None), (4, 1)][seed % 2]}
    sizes = {"heads": 4, "kv_heads": 2, "head": 8, "softcap": seed == 5} | more | kind
    w = sequences.workload(5, 17 if sizes.get("ragged", True) else 3, 24, **sizes)
    arrays = operands(w, seed)
    called = SEQUENCES.called(w, arrays)
    found = SEQUENCES.library(NUMPY, called.inputs, called.parameters, None)
    np.testing.assert_allclose(found, exact_sequences(w, arrays), rtol=1e-5, atol=1e-5)


def test_the_library_takes_pages_of_any_size():
    rng = np.random.default_rng(0)
    q, pages = rng.standard_normal((2, 4, 3, 8)), rng.standard_normal((4, 2, 3, 8))
    table, lengths, p = np.array([[3, 1], [0, 2]]), np.array([4, 6]), attention.Parameters(True, None, paged=True)
    found = SEQUENCES.library(NUMPY, (q, pages, pages, lengths, table), p, None)
    keys = pages[table].swapaxes(1, 2).reshape(2, 2, 6, 8)
    wanted = alone(q, keys, keys, [slice(None)] * 2, [slice(0, 4), slice(0, 6)], p)
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


def test_arguments_of_flash_attention_are_views():
    """Packed queries (tokens, heads, head), offsets with a leading zero, and a cache with heads behind rows."""
    rng = np.random.default_rng(0)
    q, cache = rng.standard_normal((9, 4, 32)).astype(np.float16), rng.standard_normal((6, 8, 2, 32)).astype(np.float16)
    starts, table = np.array([0, 2, 9], np.int32), np.array([[3, 1, 0], [2, 5, 4]], np.int32)
    with gensor_kernels.emulated("sm_87"):
        packed, pages = q.transpose(1, 0, 2)[None], cache.transpose(0, 2, 1, 3)
        found = gensor_kernels.attention(
            packed, pages, pages, causal=True, offsets=starts[1:], key_sizes=[10, 24], block_table=table
        )
        out = np.full_like(packed, np.nan)
        again = gensor_kernels.attention(
            packed, pages, pages, causal=True, offsets=starts[1:], key_sizes=[10, 24], block_table=table, out=out
        )
    keys = [
        np.concatenate(cache[row])[:length].swapaxes(0, 1)[None] for row, length in zip(table, (10, 24), strict=True)
    ]
    wanted = [
        attention.composed(NUMPY, (packed[:, :, span], k, k, None), attention.Parameters(True, None), None)
        for span, k in zip((slice(0, 2), slice(2, 9)), keys, strict=True)
    ]
    np.testing.assert_allclose(found.astype(np.float64), np.concatenate(wanted, 2), rtol=1e-2, atol=1e-2)
    assert again is out and np.array_equal(out, found)


@pytest.mark.parametrize("ends", [[-5, 40, 3], [30, 10, 20], [2**31 - 1, -(2**31), 7]])
def test_ends_and_pages_of_the_device_that_make_no_sense_stay_inside(ends):
    """As on a GPU, where nobody looks at them before the kernel does."""
    q, k = np.ones((1, 2, 20, 32), np.float16), np.ones((1, 1, 30, 32), np.float16)
    pages, ends = np.ones((4, 1, 8, 32), np.float16), np.array(ends, np.int32)
    table = np.array([[2**31 - 1, -1], [4, 99], [-(2**31), 3]], np.int32)
    for split in (False, True):
        ragged = attention.Parameters(True, None, ragged=True, paged=split)
        more = (ends, ends[::-1].copy(), *((table,) if split else ()))
        with gensor_kernels.emulated("sm_87"):
            own = pages if split else k
            found = current_runtime().serve(SEQUENCES, (q, own, own, *more), ragged)
        assert found.shape == q.shape


def test_no_elements():
    q, k = np.ones((1, 2, 6, 16), np.float16), np.ones((1, 2, 0, 16), np.float16)
    with gensor_kernels.emulated("sm_87"):
        assert not gensor_kernels.attention(q, k, k, sizes=[2, 4], key_sizes=[0, 0]).any()
        assert not gensor_kernels.attention(q, q, q, sizes=[]).any()
        assert gensor_kernels.attention(q[:, :, :0], q, q, sizes=[0, 0], key_sizes=[1, 2]).shape == (1, 2, 0, 16)


Q, PAGES = (1, 2, 6, 16), (4, 2, 8, 16)
TABLE = {"block_table": [[0, 1], [2, 3]]}


@pytest.mark.parametrize(
    ("shapes", "keywords", "words"),
    [
        ((Q, Q, Q), {"sizes": [2, 5]}, "expected to ascend up to the 6 rows of q"),
        ((Q, Q, Q), {"offsets": [4, 2]}, "sequence 1 ends at row 2, and begins at row 4"),
        ((Q, Q, Q), {"offsets": [4], "sizes": [4]}, "offsets or sizes, one of them"),
        ((Q, Q, Q), {"sizes": [2.0, 1.0]}, "sizes are one integer per sequence"),
        (
            (Q, Q, Q),
            {"sizes": [2, 4], "key_sizes": [1, 1, 1]},
            r"key_offsets and key_sizes are integers of the shape \(2,\)",
        ),
        ((Q, Q, Q), {"key_sizes": [6]}, "go with offsets or sizes, or with a block_table"),
        ((Q, Q, Q), {"sizes": [6], "mask": np.ones((6, 6), bool)}, "a mask is for sequences of one length"),
        (((2, *Q[1:]), Q, Q), {"sizes": [6]}, "k of shape|batch of 1|batch and head must be equal"),
        (((2, *Q[1:]), (2, *Q[1:]), (2, *Q[1:])), {"sizes": [6]}, "have a batch of 1, not 2"),
        ((Q, PAGES, PAGES), {"sizes": [2, 4], **TABLE}, "key_sizes are the numbers of keys in the cache"),
        (
            (Q, PAGES, PAGES),
            {"sizes": [2, 4], "key_sizes": [3, 17], **TABLE},
            "numbers of keys from 0 to 16, not from 3 to 17",
        ),
        ((Q, PAGES, PAGES), {"sizes": [2, 4], "key_sizes": [3], **TABLE}, r"of the shape \(2,\)"),
        ((Q, PAGES, PAGES), {"sizes": [6], "key_sizes": [3], **TABLE}, r"block_table are integers of the shape"),
        ((Q, PAGES, PAGES), {"key_sizes": [3], "block_table": [0, 1]}, "numbers of pages, a row per sequence"),
        ((Q, PAGES, (5, 2, 8, 16)), {"sizes": [2, 4], "key_sizes": [3, 4], **TABLE}, "k and v have the shapes"),
        ((Q, (4, 2, 8, 32), (4, 2, 8, 32)), {"sizes": [2, 4], "key_sizes": [3, 4], **TABLE}, "head must be equal"),
        ((Q[1:], Q, Q), {"sizes": [2, 4]}, r"q, k and v have the axes \(batch, heads, rows, head\)"),
    ],
)
def test_what_sequences_do_not_take(shapes, keywords, words):
    arrays = [np.zeros(shape, np.float16) for shape in shapes]
    with gensor_kernels.emulated("sm_87"), pytest.raises(ValueError, match=words):
        gensor_kernels.attention(*arrays, **keywords)


def test_pages_that_no_kernel_takes_go_to_the_library():
    q, pages = np.zeros(Q, np.float16), np.zeros((4, 2, 12, 16), np.float16)
    with gensor_kernels.emulated("sm_87"), pytest.raises(gensor_kernels.UnsupportedError, match="powers of two"):
        gensor_kernels.attention(q, pages, pages, sizes=[2, 4], key_sizes=[3, 4], **TABLE)
