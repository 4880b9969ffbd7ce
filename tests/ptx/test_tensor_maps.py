"""The double of the driver's encoders: each documented rule refuses a map, and the host path's own maps pass."""

import ctypes
import struct
from dataclasses import replace
from typing import Any

import pytest

from gensor_kernels.devices import tensor_maps as host
from gensor_kernels.devices.tensor_maps import encode
from gensor_kernels.errors import BuildError
from gensor_kernels.families.core import tensor_maps as core
from gensor_kernels.families.core.tensor_maps import Described, Pixels
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.types.geometry import Window
from tests.campaign_size import sample
from tests.doubles.strict import tensor_maps
from tests.doubles.strict.tensor_maps import CORNERS, FUNCTIONS, INVALID_VALUE, LAYOUT, MAGIC, encoders, refusals
from tests.mutator.programs import configurations
from tests.ptx.agreement import agree
from tests.ptx.tensor_toys import encoded

TILED = dict(address=1 << 41, kind=1, extents=(64, 10, 3), strides=(128, 1280), box=(64, 8, 1))
PIXELS = dict(address=1 << 41, kind=1, extents=(64, 9, 7, 2), strides=(128, 1152, 8064), box=(64, 100))
PIXELS |= dict(corners=((-1, -1), (-1, -1)))

REFUSED = [
    (TILED, dict(misplaced=32), "the map's address"),
    (TILED, dict(kind=13), "the type"),
    (TILED, dict(kind=-1), "the type"),
    (TILED, dict(extents=(), strides=(), box=()), "the rank"),
    (TILED, dict(address=(1 << 41) + 8), "the tensor's address"),
    (TILED, dict(extents=(64, 0, 3)), "extents"),
    (TILED, dict(extents=(2**32 + 1, 10, 3)), "extents"),
    (TILED, dict(strides=(136, 1280)), "strides"),
    (TILED, dict(strides=(128, 2**40)), "strides"),
    (TILED, dict(strides=(128, 0)), "strides are positive"),
    (PIXELS, dict(strides=(0, 1152, 8064)), "strides are positive"),
    (TILED, dict(box=(64, 257, 1)), "box extents"),
    (TILED, dict(box=(64, 0, 1)), "box extents"),
    (TILED, dict(box=(60, 8, 1)), "a box's rows are multiples"),
    (TILED, dict(box=(72, 8, 1)), "a box's rows are at most"),
    (TILED, dict(swizzle=2), "a box's rows are at most"),
    (TILED, dict(steps=(1, 9, 1)), "element strides"),
    (TILED, dict(steps=(1, 1, 0)), "element strides"),
    (TILED, dict(interleave=3), "interleave and swizzle"),
    (TILED, dict(swizzle=4), "interleave and swizzle"),
    (TILED, dict(interleave=2), "interleaved by 32 bytes"),
    (TILED, dict(interleave=2, swizzle=1, address=(1 << 41) + 16), "the tensor's address"),
    (TILED, dict(interleave=2, swizzle=1, strides=(144, 1280)), "strides"),
    (TILED, dict(interleave=1, extents=(64, 10), strides=(128,), box=(64, 8)), "an interleaved tensor"),
    (TILED, dict(fill=1), "only floats"),
    (TILED, dict(fill=2, kind=6), "L2 promotion"),
    (PIXELS, dict(extents=(64, 9), strides=(128,), corners=((), ())), "the rank"),
    (PIXELS, dict(corners=((-129, 0), (0, 0))), "corners"),
    (PIXELS, dict(corners=((0, 0), (0, 128))), "corners"),
    (PIXELS, dict(corners=((0, 0), (0, -7))), "the pixel box"),
    (PIXELS, dict(box=(257, 8), kind=0, swizzle=0), "a pixel has"),
    (PIXELS, dict(box=(64, 1025)), "a column has"),
    (PIXELS, dict(box=(64, 0)), "a column has"),
    (PIXELS, dict(box=(72, 8)), "a pixel's channels are at most"),
    (PIXELS, dict(box=(4, 8)), "a pixel's channels are multiples"),
    (PIXELS, dict(steps=(1, 9, 1, 1)), "element strides"),
]  # fmt: skip


def test_broken_rules_are_refused():
    for right, change, rule in REFUSED:
        assert encoded(**right)[0] == 0
        status, _ = encoded(**(right | change))
        assert status == INVALID_VALUE and refusals[-1].startswith(rule), change


