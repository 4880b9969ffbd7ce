"""Three databases as one: the user's before the site's before the packaged one; only the user's is written.

A problem with one of them is a warning, and the others continue to serve.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache
from pathlib import Path

from .catalog import Catalog
from .errors import StoreError, StoreWarning, is_first_report
from .record import Row
from .store import TIMEOUT, Entry, Store
from .trust import file_objection, objection

PRETUNED = Path(__file__).resolve().parent / "pretuned"

PathLike = str | os.PathLike[str]


class Layers:
    """The stores that could be opened, and the path of the user's, which the first write creates if necessary."""

    def __init__(self, user: Store | None, site: Store | None, packaged: Store | None, user_path: Path | None = None):
        self.user, self.site, self.packaged = user, site, packaged
        self.user_path = user_path

    @property
    def stores(self) -> tuple[Store, ...]:
        """Open stores in the order of precedence."""
        return tuple(store for store in (self.user, self.site, self.packaged) if store is not None)

    def load(
        self,
        arch: str,
        abis: Mapping[str, int] | None = None,
        well_formed: Callable[[Row], bool] = lambda row: True,
        texts: Sequence[str] = (),
    ) -> Catalog:
        """Return the rows of one architecture, in memory; see Catalog."""
        return Catalog(self.stores, arch, abis, well_formed, texts)

    def find(self, key: str, arch: str, part: str | None = None, abis: Mapping[str, int] | None = None) -> Entry | None:
        """Return the first store's answer; see Store.find."""
        found = (store.find(key, arch, part, abis) for store in self.stores)
        return next((entry for entry in found if entry is not None), None)

    def add(self, *rows: Row, timeout: float = 1.0) -> bool:
        """Add rows to the user's store, created if absent; on failure return False with a warning."""
        if self.user_path is None:
            return False
        try:
            if self.user is None or self.user.readonly:
                self.user = Store.open(self.user_path, timeout=timeout)
            self.user.add(*rows)
        except StoreError as error:
            warnings.warn(f"nothing was stored: {error}", StoreWarning, stacklevel=2)
            return False
        return True

    def close(self) -> None:
        """Close every store."""
        for store in self.stores:
            store.close()

    def __enter__(self) -> Layers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_layers(
    arch: str, user: PathLike | None = None, site: PathLike | None = None, timeout: float = TIMEOUT
) -> Layers:
    """Open the packaged database of an architecture, and those of the site and the user where they exist.

    A database that cannot be used within `timeout` seconds is left out with a StoreWarning that names the reason. The
    user's file is not created here, and opened for writing only where that is possible; if other users could write to
    it, it is neither read nor written. A site database that other users can write to is data, without machine code: a
    StoreWarning says how to change that.
    """
    packaged = PRETUNED / f"{arch}.db"
    user_path = Path(user).expanduser().absolute() if user is not None else None
    refused = user_path is not None and file_objection(user_path, "GENSOR_DB")
    if refused and user_path is not None:
        if is_first_report(user_path):
            warnings.warn(f"the kernel database {user_path} is left out: {refused}", StoreWarning, stacklevel=2)
        user_path = None
    return Layers(
        _open_user(user_path, timeout) if user_path is not None and os.path.exists(user_path) else None,
        _open_site(Path(site).expanduser(), timeout) if site is not None else None,
        _open(packaged, timeout, immutable=True, trusted=True) if os.path.exists(packaged) else None,
        user_path,
    )


def file_facts(path: Path | None) -> Hashable:
    """Return facts of a database file that change with its rows and its access rights, or None without a file."""
    found = []
    for suffix in ("", "-wal") if path is not None else ():
        try:
            about = os.stat(f"{path}{suffix}")
        except OSError:
            continue
        if about.st_size:  # an empty log comes and goes with readers
            found.append((suffix, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns))
    return tuple(found) or None


@cache
def packaged_digest(arch: str) -> str:
    """Return a digest of the packaged database of an architecture."""
    path = PRETUNED / f"{arch}.db"
    return hashlib.sha256(path.read_bytes() if path.exists() else b"").hexdigest()


def _open_user(path: Path, timeout: float) -> Store | None:
    return _open(path, timeout, readonly=not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)))


def _open_site(path: Path, timeout: float) -> Store | None:
    store = _open(path, timeout)
    if store is not None and not store.trusted:
        text = f"no machine code is taken from {path}, its kernels are compiled here: {objection(path)}"
        warnings.warn(text, StoreWarning, stacklevel=3)
    return store


def _open(
    path: Path, timeout: float, *, readonly: bool = True, immutable: bool = False, trusted: bool | None = None
) -> Store | None:
    try:
        return Store.open(path, readonly, immutable=immutable, trusted=trusted, timeout=timeout)
    except (StoreError, OSError) as error:  # the latter where a failing disk does not even say what the file is
        if is_first_report(path):
            warnings.warn(f"a kernel database is left out: {error}", StoreWarning, stacklevel=4)
        return None
