"""mma with block scales, by both readings: fragments and scales as the manual's figures and CUTLASS's traits place
them, and sums bit for bit."""

import itertools
import re
import struct
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from gensor_kernels.families.core.family import Launch
from gensor_kernels.families.core.source import files
from gensor_kernels.operators.products.quantised import numbers
from gensor_kernels.operators.types.dtypes import decode
from tests.doubles.emulated_kernels import SMALL, execute, source, toy
from tests.ptx.execute import Kernel, Memory, PtxFault

pytestmark = pytest.mark.usefixtures("needs_emulator")  # both are compiled by g++

BYTES = ("float8_e4m3fn", "float8_e5m2")
NIBBLES, POWERS, EIGHTS = "float4_e2m1fn_x2", "float8_e8m0fnu", "float8_e4m3fn"
#: (type of a, of b, of scales, scales of a row), by the mode of the toy
FORMS = [
    *((a, b, POWERS, 1) for a in BYTES for b in BYTES),
    (NIBBLES, NIBBLES, POWERS, 2),
    (NIBBLES, NIBBLES, EIGHTS, 4),
]
KERNEL = files()["block_scaled.cuh"].read_text().replace('#include "intrinsics.cuh"', "") + toy("scaled_fragments")


def place_a(lane: int, byte: int) -> tuple[int, int]:
    """Row and byte along k of a byte of a lane's four registers of A."""
    return lane // 4 + (8 if byte // 4 % 2 else 0), lane % 4 * 4 + byte % 4 + (16 if byte >= 8 else 0)


def place_b(lane: int, byte: int) -> tuple[int, int]:
    """Column and byte along k of a byte of a lane's two registers of B."""
    return lane // 4, lane % 4 * 4 + byte % 4 + (16 if byte >= 4 else 0)


def row_of(lane: int, pair: int) -> int | None:
    """The row of A whose scales a lane supplies, if any."""
    return lane // 4 + 8 * (lane % 2) if lane % 4 // 2 == pair else None


def column_of(lane: int, chosen: int) -> int | None:
    """The column of B whose scales a lane supplies, if any."""
    return lane // 4 if lane % 4 == chosen else None


def words(rng, a, b, scales_a, scales_b, c, byte: int, pair: int, lane: int) -> np.ndarray:
    """The words of all lanes; every byte that no figure names is drawn."""
    found = rng.integers(0, 256, (32, 12, 4), dtype=np.uint8)
    for each in range(32):
        flat = found[each].reshape(-1)
        for i in range(16):
            flat[i] = a[place_a(each, i)]
        for i in range(8):
            flat[16 + i] = b[place_b(each, i)]
        for at, own, scales in ((24, row_of(each, pair), scales_a), (28, column_of(each, lane), scales_b)):
            if own is not None:
                flat[at + byte : at + byte + scales.shape[1]] = scales[own]
        rows = each // 4 + 8 * np.arange(2)
        found[each, 8:] = c[rows[:, None], each % 4 * 2 + np.arange(2)].reshape(4, 1).view(np.uint8)
    return found


@cache
def executor(truncated: bool) -> Kernel:
    return Kernel.of(source(SMALL + KERNEL), "sm_120a", truncated=truncated)


def product(mode: int, given: np.ndarray, place: tuple[int, int, int], *, ptx: bool, truncated: bool = False):
    """The sums (16, 8) of one reading."""
    byte, pair, lane = place
    which, out = byte | pair << 2 | lane << 3, np.zeros((32, 4), np.float32)
    if ptx:
        memory = Memory()
        at = [memory.place(each.ctypes.data, each.nbytes, each is out) for each in (given, out)]
        packed = struct.pack("<6Qii", *at, *[0] * 4, which, mode)
        executor(truncated).run([Launch("test", 1, 32, 0)], packed, memory, late=True, order="reverse")
    else:
        execute(KERNEL, [given, out], n=which, mode=mode)
    return out.reshape(8, 4, 2, 2).transpose(2, 0, 1, 3).reshape(16, 8)


def drawn(rng, mode: int, spread: int):
    """Bytes of a, b and their scales, and c, all finite; of a small spread sums are exact."""
    a_type, b_type, scale, count = FORMS[mode]

    def numbers_of(name: str, rows: int) -> np.ndarray:
        if name == NIBBLES:
            return rng.integers(0, 256, (rows, 32), dtype=np.uint8)
        if spread:
            return rng.integers(0, 0x7C, (rows, 32), dtype=np.uint8) | rng.integers(0, 2, (rows, 32), np.uint8) << 7
        kind = {BYTES[0]: ml_dtypes.float8_e4m3fn, BYTES[1]: ml_dtypes.float8_e5m2}[name]
        return rng.integers(-4, 5, (rows, 32)).astype(kind).view(np.uint8)

    middle, most = (127, 40) if scale == POWERS else (56, 50)
    near = min(spread, most) or 3 * (scale == POWERS)
    scales = [rng.integers(middle - near, middle + near + 1, (rows, count), np.uint8) for rows in (16, 8)]
    c = rng.integers(-64, 65, (16, 8)).astype(np.float32) * np.float32(2.0 ** rng.integers(-spread, spread + 1))
    return numbers_of(a_type, 16), numbers_of(b_type, 8), *scales, c


