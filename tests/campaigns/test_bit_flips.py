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

from .lives.clock import Clock

FLIPS = 50_000 if FULL else 200
ARCH, PART = "sm_87", "orin-nano-8gb"
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


def everything(store):
    return {(kind.TABLE, row.digest): row for kind in TABLES for row in store.rows(kind)}


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


def flips(layout):
    """(offset, bit) of each flip."""
    generator, image = random.Random(SEED), layout.image
    chosen = layout.structure if FULL else generator.sample(layout.structure, FLIPS * 3 // 4)
    pages = layout.overflow if FULL else generator.sample(layout.overflow, min(20, len(layout.overflow)))
    chosen = [*chosen, *(page + generator.randrange(4, layout.size) for page in pages)]
    chosen += [generator.randrange(len(image)) for _ in range(FLIPS - len(chosen))]
    return [(offset, generator.randrange(8)) for offset in chosen]


class Campaign:
    """One flip after the other, and its effect."""

    def __init__(self, path, copy):
        self.image, self.path = path.read_bytes(), copy
        shutil.copy(path, copy)
        self.layout = Layout(self.image)
        with warnings.catch_warnings(), Store.open(path, readonly=True, immutable=True, trusted=True) as store:
            warnings.simplefilter("error")  # of a sound file nothing is refused, left out or warned about
            self.rows = everything(store)
            assert len(self.rows) == sum(store.counts().values())
            self.keys = sorted({row.key for row in self.rows.values() if isinstance(row, Record)})
            self.truth = answers(store, self.keys)
        self.touching = {name: self.layout.touching(name[1]) for name in self.rows}
        self.counts, self.clock = Counter(), Clock()

    def flip(self, file, offset, bit, number):
        """Flip, look (for a third of the keys), flip back.

        Every sixteenth time the file is the user's, which is opened for writing."""
        writable = number % 16 == 0
        os.pwrite(file, bytes([self.image[offset] ^ 1 << bit]), offset)
        served = {}
        try:
            with (
                self.clock.measure("flip"),
                Store.open(
                    self.path, not writable, immutable=number % 2 == 1, trusted=True, timeout=0 if not writable else 1
                ) as store,
            ):
                served = everything(store)
                found = answers(store, self.keys[number % 3 :: 3])
        except StoreError:
            self.counts["refused"] += 1
        else:
            self.check(found, served, offset)
        self.counts["flips"] += 1
        self.counts["altered"] += served != self.rows
        untouched = [name for name, pages in self.touching.items() if offset - offset % self.layout.size not in pages]
        self.counts["untouched"] += len(untouched)
        self.counts["kept"] += sum(name in served for name in untouched)
        if writable:
            for suffix in ("-wal", "-shm", "-journal"):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
            os.ftruncate(file, len(self.image))
            os.pwrite(file, self.image, 0)
        os.pwrite(file, self.image[offset : offset + 1], offset)

    def check(self, found, served, offset):
        """Everything that was accepted is what the sound file has under that key."""
        for name, row in served.items():
            assert self.rows.get(name) == row, (offset, name)
        for question, answer in found.items():
            truth = self.truth[question]
            if isinstance(answer, frozenset):
                assert answer <= truth, (offset, question)
                continue
            record, kernel, verified, binary, source = answer
            assert (record, kernel) == truth[:2] and verified in (truth[2], "none"), (offset, question)
            assert binary in (None, truth[3]) and source in (None, truth[4]), (offset, question)


def test_flipped_bits_change_no_answer(sound, tmp_path):
    campaign = Campaign(sound, tmp_path / "flipped.db")
    assert len(campaign.truth) > 3 * len(campaign.keys) and all(campaign.truth.values())
    assert {name for name, _ in campaign.rows} == {kind.TABLE for kind in TABLES}
    file = os.open(campaign.path, os.O_RDWR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)
        for number, (offset, bit) in enumerate(flips(campaign.layout)):
            campaign.flip(file, offset, bit, number)
    os.close(file)
    counts = campaign.counts
    tell("bit flips", {**counts, "structure": len(campaign.layout.structure), "bytes": len(campaign.image)})
    tell("bit flips: longest look", campaign.clock.longest())
    campaign.clock.check()
    assert counts["kept"] >= 0.99 * counts["untouched"] > 0
    assert counts["altered"] > FLIPS / 10  # the flips did hit rows
