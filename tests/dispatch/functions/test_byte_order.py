"""NumPy arrays of the other byte order inside `emulated`: kernels get the values, `out` is written in its own order."""

import inspect

import numpy as np
import pytest

import gensor_kernels as gk
from tests.doubles.device import FakeDevice
from tests.doubles.kernels import put, runtime_of

#: Public functions that take no arrays; `accelerate` is for CuPy's.
OTHERS = {
    "accelerate", "counters", "define", "deterministic", "emulated", "explain", "from_torch", "load", "record",
    "refresh", "warmup",
}  # fmt: skip
SCORES = gk.define("i k, k j -> i j", epilogue=[("bias", "j"), "relu"], prologue=[("mul", "k")])


def numbers(*shape, dtype="float32"):
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape) % 13 - 6
    return values.astype(dtype)


def swap(value):
    """The same values with their bytes in the other order, anywhere in a call's arguments."""
    if isinstance(value, (list, tuple)):
        return type(value)(swap(each) for each in value)
    if isinstance(value, dict):
        return {name: swap(each) for name, each in value.items()}
    return value.astype(value.dtype.newbyteorder()) if isinstance(value, np.ndarray) else value


A, B, ROW, SQUARE = numbers(6, 8), numbers(8, 5), numbers(5), numbers(6, 5)
FUSED = [("bias", ROW), ("add", SQUARE), ("mask", SQUARE, 2.0)]
IMAGE, FILTERS, CHANNELS = numbers(2, 3, 6, 6), numbers(4, 3, 3, 3), numbers(4)
HEADS = [numbers(1, 2, 4, 16, dtype="float16") for _ in range(3)]
INT8 = numbers(4, 8, dtype="int8")
#: name -> calls: (positional arguments, keyword arguments)
CALLS = {
    "matmul": [
        ((A, B, np.zeros_like(SQUARE)), {}),
        ((A, B), {"epilogue": FUSED}),
        ((A, B), {"alpha": np.array(2.0, "float32"), "bias": ROW, "prologue": [("mul", numbers(8))]}),
        ((A, numbers(8, 6)), {"bias": numbers(6), "activation": "swiglu"}),
        ((A, B), {"epilogue": [("bias", ROW), "layernorm", ("mul", ROW)]}),
        ((numbers(6, 8, dtype="uint8"), B), {"dtype_a": "float8_e5m2"}),
    ],
    "linear": [
        ((A, numbers(5, 8), ROW), {}),
        ((A.astype("float16"), INT8, numbers(4, dtype="float16")), {"scales": numbers(4), "zeros": INT8[:, 0].copy()}),
    ],
    "grouped_matmul": [
        ((A, numbers(2, 8, 5), np.array([2, 6], "int32")), {"bias": ROW, "out": np.zeros_like(SQUARE)}),
        ((A, numbers(2, 8, 5)), {"sizes": np.array([2, 4], "int64")}),
    ],
    "scaled_matmul": [
        (
            (numbers(6, 16, dtype="uint8"), numbers(5, 16, dtype="uint8").T, numbers(6, 1), numbers(1, 1)),
            {"bias": ROW, "out": np.zeros_like(SQUARE), "dtype_a": "float8_e5m2", "dtype_b": "float8_e4m3fn"},
        )
    ],
    "einsum": [(("ij,jk->ki", A, B), {}), (("ij,jk,k", A, B, ROW), {}), (("ij->j", A), {})],
    "tensordot": [((A, B, 1), {}), ((A, B, 1), {"prologue": [("bias", numbers(8))]})],
    "dot": [((A, B), {"out": np.zeros_like(SQUARE)})],
    "vdot": [((A.astype("complex64"), A.astype("complex64")), {})],
    "inner": [((A, numbers(5, 8)), {})],
    "outer": [((ROW, ROW), {"out": np.zeros((5, 5), "float32")})],
    "prepack": [((numbers(9, 16, dtype="float16").T,), {"rows": 1})],
    "conv2d": [
        ((IMAGE, FILTERS, CHANNELS), {"add": numbers(2, 4, 4, 4), "out": np.zeros((2, 4, 4, 4), "float32")}),
        ((IMAGE, FILTERS), {"prologue": [("mul", numbers(3))]}),
        ((IMAGE, numbers(4, 3, 1, 1), CHANNELS), {}),
        ((IMAGE, numbers(3, 1, 3, 3), numbers(3)), {"groups": 3}),
    ],
    "conv1d": [((IMAGE[:, :, 0], FILTERS[:, :, 0], CHANNELS), {"out": np.zeros((2, 4, 4), "float32")})],
    "conv_transpose2d": [((IMAGE, numbers(3, 4, 3, 3), CHANNELS), {"stride": 2})],
    "max_pool2d": [((IMAGE, 2), {"out": np.zeros((2, 3, 3, 3), "float32")})],
    "avg_pool2d": [((IMAGE, 2), {})],
    "global_avg_pool2d": [((IMAGE,), {})],
    "attention": [((*HEADS, numbers(4, 4)), {"out": np.zeros((1, 2, 4, 16), "float16")})],
    "elementwise": [((A, [("mul", A), ("bias", numbers(8))]), {"out": np.zeros_like(A)})],
    "layer_norm": [((A, 8, numbers(8), numbers(8)), {"out": np.zeros_like(A)})],
    "rms_norm": [((A, 8, numbers(8)), {})],
    "softmax": [((A,), {"out": np.zeros_like(A)})],
    "log_softmax": [((A,), {})],
    "norm": [((A, 1), {})],
    "logsumexp": [((A, 1), {})],
    "var": [((A, 1), {"out": np.zeros(6, "float32")})],
}
CALLS |= {name: [((A, 1), {"out": np.zeros(6, "float32")})] for name in ("sum", "mean", "prod", "max", "min")}
CALLS |= {name: [((A, 1), {"out": np.zeros(6, "int64")})] for name in ("argmax", "argmin")}