def exact(mode: int, a, b, scales_a, scales_b, c) -> np.ndarray:
    a_type, b_type, scale, _ = FORMS[mode]
    left, right = numbers(a_type, a), numbers(b_type, b)
    of_a, of_b = (np.repeat(decode(scale, each), left.shape[1] // each.shape[1], 1) for each in (scales_a, scales_b))
    return (left * of_a) @ (right * of_b).T + c


@pytest.mark.parametrize("mode", range(len(FORMS)))
def test_numbers_and_scales_are_where_the_figures_place_them(mode):
    rng = np.random.default_rng(mode)
    places = [each for each in itertools.product(range(4), range(2), range(4)) if each[0] % FORMS[mode][3] == 0]
    for place in places:
        given = drawn(rng, mode, 0)
        wanted, lanes = exact(mode, *given), words(rng, *given, *place)
        for ptx in (True, False):
            np.testing.assert_array_equal(product(mode, lanes, place, ptx=ptx), wanted, str(place))


@pytest.mark.parametrize("mode", range(len(FORMS)))
def test_both_readings_cut_the_same_sums(mode):
    rng, place, rounded = np.random.default_rng(mode), (0, 1, 2), True
    for spread in (1, 4, 12, 40):
        lanes = words(rng, *drawn(rng, mode, spread), *place)
        mine, theirs = product(mode, lanes, place, ptx=False), product(mode, lanes, place, ptx=True, truncated=True)
        np.testing.assert_array_equal(mine, theirs)
        rounded &= bool((mine == product(mode, lanes, place, ptx=True)).all())
    assert not rounded


@pytest.mark.parametrize("mode", range(len(FORMS)))
def test_nan_and_infinities_reach_their_row_and_column(mode):
    rng = np.random.default_rng(mode)
    a, b, scales_a, scales_b, c = drawn(rng, mode, 0)
    c[3, 5] = np.inf
    scales_b[6, -1] = 255 if FORMS[mode][2] == POWERS else 0x7F
    if FORMS[mode][0] == BYTES[1]:
        a[9, 20] = 0x7C  # an infinity
        b[:, 20] = b[:, 20] & 0x7F | 0x38
    lanes, place = words(rng, a, b, scales_a, scales_b, c, 0, 0, 3), (0, 0, 3)
    with np.errstate(invalid="ignore"):
        wanted = exact(mode, a, b, scales_a, scales_b, c).astype(np.float32)
    assert not np.isfinite(wanted[:, 6]).any() and np.isinf(wanted[3, 5])
    for ptx, truncated in ((False, False), (True, False), (True, True)):
        found = product(mode, lanes, place, ptx=ptx, truncated=truncated)
        np.testing.assert_array_equal(found, wanted)


def test_scales_that_are_nowhere_are_faults():
    rng = np.random.default_rng(0)
    lanes = words(rng, *drawn(rng, 4, 0), 0, 0, 0)
    with pytest.raises(PtxFault, match="names no scales"):
        product(4, lanes, (1, 0, 0), ptx=True)
    with pytest.raises(PtxFault, match="names no scales"):
        product(5, lanes, (2, 0, 0), ptx=True)


# ---- CUTLASS


def nested(text: str):
    """CuTe's nested tuples of integers ("Shape <Shape <_4,_8>,_2>") as Python's."""
    return eval(re.sub(r"(?:Shape|Stride)\s*<", "(", text).replace(">", ",)").replace("_", ""))


def coordinate(layout: tuple, modes: tuple[int, ...]) -> int:
    """A layout's value at an index of each of its modes."""
    total = 0
    for shape, stride, index in zip(*layout, modes, strict=True):
        shapes, strides = ((each,) if isinstance(each, int) else each for each in (shape, stride))
        for extent, step in zip(shapes, strides, strict=True):
            total, index = total + index % extent * step, index // extent
    return total


def traits(name: str) -> dict[str, tuple]:
    """The layouts of a specialisation of MMA_Traits in CUTLASS's headers."""
    library = pytest.importorskip("cutlass_library")
    atom = Path(library.__file__).parent / "source" / "include" / "cute" / "atom"
    text = "".join((atom / each).read_text() for each in ("mma_traits_sm80.hpp", "mma_traits_sm120.hpp"))
    body = text[re.search(rf"struct MMA_Traits<[\w:]*{name}<", text).start() :].partition("};")[0]
    found = re.findall(r"(\w+Layout)\s*= Layout<(Shape.*?>),\s*(?://[^\n]*)?\s*(Stride.*?>)>;", body, re.DOTALL)
    return {key: (nested(shape), nested(stride)) for key, shape, stride in found}


def test_layouts_are_those_of_cutlass():
    known = traits("SM120_16x8x64_TN_VS")
    assert set(known) == {"ALayout", "BLayout", "SFALayout", "SFBLayout"}
    for lane, i in itertools.product(range(32), range(32)):
        row, byte = place_a(lane, i // 2)
        assert coordinate(known["ALayout"], (lane, i)) == row + 16 * (2 * byte + i % 2)
        if i < 16:
            column, byte = place_b(lane, i // 2)
            assert coordinate(known["BLayout"], (lane, i)) == column + 8 * (2 * byte + i % 2)
    for lane, k in itertools.product(range(32), range(64)):
        # CUTLASS gives all lanes of four the scales, and names the first pair and the first lane.
        row, column = (row_of(lane, lane % 4 // 2), column_of(lane, lane % 4))
        assert coordinate(known["SFALayout"], (lane, k)) == row + 16 * k
        assert coordinate(known["SFBLayout"], (lane, k)) == column + 8 * k
    bytewise = traits("SM120_16x8x32_TN_VS")
    for lane, k in itertools.product(range(32), range(32)):
        assert coordinate(bytewise["SFALayout"], (lane, k)) == row_of(lane, lane % 4 // 2) + 16 * k
        assert coordinate(bytewise["SFBLayout"], (lane, k)) == column_of(lane, lane % 4) + 8 * k
