"""Products in tensor memory (tcgen05): every kind, major axis and number of blocks against the definition."""

import functools
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
import pytest

from gensor_kernels.devices.emulator import AddressSpace, build, run
from gensor_kernels.families.core import params
from gensor_kernels.families.core.family import Launch
from gensor_kernels.families.core.params import Tiling
from gensor_kernels.families.core.source import SOURCES, bind, flatten
from gensor_kernels.families.core.tensor_maps import TensorMap
from gensor_kernels.operators.types.geometry import Geometry, Strides
from tests.doubles.emulated_kernels import toy
from tests.doubles.kernels import aligned
from tests.ptx.execute import Kernel, Memory

E2M1, E4M3, E5M2 = ml_dtypes.float4_e2m1fn, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
E8M0, BFLOAT16 = ml_dtypes.float8_e8m0fnu, ml_dtypes.bfloat16
#: elements of 16 bits in a row of 128 bytes, and rows of a box
ROW = 64
MAPS = tuple(TensorMap(operand, operand == "b", 2, ROW) for operand in "ab")


@dataclass(frozen=True)
class Kind:
    """Types of A and B, whether M and N are contiguous instead of k, and the type of scales of `values` numbers."""

    a: type
    b: type
    across: tuple[int, int] = (0, 0)
    of_scales: type | None = None
    values: int = 0
    seed: np.random.Generator = field(default_factory=lambda: np.random.default_rng(3), compare=False)

    def drawn(self, rows: int, dtype: type) -> tuple[np.ndarray, np.ndarray | None]:
        """Rows of 128 bytes of k, and their scales."""
        shape = rows, 256 if dtype is E2M1 else 128 // np.dtype(dtype).itemsize
        if dtype is np.int8:
            return self.seed.integers(-128, 128, shape).astype(dtype), None
        numbers = (self.seed.standard_normal(shape) * 2.0 ** self.seed.integers(-3, 4, shape)).astype(dtype)
        if self.of_scales is None:
            return numbers, None
        scales = 2.0 ** self.seed.integers(-3, 4, (rows, shape[1] // self.values))
        return numbers, (scales * 1.25 if self.of_scales is E4M3 else scales).astype(self.of_scales)


KINDS = {
    "halves": Kind(np.float16, np.float16),
    "halves_across": Kind(np.float16, np.float16, (1, 1)),
    "brains": Kind(BFLOAT16, BFLOAT16, (0, 1)),
    "floats": Kind(np.float32, np.float32),
    "e4m3": Kind(E4M3, E4M3),
    "e5m2_e4m3": Kind(E5M2, E4M3),
    "integers": Kind(np.int8, np.int8),
    "pair_halves": Kind(np.float16, np.float16, (1, 0)),
    "pair_e4m3_e5m2": Kind(E4M3, E5M2),
    "pair_integers": Kind(np.int8, np.int8),
    "held_halves": Kind(np.float16, np.float16),
    "held_brains": Kind(BFLOAT16, BFLOAT16),
    "mxfp8": Kind(E4M3, E5M2, of_scales=E8M0, values=32),
    "mxfp4": Kind(E2M1, E2M1, of_scales=E8M0, values=32),
    "nvfp4": Kind(E2M1, E2M1, of_scales=E4M3, values=16),
    "nvfp4_plain": Kind(E2M1, E2M1, of_scales=E4M3, values=16),
    "pair_mxfp8": Kind(E5M2, E4M3, of_scales=E8M0, values=32),
    "pair_nvfp4": Kind(E2M1, E2M1, of_scales=E4M3, values=16),
}


def image(matrix: np.ndarray, across: int) -> np.ndarray:
    """The rows of boxes: those of the matrix or, of 64 rows each, their transposes."""
    if matrix.dtype == E2M1:
        codes = matrix.view(np.uint8)
        matrix = codes[:, ::2] | codes[:, 1::2] << 4
    if across:
        matrix = matrix.reshape(-1, ROW, ROW).swapaxes(1, 2)
    return np.ascontiguousarray(matrix).view(np.uint8).reshape(-1, 128)


def image_of_scales(scales: np.ndarray, plain: bool) -> np.ndarray:
    """Half a box: in column q of 16 bytes, or `plain` in piece q of 512 bytes, scales 4 q to 4 q + 3 of 128 rows."""
    codes = np.zeros((128, 16), np.uint8)
    codes[: len(scales), : scales.shape[1]] = scales.view(np.uint8)
    pieces = codes.reshape(4, 32, 4, 4).transpose(2, 1, 0, 3).reshape(4, 32, 16)  # q, lane, four rows of four
    box = np.zeros((32, 8, 16), np.uint8)
    if not plain:
        box[:, :4] = pieces.swapaxes(0, 1)
    else:  # copies store chunk c of row r as number c ^ r % 8
        row, chunk = np.ogrid[:16, :8]
        box[:16] = pieces.reshape(16, 8, 16)[row, chunk ^ row % 8]
    return box.reshape(32, 128)


def source() -> str:
    """Return the source of all entries."""
    stores = (SOURCES / "device" / "blackwell_stores.cuh").read_text().split('#include "blackwell.cuh"\n')[1]
    return bind(flatten("blackwell_scales.cuh") + stores + '#line 1 "test.cu"\n' + toy("tensor_products"), {})


@functools.cache
def ptx() -> Kernel:
    """Return the same for the executor, which cuts sums as the emulator does."""
    return Kernel.of(source(), "sm_100a", truncated=True)


def multiplied(entry: str, a, b, of_a, of_b, *, executed: bool = False, **options) -> np.ndarray:
    """Return the product of rows of A and B, with their scales, by the emulator, or executed from the PTX."""
    kind, blocks = KINDS[entry], len(a) // 128
    first, second = image(a, kind.across[0]), image(b, kind.across[1])
    if kind.values:
        halves = (x for block in range(blocks) for x in (of_a[128 * block :][:128], of_b))
        first = np.concatenate([first, *(image_of_scales(x, entry.endswith("plain")) for x in halves)])
    c = np.zeros((len(a), len(b)), np.int32 if kind.a is np.int8 else np.float32)
    space = Memory() if executed else AddressSpace()
    placed = [*(aligned(x.shape, np.uint8) for x in (first, second)), c]
    placed[0][...], placed[1][...] = first, second
    pointers = tuple(space.place(x.ctypes.data, x.nbytes, x is c) for x in placed)
    rows = Strides((0, 0, 0), ROW, 1)
    geometry = Geometry((len(first), len(second), ROW), a=rows, b=Strides((0, 0, 0), 1, ROW), c=rows)
    launch = Launch(entry, blocks, 128, 1024 + 4 * 8192, MAPS, cluster=blocks)
    packed = params.pack(geometry, Tiling(1, 1, 1, ROW, 1), pointers=pointers)
    if executed:
        ptx().run([launch], packed, space, **options)
        return c
    counters = run(build(source()), [launch], packed, space.buffers, **options)
    assert counters["group_multiplies"] == 4 * 8 * blocks
    return c


def cut(terms: np.ndarray, largest: np.ndarray) -> np.ndarray:
    """Terms without the bits beyond the largest one's 24."""
    unit = 2.0 ** (np.frexp(largest)[1] - 24)
    return np.trunc(terms / unit) * unit


def exact(rows: np.ndarray, scales: np.ndarray | None) -> np.ndarray:
    if rows.dtype == np.float32:  # as tf32
        rows = (rows.view(np.uint32) & 0xFFFFE000).view(np.float32)
    rows = rows.astype(np.float64)
    return rows if scales is None else rows * scales.astype(np.float64).repeat(rows.shape[1] // scales.shape[1], 1)


def summed(a: np.ndarray, b: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Sums of blocks of four along k, each cut to the bits of a float."""
    for k in range(0, a.shape[1], 4):
        terms = np.concatenate([sums[..., None], a[:, None, k : k + 4] * b[None, :, k : k + 4]], axis=2)
        total = cut(terms, np.abs(terms).max(axis=2, keepdims=True)).sum(axis=2)
        sums = cut(total, total)
    return sums


@pytest.mark.usefixtures("needs_emulator")
@pytest.mark.parametrize("scaled", [False, True])
def test_products_of_every_kind(scaled: bool):
    for entry, kind in KINDS.items():
        if scaled != bool(kind.values):
            continue
        blocks = 2 if entry.startswith("pair") else 1
        (a, of_a), (b, of_b) = kind.drawn(128 * blocks, kind.a), kind.drawn(64 * blocks, kind.b)
        early, late = (multiplied(entry, a, b, of_a, of_b, **how) for how in ({"copies": "early"}, {"order": 5}))
        rows, columns = exact(a, of_a), exact(b, of_b)
        held = entry.startswith("held")
        before = np.subtract.outer(np.arange(len(a)), np.arange(len(b))) * (0.25 if held else 0.0)
        assert np.array_equal(early, rows @ columns.T if kind.a is np.int8 else summed(rows, columns, before)), entry
        assert np.array_equal(late, early), entry
        executed = multiplied(entry, a, b, of_a, of_b, executed=True, late=True, order=3, ordered=True)
        assert np.array_equal(executed, early), entry
