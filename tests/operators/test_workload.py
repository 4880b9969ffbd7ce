"""Workloads: keys, layouts, alignment classes, work and traffic; epilogues, stored types, examples in docstrings."""

import doctest
import itertools
import json
import math
import pickle
from functools import partial
from importlib import import_module

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.families.space import FamilySpace
from gensor_kernels.machine.arch import lookup
from gensor_kernels.machine.roofline import bound_us
from gensor_kernels.operators.products import gated, matmul, ragged
from gensor_kernels.operators.types.dtypes import (
    DTYPES,
    EIGHT_BIT_FLOATS,
    decode,
    default_output,
    encode,
    facts,
    product_type,
    round_to,
)
from gensor_kernels.operators.types.epilogue import MAX_STEPS, OPERATIONS, Step, apply, join, parse
from gensor_kernels.operators.types.workload import View, Workload, contiguous
from gensor_tuner.shapes.reader import read_shapes


def view_of(array: np.ndarray) -> View:
    address = array.__array_interface__["data"][0]
    strides = tuple(stride // array.itemsize for stride in array.strides)
    return View(array.shape, strides, array.dtype.name, address & -address if address else 256)


def aligned(shape, dtype):
    """A C-contiguous array at a 256-byte boundary."""
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(count + 256, np.uint8)
    start = -raw.__array_interface__["data"][0] % 256
    return raw[start : start + count].view(dtype).reshape(shape)


def test_key_is_canonical_and_round_trips_and_workloads_are_read_only():
    w = matmul.workload(128, 256, 64, batch=3, epilogue="bias_gelu_tanh", trans_b=True)
    assert w.key() == json.dumps(json.loads(w.key()), sort_keys=True, separators=(",", ":"))
    assert Workload.from_json(w.key()) == w
    assert hash(Workload.from_json(w.key())) == hash(w)
    assert pickle.loads(pickle.dumps(w)) == w
    assert w.sizes == (("batch", 3), ("m", 128), ("n", 256), ("k", 64))
    assert w.epilogue == ("bias", "gelu_tanh")
    pairs = w.sizes[::-1], w.dtypes[::-1], w.accumulator, w.math, w.layout[::-1], w.alignment[::-1], w.epilogue
    assert Workload(w.operator, *pairs) == w and Workload(w.operator, *pairs).key() == w.key()
    with pytest.raises(TypeError):
        w.size["m"] = 7
    with pytest.raises(AttributeError):
        w.math = "tf32"


def test_class_key_ignores_sizes_and_epilogue_only():
    w = matmul.workload(128, 256, 64, epilogue="relu")
    assert w.class_key() == w.with_sizes(m=64, k=72).with_epilogue(()).class_key()
    assert w.class_key() != matmul.workload(128, 256, 64, trans_b=True).class_key()
    assert w.class_key() != matmul.workload(128, 256, 65).class_key()
    assert w.with_sizes(m=64).size == {"batch": 1, "m": 64, "n": 256, "k": 64}


def test_alignment_class_follows_address_strides_and_batch():
    base = contiguous((2, 64, 64), "float16")
    assert matmul.workload_from_operands(base._replace(alignment=4), base, base).align["a"] == 4
    padded = base._replace(strides=(65 * 64 + 2, 66, 1))
    assert matmul.workload_from_operands(padded, base, base).align["a"] == 4
    odd_batch = base._replace(strides=(64 * 64 + 1, 64, 1))
    assert matmul.workload_from_operands(odd_batch, base, base).align["a"] == 2
    single = View((1, 64, 64), (7, 64, 1), "float16")
    assert matmul.workload_from_operands(single, single, single).align["a"] == 16
    with pytest.raises(UnsupportedError, match="1 bytes"):
        matmul.workload_from_operands(base._replace(alignment=1), base, base)


def test_broadcast_negative_and_stepped_strides():
    b = contiguous((4, 64, 64), "float32")
    repeated = b._replace(strides=(0, 64, 1))
    w = matmul.workload_from_operands(repeated, b, b)
    assert (w.layouts["a"], w.align["a"]) == ("k", 16)
    reversed_rows = b._replace(strides=(4096, -64, 1))
    assert matmul.workload_from_operands(reversed_rows, b, b).layouts["a"] == "k"
    for strides in [(4096, 64, -1), (8192, 128, 2), (4096, 64, 0)]:
        w = matmul.workload_from_operands(b._replace(strides=strides), b, b)
        assert (w.layouts["a"], w.align["a"]) == ("s", 4)


def test_extent_one_axes_have_no_stride():
    # m = 1: the same class however the single row is strided.
    b, c = contiguous((64, 64), "float16"), contiguous((1, 64), "float16")
    rows = [View((1, 64), (stride, 1), "float16") for stride in (1, 3, 64, 0)]
    assert len({matmul.workload_from_operands(a, b, c).class_key() for a in rows}) == 1
    # n = 1: a column is k-contiguous, whether B is called transposed or not.
    assert matmul.workload(64, 1, 64) == matmul.workload(64, 1, 64, trans_b=True)
    assert matmul.workload(64, 1, 64).layouts == {"a": "k", "b": "k", "c": "n"}
    assert matmul.workload(64, 1, 64).align["c"] == 2
    # k = 1: A is contiguous along m.
    assert matmul.workload(64, 64, 1) == matmul.workload(64, 64, 1, trans_a=True)
    # All extents 1 and empty operands: the canonical layout.
    assert matmul.workload(1, 1, 1, trans_a=True).layouts == {"a": "k", "b": "n", "c": "n"}
    assert matmul.workload(64, 64, 0).layouts == {"a": "k", "b": "n", "c": "n"}


@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.sampled_from(["float16", "float32", "float64", "int8"]),
    st.integers(0, 3),
    st.integers(1, 3),
    st.booleans(),
    st.integers(0, 3),
)
def test_every_vector_access_is_aligned_and_inside_a_row(rows, columns, dtype, pad, step, transpose, offset):
    """For any view, vectors of the alignment class are aligned and end in the row."""
    buffer = aligned((rows + offset, columns * step + pad), dtype)
    array = buffer[offset:, pad:][:, ::step]
    view = view_of(array.T if transpose else array)
    m, k = view.shape
    w = matmul.workload_from_operands(view, contiguous((k, 3), dtype), contiguous((m, 3), matmul.default_output(dtype)))
    layout, width = w.layouts["a"], w.align["a"]
    size = facts(dtype).itemsize
    assert width >= size
    if layout == "s":
        assert width == size
        return
    inner = 1 if layout == "k" else 0
    outer = 1 - inner
    assert view.strides[inner] == 1 or view.shape[inner] == 1
    assert view.shape[inner] * size % width == 0
    address = array.__array_interface__["data"][0]
    for index in range(view.shape[outer]):
        assert (address + index * view.strides[outer] * size) % width == 0


