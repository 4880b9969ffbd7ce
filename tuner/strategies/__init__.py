"""Search strategies with one interface: a function from a Search to a Walk, one file each.

A strategy sees a space (the families' lattices, legality, and a vectorised potential) and a number of evaluations to
spend, but nothing of operators.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from gensor_tuner.search.walk import Walk

from .landscape import Search

__all__ = ["STRATEGIES", "Search", "Strategy", "Walk", "strategy"]

Strategy = Callable[[Search], Walk]

#: Names for `--strategy`: modules here with a function `search`, the first by default; "paper" is the paper's graph.
STRATEGIES = ("walk", "paper", "evolution", "annealing", "random", "exhaustive")


def strategy(name: str) -> Strategy:
    """Return the strategy of this name; raise ValueError where there is none."""
    if name not in STRATEGIES:
        raise ValueError(f"a strategy is one of {', '.join(STRATEGIES)}, not {name!r}")
    found: Any = import_module(f".{'walk' if name == 'paper' else name}", __name__).search
    return partial(found, graph="paper") if name == "paper" else found
