"""The intrinsic layer: both bodies exist and agree with the documents, conversions round correctly."""

import itertools
import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.devices.emulator import FOLDER, build
from gensor_kernels.errors import BuildError
from gensor_kernels.families.core.source import files
from tests.doubles.emulated_kernels import SMALL, execute, source, toy
from tests.mutator.engine.mutations import INTRINSICS

CUDA = files()

EVERYTHING = toy("every_intrinsic")


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_87", "sm_89", "sm_90a", "sm_100", "sm_120"])
def test_every_intrinsic_compiles_for_every_target(target):
    text = source(SMALL + EVERYTHING)
    if target == "sm_75":  # the copies of several threads to one place are for compiling only
        assert "copy_async" in text
    binary = compile_cubin(text, target)
    assert binary.error is None
    assert "warning" not in binary.log
    assert binary.entries["test"].spill_bytes == 0


#: Functions of an intrinsics' header: of the host's, some are the emulator's own.
FUNCTION = r"^(?:DEVICE [^=(]*?|using emulator::|#define (?=KERNEL|cover))(\w+)[(;]"


def test_both_bodies_have_the_same_intrinsics():
    def names(path: Path) -> set[str]:
        return set(re.findall(FUNCTION, path.read_text(), re.MULTILINE))

    host = names(FOLDER / "gensor_emulator.h")
    gpu = names(CUDA["intrinsics_ptx.cuh"]) | names(CUDA["intrinsics_arithmetic.cuh"])
    assert gpu == host and len(gpu) > 25
    documented = CUDA["intrinsics.cuh"].read_text()
    assert [name for name in gpu if name not in documented] == []


@pytest.mark.parametrize(
    ("name", "functions"),
    [
        ("dependent", ["grid_dependency_wait", "launch_dependents", "load_finished"]),
        ("vote", ["barrier_any"]),
        ("saturated", ["fma_saturated_"]),
    ],
)
def test_both_bodies_of_further_intrinsics_have_the_same_functions(name, functions):
    texts = [(FOLDER / f"gensor_emulator_{name}.h").read_text(), CUDA[f"{name}.cuh"].read_text()]
    host, gpu = (re.findall(FUNCTION, text, re.MULTILINE) for text in texts)
    assert host == gpu == functions


def test_each_width_moves_its_bytes():
    for mode in (1, 2, 4, 8, 16):
        a = np.random.default_rng(mode).integers(0, 256, (32, 16), np.uint8)
        b = np.full((32, 16), 7, np.uint8)
        counters = execute(EVERYTHING, [a, b], mode=mode, n=30, shared=512)
        want = np.full((32, 16), 7, np.uint8)
        want[:30, :mode] = a[np.arange(30) ^ 1, :mode]
        assert np.array_equal(b, want)
        assert counters.global_widths("global_load") == counters.global_widths("global_store") == {mode: 30}


VOTES = """
#include <gensor_emulator_vote.h>
KERNEL(test, Params, 96, 0) {
    const int thread = thread_index();
    const bool first = barrier_any(thread == params.n), none = barrier_any(false);
    const bool last = barrier_any(thread > params.n);
    Vec<4> votes;
    votes.set(0, (i32)first | (i32)none << 1 | (i32)last << 2);
    store_global(gptr<i32>(params.p[0]) + thread, votes, true);
}
"""


def test_a_block_knows_whether_any_of_its_threads_voted():
    for thread, order in itertools.product((0, 50, 95, 96), ("forward", "reverse")):
        found = np.full(96, -1, np.int32)
        execute(VOTES, [found], n=thread, block=96, order=order)
        assert set(found.tolist()) == {(thread < 96) | (thread < 95) << 2}


def test_pointers_cannot_be_dereferenced():
    for expression in ("*gptr<float>()", "gptr<float>()[0]", "*sptr<float>()", "sptr<u8>()[0]"):
        with pytest.raises(BuildError, match=r"no match for .operator"):
            build(source(SMALL + f"KERNEL(test, Params, 32, 0) {{ auto x = {expression}; }}"))


