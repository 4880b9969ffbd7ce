"""Copies between tensors and shared memory, against boxes that are worked out element by element from the PTX ISA."""

import functools
import itertools

import numpy as np
import pytest

from tests.ptx.execute import Kernel, PtxFault
from tests.ptx.tensor_toys import (
    BAR,
    COMMIT,
    DUMP,
    FENCE,
    FILL,
    HEAD,
    INIT,
    TFLOAT32,
    UINT16,
    WAIT,
    WAIT_STORE,
    Toy,
    aligned,
    encoded,
    entry,
)

pytestmark = pytest.mark.usefixtures("needs_emulator")  # both are compiled by g++

#: coordinates, distances to a tap and bytes are words of the input
READ = "".join(f"ld.global.u32 %r{10 + n}, [%rd1+{4 * n}];" for n in range(8))
START = f"{READ} {INIT} {FENCE} {BAR} @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], %r17;"
FROM = "shared::cluster.global.{}.mbarrier::complete_tx::bytes"


def _load(rank: int, mode: str) -> str:
    at = ", ".join(f"%r{10 + n}" for n in range(rank))
    moved = ", {%rs1, %rs2}" if mode == "im2col" else ""
    words = "cvt.u16.u32 %rs1, %r15; cvt.u16.u32 %rs2, %r16;"
    opcode = f"cp.async.bulk.tensor.{rank}d.{FROM.format(mode)}"
    return f"{START} {words} @%p1 {opcode} [%r2], [%rd3, {{{at}}}], [%r1]{moved}; {WAIT} {DUMP}"


def _store(rank: int) -> str:
    at = ", ".join(f"%r{10 + n}" for n in range(rank))
    opcode = f"cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group"
    fenced = f"{READ} {FILL} fence.proxy.async.shared::cta; {BAR}"
    return f"{fenced} @%p1 {opcode} [%rd3, {{{at}}}], [%r2]; {COMMIT} {WAIT_STORE} {BAR}"


@functools.cache
def kernel() -> Kernel:
    """All entries of this file, compiled once."""
    loads = "".join(entry(f"tile{rank}", _load(rank, "tile")) for rank in (1, 2, 3, 5))
    return Kernel(HEAD + loads + entry("pixels4", _load(4, "im2col")) + entry("store2", _store(2)))


def fetch(name: str, tensor: np.ndarray, at: tuple[int, ...], size: int, moved=(0, 0), *, late=False, **made):
    """The first 2048 bytes of the box after a copy of `size` bytes."""
    out, source = np.zeros(2048, np.uint8), np.zeros(8, np.int32)
    source[: len(at)], source[5:7], source[7] = at, moved, size
    toy = Toy(out, source, tensor)
    status, text = encoded(toy.tensor, **made)
    assert status == 0
    toy.run(kernel(), name, text, late=late)
    return out


