"""Power loss: from the log of a life (gate.c) the files a disk may hold after each of its calls.

Synced data is there, with any 512-byte sectors of later writes, and any first few of the files that were made or
deleted since the folder was synced. The index of SQLite's log is garbage: it is shared memory, never synced.
"""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

SECTOR = 512
Change = tuple[int, bytes | None]  # at, data; or the new length, None


@dataclass(eq=False)
class Inode:
    """A file: what is surely on the disk, and the changes since."""

    durable: bytes = b""
    pending: list[Change] = field(default_factory=list)

    def sync(self) -> None:
        self.durable, self.pending = self.after(lambda: True), []

    def after(self, survives) -> bytes:
        """Its bytes when of each sector written, and each new length, `survives()` says whether it got there."""
        data = bytearray(self.durable)
        for at, written in self.pending:
            if written is None:
                if survives():
                    data[at:] = bytes(max(0, at - len(data)))
                continue
            for start in range(0, len(written), SECTOR):
                if survives():
                    part, place = written[start : start + SECTOR], at + start
                    data.extend(bytes(max(0, place - len(data))))
                    data[place : place + len(part)] = part
        return bytes(data)


class Disk:
    """A folder on a disk, call by call."""

    def __init__(self, folder: Path):
        """All files of `folder` are on the disk at the beginning."""
        self.names = {path.name: Inode(path.read_bytes()) for path in folder.iterdir()}
        self.durable_names = dict(self.names)
        self.pending: list[tuple[str, Inode | None]] = []

    def take(self, what: str, name: str, first: int, data: bytes) -> None:
        if what == "create":
            self._rename(name, Inode())
        elif what == "unlink":
            self._rename(name, None)
        elif what == "sync" and name == "/":
            self.durable_names, self.pending = dict(self.names), []
        elif what == "sync":
            self.names[name].sync()
        elif what in ("write", "truncate"):
            self.names[name].pending.append((first, data if what == "write" else None))

    def _rename(self, name: str, inode: Inode | None) -> None:
        self.pending.append((name, inode))
        self.names.pop(name, None)
        if inode is not None:
            self.names[name] = inode

    def fail(self, generator: random.Random, chance: float, folder: Path) -> None:
        """Writes files that may remain if the power fails now into the empty `folder`."""
        names: dict[str, Inode | None] = dict(self.durable_names)
        names.update(self.pending[: round(chance * len(self.pending) + generator.uniform(-0.5, 0.5))])
        for name, inode in names.items():
            if inode is None:
                continue
            data = inode.after(lambda: generator.random() < chance)
            folder.joinpath(name).write_bytes(generator.randbytes(32768) if name.endswith("-shm") else data)


def moments(folder: Path, entries: Iterable[tuple], acknowledged: str = "") -> Iterator[tuple[Disk, str]]:
    """The disk, and what the life had reported, after every entry of its log."""
    disk = Disk(folder)
    for what, name, first, _, _, data in entries:
        if what == "acknowledge":
            acknowledged += data.decode()
        else:
            disk.take(what, name, first, data)
        yield disk, acknowledged
