"""Kernels, records and timings in SQLite. Imports none of the other packages."""

if __name__ != "gensor_database":
    raise ImportError(
        "this folder installs as gensor_database: run 'pip install -e .' and import gensor_database, "
        "so that no class exists twice"
    )

import os as _os
from typing import TYPE_CHECKING as _TYPE_CHECKING

from .lazy import public as _public

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
    from .layers import PRETUNED, Layers, file_facts, open_layers, packaged_digest
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
    "file_facts",
    "is_under",
    "launched",
    "merge",
    "open_layers",
    "packaged_digest",
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
    __getattr__ = _public(__name__, __all__, _MODULES)  # who imports the runtime needs no SQLite yet