def test_work_and_traffic():
    w = matmul.workload(3, 5, 7, batch=2, dtype="float16", epilogue="bias_add_relu")
    assert w.flops() == 2 * 2 * 3 * 5 * 7
    assert w.bytes_moved() == 2 * (2 * (3 * 7 + 7 * 5 + 3 * 5) + 5 + 2 * 3 * 5)
    assert matmul.workload(3, 5, 7, dtype="int8").bytes_moved() == 3 * 7 + 7 * 5 + 4 * 3 * 5
    assert matmul.workload(3, 5, 7, epilogue="scale_mask").bytes_moved() == 2 * (21 + 35 + 15) + 15
    assert matmul.workload(3, 5, 0).flops() == 0


@given(st.floats(width=64), st.sampled_from(["float16", "float32"]))
def test_rounding_equals_numpy(value, dtype):
    with np.errstate(over="ignore"):
        expected = np.array(value).astype(dtype).astype(np.float64)
    np.testing.assert_array_equal(round_to(dtype, np.array(value)), expected)


@given(st.floats(width=64))
def test_bfloat16_and_tf32_are_float32_with_fewer_bits(value):
    rounded = round_to("bfloat16", np.array(value))
    bits = rounded.astype(np.float32).view(np.uint32)
    assert np.isnan(value) or bits & 0xFFFF == 0
    tf32 = round_to("tf32", np.array(value)).astype(np.float32).view(np.uint32)
    assert np.isnan(value) or tf32 & 0x1FFF == 0
    if np.isfinite(rounded) and abs(value) > 2.0**-126:
        assert abs(rounded - value) <= DTYPES["bfloat16"].unit_roundoff * abs(value)


def test_int8_is_exact_and_wraps_like_int32():
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-128, 128, size, dtype=np.int8) for size in ((7, 300), (300, 9)))
    np.testing.assert_array_equal(matmul.reference(a, b), a.astype(np.int64) @ b.astype(np.int64))
    worst = np.full((1, 140_000), -128, np.int8)
    assert matmul.reference(worst, worst.T)[0, 0] == 140_000 * 2**14 - 2**32


