"""Attention over sequences of different lengths as a declaration: its reference, its Workloads, the kernel's view."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gensor_kernels.operators import operator
from gensor_kernels.operators.attention import sequences
from gensor_kernels.operators.attention.forms import FORMS, UNBOUNDED, mean_sizes
from gensor_kernels.operators.attention.sequences import FAR, spans, workload
from gensor_kernels.operators.types.dtypes import decode
from gensor_kernels.operators.types.workload import Workload, contiguous
from tests.families.attention_cases import exact_sequences, operands

KINDS = ({}, {"page_size": 4, "table": 6}, {"page_size": 4, "table": 6, "ragged": False})


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    kind, kv_heads = draw(st.sampled_from(KINDS)), draw(st.integers(1, 2))
    return workload(
        draw(st.sampled_from([1, 3, 5, 7])), draw(st.integers(1, 14)), draw(st.integers(1, 30)), **kind,
        heads=kv_heads * draw(st.integers(1, 3)), kv_heads=kv_heads, head=draw(st.integers(1, 9)),
        dtype=draw(st.sampled_from(["float16", "bfloat16"])), causal=draw(st.sampled_from([False, True, "upper_left"])),
        window=draw(st.sampled_from([(None, None), (0, 0), (2, -1), (-1, 3), (4, 1)])), softcap=draw(st.booleans()),
    )  # fmt: skip


@settings(deadline=None, max_examples=120)
@given(workloads())
def test_reference_and_declaration_are_right(w):
    declared, arrays = operator(w.operator), operands(w, seed=len(w.key()))
    expected, wanted = declared.expect(w, arrays), exact_sequences(w, arrays)
    plain = {name: decode(w.dtype[name], array) for name, array in arrays.items()}
    assert np.allclose(expected.values, wanted, rtol=1e-11, atol=1e-12)
    assert np.allclose(declared.reference(plain, w.size), wanted, rtol=1e-11, atol=1e-12)
    assert np.isfinite(expected.bound).all()
    assert Workload.from_json(w.key()) == w


@pytest.mark.parametrize("kind", KINDS)
def test_verification_draws_every_kind_of_length(kind):
    w = workload(5, 90 if kind.get("ragged", True) else 9, 200, **kind, heads=2, head=8)
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
    w = workload(4, 40, 80, heads=4, kv_heads=2, head=8, causal=True)
    assert mean_sizes(w)["queries"] == 10 and mean_sizes(w)["keys"] == 20
    seen = sum(range(11, 21))
    assert w.flops() == 4 * 4 * 4 * 8 * seen
    assert w.bytes_moved() == 2 * (2 * 4 * 40 * 8 + 2 * 2 * 80 * 8) + 4 * (4 + 4)
    paged = workload(4, 1, 400, ragged=False, page_size=4, table=5, heads=4, kv_heads=2, head=8, window=(7, 0))
    assert mean_sizes(paged)["keys"] == 20
    assert paged.bytes_moved() == 2 * (2 * 4 * 4 * 8 + 2 * 4 * 2 * 8 * 8) + 4 * (4 + 4 * 5)


def test_geometry_tells_kernels_of_lengths_and_pages():
    w = workload(3, 20, 64, page_size=16, heads=4, kv_heads=2, head=8, causal="upper_left", window=(5, None))
    found = operator(w.operator).geometry(w, natural_strides(w))
    assert found.sizes == (20, 8, 64) and found.batch == (1, 2, 2) and found.ragged == 3
    assert (found.b.batch, found.b.row, found.b.column) == ((256, 128, 0), 1, 8)
    assert found.others == (64, 72, 80)
    told = struct.unpack("<Q 5q f 2i f 3Q q 4i", found.tail)
    assert told[7:10] == (1, -5, 0) and told[10:] == (0, 0, 0, 4, 3, 1, 4, 4)
    packed = workload(3, 20, 30, heads=4, kv_heads=2, head=8)
    found = operator(packed.operator).geometry(packed, natural_strides(packed))
    assert found.b.batch == (0, 240, 0) and found.others == (64, 72)
    assert struct.unpack_from("<2i", found.tail, 52) == (FAR, -FAR)


def natural_strides(w):
    return {each.name: each.strides() for each in operator(w.operator).operands(w)}


def test_windows_are_those_of_plain_attention():
    w = workload(2, 10, 30, head=8, window=(100, 2), causal=True)
    assert (w.size["window_left"], w.size["window_right"]) == (UNBOUNDED, UNBOUNDED)


def test_alignment_counts_the_pages():
    q, ends = contiguous((1, 2, 5, 8), "float16"), contiguous((3,), "int32")
    pages = contiguous((6, 2, 4, 8), "float16")._replace(strides=(66, 32, 8, 1))
    table = contiguous((3, 2), "int32")
    w = sequences.workload_from_views(q, pages, pages, q, {"f": ends, "g": ends, "h": table})
    assert w.align["b"] == 4 and w.align["a"] == 16


def test_spans_stay_inside():
    assert spans([3, 2, 99, -4], 10) == [(0, 3), (3, 3), (2, 10), (10, 10)]
