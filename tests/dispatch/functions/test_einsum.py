"""einsum and its like on the emulator: copies, paths, dtypes; tests/public_cases draws calls of all of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gensor_kernels import dot, einsum, emulated, explain, inner, matmul, outer, tensordot, vdot
from gensor_kernels.dispatch.functions.base import Copy
from gensor_kernels.dispatch.functions.contraction import StridedCopy
from gensor_kernels.operators.types.dtypes import array_dtype
from tests.campaign_size import FULL
from tests.doubles.stored import SIMT, stock_classes
from tests.public_cases.drawing import FORMS, Draw

#: Few classes, so that a run builds few libraries.
CLASSES = {"sm_87": {(each, each, "ieee"): [("sss", False, SIMT, False)] for each in ("float16", "float32", "float64")}}


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    path = tmp_path_factory.mktemp("stored") / "kernels.db"
    stock_classes(path, CLASSES)
    return path


@pytest.fixture(autouse=True)
def kernels(no_databases, database, monkeypatch):
    """The stored kernels serve the calls."""
    monkeypatch.setenv("GENSOR_DB", str(database))
    with emulated("sm_87"):
        yield


def operands(shapes, dtype=np.float32):
    rng = np.random.default_rng(3)
    return [np.asarray(rng.standard_normal(shape), dtype) for shape in shapes]


def close(found, text, arrays):
    """The result is NumPy's in float64, but for roundings of its dtype."""
    found, wanted = np.asarray(found), np.einsum(text, *(each.astype(np.float64) for each in arrays))
    near = 1000 * np.finfo(found.dtype).eps if found.dtype != np.float16 else 2e-3
    np.testing.assert_allclose(found, wanted, rtol=near, atol=near)


# ---- copies

#: Contractions that kernels compute without a copy: (subscripts, shapes).
WITHOUT_COPIES = [
    ("ij,jk->ik", (20, 30), (30, 40)),
    ("ji,kj->ki", (30, 20), (40, 30)),
    ("bhid,bhjd->bhij", (2, 3, 16, 8), (2, 3, 24, 8)),
    ("bihd,bjhd->bhij", (2, 16, 3, 8), (2, 24, 3, 8)),
    ("bhij,bhjd->bhid", (2, 3, 16, 24), (2, 3, 24, 8)),
    ("bhij,bjhd->bihd", (2, 3, 16, 24), (2, 24, 3, 8)),
    ("nchw,oc->nohw", (2, 16, 5, 7), (8, 16)),
    ("nhwc,oc->nhwo", (2, 5, 7, 16), (8, 16)),
    ("bthd,hdm->btm", (2, 6, 3, 8), (3, 8, 16)),
    ("btm,mhd->bhtd", (2, 6, 16), (16, 3, 8)),
    ("...ij,jk->...ik", (2, 3, 5, 8), (8, 16)),
    ("ii,ij->j", (8, 8), (8, 16)),
    ("abcd,cdef->abef", (2, 3, 4, 5), (4, 5, 2, 3)),
    ("ij,i->i", (4, 5), (4,)),
]


def test_contractions_without_a_copy(monkeypatch):
    def copy(*_):
        raise AssertionError("an operand was copied")

    monkeypatch.setattr(StridedCopy, "make", copy)
    monkeypatch.setattr(Copy, "make", copy)
    for text, *shapes in WITHOUT_COPIES:
        a, b = operands(shapes)
        result, why = einsum(text, a, b), explain(einsum, text, a, b)
        assert why.staged is None and why.tier == 3 and "of strides" in why.views, text
        close(result, text, (a, b))
        # The n axes of this one are one axis of b, but not of the result, so the product keeps their order.
        assert result.flags.c_contiguous == (text != "btm,mhd->bhtd"), text
    with pytest.raises(AssertionError, match="was copied"):
        einsum("ikl,kjl->ij", *operands([(4, 5, 3), (5, 6, 3)]))


def test_copies_are_explained():
    a, b = operands([(4, 5, 3), (5, 6, 3)])
    why = explain(einsum, "ikl,kjl->ij", a, b)
    assert why.staged == "the second operand is copied" and "(5, 6, 3)" not in why.views
    why = explain(einsum, "ikl,kjl->ij", a[:, ::2], b[::2])
    assert why.staged == "the first operand is copied; the second operand is copied"
    why = explain(einsum, "ij,k->ik", a[0], b[0, :, 0])
    assert why.staged == "the first operand is summed over j"
    assert "besides" in why.details and "views" in why.details and "\nBesides, " in str(why)
    assert explain(tensordot, a, b, ([1, 2], [0, 2])).staged == "the second operand is copied"
    assert explain(vdot, a, a.copy()).tier == explain(outer, a, b).tier == 3


def test_conjugation_needs_no_copy():
    a, b = operands([(40, 24), (40, 32)], np.complex64)
    why = explain(einsum, "ki,kj->ij", a, b, conjugate=0)
    assert why.staged is None and '"a":"m*"' in why.workload and explain(vdot, a, a).staged is None
    # The result's last axis is one of the first operand: the operands are exchanged, with their flags.
    assert '"b":"n*"' in explain(einsum, "ki,kj->ji", a, b, conjugate=0).workload
    three = einsum("ki,kj,jl->il", a, b, b.T.copy(), conjugate=(0, 2), optimize="greedy")
    np.testing.assert_allclose(three, a.conj().T @ b @ b.T.conj(), rtol=1e-4, atol=1e-3)