def test_kernels_touch_memory_only_through_intrinsics():
    layer = set(INTRINSICS)
    forbidden = re.compile(
        r"\basm\b|__shared__|__global__|__sync|threadIdx|blockIdx|reinterpret_cast|atomic[A-Z]|__ld|__shfl|"
        r"\(\s*(const )?\w+\s*\*+\s*\)|#include\s*<"
    )
    kernels = [path for path in sorted(CUDA.values()) if path.name not in layer]
    found = [
        f"{path.name}:{number}: {line.strip()}"
        for path in kernels
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if forbidden.search(line.split("//")[0])
    ]
    assert len(kernels) >= 2 and found == []


CONVERT = toy("conversions")
TYPES = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.int32]
ENTRIES = ["from_double", "from_float", "from_half", "from_bfloat16", "from_i8", "from_i32"]


def values(dtype) -> np.ndarray:
    """Every value of a narrow type; of a wide one the neighbourhoods of all float16 and bfloat16 values and ties."""
    dtype = np.dtype(dtype)
    if dtype.itemsize <= 2:
        return np.arange(2 ** (8 * dtype.itemsize), dtype=f"u{dtype.itemsize}").view(dtype)
    rng = np.random.default_rng(1)
    if dtype == np.int32:
        edges = [0, 1, -1, 127, 128, -128, -129, 2**31 - 1, -(2**31), 16777217, 33554435]
        random = [rng.integers(-(2**31), 2**31, 5000), rng.integers(-300, 300, 600)]
        ties = rng.integers(-(2**15), 2**15, 3000) * 2**16 + rng.integers(-2, 3, 3000)  # of bfloat16, and next to them
        return np.concatenate([np.array(edges), *random, ties.clip(-(2**31), 2**31 - 1)]).astype(np.int32)
    narrow = np.arange(65536, dtype=np.uint16)
    with np.errstate(all="ignore"):
        bases = np.concatenate([narrow[::7].view(t).astype(np.float64) for t in (np.float16, ml_dtypes.bfloat16)])
        between = (bases + np.roll(bases, 1)) / 2
        near = [np.nextafter(between, np.inf), np.nextafter(between, -np.inf), bases, between]
        return np.concatenate([*near, rng.standard_normal(5000) * 1e3]).astype(dtype)


def expected(x: np.ndarray, to) -> np.ndarray:
    """Return the documented result of each conversion."""
    to = np.dtype(to)
    with np.errstate(all="ignore"):
        if to.kind == "i":
            wide = np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=2.0**31, neginf=-(2.0**31))
            return np.clip(np.trunc(wide), -(2.0**31), 2.0**31 - 1).astype(np.int64).astype(to)
        if to == ml_dtypes.bfloat16 and x.dtype in (np.float64, np.int32):
            return round_bfloat16(x.astype(np.float64))
        return x.astype(to)


def round_bfloat16(x: np.ndarray) -> np.ndarray:
    """Rounds float64 to bfloat16 once: ml_dtypes goes through float32, which can round twice."""
    nearest = x.astype(np.float32).astype(np.float64)
    bits = x.astype(np.float32).view(np.uint32)
    inexact = np.isfinite(x) & (nearest != x)
    away = inexact & (np.abs(nearest) > np.abs(x))
    odd = np.where(inexact, (bits - away.astype(np.uint32)) | 1, bits).astype(np.uint32)
    return odd.view(np.float32).astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("source_type", range(6), ids=ENTRIES)
