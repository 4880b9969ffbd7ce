"""attention with sinks and logarithms of denominators: parts of the keys merged, outputs, `bind`, memory in common."""

from functools import partial

import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels.dispatch.functions.attention import ATTENTION, Parameters
from gensor_kernels.dispatch.functions.attention_sequences import SEQUENCES
from gensor_kernels.dispatch.functions.vendor_call import library_call
from gensor_kernels.operators import operator
from gensor_kernels.operators.attention import attention, sequences
from tests.doubles.device import FakeDevice
from tests.families.attention_cases import operands

RNG = np.random.default_rng(5)
HEADS, KV_HEADS, QUERIES, KEYS, HEAD = 4, 2, 21, 90, 32
SINKS = np.array([0.5, -2.0, 3.0, -np.inf], np.float32)


def normal(*shape, dtype="float16"):
    return RNG.standard_normal(shape).astype(dtype)


Q, K, V = normal(2, HEADS, QUERIES, HEAD), normal(2, KV_HEADS, KEYS, HEAD), normal(2, KV_HEADS, KEYS, HEAD)


def whole(q, k, v, sinks=None, seen=True):
    """Result and logarithms in float64, by the definition."""
    q, k, v = q.astype(float), *(np.repeat(each.astype(float), HEADS // KV_HEADS, 1) for each in (k, v))
    weights = np.where(seen, np.exp(q @ k.swapaxes(-1, -2) * HEAD**-0.5), 0.0)
    total = weights.sum(-1) + (0.0 if sinks is None else np.exp(sinks.astype(float))[:, None])
    with np.errstate(all="ignore"):
        return np.nan_to_num(weights @ v / total[..., None]), np.log(total)


def close(found, wanted, tolerance=2e-3):
    (out, lse), (values, logarithms) = found, wanted
    np.testing.assert_allclose(out, values, rtol=0, atol=tolerance)
    np.testing.assert_allclose(lse, logarithms, rtol=1e-5, atol=1e-5)
    assert lse.dtype == np.float32 and lse.shape == out.shape[:3]


def by_library(function, parameters, *arrays):
    """Result and logarithms of the operations of the array library."""
    lse = np.full(arrays[0].shape[:3], 7, np.float32)
    with np.errstate(all="ignore"):
        return function.library(FakeDevice(), (*arrays, lse), parameters, None), lse


@pytest.mark.parametrize("arch", ["sm_75", "sm_87", "h200"])
def test_parts_of_the_keys_merge_by_their_logarithms(arch, no_databases):
    """As in ring attention: one part has the sinks."""
    parts = [(slice(0, 40), SINKS), (slice(40, 41), None), (slice(41, KEYS), None)]
    with gk.emulated(arch):
        found = [gk.attention(Q, K[:, :, part], V[:, :, part], sinks=sinks, return_lse=True) for part, sinks in parts]
    logarithms = np.stack([lse.astype(float) for _, lse in found])
    merged = np.logaddexp.reduce(logarithms)
    shares = np.exp(logarithms - merged)[..., None]
    out = sum(share * part for share, (part, _) in zip(shares, found, strict=True))
    close((out, merged.astype(np.float32)), whole(Q, K, V, SINKS))


@pytest.mark.parametrize("arch", ["sm_87", "h200", None])
def test_queries_that_see_no_key(arch, no_databases):
    """Zeros, and the logarithm of nothing or of the sink alone."""
    mask = RNG.integers(0, 2, (QUERIES, KEYS)) > 0
    mask[3], mask[20] = False, False
    for sinks in (None, SINKS):
        if arch is None:
            parameters = Parameters(False, None, sinks=sinks is not None, lse=True)
            found = by_library(ATTENTION, parameters, Q, K, V, mask, *(() if sinks is None else (sinks,)))
        else:
            with gk.emulated(arch):
                found = gk.attention(Q, K, V, mask, sinks=sinks, return_lse=True)
        close(found, whole(Q, K, V, sinks, mask))
        alone = np.full(HEADS, -np.inf) if sinks is None else sinks
        assert not found[0][:, :, 3].any() and np.array_equal(found[1][:, :, 3], np.broadcast_to(alone, (2, HEADS)))


@pytest.mark.parametrize("arch", ["sm_87", "h200", None])
def test_sequences_and_rows_of_none(arch, no_databases):
    sizes, key_sizes = np.array([9, 0, 7], np.int32), np.array([50, 3, 0], np.int32)
    q, k, v = Q[:1], K[:1], V[:1]
    if arch is None:
        parameters, ends = Parameters(False, None, ragged=True, sinks=True, lse=True), (sizes, key_sizes)
        found = by_library(SEQUENCES, parameters, q, k, v, *(np.cumsum(each) for each in ends), SINKS)
    else:
        with gk.emulated(arch):
            found = gk.attention(q, k, v, sizes=sizes, key_sizes=key_sizes, sinks=SINKS, return_lse=True)
    seen = np.zeros((QUERIES, KEYS), bool)
    seen[:9, :50] = True
    close(found, whole(q, k, v, SINKS, seen))


def test_the_library_computes_workloads_with_denominators():
    """As timings of the library's call make it: both outputs are the Workload's own arrays."""
    sizes = {"heads": 4, "kv_heads": 2, "head": 16, "lse": True}
    for w in (
        attention.workload(5, 8, mask="bool", sinks="float32", **sizes),
        attention.workload(5, 8, softcap=True, causal=True, **sizes),
        sequences.workload(5, 20, 30, sinks="float16", **sizes),
    ):
        declared, arrays = operator(w.operator), operands(w)
        expected, logarithms = declared.expect(w, arrays), declared.expect_written(w, arrays)["l"]
        arrays |= {"l": np.empty(logarithms.values.shape, np.float32), "c": np.empty(expected.values.shape, np.float16)}
        with np.errstate(all="ignore"):
            found = library_call(FakeDevice(), w, arrays, ())()
        close((found, arrays["l"]), (expected.values, logarithms.values))


def test_outputs_of_the_caller(no_databases):
    """Given arrays are returned; kernels write to them where they are contiguous and share no memory with operands."""
    values, logarithms = whole(Q, K, V, SINKS)
    call = partial(gk.attention, Q, K, V, sinks=SINKS, return_lse=True)
    with gk.emulated("sm_87"):
        for step in (1, 2):
            out, lse = np.zeros_like(Q), np.zeros((2, HEADS, step * QUERIES), np.float32)[:, :, ::step]
            found = call(out=(out, lse))
            assert found[0] is out and found[1] is lse
            close(found, (values, logarithms))
        close(call(out=(np.zeros_like(Q), None)), (values, logarithms))
        # The logarithms over the queries, which kernels still read.
        q = np.zeros(Q.size, np.float16)
        q[...] = Q.reshape(-1)
        over = q.view(np.float32)[: logarithms.size].reshape(logarithms.shape)
        found = gk.attention(q.reshape(Q.shape), K, V, sinks=SINKS, return_lse=True, out=(None, over))
        close(found, (values, logarithms))
        assert found[1] is over


def test_no_elements(no_databases):
    none = K[:, :, :0]
    with gk.emulated("sm_87"):
        out, lse = gk.attention(Q, none, none, return_lse=True)
        assert not out.any() and (lse == -np.inf).all()
        assert (gk.attention(Q, none, none, sinks=SINKS, return_lse=True)[1] == SINKS[:, None]).all()
        assert gk.attention(Q[:, :, :0], K, V, return_lse=True)[1].shape == (2, HEADS, 0)
        out, lse = gk.attention(Q[:1], K[:1], V[:1], sizes=[], return_lse=True)
        assert not out.any() and (lse == -np.inf).all()
        with pytest.raises(ValueError, match="heads of v have no elements"):
            gk.attention(Q, K, V[..., :0], return_lse=True)


def test_bound_calls_and_explanations(no_databases):
    """A bound call writes both outputs by its launch alone, and returns them."""
    q, out, lse = Q.copy(), np.zeros_like(Q), np.zeros((2, HEADS, QUERIES), np.float32)
    arguments = {"sinks": SINKS, "return_lse": True}
    with gk.emulated("sm_87"):
        plan = gk.bind(gk.attention, q, K, V, **arguments, out=(out, lse))
        q[...] = Q[::-1]
        found = plan()
        assert found[0] is out and found[1] is lse
        close(found, whole(q, K, V, SINKS))
        bound = plan._bound
        assert bound is not None and bound.launch != plan._again
        why = gk.explain(gk.attention, q, K, V, **arguments)
    assert why.tier == 3 and "attention_sinks_lse" in why.workload
