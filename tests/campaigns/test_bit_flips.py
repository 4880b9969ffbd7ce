"""Flipped bits in a database: all answers are those of the sound file, without errors, and rows on other pages remain.

A sample by default; GENSOR_CAMPAIGN=full flips 50,000 bits: one of every byte of structure (headers, pointers, keys,
cells, every index), one of each overflow page, the rest anywhere.
"""

import os
import random
import shutil
import warnings
from collections import Counter

import pytest

from gensor_database import PRETUNED, Catalog, Store, StoreError, StoreWarning, Timing
from gensor_database.record import TABLES, Binary, Kernel, Record, Source, Verification
from tests.campaign_size import FULL, SEED, tell
from tests.doubles.store_rows import ARCH, PART, everything

from .lives.checks import Clock

FLIPS = 50_000 if FULL else 200
KERNELS = 2


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """Some kernels of the shipped database with all that belongs to them, and timings."""
    path = tmp_path_factory.mktemp("sound") / "sound.db"
    shipped = Store.open(PRETUNED / f"{ARCH}.db", readonly=True, immutable=True, trusted=True)
    with shipped, Store.open(path) as store:
        records = [row for row in shipped.rows(Record) if row.part == PART]
        kernels = [row for row in shipped.rows(Kernel) if row.family == "contraction_mma"]  # of one source
        names = sorted({row.digest for row in kernels} & {row.kernel_digest for row in records})[:KERNELS]
        for name in names:
            kernel = shipped.get(Kernel, name)
            binary = shipped.get(Binary, kernel.binary_digest)
            store.add(shipped.get(Source, binary.source_digest), binary, kernel)
            store.add(*shipped.rows(Verification, kernel_digest=name))
            store.replace_portfolio(ARCH, PART, kernel.class_key, [name])
            for record in [row for row in records if row.kernel_digest == name][:3]:
                store.add(record, Timing(record.key, ARCH, PART, name, None, 12.5, created=1))
                store.add(Timing(record.key, ARCH, PART, None, "cupy.matmul", 13.5, created=1))
        store.connection.execute("PRAGMA journal_mode=DELETE")
        store.connection.execute("VACUUM")
    return path


def answers(store, keys):
    """The answers to the questions of a run, by both ways of reading, down to source and machine code."""
    catalog, found, code = Catalog([store], ARCH), {}, {}
    for key in keys:
        for way, entry in (("find", store.find(key, ARCH, PART)), ("catalog", catalog.find(key, PART))):
            if entry is not None:
                name = entry.kernel.digest
                code[name] = code.get(name) or (entry.binary(), entry.stored.source())
                found[way, key] = (entry.record, entry.kernel, entry.verified, *code[name])
        found["timings", key] = frozenset(catalog.timings(key, PART))
    for name in {stored.kernel.class_key for stored in catalog.kernels()}:
        found["portfolio", name] = frozenset(each.kernel for each in catalog.portfolio(name, PART))
    return found


class Layout:
    """Which bytes of a database without free pages are structure, by its file format (sqlite.org/fileformat2.html)."""

    def __init__(self, image):
        self.image, self.size = image, int.from_bytes(image[16:18], "big")
        self.structure, self.overflow, self.shared = list(range(100)), [], []
        for base in range(0, len(image), self.size):
            start = base or 100
            kind = image[start]
            if kind not in (2, 5, 10, 13):  # pages of trees
                self.overflow.append(base)
                continue
            head = start + (12 if kind in (2, 5) else 8)
            count, cells = (int.from_bytes(image[start + at : start + at + 2], "big") for at in (3, 5))
            self.structure += [*range(start, head + 2 * count), *range(base + cells, base + self.size)]
            if kind != 13 or b"CREATE " in image[base : base + self.size]:  # indexes, the schema
                self.shared.append(base)

    def touching(self, digest):
        """The pages that may matter to a row: all but those of other rows in tables."""
        found, at = {*self.shared, *self.overflow}, -1
        while (at := self.image.find(digest.encode(), at + 1)) >= 0:
            found.add(at // self.size * self.size)
        return found

    def flips(self):
        generator = random.Random(SEED)
        chosen = self.structure if FULL else generator.sample(self.structure, FLIPS * 3 // 4)
        pages = self.overflow if FULL else generator.sample(self.overflow, min(20, len(self.overflow)))
        chosen = [*chosen, *(page + generator.randrange(4, self.size) for page in pages)]
        chosen += [generator.randrange(len(self.image)) for _ in range(FLIPS - len(chosen))]
        return [(offset, generator.randrange(8)) for offset in chosen]


def check(found, truth, where):
    """Every answer is the one of the sound file, or without its code or verdict."""
    for question, answer in found.items():
        wanted = truth[question]
        if isinstance(answer, frozenset):
            assert answer <= wanted, (where, question)
            continue
        assert answer[:2] == wanted[:2], (where, question)  # record and kernel
        assert answer[2] in (wanted[2], "none"), (where, question)
        assert all(code in (None, right) for code, right in zip(answer[3:], wanted[3:], strict=True)), (where, question)


@pytest.mark.filterwarnings("ignore::gensor_database.StoreWarning")
def test_flipped_bits_change_no_answer(sound, tmp_path):
    """A third of the keys each time; every sixteenth time the file is the user's, which is opened for writing."""
    image, path = sound.read_bytes(), tmp_path / "flipped.db"
    layout, counts, clock = Layout(image), Counter(), Clock()
    with warnings.catch_warnings(), Store.open(sound, readonly=True, immutable=True, trusted=True) as store:
        warnings.simplefilter("error", StoreWarning)  # of a sound file nothing is refused, left out or warned about
        rows = everything(store)
        keys = sorted({row.key for row in rows.values() if isinstance(row, Record)})
        truth = answers(store, keys)
        assert len(rows) == sum(store.counts().values()) and {type(row) for row in rows.values()} == {*TABLES}
    assert len(truth) > 3 * len(keys) and all(truth.values())
    touching = {digest: layout.touching(digest) for digest in rows}
    shutil.copy(sound, path)
    for number, (offset, bit) in enumerate(layout.flips()):
        writable, served = number % 16 == 0, {}
        with path.open("r+b") as file:
            os.pwrite(file.fileno(), bytes([image[offset] ^ 1 << bit]), offset)
        timeout = 1 if writable else 0
        try:
            with (
                clock.measure("flip"),
                Store.open(path, not writable, immutable=number % 2 == 1, trusted=True, timeout=timeout) as store,
            ):
                served = everything(store)
                found = answers(store, keys[number % 3 :: 3])
        except StoreError:
            counts["refused"] += 1
        else:
            assert served.items() <= rows.items(), offset
            check(found, truth, offset)
        page = offset - offset % layout.size
        untouched = [digest for digest, pages in touching.items() if page not in pages]
        counts["altered"] += served != rows
        counts["untouched"] += len(untouched)
        counts["kept"] += sum(digest in served for digest in untouched)
        for left in tmp_path.glob("flipped.db-*"):
            left.unlink()
        path.write_bytes(image)
    tell("bit flips", {**counts, "flips": FLIPS, "structure": len(layout.structure), "bytes": len(image)})
    clock.check()
    assert counts["kept"] >= 0.99 * counts["untouched"] > 0
    assert counts["altered"] > FLIPS / 10  # the flips did hit rows
