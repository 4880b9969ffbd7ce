"""Operators as declarations: each is a few lines, evaluated against independent NumPy code."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gensor_kernels.operators.expression.combiners import COMBINERS
from gensor_kernels.operators.expression.evaluate import evaluate
from gensor_kernels.operators.expression.expression import (
    ARGMAX,
    ARGMIN,
    LOGSUMEXP,
    MAX,
    SUM,
    Axis,
    Expression,
    ExpressionError,
    axes,
    exp,
    index,
    position,
    result,
    tensor,
    where,
)
from gensor_kernels.operators.types.epilogue import Step

RNG = np.random.default_rng(0)
i, j, n = axes("i j n")
x = tensor("x", i, j)
X = RNG.standard_normal((9, 23)) * 3
PRODUCT_OF_TWO = Expression("out", (i, n), tensor("a", i, j)[i, j] * tensor("b", j, n)[j, n], SUM)


def close(actual, expected, tolerance=1e-12):
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


# -- rows ----------------------------------------------------------------------------------------------


def rows():
    """name -> (declaration, independent NumPy); the operators of rows have the others (test_rows.py)."""
    shifted = np.exp(X - X.max(1, keepdims=True))
    softmax = Expression("y", (i, j), x[i, j], LOGSUMEXP, over=(j,),
                         map=exp(x[i, j] - result("max")) / result("sumexp"))  # fmt: skip
    return {
        "softmax": (softmax, shifted / shifted.sum(1, keepdims=True)),
        "logsumexp": (Expression("y", (i,), x[i, j], LOGSUMEXP), np.log(np.exp(X).sum(1))),
        "argmax": (Expression("y", (i,), (x[i, j], position()), ARGMAX), X.argmax(1)),
        "argmin of all": (Expression("y", (), (x[i, j], position()), ARGMIN), X.argmin()),
        "transpose": (Expression("y", (j, i), 2.0 * x[i, j] + 1), 2 * X.T + 1),
        "cumulative sum": (Expression("y", (i, Axis("t", j)), where(j <= Axis("t", j), x[i, j], 0.0), SUM),
                           X.cumsum(1)),
    }  # fmt: skip


@pytest.mark.parametrize("name", sorted(rows()))
def test_rows(name):
    declaration, expected = rows()[name]
    for block_points in (1 << 17, 64, 1):
        actual = evaluate(declaration, {"x": X}, block_points=block_points)
        assert actual.dtype == np.float64 and actual.shape == expected.shape
        close(actual, expected)


def test_softmax_needs_no_small_inputs_and_propagates_infinities():
    softmax = rows()["softmax"][0]
    close(evaluate(softmax, {"x": X + 1e4}), rows()["softmax"][1], 1e-9)
    logsumexp = rows()["logsumexp"][0]
    values = np.array([[1.0, -np.inf, 2.0], [-np.inf] * 3, [np.inf, 1.0, -np.inf], [np.nan, 1.0, 2.0]])
    with np.errstate(invalid="ignore"):
        expected = np.logaddexp.reduce(values, axis=1)
    np.testing.assert_allclose(evaluate(logsumexp, {"x": values}), expected, rtol=1e-14)


def test_argmax_takes_the_first_and_nan_first_of_all():
    argmax = rows()["argmax"][0]
    values = np.array([[1.0, 5, 5, 2], [np.nan, 9, np.nan, 1], [3, np.nan, 8, np.nan], [-np.inf] * 4])
    for block_points in (1 << 17, 1, 2):
        np.testing.assert_array_equal(evaluate(argmax, {"x": values}, block_points=block_points), values.argmax(1))


def test_empty_extents():
    empty = np.zeros((4, 0))
    np.testing.assert_array_equal(evaluate(Expression("y", (i,), x[i, j], SUM), {"x": empty}), np.zeros(4))
    np.testing.assert_array_equal(evaluate(Expression("y", (i,), x[i, j], MAX), {"x": empty}), np.full(4, -np.inf))
    assert evaluate(rows()["softmax"][0], {"x": empty}).shape == (4, 0)


# -- combiners are monoids -----------------------------------------------------------------------------

NUMBERS = st.one_of(st.floats(-50, 50), st.just(-math.inf))


@pytest.mark.parametrize("name", sorted(COMBINERS))
@given(data=st.data())
@settings(max_examples=60)
def test_combiners_are_commutative_monoids(name, data):
    """Any split of the terms gives the same result, empty parts included."""
    combiner = COMBINERS[name]
    numbers = st.floats(-50, 50) if name in ("welford", "sum", "product") else NUMBERS
    terms = data.draw(st.lists(st.tuples(numbers, st.floats(-9, 9)), min_size=1, max_size=9))
    with np.errstate(all="ignore"):
        states = []
        for place, (value, other) in enumerate(terms):
            second = float(place) if name.startswith("arg") else other
            inputs = (np.array(value), np.array(second))[: combiner.inputs]
            states.append(combiner.init(*inputs))
        identity = tuple(np.array(neutral) for neutral in combiner.identity)
        forwards = backwards = identity
        for state in states:
            forwards = combiner.combine(forwards, state)
        for state in states[::-1]:
            backwards = combiner.combine(state, backwards)
        cut = data.draw(st.integers(0, len(states)))
        left = right = identity
        for state in states[:cut]:
            left = combiner.combine(left, state)
        for state in states[cut:]:
            right = combiner.combine(state, right)
        for other in (backwards, combiner.combine(left, right), combiner.combine(right, left)):
            close(np.array(other), np.array(forwards), 1e-8)


@given(st.tuples(*[st.integers(-3, 3)] * 6), st.integers(1, 3), st.booleans())
@settings(max_examples=60, deadline=None)
def test_affine_reads_with_padding(c, divisor, exact):
    """Any index map, with quotients, against plain loops."""
    row = c[0] * i + c[1] * j + c[2]
    column = (c[3] * i + c[4] * j + c[5]).exactly(divisor) if exact else (c[3] * i + c[4] * j + c[5]) // divisor
    image = RNG.standard_normal((5, 4))
    declaration = Expression("y", (i, j), tensor("x", 5, 4).pad(-7.0)[row, column])
    expected = np.full((6, 5), -7.0)
    for p in range(6):
        for q in range(5):
            r, numerator = c[0] * p + c[1] * q + c[2], c[3] * p + c[4] * q + c[5]
            s = numerator // divisor
            if 0 <= r < 5 and 0 <= s < 4 and not (exact and numerator % divisor):
                expected[p, q] = image[r, s]
    np.testing.assert_array_equal(evaluate(declaration, {"x": image}, sizes={"i": 6, "j": 5}), expected)


# -- errors carry names and numbers --------------------------------------------------------------------

w = tensor("w", j, n)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda: x[i], r"x\(i, j\) has 2 axes, read with 1"),
        (lambda: Expression("y", (i,), x[i, j]), r"y reduces over \(j\) without a combiner"),
        (lambda: Expression("y", (i,), x[i, j], ARGMAX), "argmax combines 2 values, the body has 1"),
        (lambda: Expression("y", (i, j), x[i, j], SUM, over=(j,)), "axis j is reduced and an output axis"),
        (lambda: Expression("y", (i,), x[i, j], SUM, map=x[i, j]), "the map uses axis j"),
        (lambda: Expression("y", (i,), x[i, j], SUM, map=result("mean")), r"result\('mean'\) is not one of sum"),
        (lambda: Expression("y", (i,), x[i, j] * tensor("x", j)[j], SUM).tensors, "two different tensors called x"),
        (lambda: Expression("y", (i,), x[i, Axis("i", 3)], SUM), "two different axes called i"),
        (lambda: i * 0.5, r"\(i\) \* 0.5 is no integer combination"),
        (lambda: (i + 1) // 0, r"\(i \+ 1\) // 0: a divisor is at least 1"),
        (lambda: x[i, j] + i, "i is no value; index"),
        (lambda: where(x[i, j], 1.0), "where takes 3 arguments, 2 are given"),
        (lambda: evaluate(PRODUCT_OF_TWO, {"a": X, "b": X}), "axis j is 23 in axis 1 of a and 9 in axis 0 of b"),
        (lambda: evaluate(PRODUCT_OF_TWO, {"a": X}), "out reads b, which is not given"),
        (lambda: evaluate(PRODUCT_OF_TWO, {"a": X[0], "b": X}),
         r"a has the shape \(23,\), declared are the axes \(i, j\)"),
        (lambda: evaluate(Expression("y", (i,), x[i, j + 1], SUM), {"x": X}),
         r"x\[i, j \+ 1\] leaves its operand: index 1 takes 1..23 where x has 23"),
        (lambda: evaluate(Expression("y", (i, n), x[i, j], SUM), {"x": X}),
         r"axis n is not known \(known: i = 9, j = 23"),
        (lambda: evaluate(Expression("y", (Axis("o", i - 10),), x[Axis("o", i - 10), j], SUM), {"x": X}),
         "axis o has the extent i - 10 = -1"),
    ],
)  # fmt: skip
def test_mistakes_are_named(mistake, message):
    with pytest.raises(ExpressionError, match=message):
        mistake()


def test_derived_shapes_are_checked():
    doubled = tensor("p", Axis("t", 2 * i))
    declaration = Expression("y", (i,), tensor("q", i)[i] * doubled[2 * i])
    close(evaluate(declaration, {"q": np.arange(3.0), "p": np.arange(6.0)}), [0, 2, 8])
    with pytest.raises(ExpressionError, match=r"p has the shape \(5,\), expected is \(6,\)"):
        evaluate(declaration, {"q": np.arange(3.0), "p": np.arange(5.0)})


def test_an_epilogue_follows_the_last_stage():
    chain = (Expression("t", (i,), x[i, j], SUM), Expression("y", (i,), tensor("t", i)[i] * 2.0))
    close(evaluate(chain, {"x": X}, steps=[Step("relu")]), np.maximum(2 * X.sum(1), 0))
    assert evaluate(chain, {"x": X}, steps=[Step("cast")], output="float16").astype(np.float16).dtype == np.float16


def test_positions_are_numbers_too():
    close(evaluate(Expression("y", (i, j), x[i, j] + 10.0 * index(i) + index(2 * j - 1)), {"x": X}),
          X + 10 * np.arange(9)[:, None] + 2 * np.arange(23) - 1)  # fmt: skip
