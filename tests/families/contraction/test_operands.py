"""Operands of contractions: doubles, operands that are widened as they are read, operands of epilogues."""

import ml_dtypes
import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.families.contraction.mma.instructions import Code
from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products.matmul import workload
from gensor_kernels.operators.types.dtypes import EIGHT_BIT_FLOATS
from tests.families.lattices import MMA, fastest
from tests.families.verified import SMALL, is_right


def test_doubles_take_the_instruction_of_their_capability():
    """At 0.72 of the peak, as on an H100; tests/families/test_predicted.py compares with CUDA cores."""
    problem = workload(4096, 4096, 4096, dtype="float64")
    for part, code in (("a100-40gb", 8), ("h200", 7)):
        arch = lookup(part)
        assert {program["instruction"] for program in MMA.starters(problem, arch)} == {code}
        assert 2 * 4096**3 / fastest(MMA, problem, arch) >= 0.72 * arch.peak("float64")


@pytest.mark.parametrize("instruction", [Code.F64_K16, Code.F64_K8, Code.F64_ROWS_K4])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_instructions_of_sixteen_rows_of_doubles_are_right(dtype, instruction):
    conjugate, arch = "b" if dtype == "complex128" else "", lookup("h200")
    problem = workload(255, 255, 255, dtype=dtype, trans_b=True, conjugate=conjugate)
    tile = SMALL["contraction_mma"] | {"block_k": 16, "warp_m": 32, "instruction": instruction}
    narrow = dict.fromkeys(("vector_a", "vector_b", "vector_c"), 8 if dtype == "float64" else 16)
    program = MMA.starters(problem, arch)[0].replace(**tile | narrow)
    space = Space(problem, arch).family(MMA.name)
    assert space.legal(space.point(program)[None])[0]
    is_right(MMA, program, problem, use_cache=False)


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("arch", ["sm_87", "sm_90"])
def test_eps_of_a_norm_keeps_the_digits_of_a_double(norm, arch):
    """Rows whose variance eps exceeds by far: 0.1 as a float32 is off by 1.5e-8 of itself."""
    rng = np.random.default_rng(4)
    a, b = 1e-3 * rng.standard_normal((9, 16)), rng.standard_normal((16, 24))
    with gensor_kernels.emulated(arch):
        found = gensor_kernels.matmul(a, b, epilogue=[(norm, 0.1)])
        why = gensor_kernels.explain(gensor_kernels.matmul, a, b, epilogue=[(norm, 0.1)])
    assert why.family.startswith("contraction")
    rows = a @ b
    rows -= rows.mean(axis=1, keepdims=True) if norm == "layernorm" else 0
    np.testing.assert_allclose(found, rows / np.sqrt((rows * rows).mean(axis=1, keepdims=True) + 0.1), rtol=1e-12)


# ---- operands that are widened as they are read


def widened(a, b, along_a, along_b, **more):
    return workload(256, 512, 4096, dtype=a, dtype_b=b, trans_a=not along_a, trans_b=along_b, **more)


def test_eight_bit_floats_need_the_instruction_and_copies_as_they_are():
    along, across = (widened(*EIGHT_BIT_FLOATS, True, along_b, out="float16") for along_b in (True, False))

    def codes_of(wanted, name):
        found = MMA.coordinates(wanted, lookup(name))
        return next(each.values for each in found if each.name == "instruction")

    codes = {
        (name, each.layouts["b"]): codes_of(each, name)
        for name in ("sm_80", "sm_89", "sm_90", "sm_100", "sm_120")
        for each in (along, across)
    }
    assert {where for where, found in codes.items() if 9 in found} == {("sm_89", "k"), ("sm_120", "k")}
    space = Space(along, lookup("sm_89")).family(MMA.name)
    program = space.family.starters(along, lookup("sm_89"))[0]
    registers = program.replace(copy=0, stages=2)
    assert space.legal(space.point(program)[None])[0] and not space.legal(space.point(registers)[None])[0]


@pytest.mark.parametrize("along_k", [True, False], ids=["fragments", "shared"])
@pytest.mark.parametrize("name", [*EIGHT_BIT_FLOATS, "int8"])
def test_every_byte_at_every_place_is_widened_exactly(name, along_k):
    stored = np.arange(256, dtype=np.uint8)
    values = (stored.view(np.int8) if name == "int8" else stored.view(getattr(ml_dtypes, name))).astype(np.float64)
    one_hot = np.eye(64, dtype=np.float16)
    b = np.repeat(stored[None] if name != "int8" else stored.view(np.int8)[None], 64, axis=0)
    b = np.ascontiguousarray(b.T).T if along_k else b
    with gensor_kernels.emulated("sm_87"):
        found = gensor_kernels.matmul(one_hot, b, dtype_b=name, dtype=np.float32)
        why = gensor_kernels.explain(gensor_kernels.matmul, one_hot, b, dtype_b=name, dtype=np.float32)
    assert why.family == MMA.name and why.program["copy"] == int(along_k)
    finite = np.isfinite(values)
    np.testing.assert_array_equal(found[:, finite], np.broadcast_to(values[finite], (64, finite.sum())))
    # infinity times 0 is NaN, but for the row that has a 1 alone there is only NaN
    assert np.isnan(found[:, ~finite]).all()


# ---- operands of epilogues: every dtype, contiguous axis and way to broadcast


M, N, K = 35, 72, 40
BROADCAST = {"full": (2, 2, M, N), "rows": (M, 1), "columns": (2, 1, 1, N), "one": (2, 1, 1)}
#: Groups of eight columns of C, and single ones.
COLUMNS = {"groups": N, "single": N - 1}


def drawn(rng, shape, dtype, unit):
    """Random values of a dtype whose contiguous axis is the last one ("n"), the one before ("m"), or none ("s")."""
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    wide = (*shape[:-1], 2 * shape[-1]) if unit == "s" else shape
    values = rng.integers(0, 2, wide) if dtype == "bool" else np.round(4 * rng.standard_normal(wide))
    values = values.astype(kind)
    if unit == "m" and len(shape) > 1:
        return np.ascontiguousarray(values.swapaxes(-1, -2)).swapaxes(-1, -2)
    return values[..., ::2] if unit == "s" else values


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int8", "int32", "bool"])
@pytest.mark.parametrize("columns", COLUMNS)
def test_operands(columns, dtype):
    rng, n = np.random.default_rng(3), COLUMNS[columns]
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((2, 2, M, K), (2, 2, K, n)))
    wanted = a.astype(float) @ b.astype(float)
    with gensor_kernels.emulated("sm_87"):
        for shape in BROADCAST.values():
            for unit in "nms":
                operand = drawn(rng, (*shape[:-1], min(shape[-1], n)), dtype, unit)
                how = {"epilogue": [("add", operand)], "dtype": "float16"}
                told = gensor_kernels.explain(gensor_kernels.matmul, a, b, **how)
                assert told.family == "contraction_mma", told
                found = gensor_kernels.matmul(a, b, **how).astype(float)
                np.testing.assert_allclose(found, wanted + operand.astype(float), rtol=2e-3, atol=0.02)