def test_conversions_round_like_numpy(source_type):
    x = values(TYPES[source_type])
    for mode, to in enumerate(TYPES):
        y = np.zeros(x.size, to)
        execute(CONVERT, [x, y], entry=ENTRIES[source_type], n=x.size, mode=mode)
        want = expected(x, to)
        if np.dtype(to).kind == "i":
            assert np.array_equal(y, want)
            continue
        with np.errstate(invalid="ignore"):  # signalling NaNs
            got, want = y.astype(np.float64), want.astype(np.float64)
        assert np.array_equal(np.isnan(got), np.isnan(want))
        assert np.array_equal(got[~np.isnan(got)], want[~np.isnan(want)]), to
        assert np.array_equal(np.signbit(got[~np.isnan(got)]), np.signbit(want[~np.isnan(want)]))


FUNCTIONS = toy("functions")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_mathematical_functions(dtype):
    from math import erf

    x = np.random.default_rng(2).standard_normal(500).astype(dtype) * 2
    entry = "test_float" if dtype == np.float32 else "test_double"
    wide = x.astype(np.float64)
    for mode, want in enumerate([np.exp(wide), np.vectorize(erf)(wide), np.tanh(wide), wide * wide + 1]):
        y = np.zeros_like(x)
        execute(FUNCTIONS, [x, y], entry=entry, n=x.size, mode=mode)
        assert np.allclose(y, want, rtol=4 * np.finfo(dtype).eps, atol=0)


def test_pairs_are_packed_low_first_and_maxima_drop_nan():
    x = (np.random.default_rng(3).standard_normal((400, 2)) * 4).astype(np.float32)
    x[:4] = [[np.nan, 1], [2, np.nan], [-np.inf, 0], [65519, -65520]]
    made = np.zeros((400, 4), np.uint32)
    execute(FUNCTIONS, [x, made], entry="test_pairs", n=len(x))
    for column, dtype in ((0, np.float16), (1, ml_dtypes.bfloat16)):
        got = np.ascontiguousarray(made[:, column]).view(np.uint16).view(dtype).reshape(-1, 2).astype(np.float32)
        with np.errstate(over="ignore"):
            want = x.astype(dtype).astype(np.float32)
        assert np.array_equal(got, want, equal_nan=True)
    assert np.array_equal(np.ascontiguousarray(made[:, 2]).view(np.float32), np.fmax(x[:, 0], x[:, 1]))
    power = np.ascontiguousarray(made[:, 3]).view(np.float32)
    assert np.allclose(power[1:3], [4, 0]) and np.isnan(power[0])
    assert np.allclose(power[4:], np.exp2(x[4:, 0].astype(np.float64)), rtol=3e-7)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_maximum_is_nan_where_either_is(dtype):
    some = np.array([-np.inf, -1.0, 0.0, 2.0, np.inf, np.nan], dtype)
    a, b = (x.ravel().copy() for x in np.meshgrid(some, some))
    y, entry = np.zeros_like(a), "test_float" if dtype == np.float32 else "test_double"
    execute(FUNCTIONS, [a, y, b], entry=entry, n=a.size, mode=4, writable=2)
    np.testing.assert_array_equal(y, np.maximum(a, b))


def test_tf32_rounds_to_nearest_away_from_zero():
    bits = np.array([0x3F800FFF, 0x3F801000, 0x3F801001, 0xBF801000, 0x7F800000, 0xFF800000, 0x7F7FFFFF, 0], np.uint32)
    more = [0x3FFFF000, 0x3FFFEFFF, 0x00801000, 0x00001000]  # the next power of two; subnormal
    nan = [0x7FC00001, 0x7FFFFFFF, 0xFFFFFFFF, 0xFFC00000, 0x7F800001]
    bits = np.concatenate([bits, np.uint32(more + nan)])
    want = [0x3F800000, 0x3F802000, 0x3F802000, 0xBF802000, 0x7F800000, 0xFF800000, 0x7F800000, 0]
    want += [0x40000000, 0x3FFFE000, 0x00802000, 0]
    y = np.zeros_like(bits)
    execute(FUNCTIONS, [bits, y], entry="test_tf32", n=bits.size)
    seen = y & 0xFFFFE000  # the instruction reads no more
    assert seen[: -len(nan)].tolist() == want and np.isnan(seen[-len(nan) :].view(np.float32)).all()