@pytest.mark.parametrize("rank", CORNERS)
def test_corners_end_where_the_rank_says(rank):
    least, most = CORNERS[rank]
    extents = (64, *[2**17] * (rank - 2), 2)
    made = PIXELS | dict(extents=extents, strides=[128] * (rank - 1))
    inner = rank - 2
    for corners, status in (
        (([least] * inner, [least] * inner), 0),
        (([most] * inner, [most] * inner), 0),
        (([least] * inner, [most + 1, *[0] * (inner - 1)]), INVALID_VALUE),
        (([least - 1, *[0] * (inner - 1)], [0] * inner), INVALID_VALUE),
    ):
        assert encoded(**(made | dict(corners=corners)))[0] == status


def test_limits_are_accepted():
    assert encoded(**(TILED | dict(extents=(2**32, 10, 3), strides=(2**40 - 16, 16), steps=(200, 8, 1))))[0] == 0
    assert encoded(**(TILED | dict(box=(16, 256, 256), swizzle=1)))[0] == 0
    assert encoded(**(TILED | dict(interleave=2, swizzle=1)))[0] == 0
    assert encoded(**(PIXELS | dict(box=(8, 1024))))[0] == 0


def test_the_host_path_encodes_by_these_functions():
    tile = Described(1 << 41, (70, 10, 1, 1, 1), (144, 16, 16, 16), (64, 8), 2, False)
    pixels = Described(
        1 << 41, (64, 9, 7, 2), (256, 2304, 16128), (32, 100), 4, True, Pixels((-1, -2), (-1, 0), (2, 1))
    )
    with encoders():
        flat, image = encode(tile), encode(pixels)
        with pytest.raises(BuildError, match="refused a tensor map"):
            encode(Described((1 << 41) + 8, (70, 10, 1, 1, 1), (144, 16, 16, 16), (64, 8), 2, False))
    address, *numbers, last, magic, _ = LAYOUT.unpack(flat)
    assert (address, last, magic) == (1 << 41, 0, MAGIC)
    assert numbers[:9] == [70, 10, 1, 1, 1, 144, 16, 16, 16]
    assert numbers[9:20] == [64, 8, 1, 1, 1, 1, 1, 1, 1, 1, 5]
    assert numbers[26:] == [1, 2, 0, 3, 0, 0]
    _, *numbers, _, _, _ = LAYOUT.unpack(image)
    assert numbers[9:26] == [32, 100, 0, 0, 0, 1, 2, 1, 1, 0, 4, -1, -2, 0, -1, 0, 0]
    assert numbers[26:] == [11, 4, 0, 3, 0, 1]


PLAIN, PIXEL_ROWS = "wgmma: k-contiguous", "wgmma: pixels"
_map, _under = core._map, Pixels.under


def _turned(window: Window, name: str) -> Pixels:
    pixels = _under(window)
    return replace(pixels, **{name: getattr(pixels, name)[::-1]})


def _longer(*arguments: Any) -> Described:
    found = _map(*arguments)
    return replace(found, extents=(found.extents[0], found.extents[1] + 1, *found.extents[2:]))


#: Program, and what is wrong in the host path: a module, a name, and its other value
HOST_BUGS = [
    (PLAIN, host, "_SWIZZLE_128", 0),
    (PLAIN, host, "_SWIZZLE_128", 2),
    (PLAIN, host, "_ZEROS", 1),
    (PLAIN, host, "_TYPES", {1: 0, 2: 2, 4: 2}),
    (PLAIN, core, "_map", lambda *each: replace(_map(*each), address=_map(*each).address + 16)),
    (PLAIN, core, "_map", _longer),
    (PIXEL_ROWS, Pixels, "under", staticmethod(lambda window: _turned(window, "lower"))),
    (PIXEL_ROWS, Pixels, "under", staticmethod(lambda window: _turned(window, "upper"))),
    (PIXEL_ROWS, Pixels, "under", staticmethod(lambda window: _turned(window, "step"))),
]


@pytest.mark.usefixtures("needs_emulator")  # both are compiled by g++
@pytest.mark.parametrize(("program", "module", "name", "value"), sample(HOST_BUGS, 3))
def test_a_wrong_map_of_the_host_path_is_seen(program, module, name, value, monkeypatch):
    each = next(each for each in configurations() if f"{each.group}: {each.name}" == program)
    monkeypatch.setattr(module, name, value)
    target = lookup(each.arch).target
    found = agree(each.candidate, each.workload, target, emulated=False, chosen=lambda cases: cases[:1])
    assert found.outcome in ("wrong", "fault"), found


def test_arguments_of_other_types_are_refused():
    with pytest.raises(ctypes.ArgumentError):
        FUNCTIONS["cuTensorMapEncodeTiled"](64, 1, 1, 0, (ctypes.c_uint32 * 1)(64), None, None, None, 0, 3, 3, 0)
    assert struct.calcsize("<Q5Q4Q5H5BB3h3h6BHIQ") == tensor_maps.MAP_BYTES
