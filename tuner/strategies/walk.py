"""The default strategy: the walk over the construction graph (`gensor_tuner.search.walk`)."""

from __future__ import annotations

from gensor_tuner.search import walk

from .landscape import Search


def search(task: Search, graph: str = "full") -> walk.Walk:
    """Walk the construction graph as the search asks; the paper's graph ignores `start`."""
    given = {**vars(task), "graph": graph, "start": task.start if graph == "full" else None}
    return walk.walk(budget=given.pop("evaluations"), **given)
