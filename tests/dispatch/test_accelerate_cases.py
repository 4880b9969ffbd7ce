"""The functions that `accelerate` routes, planned for shapes, dtypes and strides of every kind, without a GPU.

Shapes and dtypes of results are NumPy's."""

import math
import sys
from functools import partial

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.build import nvrtc

cupy = pytest.importorskip("cupy")
from tests.campaign_size import FULL, sample  # noqa: E402
from tests.doubles.kernels import put, runtime_of  # noqa: E402
from tests.doubles.strict.stored import cubin  # noqa: E402

DTYPES = ("float16", "float32", "float64", "complex64", "complex128", "int8")
#: (function, arguments after the arrays, shapes): vectors, matrices, and stacks that broadcast.
CASES = [
    *(("matmul", (), shapes) for shapes in (
        ((2,), (2,)), ((2,), (2, 4)), ((3, 2), (2,)), ((65, 33), (33, 47)), ((1, 1), (1, 1)),
        ((3, 2), (5, 2, 4)), ((2, 1, 3, 2), (1, 4, 2, 5)), ((5, 3, 2), (2,)), ((256, 256, 3, 2), (2, 4)),
    )),
    *(("dot", (), shapes) for shapes in (((3,), (3,)), ((2, 4, 3), (3,)), ((2, 3, 4), (3, 4, 2)), ((2, 1), (1, 3)))),
    ("tensordot", (2,), ((2, 3, 4), (3, 4, 5))),
    ("tensordot", (([1, 2], [2, 1]),), ((2, 3, 4), (5, 4, 3))),
    *(("einsum", (text,), shapes) for text, *shapes in (
        ("ij,jk->ki", (5, 6), (6, 7)), ("ki,...k->i...", (2, 3), (4, 2)), ("ij,ji->", (4, 5), (5, 4)),
        ("bhij,bjhd->bihd", (2, 3, 6, 5), (2, 5, 3, 4)), ("iji,ik->jk", (4, 5, 4), (4, 6)),
        ("aij,ajk->aik", (1, 4, 5), (3, 5, 6)), ("aXbYcZ,XYZ->abc", (2, 3, 2, 4, 2, 2), (3, 4, 2)),
    )),
]  # fmt: skip
#: Products without elements.
EMPTY = [((0, 2), (2, 4)), ((0, 3, 2), (1, 2, 4)), ((5, 0, 3, 2), (2, 4)), ((1, 0, 3, 2), (6, 1, 2, 4))]
#: Layouts of an operand: functions of a contiguous array twice as large in its last axis and its first.
LAYOUTS = {
    "contiguous": lambda x, shape: x[tuple(slice(extent) for extent in shape)].copy(),
    "sliced": lambda x, shape: x[tuple(slice(extent) for extent in shape)],
    "reversed": lambda x, shape: x[tuple(slice(extent - 1, None, -1) if extent else slice(0) for extent in shape)],
    "transposed": lambda x, shape: x.reshape(-1)[: math.prod(shape)].reshape(shape[::-1]).T,
    "stepped": lambda x, shape: x[tuple(slice(None, 2 * extent, 2) for extent in shape)],
}


ALL_DTYPES = ("float32", *"?bhilqBHILQefdFD")


def call_function(xp, name, more, arrays):
    """The call of a case."""
    return xp.einsum(*more, *arrays) if name == "einsum" else getattr(xp, name)(*arrays, *more)


@pytest.fixture
def launched(orin, monkeypatch):
    """A Runtime that serves by default Programs, whose binaries have no code, and refuses to fall back; its launches.

    CuPy is the machine's.
    """
    monkeypatch.setattr(sys.modules[__name__], "cupy", orin.cupy)
    monkeypatch.setattr(nvrtc, "compile_cubin", lambda source, target: nvrtc.Binary(target, cubin(target, source)))
    device = orin.device()
    device.emulated = True
    put(monkeypatch, runtime_of(device))
    return orin.context.launches


def allocate(xp, shape, dtype, layout):
    """An array of zeros of that shape (of nothing over the fake allocator)."""
    whole = xp.empty(tuple(2 * extent for extent in shape), dtype)
    if layout == "contiguous":
        return xp.empty(shape, dtype)
    return LAYOUTS[layout](whole, shape)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_case_is_planned(launched, layout):
    """float32 in every layout."""
    some = sample(CASES, 12)
    assert any([check(launched, *each[:2], [(shape, "float32") for shape in each[2]], layout) for each in some])


def test_products_without_elements_launch_nothing(launched):
    with gensor_kernels.accelerate():
        for shapes in EMPTY:
            found = cupy.matmul(*(cupy.empty(shape, np.float32) for shape in shapes))
            assert found.shape == np.matmul(*map(np.zeros, shapes)).shape
    assert not launched


@pytest.mark.parametrize("other", [*DTYPES, "bool", "uint8", "int16", "uint32", "int64", "uint64"])
def test_dtypes_are_promoted_as_by_numpy(launched, other):
    """Kernels serve what is promoted to a dtype that they take; for others the reason says why not."""
    for dtype in ALL_DTYPES if FULL else ("float32", "?", "i", "L", "D"):
        result = np.promote_types(dtype, other)
        a, b = cupy.empty((3, 2), dtype), cupy.empty((2, 4), other)
        why = gensor_kernels.explain(gensor_kernels.matmul, a, b)
        assert why.tier == (3 if result.name in DTYPES else 4) and why.reason, (dtype, other, why)
        if why.tier == 3:
            for function, more, shapes in sample(CASES[:9], 4):
                check(launched, function, more, [(shapes[0], dtype), (shapes[1], other)], "contiguous")


def test_out_of_any_kind(launched):
    """Reversed, of another dtype, and the operands themselves."""
    a, b = cupy.empty((5, 3, 2), np.float32), cupy.empty((5, 2, 4), np.float32)
    whole = cupy.empty((10, 3, 4), np.float32)
    for out in (whole[::2], whole[9::-2], cupy.empty((5, 3, 4), np.float64)):
        why = gensor_kernels.explain(gensor_kernels.matmul, a, b, out)
        assert why.tier == 3 and (why.staged is None) == (out.dtype == np.float32), why
    with pytest.raises(TypeError, match="Cannot cast"):
        gensor_kernels.explain(gensor_kernels.matmul, a, b, cupy.empty((5, 3, 4), bool))
    square = cupy.empty((2, 60, 60), np.float32)
    assert gensor_kernels.explain(gensor_kernels.matmul, square, square, square).tier == 3


def check(launched, function, more, arrays, layout):
    """A kernel would serve the call; unless an operand is to be copied first (which takes a GPU), it is launched, and
    the result has NumPy's shape and dtype. Whether it was."""
    name = (function, more, arrays, layout)
    expected = call_function(np, function, more, [np.zeros(shape, dtype) for shape, dtype in arrays])
    given = [allocate(cupy, shape, dtype, layout) for shape, dtype in arrays]
    why = call_function(Explain, function, more, given)
    assert why.tier == 3 and why.kernel is not None, (name, why)
    if why.staged is not None:
        return False
    launched.clear()
    with gensor_kernels.accelerate():
        found = call_function(cupy, function, more, given)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype) and launched, name
    return True


class Explain:
    """`explain` of the functions."""

    matmul, dot, tensordot, einsum = (
        partial(gensor_kernels.explain, getattr(gensor_kernels, name))
        for name in ("matmul", "dot", "tensordot", "einsum")
    )
