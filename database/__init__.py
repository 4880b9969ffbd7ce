"""Kernels, records and timings in SQLite. Imports none of the other packages."""

if __name__ != "gensor_database":
    raise ImportError(
        "this folder installs as gensor_database: run 'pip install -e .' and import gensor_database, "
        "so that no class exists twice"
    )

import os as _os
from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

if not _os.path.isfile(_os.path.join(_os.path.dirname(__file__), "schema.sql")):
    raise ImportError(
        f"gensor-kernels reads files next to its modules, and {_os.path.dirname(__file__)} has none: install it into a "
        "folder, or unpack the zip file that it is imported from"
    )

if _TYPE_CHECKING:
    from .catalog import Catalog
    from .errors import (
        CorruptStoreError,
        ForeignStoreError,
        LockedStoreError,
        NewerStoreError,
        StoreError,
        StoreWarning,
        UnreadableStoreError,
    )
    from .exchange import Conflict, conflicts, export, merge, union
    from .layers import PRETUNED, Layers, open_layers
    from .pruning import Pruned, prune
    from .record import (
        METHODS,
        OUTCOMES,
        TABLES,
        Binary,
        Kernel,
        Portfolio,
        Record,
        Row,
        Source,
        Timing,
        Verification,
        canonical,
        row_digest,
        text_digest,
    )
    from .store import Entry, Store, StoredKernel
    from .text import duration
    from .timings import TIE_BAND, Winner, counting, fastest, is_under, launched, quiet, winner

__all__ = [
    "METHODS",
    "OUTCOMES",
    "PRETUNED",
    "TABLES",
    "TIE_BAND",
    "Binary",
    "Catalog",
    "Conflict",
    "CorruptStoreError",
    "Entry",
    "ForeignStoreError",
    "Kernel",
    "Layers",
    "LockedStoreError",
    "NewerStoreError",
    "Portfolio",
    "Pruned",
    "Record",
    "Row",
    "Source",
    "Store",
    "StoreError",
    "StoreWarning",
    "StoredKernel",
    "Timing",
    "UnreadableStoreError",
    "Verification",
    "Winner",
    "canonical",
    "conflicts",
    "counting",
    "duration",
    "export",
    "fastest",
    "is_under",
    "launched",
    "merge",
    "open_layers",
    "prune",
    "quiet",
    "row_digest",
    "text_digest",
    "union",
    "winner",
]

#: Modules of these names, in the order in which they are searched: the first ones import little.
_MODULES = ("errors", "text", "record", "timings", "store", "catalog", "layers", "exchange", "pruning")

if not _TYPE_CHECKING:

    def __getattr__(name):
        """Import a public name at its first use: who imports the runtime needs no SQLite yet."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        for module in _MODULES:
            found = vars(_import_module(f"{__name__}.{module}"))
            if name in found:
                return globals().setdefault(name, found[name])
        raise AssertionError(name)
