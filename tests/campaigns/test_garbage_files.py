"""Garbage in place of a database: every look ends within a second with rows of the sound file, or with a StoreError.

It never ends with another exception, and files of others are not changed.

One file of each kind in a push, 5,000 with GENSOR_CAMPAIGN=full.
"""

import os
import random
import shutil
import warnings
from collections import Counter

import pytest

from gensor_database import Catalog, Store, StoreError, StoreWarning, open_layers
from gensor_database.record import TABLES
from tests.campaign_size import FULL, SEED, tell
from tests.doubles.store_rows import ARCH, PART, class_key, kernel_rows, key, rows

from .files import odd_files
from .lives.clock import Clock

FILES = 5_000 if FULL else len(odd_files.MAKERS)
NUMBERS = range(20)

pytestmark = pytest.mark.skipif(os.name != "posix", reason="pipes, devices and links are POSIX")


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    path = tmp_path_factory.mktemp("sound") / "sound.db"
    with Store.open(path) as store:
        for number in NUMBERS:
            store.add(*rows(number))
        store.replace_portfolio(ARCH, PART, class_key(), [kernel_rows(number)[1].digest for number in NUMBERS])
        store.connection.execute("PRAGMA journal_mode=DELETE")
    return path


class Looks:
    """Every way of opening a file, and how long each took."""

    def __init__(self, truth):
        self.truth, self.clock, self.counts = truth, Clock(), Counter()

    def look(self, name, action):
        with self.clock.measure(name):
            try:
                action()
                self.counts["answered"] += 1
            except StoreError:
                self.counts["refused"] += 1

    def read(self, path, readonly, **options):
        with Store.open(path, readonly, timeout=0.1, **options) as store:
            for kind in TABLES:
                for row in store.rows(kind):
                    assert row in self.truth[kind.TABLE]
            for number in NUMBERS[:3]:
                entry = store.find(key(number), ARCH, PART)
                assert entry is None or entry.record.key == key(number)
            Catalog([store], ARCH)

    def read_layers(self, path):
        with open_layers(ARCH, path, path, timeout=0.1) as layers:
            entry = layers.load(ARCH).find(key(1), PART)
            assert entry is None or entry.record in self.truth["record"]


def clear(place):
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()


def test_garbage_files(sound, tmp_path, monkeypatch):
    image = sound.read_bytes()
    with Store.open(sound, readonly=True) as store:
        looks = Looks({kind.TABLE: set(store.rows(kind)) for kind in TABLES})
    generator, place = random.Random(SEED), tmp_path / "place"
    path = place / "kernels.db"
    for number in range(FILES):
        clear(place)
        monkeypatch.chdir(place)  # a socket's path is short
        maker = odd_files.MAKERS[number % len(odd_files.MAKERS)]
        maker(path, image, generator)
        name = maker.__name__
        before = path.read_bytes() if path.is_file() and path.stat().st_size < 2**20 else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", StoreWarning)
            looks.look(name, lambda: looks.read(path, True))
            looks.look(name, lambda: looks.read(path, True, immutable=True))
            looks.look(name, lambda: looks.read_layers(path))
            looks.look(name, lambda: looks.read(path, False))
        if name in ("other_application", "another_format", "text") and before:
            assert path.read_bytes() == before, name
    tell("garbage files", {"files": FILES, **looks.counts})
    tell("garbage files: longest look", looks.clock.longest())
    looks.clock.check()
    assert looks.counts["refused"] > FILES and looks.counts["answered"] > FILES / 10
