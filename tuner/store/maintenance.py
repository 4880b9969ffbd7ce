"""`gensor-tune where`, `prune` and `clean`: databases in use, and removal of unneeded data."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from gensor_database import PRETUNED, StoreError
from gensor_database.connection import header
from gensor_database.pruning import prune as prune_store
from gensor_database.store import Store
from gensor_database.trust import objection
from gensor_kernels import config
from gensor_kernels.errors import ConfigError
from gensor_kernels.families.registry import FAMILIES
from gensor_tuner.output import counts_text, note, plural, say

#: Folders of the cache folder that can be rebuilt, and the endings of files that belong there.
BUILT = {
    **{"emulator": (".so", ".o"), "plans": (".gensor", ".json")},
    **{"verdicts": (".json",), "unfinished": (".json",), "models": (".json",)},
}
#: Seconds after which an unfinished file of a build counts as abandoned.
ABANDONED = 3600.0


@dataclass
class Layer:
    """A database that the runtime reads. `state`: used, ignored (with `reason`), absent or unset."""

    layer: str
    path: str | None
    named_by: str
    state: str = "used"
    reason: str | None = None
    bytes: int = 0
    schema: int | None = None
    journal: str | None = None
    cubins: bool | None = None
    rows: dict[str, int] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """Yield lines for people."""
        yield f"{self.layer:<9} {self.path or '-'} ({self.named_by})"
        if self.state != "used":
            yield from [f"{'':<9} {self.state}: {self.reason}"] if self.reason else []
            return
        loaded = "cubins are loaded" if self.cubins else f"cubins are not loaded: {objection(Path(self.path or ''))}"
        yield f"{'':<9} {size_text(self.bytes)}, schema {self.schema}, journal {self.journal}, {loaded}"
        yield f"{'':<9} {counts_text(self.rows)}"


def size_text(size: float) -> str:
    """Return a number of bytes for people; 1 kB is 1000 bytes."""
    units = ("bytes", "kB", "MB", "GB")
    place = next((place for place in range(3) if abs(size) < 1000 ** (place + 1)), 3)
    return f"{size / 1000**place:.{min(place, 1)}f} {units[place]}"


def layers(capability: str | None) -> Iterator[Layer]:
    """Yield the databases in the order of lookup; `capability` selects one packaged database, None all."""
    named = "GENSOR_DB" if os.environ.get("GENSOR_DB") else "kernels.db of the cache folder; GENSOR_DB is not set"
    try:
        path = config.user_database()
        absent = "made when something is first tuned"
        yield _inspect(Layer("user", str(path), named), path, absent)
    except ConfigError as error:
        yield Layer("user", None, named, "ignored", str(error))
    site = config.site_database()
    if site is None:
        yield Layer("site", None, "GENSOR_SITE_DB is not set", "unset")
    else:
        yield _inspect(Layer("site", str(site), "GENSOR_SITE_DB"), site, None)
    packaged = sorted(PRETUNED.glob("*.db")) if capability is None else [PRETUNED / f"{capability}.db"]
    for file in packaged:
        layer = Layer("packaged", str(file), f"for {file.stem}")
        yield _inspect(layer, file, "none ships for it", immutable=True, trusted=True)


def _inspect(
    layer: Layer, path: Path, absent: str | None, *, immutable: bool = False, trusted: bool | None = None
) -> Layer:
    """Fill in a layer from its file; `absent`: meaning of a missing file, None where that is an error."""
    if absent is not None and not path.exists():
        layer.state, layer.reason = "absent", absent
        return layer
    try:
        with Store.open(path, readonly=True, immutable=immutable, trusted=trusted) as store:
            layer.bytes = sum(each.stat().st_size for each in (path, Path(f"{path}-wal")) if each.exists())
            layer.rows = dict(store.counts())
            layer.schema = header(store.connection, "user_version")
            (layer.journal,) = store.connection.execute("PRAGMA journal_mode").fetchone()
            layer.cubins = store.trusted
    except StoreError as error:
        layer.state, layer.reason = "ignored", str(error)
    return layer


def where(capability: str | None, as_json: bool) -> int:
    """Print every database that is read; return 1 where an existing or requested database is ignored."""
    found = list(layers(capability))
    for layer in found:
        for line in [json.dumps(asdict(layer), separators=(",", ":"))] if as_json else layer.lines():
            say(line)
    if not as_json:
        try:
            say(f"{'cache':<9} {config.cache_dir()}")
        except ConfigError as error:
            say(f"{'cache':<9} unusable: {error}")
    return 1 if any(layer.state == "ignored" for layer in found) else 0


def prune(path: Path, other_abi: bool, dry_run: bool) -> int:
    """Delete unreferenced rows and print how many."""
    abis = {name: family.abi for name, family in FAMILIES.items()} if other_abi else None
    with Store.open(path, readonly=dry_run) as store:
        pruned = prune_store(store, abis, dry_run)
    rows = counts_text(dict(sorted(pruned.rows.items())))
    done = f"deleted {rows}; the file is {size_text(abs(pruned.bytes))} {'smaller' if pruned.bytes >= 0 else 'larger'}"
    say(f"{path}: {f'would delete {rows}; about {size_text(pruned.bytes)}' if dry_run else done}")
    if pruned.kept_size is not None:
        note(f"the file could not be made smaller now: {pruned.kept_size}")
    return 0


def clean(dry_run: bool) -> int:
    """Delete build products in the cache folder; return 1 where a file could not be deleted."""
    folder, failed = config.cache_dir(), 0
    for name in BUILT:
        sizes = []
        for file in list(_built_files(folder / name)):
            try:
                size = file.stat().st_size
                if not dry_run:
                    file.unlink()
                sizes.append(size)
            except OSError as error:
                failed += 1
                note(f"{file}: {error.strerror or error}")
        deleted = f"{'would delete' if dry_run else 'deleted'} {len(sizes)} {plural('file', len(sizes))}"
        say(f"{folder / name}: {deleted}, {size_text(sum(sizes))}")
    for file in sorted(folder.glob("*.db")):
        say(f"{file}: kept, {size_text(file.stat().st_size)}")
    return 1 if failed else 0


def _built_files(folder: Path) -> Iterator[Path]:
    """Yield our files in a folder of the cache, without following links."""
    if not folder.is_dir() or folder.is_symlink():
        return
    endings = BUILT[folder.name]
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if not entry.is_file(follow_symlinks=False):
            continue
        abandoned = entry.name.startswith(".") and time.time() - entry.stat().st_mtime > ABANDONED
        if abandoned or (entry.name.endswith(endings) and not entry.name.startswith(".")):
            yield Path(entry.path)