def layout(rows: list[np.ndarray], swizzle: int) -> np.ndarray:
    """Rows in shared memory that begins as ones: 16-byte chunks, permuted within 32, 64 or 128 bytes."""
    out = np.full(2048, 0xFF, np.uint8)
    text = b"".join(row.tobytes() for row in rows)
    for chunk in range(len(text) // 16):
        to = chunk ^ (chunk >> 3 & (2**swizzle - 1))
        out[16 * to : 16 * to + 16] = np.frombuffer(text[16 * chunk : 16 * chunk + 16], np.uint8)
    return out


def element(tensor: np.ndarray, extents, strides, at) -> int:
    """One element of a tensor whose strides are elements, 0 outside of it."""
    if any(not 0 <= each < extent for each, extent in zip(at, extents, strict=True)):
        return 0
    return tensor[at[0] + sum(each * stride for each, stride in zip(at[1:], strides, strict=True))]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("at", [(0, 0), (16, 5), (-3, -2), (40, 15), (64, 3), (3, 30)])
def test_a_box_is_swizzled_and_zero_outside(at, late):
    tensor = aligned(20 * 80, np.uint16)
    tensor[:] = np.arange(1, 1 + 20 * 80)
    size = dict(kind=UINT16, extents=(70, 20), strides=(160,), box=(64, 8))
    inside = [(at[0] + j, at[1] + i) for i in range(8) for j in range(64)]
    rows = [
        np.array([element(tensor, (70, 20), (80,), inside[64 * i + j]) for j in range(64)], np.uint16) for i in range(8)
    ]
    assert np.array_equal(fetch("tile2", tensor, at, 1024, late=late, **size), layout(rows, 3))


@pytest.mark.parametrize("swizzle", [0, 1, 2])
def test_swizzles_of_narrow_rows(swizzle):
    tensor = aligned(64 * 16, np.uint8)
    tensor[:] = np.random.default_rng(0).integers(0, 256, 1024)
    width = (64, 32, 64)[swizzle]
    rows = [tensor[64 * i : 64 * i + width] for i in range(16)]
    got = fetch(
        "tile2", tensor, (0, 0), 16 * width, kind=0, extents=(64, 16), strides=(64,), box=(width, 16), swizzle=swizzle
    )
    assert np.array_equal(got, layout(rows, swizzle))


def test_a_box_of_five_axes_with_steps():
    extents, strides, box, steps = (64, 3, 4, 5, 3), (64, 192, 768, 3840), (64, 2, 3, 1, 2), (1, 1, 2, 1, 1)
    tensor = aligned(3840 * 3, np.uint16)
    tensor[:] = np.arange(3840 * 3)
    at = (0, 2, 1, 4, 1)
    rows = [
        np.array([element(tensor, extents, strides, (j, 2 + y, 1 + 2 * z, 4, 1 + v)) for j in range(64)], np.uint16)
        for v, z, y in itertools.product(range(2), range(2), range(2))
    ]
    bytes_apart = [2 * each for each in strides]
    got = fetch("tile5", tensor, at, 1024, kind=UINT16, extents=extents, strides=bytes_apart, box=box, steps=steps)
    assert np.array_equal(got, layout(rows, 3))


def test_a_line_of_one_axis():
    tensor = aligned(100, np.uint16)
    tensor[:] = np.arange(1, 101)
    rows = [np.concatenate([tensor[70:], np.zeros(34, np.uint16)])]
    got = fetch("tile1", tensor, (70,), 128, kind=UINT16, extents=(100,), strides=(), box=(64,))
    assert np.array_equal(got, layout(rows, 3))


def test_copies_for_tf32_round_to_nearest_even():
    tensor = aligned(32, np.uint32)
    tensor[:8] = [0x3F800FFF, 0x3F801000, 0x3F801001, 0x3F803000, 0xBF803000, 0x7F800000, 0x7F7FFFFF, 0x00001001]
    rounded = [0x3F800000, 0x3F800000, 0x3F802000, 0x3F804000, 0xBF804000, 0x7F800000, 0x7F800000, 0x00002000]
    rows = [np.array([*rounded, *[0] * 24], np.uint32)]
    got = fetch("tile2", tensor, (0, 0), 128, kind=TFLOAT32, extents=(32, 1), strides=(128,), box=(32, 1))
    assert np.array_equal(got, layout(rows, 3))


#: corners below and above (column, row), steps, first pixel (channel, column, row, image), the tap's distance
PIXELS = {
    "padded": ((-1, -1), (-1, -1), (1, 1), (0, -1, -1, 0), (0, 0)),
    "behind a tap": ((-1, -1), (-1, -1), (1, 1), (0, 3, 1, 0), (2, 1)),
    "in steps": ((-1, -1), (-1, 0), (2, 2), (0, 1, -1, 0), (1, 2)),
    "channels outside": ((0, 0), (0, 0), (1, 1), (16, 4, 2, 1), (0, 0)),
    "images outside": ((0, 0), (0, 0), (1, 1), (0, 3, 3, 2), (0, 0)),
}


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("name", PIXELS)
def test_pixels_are_walked_inside_of_their_box(name, late):
    lower, upper, step, first, moved = PIXELS[name]
    channels, width, height, images = 24, 6, 5, 3
    tensor = aligned(channels * width * height * images, np.uint16)
    tensor[:] = np.arange(1, 1 + len(tensor))
    extents, strides = (channels, width, height, images), (channels, channels * width, channels * width * height)
    columns = list(range(lower[0], width + upper[0], step[0]))
    lines = list(range(lower[1], height + upper[1], step[1]))
    walk = [(x, y, image) for image in range(images + 1) for y in lines for x in columns]
    begin = walk.index(first[1:])
    rows = [
        np.array(
            [element(tensor, extents, strides, (first[0] + c, x + moved[0], y + moved[1], n)) for c in range(64)],
            np.uint16,
        )
        for x, y, n in walk[begin : begin + 12]
    ]
    rows += [np.zeros(64, np.uint16)] * (12 - len(rows))
    made = dict(kind=UINT16, extents=extents, strides=[2 * each for each in strides], box=(64, 12))
    made |= dict(corners=(lower, upper), steps=(1, *step, 1))
    got = fetch("pixels4", tensor, first, 12 * 128, moved, late=late, **made)
    assert np.array_equal(got, layout(rows, 3))


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("at", [(0, 0), (24, 3), (-8, -2)])
def test_a_stored_box_leaves_what_is_outside(at, late):
    tensor = aligned(6 * 48, np.uint32)
    source = np.zeros(8, np.int32)
    source[:2] = at
    toy = Toy(np.zeros(1, np.uint8), source, tensor, writable=True)
    status, text = encoded(toy.tensor, 2, (40, 6), (192,), (32, 8))
    assert status == 0
    toy.run(kernel(), "store2", text, late=late)
    want = np.zeros((6, 48), np.uint32)
    for i, j in itertools.product(range(8), range(32)):
        y, x, chunk = at[1] + i, at[0] + j, 8 * i + (j // 4 ^ i % 8)
        if 0 <= y < 6 and 0 <= x < 40:
            want[y, x] = chunk // 4  # a thread fills four chunks
    assert np.array_equal(tensor.reshape(6, 48), want)


def test_wrong_boxes_are_faults():
    tensor = aligned(24 * 30, np.uint16)
    pixels = dict(kind=UINT16, extents=(24, 6, 5, 1), strides=(48, 288, 1440), box=(64, 12))
    pixels |= dict(corners=((-1, -1), (-1, -1)))
    flat = dict(kind=UINT16, extents=(70, 10), strides=(144,), box=(64, 8))
    for name, at, moved, made, kind in (
        ("pixels4", (0, -2, 0, 0), (0, 0), pixels, "map"),  # outside of the pixel box
        ("pixels4", (0, 0, 0, 0), (256, 0), pixels, "map"),
        ("tile3", (0, 0, 0), (0, 0), flat, "map"),  # of another rank
        ("tile2", (0, 8), (0, 0), flat | dict(extents=(70, 11)), "out_of_bounds"),  # a map of more than there is
        ("tile2", (0, 0), (0, 0), flat | dict(box=(32, 8)), "map"),
    ):
        with pytest.raises(PtxFault, match=f"^{kind}: "):
            fetch(name, tensor, at, 1024, moved, **made)
