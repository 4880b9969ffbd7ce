"""float32 of bfloat16 parts (INSTRUCTION 5, contraction_floats_wgmma) is no less exact than float32 multiply-adds.

The emulator's tensor cores cut as the coarsest one published does. An error is measured in 2^-24 of the sum of the
terms' magnitudes: what rounding every term once costs. `GENSOR_CAMPAIGN=full pytest -s` prints the figures of all
lengths of k. The operands are the same for every commit: largest errors may differ in order for other operands.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest

from gensor_kernels.families.contraction.rewrite.split_float import LEAST_SUM
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.machine.arch import LEAST_FLOAT_SUM, lookup
from gensor_kernels.operators.products.matmul import workload
from gensor_tuner.build.pool import Candidate, candidate
from tests.campaign_size import FULL
from tests.families.verified import multiplied

ROWS, COLUMNS = 64, 64
LENGTHS = (LEAST_FLOAT_SUM, 512, 1000, 4096) if FULL else (LEAST_FLOAT_SUM, 520)
GROUP_LENGTHS = (LEAST_SUM, 1500, 2048, 4096) if FULL else (LEAST_SUM,)
#: Families that multiply bfloat16 parts, and the lengths of k they are measured at.
IN_PARTS = {"contraction_mma": LENGTHS, "contraction_floats_wgmma": GROUP_LENGTHS}
MULTIPLY_ADDS = "contraction_simt"
Pair = tuple[np.ndarray, np.ndarray]


def normal(rng: np.random.Generator, k: int, a: int = 0, b: int = 0) -> Pair:
    return np.ldexp(rng.standard_normal((ROWS, k)), a), np.ldexp(rng.standard_normal((k, COLUMNS)), b)


def wide(rng: np.random.Generator, k: int, a: tuple[int, int], b: tuple[int, int]) -> Pair:
    left, right = normal(rng, k)
    return np.ldexp(left, rng.integers(*a, left.shape)), np.ldexp(right, rng.integers(*b, right.shape))


def cancelling(rng: np.random.Generator, k: int, apart: int) -> Pair:
    """Terms that have a neighbour `apart` along k of nearly the same magnitude and the other sign."""
    a, b = (x.astype(np.float32).astype(np.float64) for x in normal(rng, k))
    first = np.arange(k) // apart % 2 == 0
    first[k // (2 * apart) * 2 * apart :] = False
    second = np.flatnonzero(first) + apart
    a[:, second] = a[:, first]
    b[second] = -b[first] * (1 + 2.0**-18 * rng.standard_normal(b[first].shape))
    return a, b


HOSTILE: dict[str, Callable[[np.random.Generator, int], Pair]] = {
    "normal": normal,
    "one sign": lambda rng, k: tuple(np.abs(x) for x in normal(rng, k)),  # type: ignore[return-value]
    "exponents within 2^20": lambda rng, k: wide(rng, k, (-10, 11), (-10, 11)),
    "exponents within 2^60": lambda rng, k: wide(rng, k, (-30, 31), (-30, 31)),
    "one sign, exponents within 2^12": lambda rng, k: tuple(np.abs(x) for x in wide(rng, k, (-6, 7), (-6, 7))),  # type: ignore[return-value]
    "neighbours cancel": lambda rng, k: cancelling(rng, k, 1),
    "fragments cancel": lambda rng, k: cancelling(rng, k, 16),
    "halves cancel": lambda rng, k: cancelling(rng, k, k // 2),
    "low parts underflow": lambda rng, k: wide(rng, k, (-126, -108), (60, 90)),
    "subnormal inputs": lambda rng, k: wide(rng, k, (-146, -126), (60, 100)),
    "both small": lambda rng, k: wide(rng, k, (-70, -50), (-70, -50)),
    "large": lambda rng, k: normal(rng, k, 60, 60),
}


class Error(NamedTuple):
    typical: float
    largest: float


@cache
def kernel(name: str) -> Candidate:
    family, part = FAMILIES[name], lookup("sm_90" if "wgmma" in name else "sm_80")
    problem = workload(ROWS, COLUMNS, 1024, dtype="float32")
    starters = family.starters(problem, part)
    program = next((each for each in starters if each["block_m"] == each["block_n"] == ROWS), starters[0])
    values = {"split_k": 1, "stream": 0, "persistent": 0, "cluster": 0}
    program = program.replace(**{each: values[each] for each in values if each in program.by_name})
    return candidate(family, program, problem)


def product(name: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return multiplied(kernel(name), a, b, dtype="float32")[0]


def measured(found: np.ndarray, a: np.ndarray, b: np.ndarray) -> Error:
    x, y = a.astype(np.float64), b.astype(np.float64)
    # What one rounding to a subnormal costs is not the sum's doing.
    scale = 2.0**-24 * (np.abs(x) @ np.abs(y)) + 2.0**-150
    error = np.abs(found - x @ y) / scale
    return Error(float(np.sqrt(np.mean(error**2))), float(error.max()))


@pytest.mark.parametrize("family", IN_PARTS)
@pytest.mark.parametrize("name", HOSTILE)
def test_errors_are_no_larger_than_those_of_multiply_adds(name, family):
    for k in IN_PARTS[family]:
        rng = np.random.default_rng([k, *name.encode()])
        with np.errstate(under="ignore"):
            a, b = (x.astype(np.float32) for x in HOSTILE[name](rng, k))
        parts, plain = (measured(found, a, b) for found in (product(family, a, b), product(MULTIPLY_ADDS, a, b)))
        blas = measured(a @ b, a, b)
        print(f"{name:32} k {k:5} " + " ".join(f"{e.typical:7.3f} {e.largest:7.2f}" for e in (parts, plain, blas)))
        assert parts.typical <= plain.typical, (k, parts, plain, blas)
        assert parts.largest <= max(plain.largest, blas.largest), (k, parts, plain, blas)


def special(rng: np.random.Generator, k: int) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    most = np.finfo(np.float32).max
    for word, value in (("infinity", np.inf), ("NaN", np.nan), ("the largest float", most)):
        a, b = (x.astype(np.float32) for x in normal(rng, k))
        a[3, 5], b[k // 2, 9] = value, -value
        yield word, a, b
    a, b = (x.astype(np.float32) for x in normal(rng, k))
    a[3, 5], b[5] = np.inf, 0
    yield "infinity times zero", a, b
    a, b = (x.astype(np.float32) for x in normal(rng, k, 62, 59))
    yield "sums around the largest float", a, b
    a, b = np.zeros((ROWS, k), np.float32), np.zeros((k, COLUMNS), np.float32)
    a[:, 7], b[7] = most, 1.0
    yield "one product, the largest float", a, b


@pytest.mark.parametrize("family", IN_PARTS)
def test_what_is_not_finite_is_what_multiply_adds_make_of_it(family):
    rng = np.random.default_rng(8)
    for word, a, b in special(rng, IN_PARTS[family][0]):
        found, plain = product(family, a, b), product(MULTIPLY_ADDS, a, b)
        assert np.array_equal(np.isnan(found), np.isnan(plain)), word
        assert np.array_equal(np.isinf(found), np.isinf(plain)), word
        assert np.array_equal(found[np.isinf(found)], plain[np.isinf(plain)]), word
        finite = np.isfinite(plain)
        assert finite.any() or word == "NaN", word
        with np.errstate(all="ignore"):
            near = (np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64)))[finite]
        assert (np.abs(found[finite].astype(np.float64) - plain[finite]) <= 2.0**-16 * near).all(), word
