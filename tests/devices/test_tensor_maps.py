"""Tensor maps: their view of an operand, the driver's arguments, and calls without a tensor map."""

import ctypes

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.devices import tensor_maps
from gensor_kernels.errors import BuildError
from gensor_kernels.families.core import params
from gensor_kernels.families.core.params import Tiling
from gensor_kernels.families.core.tensor_maps import MAPS_OFFSET, TensorMap, description
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products.matmul import workload
from gensor_kernels.operators.types.geometry import Geometry, Strides
from tests.families.lattices import MMA, WGMMA

A, B = TensorMap("a", False, 2, 128), TensorMap("b", False, 2, 64)
TILING = Tiling(1, 1, 1, 64, 1)


FIRST = Strides((4096, 0, 512), 64, 1)


def packed(a=FIRST, pointers=(1 << 20, 1 << 21)):
    b, c = Strides((0, 0, 8192), 96, 1), Strides((0, 0, 0), 96, 1)
    geometry = Geometry((8, 96, 64), (2, 3, 5), a, b, c)
    return params.pack(geometry, TILING, pointers=(*pointers, 0))


def test_operands_that_no_map_can_describe():
    for changed in (
        {"a": Strides((0, 0, 0), -64, 1)},
        {"a": Strides((0, 0, 0), 0, 1)},
        {"a": Strides((0, 0, -512), 64, 1)},
        {"a": Strides((0, 0, 0), 60, 1)},
        {"a": Strides((0, 0, 1 << 40), 64, 1)},
        {"pointers": (1 << 20 | 8, 0)},
    ):
        with pytest.raises(BuildError, match="no tensor copy reads a"):
            description(packed(**changed), A)
    for rows in (0, 257):
        with pytest.raises(BuildError, match="no tensor copy reads a"):
            description(packed(), TensorMap("a", False, 2, rows))
    for rows in (8, 256):
        assert description(packed(), TensorMap("a", False, 2, rows)).box == (64, rows)


def test_equal_calls_are_encoded_once():
    encoded = []

    def encode(wanted):
        encoded.append(wanted.address)
        return bytes([len(encoded)]) * 128

    mapped = tensor_maps.Mapped((A, B), lambda address: address, encode)
    first = ctypes.string_at(mapped(bytearray(packed())), MAPS_OFFSET + 256)
    assert first[: params.SIZE] == packed() and first[MAPS_OFFSET:] == b"\1" * 128 + b"\2" * 128
    again = mapped(bytearray(packed()))
    assert ctypes.string_at(again, MAPS_OFFSET + 256) == first and encoded == [1 << 20, 1 << 21]
    other = mapped(bytearray(packed(pointers=(1 << 22, 1 << 21))))  # b is where it was
    assert ctypes.string_at(other, MAPS_OFFSET + 256)[MAPS_OFFSET:] == b"\3" * 128 + b"\2" * 128
    assert encoded == [1 << 20, 1 << 21, 1 << 22]


def test_only_eight_bit_floats_are_summed_in_fewer_bits():
    eight = workload(64, 64, 64, dtype="float8_e4m3fn", out="float16", trans_b=True)
    program = WGMMA.starters(eight, lookup("h200"))[0]
    assert {case.workload.accumulator for case in WGMMA.cases(program, eight, ())} == {"float22"}
    assert MMA.summed(eight) == eight and WGMMA.summed(workload(64, 64, 64)).accumulator == "float32"


def test_calls_that_copies_cannot_read_go_to_another_family():
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((1024, 512), (512, 1024)))
    with gensor_kernels.emulated("sm_90"):
        for given in (a[::-1], np.broadcast_to(a[0], a.shape), np.broadcast_to(b[:, 0], (1024, 512))):
            assert gensor_kernels.explain(gensor_kernels.matmul, given, b).family != WGMMA.name
        assert gensor_kernels.explain(gensor_kernels.matmul, a, b).family == WGMMA.name
        found = gensor_kernels.matmul(a, b)
        small = gensor_kernels.matmul(a[63::-1], b)
    wanted = a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=0.05)
    np.testing.assert_allclose(small, wanted[63::-1], rtol=2e-3, atol=0.05)
