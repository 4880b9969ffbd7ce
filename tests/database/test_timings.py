"""The winner from all timings of a Workload on a part."""

import random
from dataclasses import replace

from gensor_database import TIE_BAND, Timing, quiet, winner
from tests.doubles.store_rows import ARCH, PART, key


def timings(**median_us):
    return [
        Timing(key(1), ARCH, PART, None if name == "vendor" else name, "v" if name == "vendor" else None, time)
        for name, time in median_us.items()
    ]


def test_ties_go_to_the_vendor_then_to_the_smaller_digest():
    assert winner([]) is None
    assert winner(timings(b=10.0, a=10.1, vendor=10.15)).kernel_digest is None
    assert winner(timings(b=10.0, a=10.1, vendor=10.3)).kernel_digest == "a"
    assert winner(timings(b=10.0, a=10.3)).kernel_digest == "b"
    assert winner([*timings(a=10.0), *timings(a=30.0), *timings(a=11.0), *timings(b=12.0)]).median_us == 11.0
    assert winner(timings(vendor=5.0, a=4.0), band=0.5).kernel_digest is None


def test_times_taken_beside_a_program_decide_nothing():
    busy = [replace(row, samples='{"background":true,"rounds":15}') for row in timings(a=5.0, vendor=50.0)]
    assert winner(busy) is None and quiet(busy) == []
    assert winner([*busy, *timings(a=20.0, vendor=10.0)]).kernel_digest is None
    strange = [replace(timings(a=1.0)[0], samples=text) for text in ('{"background"', '["background"]', "[" * 9999)]
    assert quiet(strange) == strange and quiet(timings(a=1.0)) == timings(a=1.0)


def test_neither_noise_within_the_tie_band_nor_the_order_of_rows_moves_the_winner():
    """Kernels as fast as each other: whichever measured fastest, the winner is the same."""
    generator, noise, winners = random.Random(0), 0.004, set()
    for _ in range(200):
        noisy = timings(**{name: 100.0 * (1 + generator.uniform(-noise, noise)) for name in "abcd"})
        generator.shuffle(noisy)
        winners.add(winner(noisy).kernel_digest)
    assert winners == {"a"} and 2 * noise < TIE_BAND
