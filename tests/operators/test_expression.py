"""Operators as declarations: each is a few lines, evaluated against independent NumPy code."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gensor_kernels.operators.expression.combiners import COMBINERS
from gensor_kernels.operators.expression.contraction import contraction
from gensor_kernels.operators.expression.evaluate import evaluate
from gensor_kernels.operators.expression.expression import (
    ARGMAX,
    MAX,
    SUM,
    Axis,
    Expression,
    ExpressionError,
    axes,
    conjugate,
    exp,
    index,
    result,
    sqrt,
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


m, n, k = axes("m n k")


def by_index(view, arrays, sizes):
    """C from the view alone: elements at its indices, np.matmul over (batch, M, K) and (batch, K, N)."""
    gathered, extents = {}, view.extents(sizes)
    for operand, groups in {"a": ("batch", "m", "k"), "b": ("batch", "k", "n")}.items():
        array, access = arrays[operand], getattr(view, operand)
        grid = [axis for group in groups for axis in getattr(view, group)]
        shape = [a.size(sizes) for a in grid]
        places = dict(zip([a.name for a in grid], np.indices(shape), strict=True))
        indices = [np.broadcast_to(each.value(places), shape) for each in access.indices]
        inside = np.ones(shape, bool)
        for place, extent in zip(indices, array.shape, strict=True):
            inside &= (place >= 0) & (place < extent)
        values = np.where(inside, array[tuple(np.where(inside, place, 0) for place in indices)], 0)
        values = np.conj(values) if access.conjugated else values
        gathered[operand] = values.reshape([extents[group] for group in groups])
    product = gathered["a"] @ gathered["b"]
    order = [*view.batch, *view.m, *view.n]
    out = product.reshape([axis.size(sizes) for axis in order])
    output = [each.axes[0] for each in view.c.indices]
    return out.transpose([order.index(axis) for axis in output])


# -- contractions --------------------------------------------------------------------------------------


def einsum(text):
    """Return the expression of an einsum of operands a, b, c ..., its axes named by single letters."""
    left, _, out = text.partition("->")
    axis = {letter: Axis(letter) for letter in left if letter != ","}
    reads = []
    for name, part in zip("abc", left.split(","), strict=False):
        own = tuple(axis[letter] for letter in part)
        reads.append(tensor(name, *own)[own])
    return Expression("out", tuple(axis[letter] for letter in out), math.prod(reads[1:], start=reads[0]), SUM)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_any_einsum_of_two_operands(data):
    """Letters shared, summed, repeated and alone, in any order: declaration, view and NumPy agree."""
    letters = st.text("ijklm", max_size=4)
    left, right = data.draw(letters), data.draw(letters.filter(bool))
    known = sorted(set(left + right))
    out = "".join(data.draw(st.permutations(known))[: data.draw(st.integers(0, len(known) - 1))])
    sizes = {letter: data.draw(st.integers(1, 4)) for letter in known}
    arrays = {name: RNG.standard_normal([sizes[c] for c in part]) for name, part in (("a", left), ("b", right))}
    declaration = einsum(f"{left},{right}->{out}")
    expected = np.einsum(f"{left},{right}->{out}", *arrays.values())
    close(evaluate(declaration, arrays, block_points=data.draw(st.sampled_from([7, 1 << 17]))), expected)
    close(by_index(contraction(declaration), arrays, sizes), expected)


def test_einsum_of_three_operands_and_conjugation():
    arrays = {name: RNG.standard_normal(s) for name, s in (("a", (3, 4)), ("b", (4, 5)), ("c", (5, 2)))}
    close(evaluate(einsum("ij,jk,kl->il"), arrays), arrays["a"] @ arrays["b"] @ arrays["c"])
    assert contraction(einsum("ij,jk,kl->il")) is None
    z, y = tensor("z", k, m), tensor("y", k, n)
    declaration = Expression("c", (m, n), conjugate(z[k, m]) * y[k, n], SUM)
    values = {name: RNG.standard_normal((5, 4)) + 1j * RNG.standard_normal((5, 4)) for name in "zy"}
    expected = values["z"].conj().T @ values["y"]
    close(evaluate(declaration, values), expected)
    view = contraction(declaration)
    close(by_index(view, {"a": values["z"], "b": values["y"]}, {"m": 4, "n": 4, "k": 5}), expected)


def test_what_is_no_contraction():
    a, c = tensor("a", m, k), tensor("b", k, n)
    assert contraction(Expression("c", (m, n), a[m, k] + c[k, n], SUM)) is None
    assert contraction(Expression("c", (m, n), a[m, k] * c[k, n], MAX)) is None
    assert contraction(Expression("c", (m, n), exp(a[m, k]) * c[k, n], SUM)) is None
    assert contraction(Expression("c", (m, n), a.pad(1.0)[m, k] * c[k, n], SUM)) is None
    assert contraction(Expression("c", (m, n), a[m, k] * c[k, n], SUM, map=sqrt(result()))) is None