def test_the_sizes_that_portfolios_are_chosen_for_fill_their_range():
    usual = matmul.OPERATOR.usual(matmul.workload(64, 64, 64))
    sizes = np.array([[each.size[axis] for axis in "mnk"] for each in usual])
    assert len({each.key() for each in usual}) == len(usual) == 96 and not (sizes % 8).any()
    assert (sizes >= (8, 8, 32)).all() and (sizes.min(axis=0) <= (8, 8, 40)).all() and (sizes <= 8192).all()
    for axis, middle in enumerate((256, 256, 512)):  # as many below the middle of the logarithms as above
        assert 44 <= (sizes[:, axis] < middle).sum() <= 52
    octants = {tuple(row) for row in (sizes > (256, 256, 512)).tolist()}
    assert len(octants) == 8 and {each.size["batch"] for each in usual} == {1, 16}


# ---- epilogues


@given(st.lists(st.sampled_from(sorted(OPERATIONS)), max_size=MAX_STEPS))
def test_parse_inverts_join_up_to_the_longest_match(names):
    parsed = parse(join(names))
    assert join(parsed) == join(names)
    if ("gelu", "tanh") not in list(itertools.pairwise(names)):
        assert parsed == tuple(names)


def test_codes_are_one_to_thirteen():
    assert [operation.code for operation in OPERATIONS.values()] == list(range(1, 14))


SCALAR = {
    "relu": lambda v: max(v, 0.0),
    "relu6": lambda v: min(max(v, 0.0), 6.0),
    "gelu": lambda v: 0.5 * v * (1 + math.erf(v / math.sqrt(2))),
    "gelu_tanh": lambda v: 0.5 * v * (1 + math.tanh(0.7978845608028654 * (v + 0.044715 * v**3))),
    "silu": lambda v: v / (1 + math.exp(-v)),
    "tanh": math.tanh,
    "sigmoid": lambda v: 1 / (1 + math.exp(-v)),
}


@pytest.mark.parametrize("name", sorted(SCALAR))
def test_activations_and_their_tight_lipschitz_constants(name):
    values = np.linspace(-9, 9, 401)
    expected = [SCALAR[name](v) for v in values]
    np.testing.assert_allclose(apply(values, [Step(name)], "float32"), expected, rtol=1e-13, atol=1e-14)
    assert np.isnan(apply(np.array([np.nan]), [Step(name)], "float32")).all()
    values = np.linspace(-12, 12, 200_001)
    slope = np.abs(np.diff(apply(values, [Step(name)], "float32")) / np.diff(values)).max()
    assert 0.99 * slope <= OPERATIONS[name].lipschitz
    assert OPERATIONS[name].lipschitz <= 1.02 * slope


def test_cast_rounds_to_the_output_type():
    assert apply(np.array(1 + 2.0**-11), [Step("cast")], "float16") == 1.0
    assert apply(np.array(1 + 2.0**-8), [Step("cast")], "bfloat16") == 1.0
    assert apply(np.array(1 + 3 * 2.0**-8), [Step("cast")], "bfloat16") == 1 + 2 * 2.0**-7


# ---- stored types


@pytest.mark.parametrize("name", EIGHT_BIT_FLOATS)
def test_every_byte_is_the_number_ml_dtypes_says(name):
    stored = np.arange(256, dtype=np.uint8)
    theirs = stored.view(getattr(ml_dtypes, name))
    np.testing.assert_array_equal(decode(name, stored), theirs.astype(np.float64))
    np.testing.assert_array_equal(decode(name, theirs), decode(name, stored))
    finite = np.isfinite(decode(name, stored))
    np.testing.assert_array_equal(encode(name, decode(name, stored))[finite], stored[finite])


@pytest.mark.parametrize("name", EIGHT_BIT_FLOATS)
def test_rounding_is_that_of_ml_dtypes(name):
    rng = np.random.default_rng(0)
    values = rng.standard_normal(20000) * 2.0 ** rng.integers(-20, 18, 20000)
    values = np.concatenate([values, decode(name, np.arange(256, dtype=np.uint8)), [464.0, 465.0, 61440.0, 61441.0]])
    values = np.concatenate([values, -values, 0.5 * (values[:-1] + values[1:])])
    with np.errstate(all="ignore"):
        theirs = values.astype(getattr(ml_dtypes, name)).astype(np.float64)
    np.testing.assert_array_equal(round_to(name, values), theirs)
    np.testing.assert_array_equal(decode(name, encode(name, values)), theirs)


