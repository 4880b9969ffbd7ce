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
from gensor_kernels.devices.sampling import FAR_SLOWER, Samples

#: Rounds that are sampled before anybody looks again, of which calls are too few to say how far they vary.
ROUNDS = 3
#: Most rounds, of calls for which the budget of the race pays as many.
MOST_ROUNDS = 36
#: Standard errors by which a lead has to differ from the tie band to be clear.
CLEAR = 2.0

#: The function that takes new samples of the library's call and of a kernel, given its place among the kernels and the
#: number of rounds. An empty list where the race may take no longer, None where that kernel cannot run.
Again = Callable[[int, int], Sequence[Samples] | None]


def settle(samples: Sequence[Samples], names: Sequence[str], again: Again) -> list[Samples]:
    """Return the samples of a race in which the library's call wins, or a kernel that has won a duel.

    New samples take the places of those of a kernel that wins, and of the library's call, until nothing wins by samples
    of the race alone, or the budget of the race is spent. A single kernel owes nothing to a choice, and new samples are
    added to its own. No duel decides about a library's call that is far slower. `names` are those of the kernels, which
    decide ties.
    """
    found, fresh, met = [*samples], Samples(), set[int]()
    while True:
        times = {(rank > 0, ("", *names)[rank]): each.felt_us for rank, each in enumerate(found) if each.us}
        rank = ("", *names).index(fastest(times, TIE_BAND)[1])
        if rank == 0 or rank in met or found[0].felt_us > FAR_SLOWER * found[rank].felt_us:
            return found
        met.add(rank)
        begun = (found[0], found[1]) if len(names) == 1 else (Samples(), Samples())
        both = duel(partial(again, rank - 1), *begun)
        if both is None:
            found[rank] = Samples()
        elif both[1].us:
            fresh.extend(both[0])
            found[0], found[rank] = fresh, both[1]


def duel(
    again: Callable[[int], Sequence[Samples] | None], theirs: Samples, ours: Samples
) -> tuple[Samples, Samples] | None:
    """Add samples of two calls until it is clear whether the second beats the first, and return them; None where one
    cannot run."""
    while len(ours.us) < MOST_ROUNDS and not is_clear(theirs.felt(), ours.felt()):
        more = again(ROUNDS)
        if more is None:
            return None
        if not more:
            break
        theirs.extend(more[0])
        ours.extend(more[1])
    return theirs, ours


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
