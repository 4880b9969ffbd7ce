"""Combiners: the monoids of reductions, over small tuples of numbers.

``combine`` is associative and commutative and ``identity`` neutral (tests check every combiner), so that a kernel may
split a reduction over lanes, warps and blocks in any way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

State = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Combiner:
    """init / combine / finish over a tuple of float64 arrays of one shape, element by element.

    ``fields`` name the state; ``identity`` is the state of no term; ``init`` makes the state of one term from
    ``inputs`` values; ``finish`` makes the main result.  ``operations`` counts one combine, roughly.
    """

    name: str
    fields: tuple[str, ...]
    inputs: int
    identity: tuple[float, ...]
    init: Callable[..., State]
    combine: Callable[[State, State], State]
    finish: Callable[[State], np.ndarray]
    operations: int


def _first(state: State) -> np.ndarray:
    return state[0]


def _single(name: str, identity: float, function: Callable[..., np.ndarray]) -> Combiner:
    return Combiner(
        name,
        fields=(name,),
        inputs=1,
        identity=(identity,),
        init=lambda x: (x,),
        combine=lambda s, t: (function(s[0], t[0]),),
        finish=_first,
        operations=1,
    )


SUM = _single("sum", 0.0, np.add)
PRODUCT = _single("product", 1.0, np.multiply)
MAX = _single("max", -np.inf, np.maximum)
MIN = _single("min", np.inf, np.minimum)


def _arg(name: str, sign: float) -> Combiner:
    """Return (value, index): the first index of the extreme value; NaN counts as extreme, as in NumPy."""

    def combine(s: State, t: State) -> State:
        s_nan, t_nan = np.isnan(s[0]), np.isnan(t[0])
        better = np.where(s_nan | t_nan, s_nan & ~t_nan, sign * s[0] > sign * t[0])
        tie = (s[0] == t[0]) | (s_nan & t_nan)
        keep = better | (tie & (s[1] <= t[1]))
        return np.where(keep, s[0], t[0]), np.where(keep, s[1], t[1])

    return Combiner(
        name,
        fields=("value", "index"),
        inputs=2,
        identity=(-sign * np.inf, np.inf),
        init=lambda x, i: (x, i),
        combine=combine,
        finish=lambda s: s[1],
        operations=1,
    )


ARGMAX = _arg("argmax", 1.0)
ARGMIN = _arg("argmin", -1.0)


def _welford(s: State, t: State) -> State:
    """Merge of two means and sums of squared deviations (Chan, Golub and LeVeque, 1979)."""
    count = s[0] + t[0]
    share = t[0] / np.where(count == 0, 1.0, count)
    delta = np.where(t[0] == 0, 0.0, np.where(s[0] == 0, t[1], t[1] - s[1]))
    mean = s[1] + delta * np.where(s[0] == 0, 1.0, share)
    return count, mean, s[2] + t[2] + np.where(s[0] == 0, 0.0, delta * delta * s[0] * share)


#: (count, mean, m2); the main result is the variance over the count.
WELFORD = Combiner(
    "welford",
    fields=("count", "mean", "m2"),
    inputs=1,
    identity=(0.0, 0.0, 0.0),
    init=lambda x: (np.ones_like(x), x, np.zeros_like(x)),
    combine=_welford,
    finish=lambda s: s[2] / s[0],
    operations=6,
)


def _rescale(state: State, maximum: np.ndarray) -> State:
    """Return ``state`` after the maximum, in units of exp(maximum); a state of no weight stays so."""
    with np.errstate(invalid="ignore"):
        factor = np.where(state[0] == maximum, 1.0, np.exp(state[0] - maximum))
        factor = np.where(state[0] == -np.inf, 0.0, factor)
    return tuple(np.where(factor == 0, 0.0, part * factor) for part in state[1:])


def _exponential(s: State, t: State) -> State:
    maximum = np.maximum(s[0], t[0])
    return (maximum, *(x + y for x, y in zip(_rescale(s, maximum), _rescale(t, maximum), strict=True)))


#: (max, sumexp): sum of exp(x - max); the main result is log(sum(exp(x))).
LOGSUMEXP = Combiner(
    "logsumexp",
    fields=("max", "sumexp"),
    inputs=1,
    identity=(-np.inf, 0.0),
    init=lambda x: (x, np.where(x == -np.inf, 0.0, 1.0)),
    combine=_exponential,
    finish=lambda s: s[0] + np.log(s[1]),
    operations=4,
)

#: (max, sumexp, vector): the average of v weighted by exp(x), which is attention's combiner.
SOFTMAX_AVERAGE = Combiner(
    "softmax_average",
    fields=("max", "sumexp", "vector"),
    inputs=2,
    identity=(-np.inf, 0.0, 0.0),
    init=lambda x, v: (x, np.where(x == -np.inf, 0.0, 1.0), np.where(x == -np.inf, 0.0, v)),
    combine=_exponential,
    finish=lambda s: s[2] / s[1],
    operations=6,
)

COMBINERS: dict[str, Combiner] = {
    combiner.name: combiner
    for combiner in (SUM, PRODUCT, MAX, MIN, ARGMAX, ARGMIN, WELFORD, LOGSUMEXP, SOFTMAX_AVERAGE)
}
