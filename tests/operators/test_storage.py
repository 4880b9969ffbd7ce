"""Types of stored operands: their numbers, the products that accept them, and their names in shapes files."""

from functools import partial

import numpy as np
import pytest

from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.families.space import FamilySpace
from gensor_kernels.machine.arch import lookup
from gensor_kernels.machine.roofline import bound_us
from gensor_kernels.operators.products import gated, matmul, ragged
from gensor_kernels.operators.types.dtypes import (
    EIGHT_BIT_FLOATS,
    decode,
    default_output,
    encode,
    product_type,
    round_to,
)
from gensor_tuner.shapes.reader import read_shapes

ml_dtypes = pytest.importorskip("ml_dtypes")


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
