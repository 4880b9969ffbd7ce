"""The layout of an SQLite file: which bytes are structure, and the pages that lead to each row.

Read from the file format (sqlite.org/fileformat2.html), so that it does not depend on the library under test.
"""

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

LEAF_TABLE, INTERIOR_TABLE, LEAF_INDEX, INTERIOR_INDEX = 13, 5, 10, 2


@dataclass
class Map:
    """`structure`: offsets of every byte that is not content; `content`: overflow pages, which are content.

    `touching`: numbers of the pages that lead to a row, by table and digest: those of the schema, from each root to
    its cell, and the overflow pages of the cell.
    """

    structure: set[int] = field(default_factory=set)
    content: set[int] = field(default_factory=set)
    touching: dict[tuple[str, str], set[int]] = field(default_factory=dict)


def read_map(path: Path) -> Map:
    """The Map of a database without free pages."""
    image, found = path.read_bytes(), Map()
    reader = _Reader(image, found)
    connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    schema = set().union(*(pages for _, pages in reader.walk(1, ())))  # which every look needs
    rows = connection.execute("SELECT type, name, tbl_name, rootpage FROM sqlite_master ORDER BY type DESC")
    for kind, name, table, root in rows.fetchall():  # tables before their indexes
        digests = dict(connection.execute(f'SELECT rowid, digest FROM "{table}"'))
        for rowid, pages in reader.walk(root, ()):
            found.touching.setdefault((table, digests[rowid]), set()).update(schema | pages)
        assert kind in ("table", "index"), name
    connection.close()
    return found


class _Reader:
    def __init__(self, image: bytes, found: Map):
        self.image, self.found = image, found
        self.size = int.from_bytes(image[16:18], "big")
        found.structure.update(range(100))

    def walk(self, page: int, above: tuple[int, ...]) -> list[tuple[int, set[int]]]:
        """(rowid, pages) of every row below `page`."""
        base, path = (page - 1) * self.size, (*above, page)
        start = base + (100 if page == 1 else 0)
        kind, count = self.image[start], self.number(start + 3, 2)
        head = 12 if kind in (INTERIOR_TABLE, INTERIOR_INDEX) else 8
        self.found.structure.update(range(start, start + head + 2 * count))
        rows: list[tuple[int, set[int]]] = []
        for index in range(count):
            rows += self.cell(kind, base, base + self.number(start + head + 2 * index, 2), path)
        if head == 12:
            rows += self.walk(self.number(start + 8, 4), path)
        return rows

    def cell(self, kind: int, base: int, at: int, path: tuple[int, ...]) -> Iterator[tuple[int, set[int]]]:
        first = at
        if kind in (INTERIOR_TABLE, INTERIOR_INDEX):
            yield from self.walk(self.number(at, 4), path)
            at += 4
        if kind == INTERIOR_TABLE:
            _, end = self.varint(at)
            self.found.structure.update(range(first, end))
            return
        size, at = self.varint(at)
        rowid = None
        if kind == LEAF_TABLE:
            rowid, at = self.varint(at)
        local = self.local(size, kind == LEAF_TABLE)
        spilled = self.overflow(self.number(at + local, 4)) if local < size else []
        self.found.structure.update(range(first, at + local + (4 if local < size else 0)))
        if rowid is None:  # of an index: the last value of its record
            rowid = self.last_integer(at)
        yield rowid, {*path, *spilled}

    def local(self, size: int, table: bool) -> int:
        """Bytes of a payload that are in its cell."""
        most = self.size - 35 if table else (self.size - 12) * 64 // 255 - 23
        if size <= most:
            return size
        least = (self.size - 12) * 32 // 255 - 23
        wanted = least + (size - least) % (self.size - 4)
        return wanted if wanted <= most else least

    def overflow(self, page: int) -> list[int]:
        pages = []
        while page:
            pages.append(page)
            base = (page - 1) * self.size
            self.found.structure.update(range(base, base + 4))
            self.found.content.add(page)
            page = self.number(base, 4)
        return pages

    def last_integer(self, at: int) -> int:
        """The rowid at the end of an index record, whose payload must be whole."""
        head, place = self.varint(at)
        kinds, end = [], at + head
        while place < end:
            kind, place = self.varint(place)
            kinds.append(kind)
        for kind in kinds[:-1]:
            end += {5: 6, 6: 8, 7: 8}.get(kind, kind if kind < 5 else 0 if kind < 12 else (kind - 12) // 2)
        width = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}.get(kinds[-1], 0)
        return self.number(end, width) if width else kinds[-1] - 8

    def number(self, at: int, width: int) -> int:
        return int.from_bytes(self.image[at : at + width], "big")

    def varint(self, at: int) -> tuple[int, int]:
        value = 0
        for place in range(9):
            byte = self.image[at + place]
            if place == 8:
                return value << 8 | byte, at + 9
            value = value << 7 | byte & 127
            if byte < 128:
                return value, at + place + 1
        raise AssertionError