def test_which_products_take_them():
    assert product_type("float8_e4m3fn", "float8_e5m2") == "float16"
    assert product_type("int8", "bfloat16") == product_type("bfloat16", "float8_e5m2") == "bfloat16"
    assert product_type("int8", "int8") == "int8" and product_type("float32", "float32") == "float32"
    assert default_output("float8_e4m3fn", "float8_e4m3fn") == "float32" and default_output("int8") == "int32"
    assert default_output("float16", "int8") == "float16"


def terms(dtype, dtype_b, **more):
    """The first starter's terms."""
    wanted, arch = matmul.workload(16, 4096, 4096, dtype=dtype, dtype_b=dtype_b, trans_b=True), lookup("sm_87")
    family = FAMILIES["contraction_mma"]
    program = family.starters(matmul.workload(16, 4096, 4096, trans_b=True), arch)[0].replace(block_k=64, **more)
    space = FamilySpace(family, wanted, arch)
    point = space.point(program)
    assert space.legal(point[None])[0]
    return family.terms(space.columns(point[None]), wanted, arch), family.launches(program, wanted)[0]


@pytest.mark.parametrize("dtype_b", ["int8", "float8_e5m2"])
def test_the_potential_counts_the_narrower_bytes(dtype_b):
    wide, _ = terms("float16", "float16", stages=2)
    narrow, launch = terms("float16", dtype_b, stages=2)
    through, more = terms("float16", dtype_b, stages=2, copy=0)
    # a's 16 rows stay as they are
    assert narrow.dram_bytes[0] / wide.dram_bytes[0] == pytest.approx(0.5, rel=0.01)
    assert narrow.l2_bytes[0] < 0.6 * wide.l2_bytes[0] and through.l2_bytes[0] == narrow.l2_bytes[0]
    assert launch.shared_bytes < more.shared_bytes
    assert narrow.issue[0] > wide.issue[0]


@pytest.mark.parametrize(
    "product",
    [
        partial(matmul.workload, 8192, 8192, 8192),
        partial(gated.workload, "swiglu", 8192, 8192, 8192),
        partial(ragged.workload, 8, 8192, 8192, 8192),
    ],
    ids=["matmul", "gated", "ragged"],
)
def test_the_bound_is_that_of_hardware_with_8_bit_floats(product):
    wanted = product(dtype="float8_e4m3fn", out="bfloat16", trans_b=True)
    half = product(dtype="bfloat16", trans_b=True)
    assert bound_us(wanted, lookup("sm_87")) == pytest.approx(bound_us(half, lookup("sm_87")))
    assert bound_us(wanted, lookup("sm_90")) == pytest.approx(bound_us(half, lookup("sm_90")) / 2)


def test_shapes_files_name_them(tmp_path):
    path = tmp_path / "shapes.csv"
    path.write_text(
        "op,m,n,k,dtype,dtype_b,order,trans_b\n"
        "matmul,16,32,64,fp8_e4m3,,row,1\nmatmul,16,32,64,fp16,int8,col,\nmatmul,1,2,3,fp8_e5m2,fp16,,\n"
        "matmul,1,2,3,fp32,fp64,,\nsoftmax,1,2,3,fp8_e5m2,,,\n"
    )
    first, turned, third, none, _ = list(read_shapes(path))
    assert first.workload.dtype == {"a": "float8_e4m3fn", "b": "float8_e4m3fn", "c": "float32"}
    assert turned.workload.dtype == {"a": "int8", "b": "float16", "c": "float16"} and turned.workload.size["m"] == 32
    assert third.workload.dtype["a"] == "float8_e5m2"
    assert "products of float32 and float64" in none.unsupported


# ---- examples in docstrings of modules that other packages use


MODULES = (
    "gensor_database.store",
    "gensor_kernels.machine.arch",
    "gensor_kernels.operators",
    "gensor_kernels.operators.expression.evaluate",
    "gensor_kernels.operators.expression.expression",
    "gensor_kernels.operators.products.matmul",
    "gensor_kernels.operators.types.dtypes",
    "gensor_kernels.operators.types.workload",
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    result = doctest.testmod(import_module(name))
    assert result.attempted and not result.failed
