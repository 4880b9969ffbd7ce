"""Portfolios are shortened from the longest, by their last kernel."""

from gensor_database.record import Portfolio
from gensor_database.store import Store
from gensor_tuner.store.portfolios import shorten

LENGTHS = {"a": 3, "b": 1, "c": 3, "d": 2}


def lengths(store: Store, arch: str) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in store.rows(Portfolio, arch=arch):
        found.setdefault(row.class_key, []).append(row.rank)
    return {name: sorted(ranks) for name, ranks in found.items()}


def test_the_longest_lose_their_last_kernels(tmp_path):
    with Store.open(tmp_path / "kernels.db") as store:
        for arch in ("sm_90", "sm_100"):
            for name, length in LENGTHS.items():
                digests = [f"{arch}-{name}-{rank}" for rank in range(length)]
                store.replace_portfolio(arch, "part", name, digests)
        assert shorten(store, "sm_100")
        assert lengths(store, "sm_100") == {"a": [0, 1], "b": [0], "c": [0, 1], "d": [0, 1]}
        assert shorten(store, "sm_100") and not shorten(store, "sm_100")
        assert set(map(tuple, lengths(store, "sm_100").values())) == {(0,)}
        assert lengths(store, "sm_90") == {name: list(range(length)) for name, length in LENGTHS.items()}
