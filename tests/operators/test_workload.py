"""Workloads: canonical keys, layouts, alignment classes, work and traffic; those of matrix products that tuners use."""

import itertools
import json
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.types.dtypes import DTYPES, facts, round_to
from gensor_kernels.operators.types.workload import View, Workload, contiguous


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


def test_layouts_of_transposes():
    for trans_a, trans_b in itertools.product((False, True), repeat=2):
        w = matmul.workload(64, 32, 16, trans_a=trans_a, trans_b=trans_b)
        assert w.layouts == {"a": "m" if trans_a else "k", "b": "k" if trans_b else "n", "c": "n"}
        assert w.align == {"a": 16, "b": 16, "c": 16}


#: dtype -> the alignment class of a's rows by the extent of k
ALIGNMENTS = {
    "float16": {64: 16, 68: 8, 66: 4, 67: 2},
    "float32": {66: 8, 67: 4},
    "float64": {66: 16, 67: 8},
    "int8": {68: 4, 66: 1},
}


def test_alignment_class_follows_the_innermost_extent():
    for dtype, widths in ALIGNMENTS.items():
        found = {extent: matmul.workload(64, 64, extent, dtype=dtype).align for extent in widths}
        assert {extent: align["a"] for extent, align in found.items()} == widths
        assert all(align["b"] == 16 for align in found.values())


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


def test_column_major_output():
    a, b = contiguous((8, 4), "float32"), contiguous((4, 6), "float32")
    assert matmul.workload_from_operands(a, b, View((8, 6), (1, 8), "float32")).layouts["c"] == "s"
    b = contiguous((4, 1), "float32")
    assert matmul.workload_from_operands(a, b, View((8, 1), (1, 8), "float32")).layouts["c"] == "n"


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
