"""Attention as a declaration: its reference, its Workloads, its tolerance; sequences of different lengths."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gensor_kernels.operators import operator
from gensor_kernels.operators.attention import attention, sequences
from gensor_kernels.operators.attention.attention import View, workload, workload_from_views
from gensor_kernels.operators.attention.forms import FORMS, mean_sizes
from gensor_kernels.operators.expression.evaluate import evaluate
from gensor_kernels.operators.tolerance.base import check
from gensor_kernels.operators.types.dtypes import decode, encode
from gensor_kernels.operators.types.workload import Workload, contiguous
from tests.families.attention_cases import exact, exact_sequences, operands, tiled

AXES = tuple(attention.MASK_AXES)
KINDS_OF_SINKS = ("", "", *attention.SINKS)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    mask = draw(st.sampled_from(["", "bool", "float16", "bfloat16", "float32"]))
    kv_heads, group = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    return workload(
        draw(st.integers(1, 9)), draw(st.integers(1, 12)), batch=draw(st.integers(1, 2)), heads=kv_heads * group,
        kv_heads=kv_heads, head=draw(st.integers(1, 20)), dtype=draw(st.sampled_from(["float16", "bfloat16"])),
        causal=draw(st.sampled_from([False, True, "upper_left"])), mask=mask,
        mask_axes=draw(st.sets(st.sampled_from(AXES))),
        window=draw(st.sampled_from([(None, None), (None, None), (0, 0), (2, -1), (-1, 3), (4, 1), (30, 30)])),
        softcap=draw(st.booleans()), sinks=draw(st.sampled_from(KINDS_OF_SINKS)), lse=draw(st.booleans()),
    )  # fmt: skip


def compare(w, values, logarithms):
    """Compare reference and declaration of both outputs with other values of them."""
    declared, arrays = operator(w.operator), operands(w, seed=len(w.key()))
    expected, plain = declared.expect(w, arrays), {name: decode(w.dtype[name], x) for name, x in arrays.items()}
    assert np.allclose(expected.values, values, rtol=1e-11, atol=1e-12)
    assert np.allclose(declared.reference(plain, w.size), values, rtol=1e-11, atol=1e-12)
    assert (expected.bound > 0).all() and np.isfinite(expected.bound).all()
    written = declared.expect_written(w, arrays)
    assert tuple(written) == declared.written == ("l",) * w.operator.endswith("_lse")
    if written:
        assert np.allclose(written["l"].values, logarithms, rtol=1e-11, atol=1e-12)
        assert np.allclose(evaluate(declared.stages(w.size)[:-1], plain, sizes=w.size), logarithms, rtol=1e-11)
        known = np.isfinite(logarithms)
        assert (written["l"].bound[known] > 0).all() and (written["l"].bound[known] < 1e-4).all()
    assert Workload.from_json(w.key()) == w


@settings(deadline=None, max_examples=150)
@given(workloads())
def test_reference_and_declaration_are_correct(w):
    compare(w, *exact(w, operands(w, seed=len(w.key()))))


def test_flops_and_bytes_count_the_pairs_that_see_each_other():
    sizes = [(1, 1), (3, 7), (7, 3), (5, 5), (1, 9), (9, 1)]
    windows = [(None, None), (0, 0), (2, None), (None, 1), (1, 3), (20, 20)]
    for (queries, keys), window, causal in itertools.product(sizes, windows, (False, True, "upper_left")):
        w = workload(queries, keys, batch=2, heads=4, kv_heads=2, head=16, causal=causal, window=window)
        own = np.arange(queries)[:, None] + (0 if causal == "upper_left" else keys - queries)
        left, right = (99 if side is None else side for side in window)
        seen = (np.arange(keys) >= own - left) & (np.arange(keys) <= own + (0 if causal else right))
        assert w.flops() == 4 * 2 * 4 * 16 * int(seen.sum()), w.key()
        read = max(int(seen.any(0).sum()), 1) if "windowed" in w.operator else keys
        assert w.bytes_moved() == 2 * (2 * (2 * 4 * queries * 16) + 2 * (2 * 2 * read * 16)), w.key()


@pytest.mark.parametrize("window", [(None, None), (-1, -1), (12, 12), (8, None)])
def test_windows_that_bound_nothing_are_plain_attention(window):
    """Records of older versions keep their keys."""
    w = workload(4, 8, heads=2, head=16, causal=True, window=window)
    assert w == workload(4, 8, heads=2, head=16, causal=True) or window == (8, None)
    assert ("window_left" in w.key()) == (window == (8, None))
    assert workload(4, 8, causal=True, window=(3, 2)) == workload(4, 8, causal=True, window=(3, 0))
    with_all = workload(4, 8, heads=2, head=16, sinks="bfloat16", lse=True)
    assert with_all.operator == "attention_sinks_lse" and with_all.size["window_left"] == 2**31 - 1
    assert {name: with_all.align[name] for name in "sl"} == {"s": 2, "l": 4}
    assert with_all.bytes_moved() == workload(4, 8, heads=2, head=16).bytes_moved() + 2 * 2 + 4 * 2 * 4
    assert workload(4, 8, heads=1, head=16).key() == (
        '{"accumulator":"float32","alignment":{"a":16,"b":16,"c":16,"d":16},"dtypes":{"a":"float16","b":"float16",'
        '"c":"float16","d":"float16"},"epilogue":[],"layout":{"a":"head","b":"head","c":"head","d":"head"},'
        '"math":"ieee","operator":"attention","sizes":{"batch":1,"causal":0,"head":16,"heads":1,"keys":8,'
        '"kv_heads":1,"queries":4}}'
    )


def test_bytes_count_shared_heads_and_broadcast_masks_once():
    w = workload(3, 5, batch=2, heads=4, kv_heads=2, head=8, mask="float32", mask_axes=("batch", "keys"))
    assert w.bytes_moved() == 2 * (2 * (2 * 4 * 3 * 8) + 2 * (2 * 2 * 5 * 8)) + 4 * 2 * 5


def test_workloads_of_strided_arrays():
    rows = View((2, 6, 10, 64), (10 * 6 * 64, 64, 6 * 64, 1), "float16")  # (batch, queries, heads, head) turned around
    keys = View((2, 2, 20, 64), (20 * 2 * 64, 64, 2 * 64, 1), "float16", 4)
    stepped = View((2, 2, 20, 64), (20 * 2 * 128, 128, 4 * 64, 2), "float16")
    mask = View((2, 6, 10, 20), (20, 0, 0, 1), "bool")
    w = workload_from_views(rows, keys, stepped, contiguous((2, 6, 10, 64), "float32"), mask=mask, causal=True)
    assert w.operator == "attention_masked" and w.dtype["e"] == "int8" and w.dtype["c"] == "float32"
    assert dict(w.layout) == {"a": "head", "b": "head", "d": "s", "c": "head", "e": "keys"}
    assert dict(w.alignment) == {"a": 16, "b": 4, "d": 2, "c": 16, "e": 4}
    assert w.size["mask_axes"] == 8 + 1 and w.size["causal"] == 1 and w.size["kv_heads"] == 2
    assert Workload.from_json(w.key()) == w


# ---- The tolerance of attention passes every correct kernel, and none that forgets to rescale or accumulates shorter

SIZES = ((40, 16), (40, 77), (8, 520))


def verdict(w, arrays, values, **options):
    return check(encode(w.dtype["c"], values), operator(w.operator).expect(w, arrays, **options))


def test_correct_kernels_pass():
    for dtype, (queries, keys), spread in itertools.product(("float16", "bfloat16"), SIZES, (0.5, 3.0)):
        for out, split, structured in itertools.product((dtype, "float32"), (1, 3), (False, True)):
            w = workload(queries, keys, heads=2, head=64, dtype=dtype, out=out, causal=True)
            arrays = operands(w, keys, spread)
            found = verdict(w, arrays, tiled(w, arrays, 16, split=split), structured=structured)
            assert found.ok, (w.key(), found.message)


def test_correct_kernels_with_masks_soft_caps_and_windows_pass():
    capped = {"softcap": True, "window": (90, 20)}
    masked = [("bool", 1.0, {"batch": 2}), ("float16", 1.0, {"batch": 2})]
    for mask, spread, form in [*masked, *((m, s, capped) for m in ("", "float16") for s in (0.5, 3.0))]:
        w = workload(40, 200, heads=4, kv_heads=2, head=64, mask=mask, out="float32", **form)
        arrays = operands(w, spread=spread)
        found = verdict(w, arrays, tiled(w, arrays, 32))
        assert found.ok, (mask, spread, found.message)


CAPPED = {"mask": "float16", "softcap": True}
#: Options of a Workload, and of a kernel that is wrong.
WRONG = {
    "a cap after the mask": ("float16", CAPPED, {"cap": "late"}),
    "no cap": ("float16", CAPPED, {"cap": "none"}),
    "no rescaling": ("float16", {}, {"rescale": False}),
    "no rescaling of bfloat16": ("bfloat16", {}, {"rescale": False}),
    "sums in 16 bits": ("float16", {}, {"sums": "float16"}),
    "sums in 16 bits of bfloat16": ("bfloat16", {}, {"sums": "bfloat16"}),
    "weights in 8 bits": ("float16", {}, {"weights": "bfloat16"}),  # those of bfloat16 have them
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_kernels_fail(name):
    dtype, form, options = WRONG[name]
    for queries, keys in SIZES[1:2] if form else SIZES[1:]:
        w = workload(queries, keys, heads=2, head=64, dtype=dtype, out="float32", **form)
        arrays = operands(w, 0, 1.5) if form else operands(w, keys)
        found = verdict(w, arrays, tiled(w, arrays, 16, **options))
        assert not found.ok, (keys, found.message)


@pytest.mark.parametrize("keys", [16, 100, 1000])
def test_one_key_too_few_or_too_many_fails(keys):
    w = workload(20, keys, heads=2, head=64)
    arrays = operands(w, keys)
    shorter = {name: array[:, :, :-1] if name in "bd" else array for name, array in arrays.items()}
    longer = {n: np.pad(x, ((0, 0), (0, 0), (0, n in "bd"), (0, 0))) for n, x in arrays.items()}
    for changed, count in ((shorter, keys - 1), (longer, keys + 1)):
        found = verdict(w, arrays, tiled(w.with_sizes(keys=count), changed))
        assert not found.ok, found.message


# ---- sequences of different lengths


KINDS = ({}, {"page_size": 4, "table": 6}, {"page_size": 4, "table": 6, "ragged": False})


@st.composite
def sequences_drawn(draw: st.DrawFn) -> Workload:
    kind, kv_heads = draw(st.sampled_from(KINDS)), draw(st.integers(1, 2))
    return sequences.workload(
        draw(st.sampled_from([1, 3, 5, 7])), draw(st.integers(1, 14)), draw(st.integers(1, 30)), **kind,
        heads=kv_heads * draw(st.integers(1, 3)), kv_heads=kv_heads, head=draw(st.integers(1, 9)),
        dtype=draw(st.sampled_from(["float16", "bfloat16"])), causal=draw(st.sampled_from([False, True, "upper_left"])),
        window=draw(st.sampled_from([(None, None), (0, 0), (2, -1), (-1, 3), (4, 1)])), softcap=draw(st.booleans()),
        sinks=draw(st.sampled_from(KINDS_OF_SINKS)), lse=draw(st.booleans()),
    )  # fmt: skip


@settings(deadline=None, max_examples=120)
@given(sequences_drawn())
def test_reference_and_declaration_of_sequences_are_right(w):
    compare(w, *exact_sequences(w, operands(w, seed=len(w.key()))))


@pytest.mark.parametrize("kind", KINDS)
def test_verification_draws_every_kind_of_length(kind):
    w = sequences.workload(5, 90 if kind.get("ragged", True) else 9, 200, **kind, heads=2, head=8)
    declared, arrays = operator(w.operator), operands(w)
    lengths = [(end - begin, stop - start) for (begin, end), (start, stop) in declared.lengths(w, arrays)]
    assert any(q > 0 and k > 0 for q, k in lengths) and any(q > 0 and k == 0 for q, k in lengths)
    if FORMS[w.operator].ragged:
        assert any(q == 0 and k > 0 for q, k in lengths) and sum(q for q, _ in lengths) < w.size["queries"]
    if FORMS[w.operator].paged:
        assert (arrays["h"] == w.size["pages"]).any() and (arrays["h"] == -1).any()
        used = {k % w.size["page_size"] for _, k in lengths}
        assert 0 in used and len(used) > 1


def test_flops_and_bytes_are_those_of_mean_lengths():
    w = sequences.workload(4, 40, 80, heads=4, kv_heads=2, head=8, causal=True)
    assert mean_sizes(w)["queries"] == 10 and mean_sizes(w)["keys"] == 20
    seen = sum(range(11, 21))
    assert w.flops() == 4 * 4 * 4 * 8 * seen
    assert w.bytes_moved() == 2 * (2 * 4 * 40 * 8 + 2 * 2 * 80 * 8) + 4 * (4 + 4)
    paged = sequences.workload(
        4, 1, 400, ragged=False, page_size=4, table=5, heads=4, kv_heads=2, head=8, window=(7, 0)
    )
    assert mean_sizes(paged)["keys"] == 20
    assert paged.bytes_moved() == 2 * (2 * 4 * 4 * 8 + 2 * 4 * 2 * 8 * 8) + 4 * (4 + 4 * 5)


def test_alignment_counts_the_pages():
    q, ends = contiguous((1, 2, 5, 8), "float16"), contiguous((3,), "int32")
    pages = contiguous((6, 2, 4, 8), "float16")._replace(strides=(66, 32, 8, 1))
    table = contiguous((3, 2), "int32")
    w = sequences.workload_from_views(q, pages, pages, q, {"f": ends, "g": ends, "h": table})
    assert w.align["b"] == 4 and w.align["a"] == 16
