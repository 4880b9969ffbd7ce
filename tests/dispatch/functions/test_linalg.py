"""tensordot, dot, vdot, inner, outer and linear inside `emulated(...)`: kernels on a CPU, against NumPy in float64."""

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels import dot, explain, inner, linear, outer, tensordot, vdot
from tests.dispatch.einsum_cases import agrees

#: (function, shapes, further arguments, the same as subscripts)
PRODUCTS = [
    (tensordot, [(2, 3, 4), (3, 4, 5)], (), "abc,bcd->ad"),
    (tensordot, [(2, 3, 4), (4, 3, 5)], (([1, 2], [1, 0]),), "abc,cbd->ad"),
    (tensordot, [(2, 3, 4), (4, 3, 5)], (([-1], [0]),), "abc,cde->abde"),
    (tensordot, [(2, 3, 4), (4, 3, 5)], ((2, 0),), "abc,cde->abde"),
    (tensordot, [(2, 3, 4), (4, 3, 5)], ([[np.int64(2)], (0,)],), "abc,cde->abde"),
    (tensordot, [(2, 3), (4, 5)], (0,), "ab,cd->abcd"),
    (tensordot, [(), (4, 5)], (0,), ",cd->cd"),
    (tensordot, [(2, 0), (0, 5)], (1,), "ab,bc->ac"),
    (dot, [(4, 5), (5, 6)], (), "ab,bc->ac"),
    (dot, [(5,), (5,)], (), "a,a->"),
    (dot, [(4, 5), (5,)], (), "ab,b->a"),
    (dot, [(5,), (5, 4)], (), "a,ab->b"),
    (dot, [(2, 4, 5), (5, 6)], (), "abc,cd->abd"),
    (dot, [(2, 4, 5), (3, 5, 6)], (), "abc,dce->abde"),
    (dot, [(), (4, 5)], (), ",ab->ab"),
    (dot, [(4, 5), ()], (), "ab,->ab"),
    (inner, [(5,), (5,)], (), "a,a->"),
    (inner, [(4, 5), (6, 5)], (), "ab,cb->ac"),
    (inner, [(2, 4, 5), (3, 5)], (), "abc,dc->abd"),
    (inner, [(4, 5), ()], (), "ab,->ab"),
    (vdot, [(7,), (7,)], (), "a,a->"),
    (vdot, [(4, 5), (4, 5)], (), "ab,ab->"),
    (outer, [(4,), (5,)], (), "a,b->ab"),
]


def operands(shapes, dtype=np.float64):
    rng = np.random.default_rng(8)
    return [np.asarray(rng.standard_normal(shape), dtype) for shape in shapes]


@pytest.mark.parametrize(("function", "shapes", "more", "text"), PRODUCTS)
def test_products_agree_with_numpy(function, shapes, more, text, emulated):
    a, b = operands(shapes)
    found = function(a, b, *more)
    assert found.shape == np.asarray(getattr(np, function.__name__)(a, b, *more)).shape
    assert agrees(found, text, (a, b)).ok
    why = explain(function, a, b, *more)
    assert why.tier == (0 if 0 in a.shape else 3) and bool(why.staged) == (text == "abc,cbd->ad")


def test_vectors_of_any_shape(emulated):
    a, b = operands([(4, 5), (5, 4)])
    assert agrees(vdot(a, b), "a,a->", (a.ravel(), b.ravel())).ok
    assert agrees(vdot(a.T, b), "ab,ab->", (a.T, b)).ok
    assert agrees(outer(a.T, b), "a,b->ab", (a.T.ravel(), b.ravel())).ok
    assert explain(vdot, a, b).tier == explain(outer, a, b).tier == 3


