"""The strides of Params reproduce the product for any layout of the arrays."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gensor_kernels.dispatch.calls import problem
from gensor_kernels.dispatch.calls.arguments import Operation
from gensor_kernels.operators.types.epilogue import OPERATIONS
from tests.public_cases.drawing import FORMS, Draw


def evaluate(found, arrays, steps):
    """Compute the contraction from the memory of its arrays, with the strides that kernels would use."""
    a, b, c = (arrays[1], arrays[0], arrays[2]) if found.geometry.swapped else arrays[:3]
    m, n, k = found.geometry.sizes

    def at(array, where, shape):
        size = array.itemsize
        strides = [s * size for s in (*where.batch, where.row, where.column)]
        return np.lib.stride_tricks.as_strided(array, (*found.geometry.batch, *shape), strides)

    value = np.einsum("xyzij,xyzjk->xyzik", at(a, found.geometry.a, (m, k)), at(b, found.geometry.b, (k, n)))
    for step, where, operand in zip(steps, found.operands, arrays[3:], strict=True):
        x = None if where is None else at(operand, where, (m, n))
        value = OPERATIONS[step.name].function(value, x, step.scalar)
    at(c, found.geometry.c, (m, n))[...] = value


def drawn_call(seed):
    """(a, b, out, steps) in any layout, with up to four axes of a batch."""
    draw = Draw(seed)

    def array(shape):
        return draw.lay_out(draw.rng.integers(-4, 5, shape).astype(float), draw.pick(FORMS))

    def broadcast(shape):
        return [1 if draw.often(0.25) else extent for extent in shape]

    m, n, k, *lead = (draw.pick([1, 1, 2, 3, 5]) for _ in range(3 + draw.pick(range(5))))
    a, b = (
        array(draw.pick([(k,), (*broadcast(lead[draw.pick(range(len(lead) + 1)) :]), *shape)]))
        for shape in ((m, k), (k, n))
    )
    shape = np.matmul(a, b).shape
    steps = []
    for name in draw.rng.permutation(["bias", "mul", "scale", "mask"])[: draw.pick(range(4))]:
        operand = broadcast(shape)[draw.pick(range(len(shape) + 1)) :]
        steps.append(Operation(str(name), *((None, 3.0) if name == "scale" else (array(operand), -2.0))))
    order = draw.rng.permutation(len(shape))
    out = np.zeros([shape[axis] for axis in order]).transpose(np.argsort(order)) if shape else np.zeros(())
    return a, b, out, tuple(steps)


@given(st.integers(0, 2**32))
def test_strides_reproduce_the_product(seed):
    a, b, out, steps = drawn_call(seed)

    def view(array):
        return problem.view_of(array, array.ctypes.data)

    operands = [None if s.operand is None else view(s.operand) for s in steps]
    try:
        found = problem.multiply(view(a), view(b), view(out), operands, [s.name for s in steps], "ieee")
    except problem.TooManyAxesError:
        assert out.ndim - (a.ndim > 1) - (b.ndim > 1) > problem.BATCH_AXES
        return
    w = found.workload
    assert (w.size["m"], w.size["n"], w.size["k"]) == found.geometry.sizes
    assert w.size["batch"] == np.prod(found.geometry.batch)
    evaluate(found, [a, b, out, *(s.operand for s in steps)], steps)
    expected = np.matmul(a, b)
    for step in steps:
        expected = OPERATIONS[step.name].function(expected, step.operand, step.scalar)
    np.testing.assert_array_equal(out, expected)


def test_batches_become_rows_or_columns():
    def geometry(a, b, order="C"):
        a, b = np.zeros(a), np.zeros(b)
        c = np.zeros(np.matmul(a, b).shape, order=order)
        found = problem.multiply(*(problem.view_of(x, x.ctypes.data) for x in (a, b, c)), [], (), "ieee")
        return found.geometry.sizes, found.geometry.batch, found.geometry.swapped

    assert geometry((8, 2, 3), (3, 5)) == ((16, 5, 3), (1, 1, 1), False)
    assert geometry((2, 3), (8, 3, 1))[:2] == ((8, 2, 3), (1, 1, 1))  # 8 vectors: C^T is (8, 2)
    assert geometry((8, 2, 3), (8, 3, 5)) == ((2, 5, 3), (1, 1, 8), False)
    assert geometry((4, 8, 2, 3), (8, 3, 5)) == ((2, 5, 3), (1, 4, 8), False)
    assert geometry((32, 16), (16, 48), "F") == ((48, 32, 16), (1, 1, 1), True)  # computed transposed
