"""einsum inside `emulated(...)`: kernels on a CPU, against NumPy in float64."""

import numpy as np
import pytest
from hypothesis import settings

from gensor_kernels import UnsupportedError, einsum, explain
from gensor_kernels.dispatch.functions.base import Copy
from gensor_kernels.dispatch.functions.contraction import Gathered
from tests.dispatch.einsum_cases import OTHERS, PAIRS, agrees, expected, laid_out
from tests.dispatch.emulated_calls import BFLOAT16
from tests.doubles.stored import SIMT

pytestmark = pytest.mark.usefixtures("kernels", "emulated")

EXAMPLES = max(200, settings.default.max_examples)
#: Few classes, so that a run builds few libraries: one for any strides, and one with vectors.
CLASSES = {
    "sm_87": {
        (inputs, result, "ieee"): [("sss", False, SIMT, False), ("knn", True, SIMT, False)]
        for inputs, result in [
            ("float64", "float64"),
            ("float32", "float32"),
            ("float16", "float16"),
            ("float16", "float32"),
            ("bfloat16", "bfloat16"),
            ("int8", "int8"),
            ("int8", "int32"),
        ]
    }
}


def operands(shapes, dtype=np.float32, seed=3):
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.standard_normal(shape), dtype) for shape in shapes]


@pytest.mark.parametrize(("text", "shapes"), [(text, shapes) for text, *shapes in PAIRS])
def test_two_operands(text, shapes, kernels):
    for forms in [("C", "C"), ("F", "negative"), ("stepped", "F")]:
        a, b = (laid_out(each, form) for each, form in zip(operands(shapes), forms, strict=True))
        found, why = einsum(text, a, b), explain(einsum, text, a, b)
        assert found.dtype == np.float32
        verdict = agrees(found, text, (a, b))
        assert verdict.ok, f"{forms}: {verdict.message}\n{why}"
        assert why.tier == 0 if 0 in (*a.shape, *b.shape) else why.kernel in kernels


@pytest.mark.parametrize(("text", "shapes"), [(text, shapes) for text, *shapes in OTHERS])
def test_other_numbers_of_operands(text, shapes):
    arrays = operands(shapes, np.float64)
    for optimize in (False, True, "greedy", "optimal", ("optimal", 1000)):
        verdict = agrees(einsum(text, *arrays, optimize=optimize), text, arrays)
        assert verdict.ok, f"{optimize}: {verdict.message}"


#: Contractions that must be served as they lie: (subscripts, shapes).
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


@pytest.mark.parametrize(("text", "shapes"), [(text, shapes) for text, *shapes in WITHOUT_COPIES])
def test_served_without_a_copy(text, shapes, monkeypatch):
    a, b = operands(shapes)

    def staging(*_):
        raise AssertionError("an operand was copied")

    with monkeypatch.context() as patch:
        patch.setattr(Gathered, "made", staging)
        patch.setattr(Copy, "made", staging)
        found = einsum(text, a, b)
        with pytest.raises(AssertionError, match="was copied"):  # the two ways there are to copy
            einsum("ikl,kjl->ij", *operands([(4, 5, 3), (5, 6, 3)]))
    why = explain(einsum, text, a, b)
    assert why.staged is None and why.tier == 3 and "of strides" in why.views
    assert agrees(found, text, (a, b)).ok
    # Where n is one axis in b but not in the order asked for, the product keeps it whole.
    assert found.flags.c_contiguous == (text != "btm,mhd->bhtd")


def test_what_needs_a_copy_says_so():
    a, b = operands([(4, 5, 3), (5, 6, 3)])
    why = explain(einsum, "ikl,kjl->ij", a, b)
    assert why.staged == "the second operand is copied" and "(5, 6, 3)" not in why.views
    why = explain(einsum, "ikl,kjl->ij", a[:, ::2], b[::2])
    assert why.staged == "the first operand is copied; the second operand is copied"
    why = explain(einsum, "ij,k->ik", a[0], b[0, :, 0])
    assert why.staged == "the first operand is summed over j"
    assert "before" in why.details and "views" in why.details and "\nBefore it, " in str(why)


