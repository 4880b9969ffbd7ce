"""Arguments that are indices are checked in one way, before they are narrowed to 32 bits."""

import numpy as np
import pytest

import gensor_kernels as gk

X, W = np.ones((6, 8), np.float16), np.ones((2, 8, 8), np.float16)
Q, K, PAGES = (np.ones(shape, np.float16) for shape in ((1, 2, 6, 16), (1, 1, 9, 16), (4, 1, 8, 16)))
#: argument: (a call with it, one value that fits)
CALLS = {
    "offsets": (lambda given: gk.grouped_matmul(X, W, given), [2, 6]),
    "sizes": (lambda given: gk.grouped_matmul(X, W, sizes=given), [2, 4]),
    "offsets of queries": (lambda given: gk.attention(Q, K, K, offsets=given, key_sizes=[4, 5]), [2, 6]),
    "sizes of queries": (lambda given: gk.attention(Q, K, K, sizes=given, key_sizes=[4, 5]), [2, 4]),
    "key_offsets": (lambda given: gk.attention(Q, K, K, sizes=[2, 4], key_offsets=given), [4, 9]),
    "key_sizes": (lambda given: gk.attention(Q, K, K, sizes=[2, 4], key_sizes=given), [4, 5]),
    "key_sizes of pages": (lambda given: paged([[0, 1], [2, 3]], given), [9, 3]),
}


def paged(table, sizes):
    return gk.attention(Q, PAGES, PAGES, sizes=[2, 4], key_sizes=sizes, block_table=table)


@pytest.fixture(autouse=True)
def emulated(no_databases):
    with gk.emulated("sm_87"):
        yield


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("wrong", [-1, 10_000, 2**31, 2**32 + 2, 2**63 - 1, 2**64 - 1, -(2**63)])
@pytest.mark.parametrize("place", [0, 1])
def test_numbers_that_cannot_be(name, wrong, place):
    call, fits = CALLS[name]
    given = np.array(fits, np.int64 if wrong < 2**63 else np.uint64)
    given[place] = wrong
    for each in (given, *((given.tolist(),) if wrong < 2**63 else ())):
        with pytest.raises(ValueError, match=r"expected to ascend|from 0 to 16"):
            call(each)


@pytest.mark.parametrize("name", CALLS)
def test_arrays_that_are_no_integers(name):
    call, fits = CALLS[name]
    for wrong in ([1.0, 2.0], [True, False], "ab", [[1], [2, 3]], [2**70, 1], [fits]):
        with pytest.raises(ValueError, match=r"one integer per|numbers of keys"):
            call(wrong)
    with pytest.raises(TypeError, match=r"not numpy\.ma"):
        call(np.ma.masked_array(fits, [False, True]))


@pytest.mark.parametrize("wrong", [4, -1, 2**31, 2**32 + 1, 2**64 - 1, -(2**63)])
def test_a_table_names_pages_that_exist_where_there_are_keys(wrong):
    dtype = np.int64 if wrong < 2**63 else np.uint64
    for sizes, place in (([9, 3], (0, 1)), ([9, 3], (1, 0)), ([16, 16], (1, 1))):
        table = np.array([[0, 1], [2, 3]], dtype)
        table[place] = wrong
        for each in (table, *((table.tolist(),) if wrong < 2**63 else ())):
            with pytest.raises(ValueError, match=rf"block_table\[{place[0]}, {place[1]}\] is page {wrong}, of 4"):
                paged(each, sizes)
    unread = np.array([[0, 1], [2, wrong]], dtype)
    assert np.array_equal(paged(unread, [9, 3]), paged([[0, 1], [2, 3]], [9, 3]))


def test_a_table_is_of_integers():
    for wrong in ([0, 1], [[0.0, 1.0], [2.0, 3.0]], [[0], [1, 2]], "ab"):
        with pytest.raises(ValueError, match="block_table are numbers of pages, a row per sequence"):
            paged(wrong, [9, 3])
    with pytest.raises(TypeError, match=r"not numpy\.ma"):
        paged(np.ma.masked_array([[0, 1], [2, 3]]), [9, 3])
