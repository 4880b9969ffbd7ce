"""attention: keys that a query does not see, sizes and pages on the device; tests/public_cases draws calls."""

from itertools import product

import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels.dispatch.api.current import current_runtime
from gensor_kernels.dispatch.functions import attention
from gensor_kernels.dispatch.functions.attention_sequences import SEQUENCES
from tests.doubles.device import FakeDevice


@pytest.mark.parametrize("ends", [[-5, 40, 3], [30, 10, 20], [2**31 - 1, -(2**31), 7]])
def test_invalid_ends_and_pages_on_the_device_read_no_other_memory(ends):
    """As on a GPU, where sizes are not checked before the launch."""
    q, k = np.ones((1, 2, 20, 32), np.float16), np.ones((1, 1, 30, 32), np.float16)
    pages, ends = np.ones((4, 1, 8, 32), np.float16), np.array(ends, np.int32)
    table = np.array([[2**31 - 1, -1], [4, 99], [-(2**31), 3]], np.int32)
    for split in (False, True):
        ragged = attention.Parameters(True, None, ragged=True, paged=split)
        more = (ends, ends[::-1].copy(), *((table,) if split else ()))
        with gk.emulated("sm_87"):
            own = pages if split else k
            found = current_runtime().serve(SEQUENCES, (q, own, own, *more), ragged)
        assert found.shape == q.shape


# ---- NaN and infinities at keys that a query does not see change nothing: on two architectures and in the library

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


def results(arch, keywords, function, parameters, arrays):
    """The result of kernels on an architecture, or of the library, rounded to float16, where it is None."""
    if arch is None:
        with np.errstate(all="ignore"):
            return function.library(FakeDevice(), arrays, parameters, None).astype(np.float16)
    with gk.emulated(arch):
        return gk.attention(*arrays[:3], **keywords)


HIDDEN = {
    "causal": (CAUSAL, {"causal": True}, attention.Parameters(True, None), None),
    "window": (CAUSAL & (KEY >= QUERY - 7), {"window": (7, 0)}, attention.Parameters(False, None, (7, 0)), None),
    "mask": (
        (KEY % 3 == 0) & (KEY < 50),
        {},
        attention.Parameters(False, None),
        (KEY % 3 == 0) & (KEY < 50) & (QUERY >= 0),
    ),
    "numbers": (CAUSAL, {}, attention.Parameters(False, None), np.where(CAUSAL, 0, -np.inf).astype(np.float32)),
}


@pytest.mark.parametrize("value", BANNED)
@pytest.mark.parametrize("name", HIDDEN)
def test_hidden_keys_of_one_sequence(name, value, no_databases):
    seen, keywords, parameters, mask = HIDDEN[name]
    seen = np.broadcast_to(seen, (ROWS, ROWS))
    for arch in (*ARCHS, None):
        call = arch, {**keywords, "mask": mask}, attention.ATTENTION, parameters
        clean = results(*call, (Q, K, V, mask))
        for key in (1, 40, 63, ROWS - 1):
            blind = ~seen[:, key]
            found = results(*call, (Q, spoiled(K, key, value), V, mask))[0, 0]
            if name == "numbers":
                assert np.isnan(found[blind]).all()
            else:
                assert np.array_equal(found[blind], clean[0, 0, blind])
            found = results(*call, (Q, K, spoiled(V, key, value), mask))[0, 0]
            assert not np.isfinite(found[~blind]).any()
            lost = np.isnan(found[blind]).all(-1)
            assert np.array_equal(found[blind][~lost], clean[0, 0, blind][~lost])
            assert lost.all() or mask is None


@pytest.mark.parametrize("arch", [*ARCHS, None])
def test_keys_of_other_sequences_are_never_used(arch, no_databases):
    for sizes in [(30, 40), (1, 69), (65, 5), (20, 33)]:
        ends = np.cumsum(sizes).astype(np.int32)
        call = arch, {"sizes": list(sizes), "causal": True}, SEQUENCES, attention.Parameters(True, None, ragged=True)
        clean = results(*call, (Q, K, V, ends, ends))
        assert np.isfinite(clean).all()
        for begin, end in zip((0, ends[0]), ends, strict=True):
            others = (KEY[0] < begin) | (KEY[0] >= end)
            mixed = results(*call, (Q, spoiled(K, others, np.nan), spoiled(V, others, np.inf), ends, ends))
            assert np.array_equal(mixed[:, :, begin:end], clean[:, :, begin:end])


@pytest.mark.parametrize("arch", [*ARCHS, None])
def test_keys_past_the_end_and_other_pages_are_never_used(arch, no_databases):
    table = np.arange(20)[None].astype(np.int32)
    for queries, length in product((1, 5), (1, 37, 64, 300)):
        lengths, bad = np.array([length], np.int32), PAGES.copy()
        bad[-(-length // PAGE) :] = np.nan
        bad[length // PAGE, :, length % PAGE :] = np.nan
        keywords = {"key_sizes": lengths, "block_table": table}
        call = arch, keywords, SEQUENCES, attention.Parameters(False, None, paged=True)
        clean, found = (results(*call, (Q[:, :, :queries], x, x, lengths, table)) for x in (PAGES, bad))
        assert np.array_equal(found, clean) and np.isfinite(found).all()
