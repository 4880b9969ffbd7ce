"""Bank conflicts against a plain count of the rule: distinct words of a bank in a phase, less one."""

import numpy as np
import pytest

from tests.doubles.emulated_kernels import execute, toy

SHARED = 8192
KERNEL = toy("bank_conflicts")


def conflicts(addresses: np.ndarray, bytes_: int, phase: int) -> int:
    """Passes beyond the first of each phase of `phase` lanes; -1 is a lane that does not take part."""
    total = 0
    for lanes in addresses.reshape(-1, phase):
        words = {int(at) // 4 + i for at in lanes if at >= 0 for i in range(max(bytes_ // 4, 1))}
        banks = np.bincount([word % 32 for word in words], minlength=32)
        total += max(int(banks.max()) - 1, 0)
    return total


def patterns(bytes_: int, number: int) -> np.ndarray:
    """Strides, broadcasts, permutations and random places, some lanes missing."""
    rng = np.random.default_rng(bytes_)
    lanes, top = np.arange(32), SHARED // bytes_
    rows = [lanes * stride % top for stride in (0, 1, 2, 3, 4, 8, 16, 31, 32, 33, 64)]
    rows += [lanes // 8, lanes % 8, lanes ^ 5, lanes[::-1], lanes * 8 + lanes // 4, lanes // 2 * 32]
    rows += [rng.permutation(32) for _ in range(10)]
    rows += [rng.integers(0, high, 32) for high in rng.integers(1, top, number)]
    places = np.array(rows, np.int32) * bytes_
    places[rng.random(places.shape) < 0.1 * rng.integers(0, 2, (len(places), 1))] = -1
    return places


def count(places: np.ndarray, mode: int, entry: str = "test", **options):
    rows = np.ascontiguousarray(places, np.int32).reshape(-1, 32)
    arrays = [rows, np.zeros(16, np.uint8)]
    options.update(entry=entry, n=len(rows), mode=mode, shared=SHARED, races=False, writable=0)
    return execute(KERNEL, arrays, **options)


LOADS = [("load", 0, width) for width in (1, 2, 4, 8, 16)]
STORES = [("store", 100, width) for width in (1, 2, 4, 8, 16)]
COPIES = [("copy", 200, width) for width in (4, 8, 16)]


@pytest.mark.parametrize(("kind", "code", "bytes_"), LOADS + STORES + COPIES)
def test_conflicts_are_counted_exactly(kind, code, bytes_):
    phase = min(32, 128 // bytes_)
    for row in patterns(bytes_, 30):
        counters = count(row, code + bytes_)
        assert counters[f"conflicts_{kind}"] == counters.bank_conflicts == conflicts(row, bytes_, phase), row


@pytest.mark.parametrize("order", ["forward", "reverse", 3])
def test_accesses_of_a_loop_are_matched_between_lanes(order):
    rows = np.maximum(patterns(4, 40), 0)
    counters = count(rows, 4, order=order)
    assert counters["shared_loads"] == len(rows)
    assert counters.bank_conflicts == sum(conflicts(row, 4, 32) for row in rows)


def test_ldmatrix_serves_eight_rows_at_a_time():
    for row in np.maximum(patterns(16, 30), 0):
        counters = count(row, 0, entry="rows")
        assert counters["conflicts_matrix_load"] == conflicts(row, 16, 8)


@pytest.mark.parametrize("order", ["forward", "reverse", 8])
def test_lanes_that_branch_are_matched_by_line(order):
    counters = count(np.zeros(32), 0, entry="branches", order=order)
    assert counters["shared_loads"] == 2 + 3 + 1 + 1
    assert counters.bank_conflicts == 15 + 23 + 15 + 7 + 1
