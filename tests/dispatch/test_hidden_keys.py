"""attention with NaN and infinities at keys that a query does not see: what its docstring promises, by every way."""

import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels.dispatch.functions import attention
from gensor_kernels.dispatch.functions.attention_sequences import SEQUENCES
from tests.doubles.device import FakeDevice

ROWS, HEAD, PAGE = 70, 64, 16
RNG = np.random.default_rng(0)
QUERY, KEY = np.arange(ROWS)[:, None], np.arange(ROWS)[None]
CAUSAL = KEY <= QUERY
BANNED = (np.nan, -np.inf)
ARCHS = ("sm_87", "h200")


def heads(rows, batch=1):
    return RNG.standard_normal((batch, 1, rows, HEAD)).astype(np.float16)


Q, K, V, PAGES = heads(ROWS), heads(ROWS), heads(ROWS), heads(PAGE, 24)


def spoiled(array, rows, value):
    array = array.copy()
    array[:, :, rows] = value
    return array


def library(function, arrays, parameters):
    """The library's way, rounded as a result is."""
    with np.errstate(all="ignore"):
        return function.library(FakeDevice(), arrays, parameters, None).astype(np.float16)


def ways(keywords, parameters, mask=None):
    """Functions of (k, v): the kernels of two architectures, and the library's operations."""
    for arch in ARCHS:

        def kernel(k, v, arch=arch):
            with gk.emulated(arch):
                return gk.attention(Q, k, v, mask, **keywords)

        yield kernel
    yield lambda k, v: library(attention.ATTENTION, (Q, k, v, mask), attention.Parameters(*parameters))


HIDDEN = {
    "causal": (CAUSAL, {"causal": True}, (True, None), None),
    "window": (CAUSAL & (KEY >= QUERY - 7), {"window": (7, 0)}, (False, None, (7, 0)), None),
    "mask": ((KEY % 3 == 0) & (KEY < 50), {}, (False, None), (KEY % 3 == 0) & (KEY < 50) & (QUERY >= 0)),
    "numbers": (CAUSAL, {}, (False, None), np.where(CAUSAL, 0, -np.inf).astype(np.float32)),
}


@pytest.mark.parametrize("value", BANNED)
@pytest.mark.parametrize("name", HIDDEN)
def test_hidden_keys_of_one_sequence(name, value, no_databases):
    seen, keywords, parameters, mask = HIDDEN[name]
    seen = np.broadcast_to(seen, (ROWS, ROWS))
    for way in ways(keywords, parameters, mask):
        clean = way(K, V)
        for key in (1, 40, 63, ROWS - 1):
            blind = ~seen[:, key]
            found = way(spoiled(K, key, value), V)[0, 0]
            if name == "numbers":
                assert np.isnan(found[blind]).all()
            else:
                assert np.array_equal(found[blind], clean[0, 0, blind])
            found = way(K, spoiled(V, key, value))[0, 0]
            assert not np.isfinite(found[~blind]).any()
            lost = np.isnan(found[blind]).all(-1)
            assert np.array_equal(found[blind][~lost], clean[0, 0, blind][~lost])
            assert lost.all() or mask is None


@pytest.mark.parametrize("sizes", [(30, 40), (1, 69), (65, 5), (20, 33)])
def test_keys_of_other_sequences_are_never_used(sizes, no_databases):
    ends = np.cumsum(sizes).astype(np.int32)
    p = attention.Parameters(True, None, ragged=True)

    def found(arch, k, v):
        if arch is None:
            return library(SEQUENCES, (Q, k, v, ends, ends), p)
        with gk.emulated(arch):
            return gk.attention(Q, k, v, sizes=list(sizes), causal=True)

    for arch in (*ARCHS, None):
        clean = found(arch, K, V)
        for begin, end in zip((0, ends[0]), ends, strict=True):
            others = (KEY[0] < begin) | (KEY[0] >= end)
            mixed = found(arch, spoiled(K, others, np.nan), spoiled(V, others, np.inf))
            assert np.array_equal(mixed[:, :, begin:end], clean[:, :, begin:end])
            assert np.isfinite(clean).all()


@pytest.mark.parametrize("queries", [1, 5])
@pytest.mark.parametrize("length", [1, 37, 64, 300])
def test_keys_past_the_end_and_other_pages_are_never_used(queries, length, no_databases):
    q, table = Q[:, :, :queries], np.arange(20)[None].astype(np.int32)
    lengths, p = np.array([length], np.int32), attention.Parameters(False, None, paged=True)
    bad = PAGES.copy()
    bad[-(-length // PAGE) :] = np.nan
    bad[length // PAGE, :, length % PAGE :] = np.nan
    for arch in (*ARCHS, None):
        pair = []
        for pages in (PAGES, bad):
            if arch is None:
                pair.append(library(SEQUENCES, (q, pages, pages, lengths, table), p))
            else:
                with gk.emulated(arch):
                    pair.append(gk.attention(q, pages, pages, key_sizes=lengths, block_table=table))
        assert np.array_equal(*pair) and np.isfinite(pair[1]).all()
