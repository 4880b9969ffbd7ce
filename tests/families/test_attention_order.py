"""The order in which blocks of attention start, and the time it is predicted to take."""

import heapq

import numpy as np
import pytest

from gensor_kernels.families.attention import order
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.families.space import FamilySpace
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators import operator
from gensor_kernels.operators.attention.attention import workload
from gensor_tuner.build.pool import candidate

from .verified import verdict_without

FAMILY, HOPPER = FAMILIES["attention_wgmma"], lookup("sm_90")


def scheduled(lengths, tiles: int, units: int, together: int, slots: int) -> float:
    """Time until the last block ends where each starts on the slot that is free first."""
    free, end = [0.0] * slots, 0.0
    for first in range(0, units, together):
        width = min(together, units - first)
        for place in range(tiles * width):
            end = max(end, now := heapq.heappop(free) + lengths[tiles - 1 - place // width])
            heapq.heappush(free, now)
    return end


@pytest.mark.parametrize("slots", [132, 264])
@pytest.mark.parametrize(("tiles", "units"), [(32, 16), (32, 32), (64, 32), (128, 8), (16, 96), (8, 192), (32, 3)])
def test_the_time_of_the_last_block_is_that_of_a_schedule(tiles, units, slots):
    lengths = np.arange(1.0, tiles + 1)
    figures = lengths.mean(), lengths.max(), lengths.min(), (lengths**2).mean()
    rounds = -(-tiles * units // slots) * lengths.mean()
    for together in (1, units):
        wanted = scheduled(lengths, tiles, units, together, slots) / rounds
        given = order.unevenness(figures, *(np.array(float(each)) for each in (tiles, units, together, slots)))
        assert given == pytest.approx(wanted, rel=0.06)


def test_blocks_of_as_many_steps_end_together():
    same = (np.full(3, 8.0), np.full(3, 8.0), np.full(3, 8.0), np.full(3, 64.0))
    sizes = (np.array([4.0, 32.0, 7.0]), np.array([3.0, 16.0, 1.0]), np.ones(3), np.full(3, 132.0))
    assert (order.unevenness(same, *sizes) == 1).all()


def test_units_share_the_cache_evenly():
    assert order.units_together(16, 128, 4096) == 16  # of 2 MiB
    assert order.units_together(17, 128, 4096) == 9
    assert order.units_together(5, 128, 2**20) == 1  # one has more


@pytest.mark.parametrize(("causal", "wanted"), [(False, 1), (True, 8), ("upper_left", 8)])
def test_entries_start_together_where_their_blocks_differ(causal, wanted):
    problem = workload(512, heads=8, head=64, causal=causal)
    program = FAMILY.starters(problem, HOPPER)[0]
    declared = operator(problem.operator)
    geometry = declared.geometry(problem, {each.name: each.strides() for each in declared.operands(problem)})
    assert FAMILY.tiling(program.replace(longest_first=1), geometry).raster == wanted
    assert FAMILY.tiling(program.replace(longest_first=0), geometry).raster == 1


def test_the_longest_first_are_predicted_to_be_faster():
    """An H100 took 1.23 times as long for sixteen causal heads as for half of as many whole ones, per product."""
    for heads, least in ((16, 1.15), (64, 1.02)):
        problem = workload(4096, heads=heads, head=128, causal=True)
        space = FamilySpace(FAMILY, problem, lookup("h100-sxm"))
        program = FAMILY.starters(problem, HOPPER)[0].replace(block_q=128, block_k=128)
        points = np.stack([space.point(program.replace(longest_first=value)) for value in (0, 1)])
        before, after = space.potential(points)
        assert before / after > least


#: Text of the kernel and what stands in its place, by fault.
FAULTS = {
    "none": ("tile = place / together;", "tile = place / together;"),
    "one tile for all": ("tile = place / together;", "tile = place / together * 0;"),
    "the first entries again": ("(first + (place - tile * together))", "(place - tile * together)"),
    "as many at the end": ("minimum(raster, units - first)", "raster"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_wrong_orders_are_caught(name, monkeypatch, needs_emulator):
    """Three entries, of which two start together, are a case of verification: two of 32 keys stay in the L2."""
    monkeypatch.setattr(order, "KEPT_BYTES", 2 * 2 * 2 * 64 * 32)
    problem = workload(64, head=64, causal=True)
    program = FAMILY.starters(problem, HOPPER)[0].replace(block_q=64, block_k=16, longest_first=1)
    verdict = verdict_without(*FAULTS[name], candidate(FAMILY, program, problem), problem)
    assert verdict.outcome in (("ok",) if name == "none" else ("wrong", "failed")), verdict
    assert name != "none" or verdict.branches["raster_tail"] > 0
