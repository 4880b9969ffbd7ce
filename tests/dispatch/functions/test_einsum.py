"""einsum, tensordot, dot, inner, vdot, outer, linear and define on the emulator: copies, paths, dtypes, refusals.

tests/public_cases draws calls of all of them.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gensor_kernels import (
    UnsupportedError,
    define,
    dot,
    einsum,
    emulated,
    explain,
    inner,
    linear,
    matmul,
    outer,
    tensordot,
    vdot,
)
from gensor_kernels.dispatch.functions.base import Copy
from gensor_kernels.dispatch.functions.contraction import StridedCopy
from gensor_kernels.operators.types.dtypes import array_dtype
from tests.campaign_size import FULL
from tests.dispatch.einsum_cases import agrees, expected, written_call
from tests.doubles.stored import SIMT, stock_classes

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
        assert agrees(result, text, (a, b)).ok, text
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
    with pytest.raises(ValueError, match="conjugate names operands 0 to 1"):
        einsum("ki,kj->ij", a, b, conjugate=2)


def test_results_overlap_operands():
    memory, y = np.zeros(40), operands([(5, 6)], np.float64)[0]
    memory[:20] = operands([(20,)], np.float64)[0]
    before, out = memory[:20].reshape(4, 5).copy(), memory[8:32].reshape(4, 6)
    dot(memory[:20].reshape(4, 5), y, out)
    assert agrees(out, "ab,bc->ac", (before, y)).ok


# ---- paths, forms and dtypes


def test_paths():
    arrays = operands([(3, 4), (4, 5), (5, 6), (6, 2)], np.float64)
    text = "ij,jk,kl,lm->mi"
    path = np.einsum_path(text, *arrays, optimize="optimal")[0]
    explicit = ([(0, 1), (0, 1), (0, 1)], [(1, 2, 3), (0, 1)], [(0, 3)], [(0,), (1, 2)])
    for optimize in (False, True, "greedy", ("optimal", 1000), path, *(["einsum_path", *each] for each in explicit)):
        assert agrees(einsum(text, *arrays, optimize=optimize), text, arrays).ok
    why = explain(einsum, text, *arrays, optimize=path)
    assert len(why.steps) == 3 and all(step.tier == 3 for step in why.steps) and "step 3" in why.details
    for optimize in ("best", ["greedy", "x"], 1, None, []):
        for call in (("ij,jk,kl", *arrays[:3]), ("ij,jk", *arrays[:2])):
            with pytest.raises(TypeError, match="Did not understand the path"):
                einsum(*call, optimize=optimize)
    with pytest.raises(ValueError, match="the path takes operands"):
        einsum("ij,jk,kl", *arrays[:3], optimize=["einsum_path", (0, 7)])


def test_sublists_and_lists():
    a, b = operands([(2, 3, 4), (4, 3, 5)], np.float64)
    for arguments in [(a, [0, 1, 2], b, [2, 1, 3]), (a, [0, 1, 2], b, [2, 1, 3], [3, 0])]:
        np.testing.assert_allclose(einsum(*arguments), np.einsum(*arguments), rtol=1e-12)
    assert agrees(einsum(a, [..., 0], b, [0, 1, 2], [..., 2, 1]), "abc,cde->abed", (a, b)).ok
    np.testing.assert_array_equal(einsum("ij,j", [[1.0, 2.0]], [1.0, 3.0]), [7.0])
    np.testing.assert_array_equal(einsum(np.eye(3), [0, 0]), 3.0)


def test_dtypes():
    half = operands([(7, 90), (90, 6)], np.float16)
    assert einsum("ij,jk", *half, dtype=np.float32).dtype == np.float32
    assert einsum("ij,jk", half[0], half[1].astype(np.float32)).dtype == np.float32
    assert einsum("ij,jk,lj", *(each.astype(np.int8) for each in (half[0], half[1], half[0]))).dtype == np.int8
    # A sum of one operand stays in float32: in float16 it would be infinite.
    big = [np.full((2, 100), 60000, np.float16), np.full((3, 2), 2**-20, np.float16)]
    assert agrees(einsum("ij,kl->ik", *big), "ij,kl->ik", big).ok
    a = np.zeros((3, 3), np.uint16)
    for text, x, dtype, words in (
        ("ij,jk", a, None, "uint16"),
        ("ij,kl->ik", a.astype(np.int64), None, "int64"),
        ("ij,jk", a.astype(np.float32), np.int8, "operands of float32"),
    ):
        with pytest.raises(UnsupportedError, match=words):
            einsum(text, x, x, dtype=dtype)
    assert explain(einsum, "ij,jk", a, a).tier == 4


def test_dtypes_of_complex_products():
    a, real = np.ones((4, 4), np.complex64), np.ones((4, 4), np.float32)
    for name in ("relu", "relu6", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid"):
        with pytest.raises(UnsupportedError, match=f"'{name}' is not defined for complex"):
            matmul(a, a, activation=name)
    for words, keywords in (
        ("bias takes no complex number where the result is float32", {"bias": a[:1]}),
        ("scale takes no complex number", {"alpha": 1j}),
        ("scale takes no complex number", {"alpha": 1j, "prologue": ["relu"]}),
        ("scale takes no complex number", {"alpha": 1j, "epilogue": ["layernorm"]}),
    ):
        for rows in (real, real[:0]):
            with pytest.raises(TypeError, match=words):
                matmul(rows, real, **keywords)
    with pytest.raises(TypeError, match="Cannot cast"):
        matmul(a, a, dtype=np.float32)
    for alpha in (0.5, 2.0, 0.5 + 1j, np.complex64(1j), 1.5):  # repeated calls take a new scalar each
        np.testing.assert_allclose(matmul(a, a, alpha=alpha), alpha * (a @ a))


# ---- subscripts and arguments that do not fit

WRONG = {
    "fewer operands": ("ij,jk", [(2, 3)], "fewer operands"),
    "more operands": ("ij", [(2, 3), (3, 4)], "more operands"),
    "too few letters": ("i,i", [(2, 3), (3,)], "has more dimensions than subscripts"),
    "too many letters": ("ijk,i", [(2, 3), (3,)], "too many subscripts for operand 0"),
    "extents": ("ij,jk", [(2, 3), (4, 5)], "could not be broadcast together"),
    "a diagonal": ("ii,i", [(2, 3), (2,)], "collapsing index 'i'"),
    "a diagonal of one element": ("ii,i", [(1, 3), (3,)], "collapsing index 'i'"),
    "an unknown output": ("ij,jk->z", [(2, 3), (3, 4)], "never appeared in an input"),
    "an output twice": ("ij,jk->ii", [(2, 3), (3, 4)], "multiple times"),
    "a digit": ("i1,jk", [(2, 3), (3, 4)], "invalid subscript '1'"),
    "a dot": ("i.j,jk", [(2, 3), (3, 4)], "not part of an ellipsis"),
    "two ellipses": ("......,jk", [(2, 3), (3, 4)], "not part of an ellipsis"),
    "half an arrow": ("ij,jk-ik", [(2, 3), (3, 4)], "does not contain proper '->'"),
    "two arrows": ("ij,jk->i->k", [(2, 3), (3, 4)], "does not contain proper '->'"),
    "an ellipsis the output lacks": ("...ij,jk->ik", [(2, 2, 3), (3, 4)], "output has more dimensions"),
    "three operands": ("ij,jk,kl", [(2, 3), (3, 4), (5, 6)], "could not be broadcast together"),
    "one operand": ("ij->k", [(2, 3)], "never appeared in an input"),
}


def test_wrong_subscripts_raise_as_in_numpy():
    for text, shapes, words in WRONG.values():
        arrays = operands(shapes)
        with pytest.raises(ValueError, match=r"."):
            np.einsum(text, *arrays)
        for call in (einsum, lambda *each: explain(einsum, *each)):
            with pytest.raises(ValueError, match=words):
                call(text, *arrays)
    a = np.eye(3)
    for error, words, arguments, keywords in (
        (ValueError, "must specify the einstein sum", (), {}),
        (ValueError, "valid range", (a, [0, 52]), {}),
        (TypeError, "either an integer or an ellipsis", (a, [0, "j"]), {}),
        (ValueError, "out is float64", ("ij,jk", a, a), {"out": np.eye(4)}),
    ):
        with pytest.raises(error, match=words):
            einsum(*arguments, **keywords)


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
        verdict = agrees(result, text, arrays)
        assert verdict.ok, f"{text}: {verdict.message}"


def test_the_bound_is_tight_enough_to_notice():
    a, b = operands([(5, 64), (64, 6)])
    off = einsum("ij,jk", a, b).copy()
    assert agrees(off, "ij,jk", (a, b)).ok
    off[2, 3] *= 1 + 1e-4
    assert not agrees(off, "ij,jk", (a, b)).ok
    assert not agrees((a.astype(np.float16) @ b.astype(np.float16)).astype(np.float32), "ij,jk", (a, b)).ok
    assert expected("ij,jk", (a, b), "float32").values.shape == (5, 6)


REFUSED = [
    (tensordot, [(2, 3), (4, 5)], (1,), ValueError, "shape-mismatch for sum"),
    (tensordot, [(2, 3), (3, 5)], (([1], [0, 1]),), ValueError, "shape-mismatch for sum"),
    (tensordot, [(3, 3), (3, 3)], (([1, 1], [0, 1]),), ValueError, "summed over twice"),
    (tensordot, [(2, 3), (3, 5)], (([5], [0]),), np.exceptions.AxisError, "axis 5 is out of bounds"),
    (tensordot, [(2, 3), (3, 5)], ((1, 0, 0),), ValueError, "a pair of axes"),
    (dot, [(2, 3), (4, 5)], (), ValueError, r"shapes \(2, 3\) and \(4, 5\) not aligned: 3 \(dim 1\) != 4 \(dim 0\)"),
    (dot, [(2, 3), (1, 5)], (), ValueError, "not aligned"),
    (inner, [(2, 3), (4, 5)], (), ValueError, "not aligned"),
    (vdot, [(2, 3), (4, 5)], (), ValueError, "vectors of sizes 6 and 20"),
    (linear, [(2, 8), (5, 7)], (), ValueError, r"x is \(..., in\) and w \(out, in\)"),
    (linear, [(2, 3, 8), (2, 3, 8)], (), ValueError, "linear: w has the shape"),
    (linear, [(2, 8), (5, 8)], (1.0,), TypeError, "bias must be a numpy array"),
]


def test_operands_that_do_not_fit():
    for function, shapes, more, error, words in REFUSED:
        for call in (function, lambda *each, f=function: explain(f, *each)):
            with pytest.raises(error, match=words):
                call(*operands(shapes), *more)


def test_definitions_that_are_refused():
    for arguments, words in (
        (("ij,jk",), "axes of the result"),
        (("ij,jk->il",), "the result's axes"),
        (("ij,jk->ik", ["swish"]), "'swish' is not one of"),
        (("ij,jk->ik", ["bias"]), "needs the axes"),
        (("ij,jk->ik", [("bias", "j")]), "some of the result's"),
        (("ij,jk->ik", ["scale"]), "takes a number"),
        (("ij,jk->ik", ["relu"] * 7), "at most 6"),
    ):
        with pytest.raises(ValueError, match=words):
            define(*arguments)
    function, a, b = define("ij,jk->ik", epilogue=[("bias", "k")]), np.zeros((2, 3)), np.zeros((3, 4))
    with pytest.raises(TypeError, match="takes 2 \\+ 1 arrays, 2 are given"):
        function(a, b)
    with pytest.raises(ValueError):
        function(a, b, np.zeros(5))
    assert function(a[:0], b, np.zeros(4)).shape == (0, 4)


def test_operands_that_have_no_buffer():
    """NumPy exports none of bfloat16, by whose address calls of CuPy arrays are known."""
    a = np.ones((4, 4), array_dtype("bfloat16"))
    with emulated("sm_87"):
        for found in (einsum("ij,jk->ik", a, a), dot(a, a), inner(a, a), tensordot(a, a, 1)):
            assert found.dtype == a.dtype and (found == 4).all()
