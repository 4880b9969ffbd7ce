"""Whether a kernel that was the fastest of a race is faster than the library's call: alone against it, on new samples.

The fastest of several owes a part of its lead to chance, so its first samples say too much. With 5 % of noise per
sample 13 % of races of nine rounds crown a kernel that is 3 % slower than the library's call, 35 % of those of three
rounds; after a duel fewer than 1 % do (tests/dispatch/tuning/test_duel.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median

from gensor_database import TIE_BAND, fastest

#: Rounds that are sampled before anybody looks again, of which calls are too few to say how far they vary.
ROUNDS = 3
#: Most rounds; and of calls that take long.
MOST_ROUNDS, MOST_LONG_ROUNDS = 36, 12
#: Microseconds of all samples from which calls take long.
LONG_US = 100_000.0
#: Standard errors by which a lead has to differ from the tie band to be clear.
CLEAR = 2.0

#: Samples of a race: the library's call's, then each kernel's.
Samples = list[list[float]]
#: The function that takes new samples of the library's call and of a kernel, given its place among the kernels and the
#: number of rounds. Empty where that kernel cannot run.
Again = Callable[[int, int], Sequence[Sequence[float]]]


def settle(samples: Samples, names: Sequence[str], again: Again) -> Samples:
    """Return the samples of a race in which the library's call wins, or a kernel that has won a duel.

    New samples take the places of those of a kernel that wins, and of the library's call, until nothing wins by samples
    of the race alone. `names` are those of the kernels, which decide ties.
    """
    found, fresh, met = [*samples], list[float](), set[int]()
    while True:
        times = {(rank > 0, ("", *names)[rank]): median(each) for rank, each in enumerate(found) if each}
        rank = ("", *names).index(fastest(times, TIE_BAND)[1])
        if rank == 0 or rank in met:
            return found
        met.add(rank)
        theirs, found[rank] = duel(partial(again, rank - 1))
        fresh += theirs
        found[0] = fresh or found[0]


def duel(again: Callable[[int], Sequence[Sequence[float]]]) -> Samples:
    """Return new samples of two calls, as many as make clear whether the second beats the first; none where one cannot
    run."""
    theirs, ours = list[float](), list[float]()
    while not is_clear(theirs, ours):
        more = again(ROUNDS)
        if not more:
            return [[], []]
        theirs += more[0]
        ours += more[1]
        most = MOST_ROUNDS if sum(theirs) + sum(ours) < LONG_US else MOST_LONG_ROUNDS
        if len(ours) >= most:
            break
    return [theirs, ours]


def is_clear(theirs: Sequence[float], ours: Sequence[float]) -> bool:
    """Return whether samples show that ours beat theirs by more than the tie band, or that they do not.

    The standard error of a median is 1.25 times that of a mean; few samples may vary less than is usual.
    """
    count = len(ours)
    if count < ROUNDS:
        return False
    lead = math.log(median(theirs) / median(ours)) - math.log1p(TIE_BAND)
    error = 1.25 * math.hypot(_spread(theirs), _spread(ours)) / math.sqrt(count)
    return abs(lead) > CLEAR * (1 + 2 / (count - 1)) * error


def _spread(samples: Sequence[float]) -> float:
    """Return the standard deviation of samples over their mean; the statistics module's takes ten times as long."""
    mean = math.fsum(samples) / len(samples)
    return math.sqrt(math.fsum((each - mean) ** 2 for each in samples) / (len(samples) - 1)) / mean