def test_results_are_written_where_they_are_asked_for(emulated):
    a, b = operands([(2, 4, 5), (3, 5, 6)])
    for out in (np.zeros((2, 4, 3, 6)), np.zeros((6, 3, 4, 2)).T, np.zeros((2, 4, 3, 12))[..., ::2]):
        assert dot(a, b, out) is out and agrees(out, "abc,dce->abde", (a, b)).ok
    memory = np.zeros(40)
    memory[:20] = a.ravel()[:20]
    x, y = memory[:20].reshape(4, 5), b[0]
    before = x.copy()
    dot(x, y, memory[8:32].reshape(4, 6))  # overlaps x
    assert agrees(memory[8:32].reshape(4, 6), "ab,bc->ac", (before, y)).ok
    out = np.zeros((4, 5))
    assert outer(x[:, 0].copy(), y[:, 0].copy(), out=out) is out and out.any()
    for wrong in (np.zeros((4, 4)), np.zeros((4, 6), np.float32)):
        with pytest.raises(ValueError, match="out is"):
            dot(before, y, wrong)


def test_linear(emulated):
    x, w, bias = operands([(2, 3, 8), (5, 8), (5,)], np.float32)
    found = linear(x, w, bias, activation="relu")
    np.testing.assert_array_equal(found > 0, found != 0)
    assert found.shape == (2, 3, 5) and agrees(linear(x, w), "abc,dc->abd", (x, w)).ok
    plain = gensor_kernels.matmul(x, w.T, bias=bias, activation="relu")
    np.testing.assert_array_equal(found, plain)
    assert linear(x[0, 0], w).shape == (5,) and linear(x, w[0]).shape == (2, 3)
    assert (
        explain(linear, x, w, bias, "relu").workload
        == explain(gensor_kernels.matmul, x, w.T, bias=bias, activation="relu").workload
    )
    for call in (linear, lambda *each, **more: explain(linear, *each, **more)):
        with pytest.raises(ValueError, match=r"x is \(..., in\) and w \(out, in\)"):
            call(x, w[:, :7])
        with pytest.raises(ValueError, match="linear: w has the shape"):
            call(x, x)
        with pytest.raises(ValueError, match="activation must be one of"):
            call(x, w, activation="swish")
        with pytest.raises(TypeError, match="must be a numpy array, not list"):
            call(x, [1.0])
        with pytest.raises(TypeError, match="bias must be a numpy array"):
            call(x, w, 1.0)


WRONG = [
    (tensordot, [(2, 3), (4, 5)], (1,), ValueError, "shape-mismatch for sum"),
    (tensordot, [(2, 3), (3, 5)], (([1], [0, 1]),), ValueError, "shape-mismatch for sum"),
    (tensordot, [(3, 3), (3, 3)], (([1, 1], [0, 1]),), ValueError, "summed over twice"),
    (tensordot, [(2, 3), (3, 5)], (([5], [0]),), np.exceptions.AxisError, "axis 5 is out of bounds"),
    (tensordot, [(2, 3), (3, 5)], ((1, 0, 0),), ValueError, "a pair of axes"),
    (dot, [(2, 3), (4, 5)], (), ValueError, r"shapes \(2, 3\) and \(4, 5\) not aligned: 3 \(dim 1\) != 4 \(dim 0\)"),
    (dot, [(2, 3), (1, 5)], (), ValueError, "not aligned"),
    (inner, [(2, 3), (4, 5)], (), ValueError, "not aligned"),
    (vdot, [(2, 3), (4, 5)], (), ValueError, "vectors of sizes 6 and 20"),
]


@pytest.mark.parametrize(("function", "shapes", "more", "error", "words"), WRONG)
def test_what_does_not_fit(function, shapes, more, error, words, emulated):
    a, b = operands(shapes)
    for call in (function, lambda *each: explain(function, *each)):
        with pytest.raises(error, match=words):
            call(a, b, *more)


@pytest.mark.parametrize("function", [tensordot, dot, inner, vdot, outer])
def test_operands_that_are_no_arrays(function, emulated):
    a = np.eye(3)
    for call in (function, lambda *each: explain(function, *each)):
        with pytest.raises(TypeError, match="b must be a numpy array, not list"):
            call(a, [[1.0]])
