"""The paper's graph: Tile, Untile, Cache and VThread with reconstructed benefits (`gensor_tuner.search.paper`)."""

from __future__ import annotations

from gensor_tuner.search.walk import Walk

from .landscape import Search
from .walk import search as walk


def search(task: Search) -> Walk:
    """Walk the paper's graph from the minimal Programs; in the end the potential chooses among visited Programs."""
    return walk(task, "paper")
