"""The paper's graph: Tile, Untile, Cache and VThread with reconstructed benefits (`gensor_tuner.search.paper`)."""

from __future__ import annotations

from gensor_tuner.search import walk as construction

from .landscape import Search


def search(asked: Search) -> construction.Walk:
    """Walk the paper's graph from the minimal Programs; in the end the potential chooses among visited Programs."""
    return construction.walk(
        asked.space,
        seed=asked.seed,
        chains=asked.chains,
        steps=asked.steps,
        graph="paper",
        budget=asked.evaluations,
        keep=asked.keep,
        traced=asked.traced,
        alike=asked.alike,
    )