def test_dtypes():
    rng = np.random.default_rng(6)
    small = [rng.integers(-128, 128, shape, np.int8) for shape in [(7, 90), (90, 6)]]
    for text, *shapes in [("ij,jk", (7, 90), (90, 6)), ("ij,ij->i", (7, 90), (7, 90)), ("ij,k->ik", (7, 90), (6,))]:
        whole = [rng.integers(-128, 128, shape, np.int8) for shape in shapes]
        np.testing.assert_array_equal(einsum(text, *whole), np.einsum(text, *whole))
    np.testing.assert_array_equal(einsum("ij,jk", *small, dtype=np.int32), np.einsum("ij,jk", *small, dtype=np.int32))
    whole = [each.astype(np.int8) for each in (small[0], small[1], small[0])]
    np.testing.assert_array_equal(einsum("ij,jk,lj", *whole), np.einsum("ij,jk,lj", *whole))
    for dtype in (np.float16, BFLOAT16):
        arrays = operands([(7, 90), (90, 6)], dtype)
        found = einsum("ij,jk->ki", *arrays)
        assert found.dtype == dtype and agrees(found, "ij,jk->ki", arrays).ok
        found = einsum("ij,kl->ik", *arrays)  # sums of one operand stay in float32
        assert found.dtype == dtype and agrees(found, "ij,kl->ik", arrays).ok
    half = operands([(7, 90), (90, 6)], np.float16)
    wide = einsum("ij,jk", *half, dtype=np.float32)
    assert wide.dtype == np.float32 and agrees(wide, "ij,jk", half, "float32").ok
    brain = operands([(7, 90)], BFLOAT16)
    assert einsum("ij->i", *brain).dtype == BFLOAT16 and agrees(einsum("ij->i", *brain), "ij->i", brain).ok
    single = [half[0], half[1].astype(np.float32)]
    assert einsum("ij,jk", *single).dtype == np.float32
    big = [np.full((2, 100), 60000, np.float16), np.full((3, 2), 2**-20, np.float16)]
    assert agrees(einsum("ij,kl->ik", *big), "ij,kl->ik", big).ok  # the sum alone would be infinite


def test_nan_and_infinity_stay_where_they_belong():
    a, b = operands([(6, 7), (7, 5)])
    a[2, 3], b[4, 1], b[0, 0] = np.nan, np.inf, -np.inf
    assert agrees(einsum("ij,jk->ki", a, b), "ij,jk->ki", (a, b)).ok
    with np.errstate(invalid="ignore"):
        assert agrees(einsum("ij,i->i", a, a[:, 0]), "ij,i->i", (a, a[:, 0])).ok


def test_what_no_kernel_serves_raises():
    a = np.zeros((3, 3), np.uint16)
    with pytest.raises(UnsupportedError, match="uint16"):
        einsum("ij,jk", a, a)
    with pytest.raises(UnsupportedError, match="int64"):
        einsum("ij,kl->ik", a.astype(np.int64), a.astype(np.int64))
    with pytest.raises(UnsupportedError, match="operands of float32"):
        einsum("ij,jk", a.astype(np.float32), a.astype(np.float32), dtype=np.int8)
    assert explain(einsum, "ij,jk", a, a).tier == 4
    assert explain(einsum, "ij->ji", a).reason.startswith("one operand")


def test_one_operand_is_a_view():
    a = np.arange(12.0).reshape(3, 4)
    assert np.shares_memory(einsum("ij->ji", a), a) and np.shares_memory(einsum("...", a), a)


def test_the_bound_is_tight_enough_to_notice():
    a, b = operands([(5, 64), (64, 6)])
    off = einsum("ij,jk", a, b).copy()
    assert agrees(off, "ij,jk", (a, b)).ok
    off[2, 3] *= 1 + 1e-4
    assert not agrees(off, "ij,jk", (a, b)).ok
    assert not agrees((a.astype(np.float16) @ b.astype(np.float16)).astype(np.float32), "ij,jk", (a, b)).ok
    assert expected("ij,jk", (a, b), "float32").values.shape == (5, 6)
