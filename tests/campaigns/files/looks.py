"""Every way of reading a file of another user, within a second each: rows that match their digests, or a StoreError."""

import warnings
from collections import Counter

from gensor_database import Catalog, Store, StoreError, StoreWarning, open_layers
from gensor_database.record import TABLES
from gensor_kernels.dispatch.selection import load, untrusted
from gensor_kernels.machine.arch import lookup
from tests.doubles.store_rows import ARCH, PART, key, rows

#: The rows of the one Workload that is looked for.
TRUE = {row.digest: row for row in rows(1)}


def ways(path, writable):
    """The ways by name."""

    def user():
        with open_layers(ARCH, path, timeout=0.1) as layers:
            layers.load(ARCH)

    def site():
        with open_layers(ARCH, None, path, timeout=0.1) as layers:
            load.contents(layers.load(ARCH, None, untrusted.well_formed), lookup(ARCH))

    def find(readonly=True):
        with Store.open(path, readonly, timeout=0.1) as store:
            entry = store.find(key(1), ARCH, PART)
            assert entry is None or (entry.record in TRUE.values() and entry.kernel in TRUE.values())
            Catalog([store], ARCH)

    def table(kind):
        with Store.open(path, readonly=True, immutable=True) as store:
            for row in store.rows(kind):
                assert row.digest_of([getattr(row, name) for name in row.columns()]) == row.digest

    found = {"user": user, "site": site, "find": find}
    found |= {kind.TABLE: lambda kind=kind: table(kind) for kind in TABLES}
    return found | ({"open for writing": lambda: find(False)} if writable else {})


def every_look(path, clock, writable=False):
    """The number of refusals of each way, measured by a Clock."""
    refused = Counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)
        for name, look in ways(path, writable).items():
            with clock.measure(name):
                try:
                    look()
                except StoreError:
                    refused[name] += 1
    return refused
