"""Arguments of public functions: wrong kinds, dtypes, layouts, indices and huge numbers, and the messages they give."""

import inspect
import re
from contextlib import suppress

import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels.dispatch.api.current import rehearsed
from gensor_kernels.operators.types.dtypes import array_dtype
from gensor_kernels.shown import MOST, shown
from tests.dispatch.calls import CALLS, PUBLIC

pytestmark = pytest.mark.usefixtures("no_databases")

LONGEST, HALF = 300, "float16"
#: Parameters that are indices.
INDICES = {"offsets", "sizes", "key_offsets", "key_sizes", "block_table"}
BIG = np.arange(1000, 3000, dtype="float32").reshape(40, 50)
WRONG = {
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


def parameters(name):
    """Places and keywords of all arguments that a call could have, and their names in messages."""
    function, places, _ = CALLS[name]
    every = inspect.signature(function).parameters.values()
    positional = [each.name for each in every if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    names = [*positional, *(f"operands[{number}]" for number in range(len(places)))][: len(places)]
    keywords = {each.name for each in every if each.kind is not each.VAR_POSITIONAL} - {*names}
    return dict(enumerate(names)) | {each: each for each in sorted(keywords)}


def replaced(name, place, value):
    """A call with another argument."""
    function, places, keywords = CALLS[name]
    if place in keywords or isinstance(place, str):
        return function, places, keywords | {place: value}
    return function, (*places[:place], value, *places[place + 1 :]), keywords


def refusal(function, places, keywords):
    """The message of the error that a call raises, "" without one."""
    with gk.emulated("sm_87"):
        try:
            gk.explain(function, *places, **keywords)
        except (TypeError, ValueError, gk.GensorError) as error:
            return str(error)
    return ""


def given(name):
    """The arguments of a call by place and keyword."""
    _, places, keywords = CALLS[name]
    return dict(enumerate(places)) | keywords


def test_every_public_function_has_a_call():
    assert {name.partition(",")[0].partition(" ")[0] for name in CALLS} == PUBLIC


@pytest.mark.parametrize("name", CALLS)
def test_wrong_arguments_give_a_short_message(name):
    """Every argument is replaced by every wrong value; arrays also by a list, and by a masked array."""
    names, refused = parameters(name), 0
    if name not in PUBLIC:  # a further call of its function
        names = {place: names[place] for place in given(name)}
    assert refusal(*CALLS[name]) == ""
    for place in names:
        for wrong in WRONG.values():
            message = refusal(*replaced(name, place, wrong))
            assert len(message) < LONGEST and "\n" not in message, message
            assert not re.search(r"array\(|\[\[|1003|1\.00e|has no attribute", message), message
            refused += bool(message)
    assert refused > len(names)
    for place, value in given(name).items():
        if isinstance(value, np.ndarray) and names[place] not in INDICES and CALLS[name][0] is not gk.einsum:
            message = refusal(*replaced(name, place, [[1.0]]))
            assert message == f"{names[place]} must be a numpy array, not list"
        if isinstance(value, np.ndarray) or names[place] in INDICES:
            function, places, keywords = replaced(name, place, np.ma.masked_array(value))
            with rehearsed("sm_87"), pytest.raises(TypeError, match="whose mask would be ignored: fill it first"):
                function(*places, **keywords)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CALLS)
def test_any_dtype_is_served_or_refused(name):
    """Errors other than the package's own name the dtype that they refuse."""
    function, places, keywords = CALLS[name]
    for dtype in ("bfloat16", "int8", "int16", "uint32", "bool", "complex128"):

        def cast(value, dtype=dtype):
            return value.astype(array_dtype(dtype)) if isinstance(value, np.ndarray) else value

        with rehearsed("sm_120"), suppress(gk.GensorError):
            try:
                function(*map(cast, places), **{name: cast(value) for name, value in keywords.items()})
            except (TypeError, ValueError) as error:
                assert dtype in str(error) or "complex" in str(error), error


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_3m_is_served_without_starters(dtype):
    a = np.ones((8, 8), dtype)
    for arch in ("sm_87", "h200", "sm_120"):
        with rehearsed(arch):
            for x, y in ((a, a), (a, a.T), (a.T, a), (a.T, a.T)):
                assert gk.matmul(x, y, precision="3m").shape == (8, 8)


@pytest.mark.parametrize("huge", [2**31, 2**40, 2**70])
def test_huge_integers_are_served_or_refused(huge):
    x, w, q = np.ones((1, 2, 5, 5), "f"), np.ones((2, 2, 3, 3), "f"), np.ones((1, 2, 4, 8), HALF)
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
        assert gk.attention(q, q, q, window=(huge, huge)).shape == q.shape
        assert gk.var(x, ddof=huge).shape == ()


def test_shown_values_are_short():
    assert shown((1, 2)) == "(1, 2)" and shown(None) == "None" and shown("relu") == "'relu'"
    assert shown(BIG) == "numpy.ndarray of shape (40, 50) and dtype float32"
    assert shown(BIG[0]) == "numpy.ndarray of shape (50,) and dtype float32"
    assert shown([BIG]) == shown(list(range(1000))) == "list"
    assert max(len(shown(each)) for each in ("x" * 1000, np.ones((1,) * 30), 10**100, np.zeros(2, "f4,f4"))) < 3 * MOST


# ---- indices


X, W, Q, K, PAGES = (np.ones(shape, HALF) for shape in ((6, 8), (2, 8, 8), (1, 2, 6, 16), (1, 1, 9, 16), (4, 1, 8, 16)))
#: argument: (a call with it, a value that fits)
INDEXED = {
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


def with_index(values, place, wrong):
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
