"""The packed `Params`: sizes, offsets, what `pack` puts where, and divisors that the host sends."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gensor_kernels.families.core import params
from gensor_kernels.families.core.divisors import multiplier_and_shift
from gensor_kernels.families.core.params import Step, Tiling
from gensor_kernels.operators.products import normed
from gensor_kernels.operators.types.geometry import Geometry, Strides, Window

TILES = Tiling(tiles_m=3, tiles_n=4, split=2, k_per_split=64, raster=8, advance=(9, 8, 7))


def read(blob, offset, code):
    return struct.unpack_from("<" + code, blob, offset)


def test_sizes_are_those_of_the_c_struct():
    assert (params.HEAD_BYTES, params.STEP_BYTES, params.SIZE) == (264, 64, 840)


def test_pack_puts_every_number_at_its_offset():
    geometry = Geometry(
        (16, 17, 18),
        (2, 3, 5),
        Strides((1, 2, 3), 4, 5),
        Strides((6, 7, 8), 9, 10),
        Strides((11, 12, 13), -14, 15),
        Strides((16, 17, 18), 19, 20),
        tail=Window((1, 2, 3), (4, 5, 6), (7, 8), (9, 10), (11, 12), (13, 14), (15, 16), (17, 18), (19, 20), 21).pack(),
    )
    blob = params.pack(
        geometry,
        TILES,
        steps=[Step(1, 2.5), Step(2, dtype="bfloat16", strides=Strides((0, 0, 1), 0, 1), pointer=99)],
        integer_steps=1,
        pointers=params.pointers(geometry, [100, 200, 500], 300, 400),
    )
    assert len(blob) == params.SIZE
    assert read(blob, 0, "5Q") == (100, 200, 300, 400, 500)
    assert read(blob, 40, "20q") == (*range(1, 14), -14, *range(15, 21))
    assert read(blob, 200, "4i2i") == (16, 17, 18, 30, 3, 5)
    assert read(blob, 224, "6i4i") == (3, 4, 2, 64, 8, 2, 1, 9, 8, 7)
    assert read(blob, 264, "Q5qd2i") == (0, 0, 0, 0, 0, 0, 2.5, 1, 1)
    assert read(blob, 328, "Q5qd2i") == (99, 0, 0, 1, 0, 1, 0.0, 2, 3)
    assert not any(blob[392:648]) and read(blob, 648, "7q16i") == (*range(1, 7), 21, *range(7, 21), 0, 0)


def test_eps_of_a_norm_is_a_double():
    blob = params.pack(Geometry((1, 1, 1), tail=normed.params_tail(0.1, 3)), TILES)
    assert read(blob, params.TAIL_OFFSET, "di") == (0.1, 3)


def test_writers_change_only_their_place():
    blob = params.pack(Geometry((1, 1, 1)), TILES, pointers=(9, 9, 9, 9))
    buffer = bytearray(params.SIZE)
    params.write_call(buffer, 0, 1, 2, 3, blob[params.OPERAND_BYTES :])
    assert read(buffer, 0, "4Q") == (1, 2, 3, 9) and buffer[24:] == blob[24:]
    params.write_pointer(buffer, params.WORKSPACE_OFFSET, 4)
    params.write_pointer(buffer, params.step_offset(5), 2**63)
    params.write_scalar(buffer, params.step_offset(5) + params.SCALAR_OFFSET, 0.5)
    assert read(buffer, 24, "Q") == (4,) and buffer[32 : params.step_offset(5)] == blob[32 : params.step_offset(5)]
    assert read(buffer, params.step_offset(5), "Q5qd2i") == (2**63, 0, 0, 0, 0, 0, 0.5, 0, 0)


@pytest.mark.parametrize(("k", "split", "per_split"), [(0, 1, 32), (1, 1, 32), (100, 2, 64), (100, 4, 32), (96, 2, 64)])
def test_splits_are_whole_k_tiles_and_cover_k(k, split, per_split):
    tiles = params.tiling({"m": 64, "n": 32, "k": 32, "split": split, "raster": 1}, Geometry((65, 64, k)))
    assert (tiles.tiles_m, tiles.tiles_n) == (2, 2)
    assert tiles.k_per_split == per_split and per_split * split >= k


def test_too_many_steps_and_too_large_numbers_are_errors():
    with pytest.raises(ValueError, match="at most 6"):
        params.pack(Geometry((1, 1, 1)), TILES, steps=[Step(5)] * 7)
    with pytest.raises(struct.error):
        params.pack(Geometry((2**31, 1, 1)), TILES)


# ---- divisors: quotients of every number below 2**31

MOST = 2**31 - 1


def quotient(value, multiplier, shift):
    return (2 * value * multiplier >> 32) >> shift


@given(st.integers(1, MOST), st.integers(0, MOST))
def test_a_quotient_is_exact(divisor, value):
    multiplier, shift = multiplier_and_shift(divisor)
    assert multiplier < 2**32 and shift < 32
    multiple = value // divisor * divisor
    for each in (value, multiple, max(multiple - 1, 0), MOST):
        assert quotient(each, multiplier, shift) == each // divisor


def test_divisors_are_those_of_the_launch():
    geometry = Geometry((1000, 96, 64), (2, 3, 5))
    packed = params.pack(geometry, Tiling(tiles_m=11, tiles_n=7, split=3, k_per_split=64, raster=4))
    found = list(struct.iter_unpack("<3I", packed[params.TAIL_END :][:60]))
    wanted = (77, 3, 5, 3, 28)  # tiles, parts, inner and middle batch axis, group
    assert found == [(each, *multiplier_and_shift(each)) for each in wanted]


def test_other_numbers_of_a_stream_divide_nothing():
    packed = params.pack(Geometry((8, 8, 8)), Tiling(tiles_m=1, tiles_n=1, split=-5, k_per_split=-1, raster=0))
    found = list(struct.iter_unpack("<3I", packed[params.TAIL_END :][:60]))
    assert found == [(1, *multiplier_and_shift(1))] * 5