def test_results_overlap_operands():
    memory, y = np.zeros(40), operands([(5, 6)], np.float64)[0]
    memory[:20] = operands([(20,)], np.float64)[0]
    before, out = memory[:20].reshape(4, 5).copy(), memory[8:32].reshape(4, 6)
    dot(memory[:20].reshape(4, 5), y, out)
    close(out, "ab,bc->ac", (before, y))
    x, y, out = operands([(8, 8), (8, 8), (8, 8)], np.float64)
    wanted = x @ y + out
    np.testing.assert_allclose(matmul(x, y, out, add=out), wanted, rtol=1e-12)
    wanted = x @ y + out[:1]
    np.testing.assert_allclose(matmul(x, y, out, add=out[:1]), wanted, rtol=1e-12)


# ---- paths, forms and dtypes


def test_paths():
    arrays = operands([(3, 4), (4, 5), (5, 6), (6, 2)], np.float64)
    text = "ij,jk,kl,lm->mi"
    path = np.einsum_path(text, *arrays, optimize="optimal")[0]
    explicit = ([(0, 1), (0, 1), (0, 1)], [(1, 2, 3), (0, 1)], [(0, 3)], [(0,), (1, 2)])
    for optimize in (False, True, "greedy", ("optimal", 1000), path, *(["einsum_path", *each] for each in explicit)):
        close(einsum(text, *arrays, optimize=optimize), text, arrays)
    why = explain(einsum, text, *arrays, optimize=path)
    assert len(why.steps) == 3 and all(step.tier == 3 for step in why.steps) and "step 3" in why.details


def test_sublists_and_lists():
    a, b = operands([(2, 3, 4), (4, 3, 5)], np.float64)
    for arguments in [(a, [0, 1, 2], b, [2, 1, 3]), (a, [0, 1, 2], b, [2, 1, 3], [3, 0])]:
        np.testing.assert_allclose(einsum(*arguments), np.einsum(*arguments), rtol=1e-12)
    close(einsum(a, [..., 0], b, [0, 1, 2], [..., 2, 1]), "abc,cde->abed", (a, b))
    np.testing.assert_array_equal(einsum("ij,j", [[1.0, 2.0]], [1.0, 3.0]), [7.0])
    np.testing.assert_array_equal(einsum(np.eye(3), [0, 0]), 3.0)


def test_a_sum_of_one_operand_stays_in_float32():
    big = [np.full((2, 100), 60000, np.float16), np.full((3, 2), 2**-20, np.float16)]  # in float16 it would be infinite
    close(einsum("ij,kl->ik", *big), "ij,kl->ik", big)


def test_repeated_calls_take_a_new_scalar_each():
    a = np.ones((4, 4), np.complex64)
    for alpha in (0.5, 2.0, 0.5 + 1j, np.complex64(1j), 1.5):
        np.testing.assert_allclose(matmul(a, a, alpha=alpha), alpha * (a @ a))


def written_call(seed):
    """(subscripts, operands) with ellipses, axes of one element and mistakes."""
    draw = Draw(seed)
    sizes = {letter: draw.pick([1, 2, 3, 4]) for letter in "abcXY"}

    def operand():
        part = [draw.pick("abcXY") for _ in range(draw.pick(range(5)))]
        shape = [sizes[letter] if draw.often(0.9) else 1 for letter in part]
        if draw.often(1 / 3):
            where = draw.pick(range(len(part) + 1))
            shape[where:where] = [draw.pick([1, extent]) for extent in (2, 3)[draw.pick(range(3)) :]]
            part.insert(where, "...")
        form = draw.pick([form for form in FORMS if form != "broadcast"])
        return "".join(part), draw.lay_out(np.asarray(draw.rng.standard_normal(shape)), form)

    parts, arrays = zip(*(operand() for _ in range(draw.pick([1, 2, 2, 2, 3, 3, 4]))), strict=True)
    text = ",".join(parts)
    if draw.often(3 / 4):
        letters = list(draw.rng.permutation(sorted({*text} - {*".,"})))[: draw.pick(range(6))]
        if "..." in text and draw.often(0.9):
            letters.insert(draw.pick(range(len(letters) + 1)), "...")
        text += "->" + "".join(letters)
    return text, arrays


@settings(max_examples=300 if FULL else 20)
@given(st.integers(0, 2**32))
def test_any_subscripts_mean_what_they_mean_to_numpy(seed):
    """NumPy's result for any number of operands, or a ValueError where NumPy raises one."""
    text, arrays = written_call(seed)
    try:
        shape = np.einsum(text, *arrays).shape
    except ValueError:
        for function in (einsum, lambda *each: explain(einsum, *each)):
            with pytest.raises(ValueError, match=r"einstein sum|could not be broadcast|collapsing index"):
                function(text, *arrays)
        return
    for optimize in (False, "greedy"):
        result = np.asarray(einsum(text, *arrays, optimize=optimize))
        assert result.shape == shape
        close(result, text, arrays)


def test_operands_that_have_no_buffer():
    """NumPy exports none of bfloat16, by whose address calls of CuPy arrays are known."""
    a = np.ones((4, 4), array_dtype("bfloat16"))
    with emulated("sm_87"):
        for found in (einsum("ij,jk->ik", a, a), dot(a, a), inner(a, a), tensordot(a, a, 1)):
            assert found.dtype == a.dtype and (found == 4).all()
