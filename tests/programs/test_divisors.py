"""Divisors that the host sends: quotients of every number below 2**31, and those of the tiles that a launch has."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gensor_kernels.operators.types.geometry import Geometry
from gensor_kernels.programs.core import params
from gensor_kernels.programs.core.divisors import multiplier_and_shift
from gensor_kernels.programs.core.params import Tiling

MOST = 2**31 - 1


def quotient(value, multiplier, shift):
    """The arithmetic of divisor.cuh."""
    return (2 * value * multiplier >> 32) >> shift


@given(st.integers(1, MOST), st.integers(0, MOST))
def test_a_quotient_is_exact(divisor, value):
    multiplier, shift = multiplier_and_shift(divisor)
    assert multiplier < 2**32 and shift < 32
    multiple = value // divisor * divisor
    for each in (value, multiple, max(multiple - 1, 0), MOST):
        assert quotient(each, multiplier, shift) == each // divisor


@pytest.mark.parametrize("divisor", [1, 2, 3, 5, 7, 641, 2**16 - 1, 2**16 + 1, 2**30, 2**30 + 1, MOST - 1, MOST])
def test_small_numbers_and_the_last_ones(divisor):
    multiplier, shift = multiplier_and_shift(divisor)
    for values in (np.arange(1 << 16, dtype=object), np.arange(MOST - (1 << 12), MOST + 1, dtype=object)):
        assert (quotient(values, multiplier, shift) == values // divisor).all()


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
