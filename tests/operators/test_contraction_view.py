"""Convolutions, pooling and einsum: declarations, and the matrix multiplication the kernels see in them."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gensor_kernels.operators.expression.contraction import contraction
from gensor_kernels.operators.expression.evaluate import evaluate
from gensor_kernels.operators.expression.expression import (
    MAX,
    SUM,
    Axis,
    Expression,
    axes,
    conjugate,
    exp,
    result,
    sqrt,
    tensor,
)
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.types.epilogue import Step
from gensor_kernels.operators.windows import conv
from tests.families.verified import convolved

RNG = np.random.default_rng(0)
m, n, k = axes("m n k")


def close(actual, expected, tolerance=1e-12):
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


# -- windows -------------------------------------------------------------------------------------------


def test_conv2d_as_a_contraction():
    """The indices of the view give the convolution by plain matrix multiplication."""
    sizes = {"n": 2, "h": 9, "w": 8, "c": 6, "k_out": 8, "r": 3, "s": 2}
    steps = {"stride_h": 2, "pad_top": 1, "pad_left": 2, "pad_right": 1, "dilation_w": 2, "groups": 2}
    view = contraction(conv.declare(**conv.DEFAULTS | steps))
    image, f = RNG.standard_normal((2, 9, 8, 2, 3)), RNG.standard_normal((2, 4, 3, 2, 3))
    names = {group: [axis.name for axis in getattr(view, group)] for group in ("batch", "m", "n", "k")}
    assert names == {"batch": ["g"], "m": ["n", "oh", "ow"], "n": ["kg"], "k": ["r", "s", "cg"]}
    assert view.extents(sizes) == {"batch": 2, "m": 2 * 4 * 9, "n": 4, "k": 3 * 2 * 3}
    x, w = image.transpose(0, 3, 4, 1, 2).reshape(2, 6, 9, 8), f.reshape(8, 3, 2, 3).transpose(0, 3, 1, 2)
    wanted = convolved(x, w, stride=(2, 1), pads=((1, 0), (2, 1)), dilation=(1, 2), groups=2)
    found = by_index(view, {"a": image, "b": f}, sizes)
    close(found.reshape(2, 4, 9, 8).transpose(0, 3, 1, 2), wanted)


def by_index(view, arrays, sizes):
    """C from the view alone: elements at its indices, np.matmul over (batch, M, K) and (batch, K, N)."""
    gathered, extents = {}, view.extents(sizes)
    for operand, groups in {"a": ("batch", "m", "k"), "b": ("batch", "k", "n")}.items():
        array, access = arrays[operand], getattr(view, operand)
        grid = [axis for group in groups for axis in getattr(view, group)]
        shape = [a.size(sizes) for a in grid]
        places = dict(zip([a.name for a in grid], np.indices(shape), strict=True))
        indices = [np.broadcast_to(index.value(places), shape) for index in access.indices]
        inside = np.ones(shape, bool)
        for index, extent in zip(indices, array.shape, strict=True):
            inside &= (index >= 0) & (index < extent)
        values = np.where(inside, array[tuple(np.where(inside, index, 0) for index in indices)], 0)
        values = np.conj(values) if access.conjugated else values
        gathered[operand] = values.reshape([extents[group] for group in groups])
    product = gathered["a"] @ gathered["b"]
    order = [*view.batch, *view.m, *view.n]
    out = product.reshape([axis.size(sizes) for axis in order])
    output = [index.axes[0] for index in view.c.indices]
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


def test_batched_matmul_view_is_what_the_kernels_take():
    view = contraction(matmul.declare())
    sizes = {"batch": 3, "m": 4, "n": 5, "k": 6}
    assert view.extents(sizes) == sizes
    groups = (view.batch, view.m, view.n, view.k)
    assert [[view.a.stride(axis, (24, 1, 4)) for axis in group] for group in groups] == [[24], [1], [0], [4]]
    a, c = RNG.standard_normal((3, 4, 6)), RNG.standard_normal((3, 6, 5))
    close(by_index(view, {"a": a, "b": c}, sizes), a @ c)


def test_what_is_no_contraction():
    a, c = tensor("a", m, k), tensor("b", k, n)
    assert contraction(Expression("c", (m, n), a[m, k] + c[k, n], SUM)) is None
    assert contraction(Expression("c", (m, n), a[m, k] * c[k, n], MAX)) is None
    assert contraction(Expression("c", (m, n), exp(a[m, k]) * c[k, n], SUM)) is None
    assert contraction(Expression("c", (m, n), a.pad(1.0)[m, k] * c[k, n], SUM)) is None
    assert contraction(Expression("c", (m, n), a[m, k] * c[k, n], SUM, map=sqrt(result()))) is None


def test_matmul_reference_agrees_with_its_declaration():
    a, c = RNG.standard_normal((3, 17, 40)), RNG.standard_normal((3, 40, 11))
    steps = [Step("scale", scalar=0.5), Step("bias", RNG.standard_normal(11)), Step("gelu")]
    declared = matmul.OPERATOR.reference({"a": a, "b": c}, steps=steps)
    close(declared, matmul.reference(a, c, steps))
    w = matmul.workload(17, 11, 40, batch=3)
    assert matmul.OPERATOR.stages(w.size)[0].operations(w.size) == w.flops() == 2 * 3 * 17 * 11 * 40
