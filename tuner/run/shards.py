"""A run's share of the classes of a shapes file: several commands without a scheduler tune all of it."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from gensor_kernels.machine.arch import Arch
from gensor_tuner.shapes.reader import Row

PATTERN = re.compile(r"([1-9][0-9]{0,5})/([1-9][0-9]{0,5})\Z")

#: A capability and the key of a class. Parts of one capability stay together: the portfolio of each is chosen from the
#: kernels that all of them have.
Class = tuple[str, str]


class Shard(NamedTuple):
    """The share `number` of `many`, from 1 on."""

    number: int
    many: int

    def __str__(self) -> str:
        return f"{self.number}/{self.many}"

    @classmethod
    def of(cls, text: str) -> Shard:
        """Return the shard of a text such as "3/16"; ValueError for another text."""
        found = PATTERN.match(text)
        if found is None or int(found[1]) > int(found[2]):
            raise ValueError(f"--shard takes I/N with 1 <= I <= N, such as 3/16, not '{text}'")
        return cls(int(found[1]), int(found[2]))

    def rows(self, rows: Sequence[Row], archs: Sequence[Arch]) -> list[list[Row]]:
        """Return this share of the rows for each arch; rows without a workload are the first shard's.

        Which share a class belongs to follows from the classes of the whole file and their workloads, whatever the
        order of rows: the largest classes first, each to the shard that has least so far.
        """
        owners = self._owners(rows, archs)

        def owner(row: Row, arch: Arch) -> int:
            return 1 if row.workload is None else owners[arch.name, row.workload.class_key()]

        return [[row for row in rows if owner(row, arch) == self.number] for arch in archs]

    def describe(self, shares: Sequence[Sequence[Row]], rows: Sequence[Row]) -> str:
        """Return the size of this share, and of the whole, each arch counted."""
        whole = [rows] * len(shares)
        classes = f"{_classes(shares)} of {_classes(whole)} classes"
        return f"shard {self}: {classes}, {sum(map(len, shares))} of {sum(map(len, whole))} rows"

    def _owners(self, rows: Sequence[Row], archs: Sequence[Arch]) -> dict[Class, int]:
        workloads: dict[str, set[str]] = {}
        for row in rows:
            if row.workload is not None:
                workloads.setdefault(row.workload.class_key(), set()).add(row.workload.key())
        names = Counter(arch.name for arch in archs)
        sizes = {(name, key): parts * len(keys) for name, parts in names.items() for key, keys in workloads.items()}
        loads, owners = [0] * self.many, dict[Class, int]()
        digests = {each: hashlib.sha256("\0".join(each).encode()).hexdigest() for each in sizes}
        for each in sorted(sizes, key=lambda each: (-sizes[each], digests[each])):
            place = loads.index(min(loads))
            owners[each] = place + 1
            loads[place] += sizes[each]
        return owners


def _classes(shares: Sequence[Sequence[Row]]) -> int:
    """Return the number of classes, each arch's counted."""
    return sum(len({row.workload.class_key() for row in rows if row.workload is not None}) for rows in shares)
