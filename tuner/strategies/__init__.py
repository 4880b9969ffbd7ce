"""Search strategies with one interface: a function from a Search to a Walk.

A strategy sees a space (the families' lattices, legality, and a vectorised potential) and a number of evaluations to
spend, but nothing of operators.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gensor_tuner.search.walk import Walk

from . import plain
from .landscape import Search
from .learned import Annealer, Evolution, learn

__all__ = ["STRATEGIES", "Search", "Strategy", "Walk", "strategy"]

Strategy = Callable[[Search], Walk]

#: By name for `--strategy`, the first by default; "paper" walks the paper's graph.
STRATEGIES: dict[str, Strategy] = {
    "walk": plain.walk,
    "paper": partial(plain.walk, graph="paper"),
    "evolution": partial(learn, Evolution),
    "annealing": partial(learn, Annealer),
    "random": plain.random,
    "exhaustive": plain.exhaustive,
}


def strategy(name: str) -> Strategy:
    """Return the strategy of this name; raise ValueError where there is none."""
    if name not in STRATEGIES:
        raise ValueError(f"a strategy is one of {', '.join(STRATEGIES)}, not {name!r}")
    return STRATEGIES[name]
