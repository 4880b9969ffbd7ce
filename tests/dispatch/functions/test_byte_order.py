"""NumPy arrays of the other byte order inside `emulated`: kernels get native arrays; tests/public_cases swaps arrays
of every function."""

import numpy as np
import pytest

import gensor_kernels as gk
from tests.doubles.device import FakeDevice
from tests.doubles.kernels import put, runtime_of

SCORES = gk.define("i k, k j -> i j", epilogue=[("bias", "j"), "relu"], prologue=[("mul", "k")])


def numbers(*shape, dtype="float32"):
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape) % 13 - 6
    return values.astype(dtype)


A, B, ROW, SQUARE = numbers(6, 8), numbers(8, 5), numbers(5), numbers(6, 5)
IMAGE, FILTERS, BRIGHTER = numbers(2, 3, 6, 6), numbers(4, 3, 3, 3), numbers(2, 4, 4, 4)
HEADS = [numbers(1, 2, 4, 16, dtype="float16") for _ in range(3)]
PRODUCT, CONVOLUTION = np.zeros_like(SQUARE), np.zeros_like(BRIGHTER)
#: Calls with operands in every place of an argument: (function, arguments, names of the last of them).
CALLS = [
    (gk.matmul, (A, B, [("bias", ROW), ("add", SQUARE), ("mask", SQUARE, 2.0)], PRODUCT), ("epilogue", "out")),
    (gk.matmul, (A, B, ROW, [("mul", numbers(8))], PRODUCT), ("bias", "prologue", "out")),
    (gk.conv2d, (IMAGE, FILTERS, numbers(4), BRIGHTER, CONVOLUTION), ("bias", "add", "out")),
    (gk.attention, (*HEADS, numbers(4, 4), np.zeros_like(HEADS[0])), ("mask", "out")),
    (gk.elementwise, (A, [("mul", A), ("bias", numbers(8))], np.zeros_like(A)), ("out",)),
    (SCORES, (A, B, numbers(8), ROW), ()),
]


def swap(value):
    """The same values with their bytes in the other order."""
    if isinstance(value, (list, tuple)):
        return type(value)(swap(each) for each in value)
    return value.astype(value.dtype.newbyteorder()) if isinstance(value, np.ndarray) else value


@pytest.fixture
def launches(monkeypatch):
    """The operands of all launches on a device without kernels, whose results count up from 0."""
    seen = []

    def launch(arguments, arrays, steps, workspace):
        result, *inputs = arrays
        inputs += [step.operand for step in steps if step.operand is not None]
        assert all(each.dtype.isnative for each in (result, *inputs))
        seen.append([(each.dtype, each.shape, each.tolist()) for each in inputs])
        if not result.flags.writeable:
            raise ValueError("output array is read-only")
        result[...] = np.arange(result.size).reshape(result.shape).astype(result.dtype)

    put(monkeypatch, runtime_of(FakeDevice("sm_87", execute=lambda device, code, launches: launch, emulated=True)))
    return seen


@pytest.mark.parametrize(("function", "arguments", "names"), CALLS)
def test_kernels_get_the_values_of_any_swapped_argument(launches, function, arguments, names):
    def call(values):
        first = len(values) - len(names)
        return function(*values[:first], **dict(zip(names, values[first:], strict=True)))

    expected = call(arguments).copy()
    wanted = launches.pop()
    for places in (*([place] for place in range(len(arguments))), range(len(arguments))):
        values = [swap(each) if place in places else each for place, each in enumerate(arguments)]
        result = call(values)
        assert launches.pop() == wanted
        assert "out" not in names or result is values[-1]
        np.testing.assert_array_equal(result, expected)


def test_results_of_a_dtype_of_the_other_order_are_native(launches):
    calls = [
        gk.matmul(A.astype("float16"), B.astype("float16"), dtype=">f4"),
        gk.matmul(A, numbers(8, 6), activation="swiglu", dtype=np.dtype(">f4")),
        gk.matmul(A, B, epilogue=["layernorm"], dtype=">f4"),
        gk.matmul(A, B, prologue=["relu"], dtype=">f4"),
        gk.matmul(numbers(6, 8, dtype="uint8"), B, dtype_a="float8_e5m2", dtype=">f4"),
        gk.grouped_matmul(A, numbers(2, 8, 5), [2, 6], dtype=">f4"),
        gk.einsum("ij,jk", A, B, dtype=">f4"),
        gk.einsum("ij,jk,k", A, B, ROW, dtype=">f4"),
        gk.sum(A, dtype=">f4"),
    ]
    assert all(each.dtype.isnative for each in calls)


def test_read_only_results_are_refused(launches):
    out = swap(np.zeros_like(SQUARE))
    out.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        gk.matmul(A, B, out)
    assert not out.any()
