"""Search strategies with one interface: a function from a Search to a Walk, one file each.

A strategy sees a space (the families' lattices, legality, and a vectorised potential) and a number of evaluations to
spend, but nothing of operators.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from gensor_tuner.search.walk import Walk

from .landscape import Search

__all__ = ["STRATEGIES", "Search", "Strategy", "Walk", "strategy"]

Strategy = Callable[[Search], Walk]

#: Names for `--strategy`, each a module here with a function `search`; the first is the default.
STRATEGIES = ("walk", "paper", "evolution", "annealing", "random", "exhaustive")


def strategy(name: str) -> Strategy:
    """Return the strategy of this name; raise ValueError where there is none."""
    if name not in STRATEGIES:
        raise ValueError(f"a strategy is one of {', '.join(STRATEGIES)}, not {name!r}")
    found: Strategy = import_module(f".{name}", __name__).search
    return found