@pytest.fixture
def launches(monkeypatch):
    """The operands of all launches on a device without kernels, whose results count up from 0."""
    return device(monkeypatch)


def device(monkeypatch, arch="sm_87"):
    seen = []

    def launch(arguments, arrays, steps, workspace):
        result, *inputs = arrays
        inputs += [step.operand for step in steps if step.operand is not None]
        assert all(each.dtype.isnative for each in (result, *inputs))
        seen.append([(each.dtype, each.shape, each.tolist()) for each in inputs])
        if not result.flags.writeable:
            raise ValueError("output array is read-only")
        result[...] = np.arange(result.size).reshape(result.shape).astype(result.dtype)

    put(monkeypatch, runtime_of(FakeDevice(arch, execute=lambda device, code, launches: launch, emulated=True)))
    return seen


def assert_same(one, other):
    assert one.shape == other.shape and one.dtype == other.dtype.newbyteorder("=")
    np.testing.assert_array_equal(one, other)


def test_kernels_get_the_values(monkeypatch):
    public = {name for name in gk.__all__ if inspect.isfunction(getattr(gk, name))}
    assert set(CALLS) == public - OTHERS
    for name, calls in CALLS.items():
        launches = device(monkeypatch, "sm_90" if name == "scaled_matmul" else "sm_87")
        for args, keywords in calls:
            expected = getattr(gk, name)(*args, **keywords)
            wanted = list(launches)
            launches.clear()
            args, keywords = swap(args), swap(keywords)
            result = getattr(gk, name)(*args, **keywords)
            assert launches == wanted, name
            launches.clear()
            out = keywords.get("out", args[2] if name == "matmul" and len(args) == 3 else None)
            assert out is None or (result is out and not out.dtype.isnative), name
            assert_same(expected, result)


def test_one_operand_beside_native_ones(launches):
    for function, (args, keywords) in ((gk.attention, CALLS["attention"][0]), (gk.conv2d, CALLS["conv2d"][0])):
        expected = function(*args, **keywords).copy()
        wanted = launches.pop()
        for place in range(5):
            call = [*args, *keywords.values()]
            call[place] = swap(call[place])
            assert_same(expected, function(*call[: len(args)], **dict(zip(keywords, call[len(args) :], strict=True))))
            assert launches.pop() == wanted


def test_operators_of_the_user(launches):
    operands = A, B, numbers(8), ROW
    assert_same(SCORES(*operands), SCORES(*swap(operands)))
    assert launches[0] == launches[1]
    assert gk.explain(SCORES, *swap(operands)).kernel == gk.explain(SCORES, *operands).kernel


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
