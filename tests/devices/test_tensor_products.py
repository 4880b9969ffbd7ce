"""Products in tensor memory (tcgen05): every kind, major axis and number of blocks against the definition."""

import ml_dtypes
import numpy as np
import pytest

from gensor_kernels.devices.emulator import AddressSpace, build, run
from gensor_kernels.families.core import params
from gensor_kernels.families.core.family import Launch
from gensor_kernels.families.core.params import Tiling
from gensor_kernels.families.core.source import bind, flatten
from gensor_kernels.families.core.tensor_maps import TensorMap
from gensor_kernels.operators.types.geometry import Geometry, Strides
from tests.doubles.emulated_kernels import toy
from tests.doubles.kernels import aligned

E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
#: elements of 16 bits in a row of 128 bytes, and rows of a box
ROW = 64
MAPS = tuple(TensorMap(operand, operand == "b", 2, ROW) for operand in "ab")
#: entry -> types of A and B, and whether M and N are contiguous instead of k
KINDS = {
    "halves": (np.float16, np.float16, 0, 0),
    "halves_across": (np.float16, np.float16, 1, 1),
    "brains": (ml_dtypes.bfloat16, ml_dtypes.bfloat16, 0, 1),
    "floats": (np.float32, np.float32, 0, 0),
    "e4m3": (E4M3, E4M3, 0, 0),
    "e5m2_e4m3": (E5M2, E4M3, 0, 0),
    "integers": (np.int8, np.int8, 0, 0),
    "pair_halves": (np.float16, np.float16, 1, 0),
    "pair_e4m3_e5m2": (E4M3, E5M2, 0, 0),
    "pair_integers": (np.int8, np.int8, 0, 0),
}


def drawn(rows: int, dtype: type, seed: int) -> np.ndarray:
    """Rows of 128 bytes of k."""
    rng = np.random.default_rng(seed)
    shape = rows, 128 // np.dtype(dtype).itemsize
    if dtype is np.int8:
        return rng.integers(-128, 128, shape).astype(dtype)
    return (rng.standard_normal(shape) * 2.0 ** rng.integers(-3, 4, shape)).astype(dtype)


def image(matrix: np.ndarray, across: bool) -> np.ndarray:
    """The rows of boxes: those of the matrix or, of 64 rows each, their transposes."""
    if across:
        matrix = matrix.reshape(-1, ROW, ROW).swapaxes(1, 2)
    rows = aligned((matrix.size // ROW * matrix.itemsize // 2, ROW), np.uint16)
    rows[...] = np.ascontiguousarray(matrix).view(np.uint16).reshape(rows.shape)
    return rows


def multiplied(entry: str, a: np.ndarray, b: np.ndarray, **options) -> np.ndarray:
    blocks = len(a) // 128
    c = np.zeros((len(a), len(b)), np.int32 if a.dtype == np.int8 else np.float32)
    images, space = [image(x, across) for x, across in zip((a, b), KINDS[entry][2:], strict=True)], AddressSpace()
    pointers = tuple(space.place(x.ctypes.data, x.nbytes, x is c) for x in (*images, c))
    rows = Strides((0, 0, 0), ROW, 1)
    geometry = Geometry((len(a), len(b), ROW), a=rows, b=Strides((0, 0, 0), 1, ROW), c=rows)
    library = build(bind(flatten("blackwell.cuh") + '#line 1 "test.cu"\n' + toy("tensor_products"), {}))
    launch = Launch(entry, blocks, 128, 1024 + 3 * 8192, MAPS, cluster=blocks)
    packed = params.pack(geometry, Tiling(1, 1, 1, ROW, 1), pointers=pointers)
    counters = run(library, [launch], packed, space.buffers, **options)
    assert counters["group_multiplies"] == 4 * 8 * blocks
    return c


def cut(terms: np.ndarray, largest: np.ndarray) -> np.ndarray:
    """Terms without the bits beyond the largest one's 24."""
    unit = 2.0 ** (np.frexp(largest)[1] - 24)
    return np.trunc(terms / unit) * unit


def summed(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Sums of blocks of four along k, each cut to the bits of a float."""
    if a.dtype == np.int8:
        return a.astype(np.int64) @ b.astype(np.int64).T
    a, b = ((x.view(np.uint32) & 0xFFFFE000).view(np.float32) if x.dtype == np.float32 else x for x in (a, b))
    sums = np.zeros((len(a), len(b)))
    for k in range(0, a.shape[1], 4):
        products = a[:, None, k : k + 4].astype(np.float64) * b[None, :, k : k + 4].astype(np.float64)
        terms = np.concatenate([sums[..., None], products], axis=2)
        total = cut(terms, np.abs(terms).max(axis=2, keepdims=True)).sum(axis=2)
        sums = cut(total, total)
    return sums


@pytest.mark.usefixtures("needs_emulator")
def test_products_of_every_kind():
    for seed, (entry, (of_a, of_b, *_)) in enumerate(KINDS.items()):
        blocks = 2 if entry.startswith("pair") else 1
        a, b = drawn(128 * blocks, of_a, seed), drawn(64 * blocks, of_b, seed + 100)
        early, late = multiplied(entry, a, b, copies="early"), multiplied(entry, a, b, order=seed)
        assert np.array_equal(early, summed(a, b)), entry
        assert np.array_equal(late, early), entry
