"""Shapes, dtypes and epilogues of a product by NumPy's rules, and the errors of arguments that do not fit."""

import sys

import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels.dispatch.calls import arguments, problem
from gensor_kernels.dispatch.calls.arguments import Operation, named_dtype
from gensor_kernels.errors import ToolMissingError


def test_operands_that_do_not_fit_raise_what_numpy_raises():
    for first, second in (
        *(((3, 4), (5, 6)), ((), (3,)), ((3,), ()), ((2, 3, 4), (3, 4, 5)), ((3,), (4,)), ((2, 0), (1, 2))),
        ((4, 3), (4,)),
    ):
        a, b = np.zeros(first), np.zeros(second)
        with pytest.raises(ValueError) as numpys:
            np.matmul(a, b)
        with pytest.raises(ValueError) as ours:
            arguments.resolve(a, b, None, ())
        # NumPy also names the shape it was aiming for where a broadcast fails.
        assert str(numpys.value).startswith(str(ours.value).rstrip())


def test_wider_results_come_from_the_accumulator():
    a = np.zeros((2, 2), np.int8)
    assert arguments.resolve(a, a, np.zeros((2, 2), np.int32), ()).dtype == np.int32
    assert arguments.resolve(a, a, None, (), dtype="int32").inputs == np.int8
    half = a.astype(np.float16)
    wide = arguments.resolve(half, half, np.zeros((2, 2), np.float32), ())
    assert (wide.inputs, wide.dtype) == (np.float16, np.float32)
    # Any other dtype is what the operands are converted to, as in NumPy.
    assert arguments.resolve(half, half, None, (), dtype="float64").inputs == np.float64
    assert arguments.resolve(half, half, np.zeros((2, 2), np.float64), ()).dtype == np.float16


def test_casts_follow_same_kind():
    a = np.zeros((2, 2))
    with pytest.raises(TypeError, match=r"output from dtype\('float64'\) to dtype\('int32'\)"):
        arguments.resolve(a, a, np.zeros((2, 2), np.int32), ())
    with pytest.raises(TypeError, match="input 0"):
        arguments.resolve(a, a, None, (), dtype="int32")
    with pytest.raises(ValueError, match="Output operand 0"):
        arguments.resolve(a, a, np.zeros((2, 3)), ())


def test_names_and_codes_of_dtypes():
    for named, name in (
        *(("half", "float16"), ("f16", "float16"), ("FP32", "float32"), ("double", "float64"), (">f4", "float32")),
        (np.dtype(">f4"), "float32"),
        *(("f8", "float64"), ("i4", "int32"), ("uint8", "uint8"), (float, "float64"), ("bf16", "bfloat16")),
        *(("e5m2", "float8_e5m2"), ("fp8_e4m3", "float8_e4m3fn"), ("BFloat16", "bfloat16")),
    ):
        assert named_dtype(named).name == name and named_dtype(named).isnative


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ("flot16", "dtype 'flot16' is unknown: did you mean float16"),
        ("int9", "did you mean int8"),
        ("banana", "dtype 'banana' is not one of float64, float32, float16, bfloat16"),
        ("f4,(", "dtype 'f4,(' is not one of"),
        ("x" * 10_000, "is not one of"),
    ],
)
def test_an_unknown_dtype_names_similar_ones(named, words):
    with pytest.raises(TypeError) as raised:
        named_dtype(named)
    assert words in str(raised.value) and len(str(raised.value)) < 300


def test_a_dtype_of_ml_dtypes_without_it_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(ToolMissingError, match=r"^arrays of bfloat16 need ml_dtypes: pip install ml-dtypes$"):
        named_dtype("bf16")


@pytest.mark.usefixtures("needs_emulator")
def test_every_function_takes_these_names(no_databases):
    a = np.ones((8, 8), np.float16)
    with gk.emulated("sm_87"):
        found = {
            "matmul": gk.matmul(a, a, dtype="single"),
            "einsum": gk.einsum("ij,jk->ik", a, a, dtype="F32"),
            "one operand": gk.einsum("ij->i", a, dtype="fp32"),
            "sum": gk.sum(a, dtype="fp32"),
            "grouped": gk.grouped_matmul(a, a[None], [8], dtype=">f4"),
            "gate": gk.matmul(a, a, activation="swiglu", dtype=np.dtype(">f4")),
        }
        stored = gk.matmul(a, np.full((8, 8), 0x38, np.uint8), dtype_b="e4m3")
    assert {name: each.dtype for name, each in found.items()} == dict.fromkeys(found, np.dtype("=f4"))
    assert stored.dtype == np.float16 and (stored == 8).all()  # 0x38 is 1.0


def test_epilogue_in_order():
    x = np.zeros(3)
    names = [s.name for s in arguments.operations(alpha=2, bias=x, add=x, activation="relu")]
    assert names == ["scale", "bias", "add", "relu"]
    steps = arguments.operations(epilogue=["relu", ("mul", x), ("scale", 3), ("mask", x, -1.0), "cast"])
    assert [(s.name, s.scalar) for s in steps] == [
        ("relu", 0), ("mul", 0), ("scale", 3), ("mask", -1), ("cast", 0)
    ]  # fmt: skip
    assert arguments.operations(alpha=np.ones(()))[0].name == "mul"  # an array stays on its device
    assert arguments.operations(alpha=1) == arguments.operations(alpha=1.0) == ()


def test_operands_must_broadcast_to_the_result():
    a = np.zeros((2, 3, 4))
    for shape in [(5,), (4, 1, 1, 1), (3, 3)]:
        with pytest.raises(ValueError, match="does not broadcast"):
            arguments.resolve(a, np.zeros((4, 6)), None, (Operation("bias", np.zeros(shape)),))


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
