"""Operands that are widened as they are read: right on the emulator by either route, without spills or conflicts."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gensor_kernels
from gensor_kernels.build.nvrtc import compile_many
from gensor_kernels.build.source import bind, flatten
from gensor_kernels.dispatch.functions.mixed_input import STORED_PRODUCT, Stored
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.types.dtypes import EIGHT_BIT_FLOATS
from gensor_kernels.programs.registry import FAMILIES
from gensor_kernels.programs.space import Space
from tests.doubles.device import FakeDevice
from tests.programs.verified import is_right

ml_dtypes = pytest.importorskip("ml_dtypes")

MMA = "contraction_mma"
#: dtypes of a and b, whether each lies along k, and the routes there are
CLASSES = [
    ("float8_e4m3fn", "float8_e4m3fn", True, True, (0, 1)),
    ("float16", "float8_e5m2", True, True, (0, 1)),
    ("bfloat16", "int8", True, True, (0, 1)),
    ("int8", "float16", True, True, (1,)),
    ("bfloat16", "float8_e4m3fn", True, False, (0,)),
    ("float8_e5m2", "float8_e4m3fn", False, True, (0,)),
]
CASES = [(*each[:4], copy) for each in CLASSES for copy in each[4]]


def workload(a, b, along_a, along_b, **more):
    return matmul.workload(256, 512, 4096, dtype=a, dtype_b=b, trans_a=not along_a, trans_b=along_b, **more)


def small(wanted, copy):
    """A Program of several warps and fragments."""
    program = FAMILIES[MMA].starters(workload("float16", "float16", True, True), lookup("sm_87"))[0]
    tile = {"block_m": 32, "block_n": 64, "block_k": 64, "warp_m": 16, "warp_n": 32}
    return program.replace(**tile, copy=copy, stages=3 if copy else 2, split_k=2)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}-{case[4]}")
def test_programs_are_verified_and_conflict_free(case):
    wanted = workload(*case[:4], out="float16")
    verdict = is_right(FAMILIES[MMA], small(wanted, case[4]), wanted)
    assert verdict.counters["bank_conflicts"] == 0


@pytest.mark.parametrize("types", list(itertools.product(EIGHT_BIT_FLOATS, repeat=2)), ids="-".join)
def test_eight_bit_floats_are_multiplied_as_they_are(types):
    wanted, arch = workload(*types, True, True, out="float16"), lookup("sm_89")
    program = FAMILIES[MMA].starters(wanted, arch)[0]
    assert program["instruction"] == 9
    program = program.replace(block_m=32, block_n=64, warp_m=16, warp_n=32, split_k=2 if types[0] == types[1] else 1)
    program = program.replace(block_k=256 if types == EIGHT_BIT_FLOATS else 64, stages=2)
    verdict = is_right(FAMILIES[MMA], program, wanted)
    assert verdict.counters["bank_conflicts"] == 0


def test_eight_bit_floats_need_the_instruction_and_copies_as_they_are():
    along, across = (workload(*EIGHT_BIT_FLOATS, True, along_b, out="float16") for along_b in (True, False))

    def codes_of(wanted, name):
        found = FAMILIES[MMA].coordinates(wanted, lookup(name))
        return next(each.values for each in found if each.name == "instruction")

    codes = {
        (name, each.layouts["b"]): codes_of(each, name)
        for name in ("sm_80", "sm_89", "sm_90", "sm_100", "sm_120")
        for each in (along, across)
    }
    assert {where for where, found in codes.items() if 9 in found} == {("sm_89", "k"), ("sm_120", "k")}
    space = Space(along, lookup("sm_89")).family(MMA)
    program = space.family.starters(along, lookup("sm_89"))[0]
    registers = program.replace(copy=0, stages=2)
    assert space.legal(space.point(program)[None])[0] and not space.legal(space.point(registers)[None])[0]


def test_eight_bit_floats_are_faster_than_widened_ones():
    wanted = matmul.workload(4096, 4096, 4096, dtype=EIGHT_BIT_FLOATS[0], trans_b=True, out="float16")
    space = Space(wanted, lookup("sm_89")).family(MMA)
    program = space.family.starters(wanted, lookup("sm_89"))[0]
    both = [space.point(program.replace(instruction=code)) for code in (9, 0)]
    own, widened = space.potential(np.stack(both))
    assert own < 0.7 * widened


@pytest.mark.parametrize("types", [("float8_e4m3fn", "float8_e5m2"), ("float32", "int8")])
def test_the_cuda_cores_take_them_too(types):
    wanted, arch = workload(*types, True, False), lookup("sm_87")
    program = FAMILIES["contraction_simt"].starters(wanted, arch)[4]
    is_right(FAMILIES["contraction_simt"], program, wanted)


@pytest.mark.parametrize("arch", ["sm_87", "sm_90"])
def test_usual_programs_do_not_spill(arch):
    family, target, requests = FAMILIES[MMA], lookup(arch), []
    for types, place in ((CLASSES[0][:4], 0), (("float16", "int8", True, True), 3)):
        wanted = workload(*types)
        program = family.starters(wanted, target)[place]
        assert program["copy"] == 1
        requests.append((bind(flatten(family.source), family.constants(program, wanted)), target.target))
    for binary in compile_many(requests, 1):
        assert binary.error is None and binary.spill_bytes == 0, binary.error


def test_parts_without_asynchronous_copies_compile_them():
    wanted = workload("float8_e4m3fn", "float16", True, True)
    assert {c.name: c.values for c in FAMILIES[MMA].coordinates(wanted, lookup("sm_75"))}["copy"] == (0,)
    constants = FAMILIES[MMA].constants(small(wanted, 0).replace(instruction=1), wanted)
    (binary,) = compile_many([(bind(flatten(FAMILIES[MMA].source), constants), lookup("sm_75").target)], 1)
    assert binary.error is None


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
    assert why.family == MMA and why.program["copy"] == int(along_k)
    finite = np.isfinite(values)
    np.testing.assert_array_equal(found[:, finite], np.broadcast_to(values[finite], (64, finite.sum())))
    # infinity times 0 is NaN, but for the row that has a 1 alone there is only NaN
    assert np.isnan(found[:, ~finite]).all()


@st.composite
def calls(draw):
    name = draw(st.sampled_from([*EIGHT_BIT_FLOATS, "int8"]))
    other = name if name != "int8" and draw(st.booleans()) else draw(st.sampled_from(["float16", "bfloat16"]))
    batch = draw(st.sampled_from([(), (2,)]))
    m, n, k = draw(st.sampled_from([1, 16])), draw(st.sampled_from([8, 33])), draw(st.sampled_from([17, 64]))
    rng = np.random.default_rng(draw(st.integers(0, 9)))

    def array(shape, dtype):
        kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
        values = rng.integers(-128, 128, shape) if dtype == "int8" else rng.standard_normal(shape)
        values = values.astype(kind)
        if draw(st.booleans()):  # transposed in memory
            return np.ascontiguousarray(values.swapaxes(-1, -2)).swapaxes(-1, -2)
        return values

    a, b = array((*batch, m, k), other), array((k, n), name)
    named = {"dtype_b": name} | ({"dtype_a": name} if other == name else {})
    bare = draw(st.booleans())  # bytes, as CuPy arrays hold them
    raw = [x.view(np.uint8) if bare and x.dtype.name.startswith("float8") else x for x in (a, b)]
    return (a, b), raw, named


@settings(max_examples=16)
@given(calls())
def test_any_call_agrees_with_float64(call):
    (a, b), raw, named = call
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    size = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
    with gensor_kernels.emulated("sm_87"):
        found = gensor_kernels.matmul(*raw, **named, dtype=np.float32, alpha=0.5)
    assert found.dtype == np.float32
    assert (np.abs(found - 0.5 * wanted) <= 1e-6 * (a.shape[-1] + 4) * size).all()
    parameters = Stored(named.get("dtype_a"), named.get("dtype_b"), np.dtype(np.float32))
    library = STORED_PRODUCT.library(FakeDevice(), raw, parameters, None)
    np.testing.assert_allclose(library, wanted, rtol=1e-4, atol=1e-4 * (1 + size.max()))


def test_results_and_what_does_not_fit():
    a, b = np.zeros((4, 16), np.uint8), np.zeros((16, 8), np.int8)
    x = np.zeros((4, 16), np.float16)
    with gensor_kernels.emulated("sm_87"):
        assert gensor_kernels.matmul(a, a.T, dtype_a="float8_e5m2", dtype_b="float8_e4m3fn").dtype == np.float32
        assert gensor_kernels.matmul(x, b, dtype_b=np.int8, activation="relu").dtype == np.float16
        out = np.empty((4, 8), np.float32)
        assert gensor_kernels.matmul(x, b, out, dtype_b="int8") is out
        with pytest.raises(ValueError, match="dtype_b must be one of"):
            gensor_kernels.matmul(x, b, dtype_b="uint4")
        with pytest.raises(TypeError, match="int8 does not hold float8_e5m2"):
            gensor_kernels.matmul(x, b, dtype_b="float8_e5m2")
        with pytest.raises(ValueError, match="mismatch in its core dimension"):
            gensor_kernels.matmul(x, b.T, dtype_b="int8")
