"""Portfolios of a database that must not grow beyond a size."""

from __future__ import annotations

from collections import defaultdict

from gensor_database.record import Portfolio
from gensor_database.store import Store


def shorten(store: Store, arch: str) -> bool:
    """Take the last kernel from each of the longest portfolios; return False where none has a second kernel.

    Parameters
    ----------
    store : Store
        An open, writable database. Kernels stay in it; `export` leaves out those that nothing names.
    arch : str
        Capability, such as "sm_100".

    Examples
    --------
    >>> with Store.open(":memory:") as empty:
    ...     shorten(empty, "sm_100")
    False
    """
    classes: dict[tuple[str, str], list[Portfolio]] = defaultdict(list)
    for row in store.rows(Portfolio, arch=arch):
        classes[row.part, row.class_key].append(row)
    longest = max(map(len, classes.values()), default=1)
    if longest == 1:
        return False
    for (part, class_key), rows in classes.items():
        if len(rows) == longest:
            store.replace_portfolio(arch, part, class_key, sorted(rows, key=lambda row: row.rank)[:-1])
    return True
