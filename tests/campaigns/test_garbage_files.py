"""Garbage in place of a database: every look ends within a second with sound rows, or with a StoreError.

It never ends with another exception, and files of others are not changed.

One file of each kind in a push, 5,000 with GENSOR_CAMPAIGN=full.
"""

import os
import random
import shutil

import pytest

from gensor_database import Store
from tests.campaign_size import FULL, SEED, tell
from tests.doubles.store_rows import ARCH, PART, class_key, kernel_rows, rows

from .files import odd_files
from .files.looks import every_look, ways
from .lives.clock import Clock

FILES = 5_000 if FULL else len(odd_files.MAKERS)
NUMBERS = range(20)

pytestmark = pytest.mark.skipif(os.name != "posix", reason="pipes, devices and links are POSIX")


def sound_image(path):
    with Store.open(path) as store:
        for number in NUMBERS:
            store.add(*rows(number))
        store.replace_portfolio(ARCH, PART, class_key(), [kernel_rows(number)[1].digest for number in NUMBERS])
        store.connection.execute("PRAGMA journal_mode=DELETE")
    return path.read_bytes()


def test_garbage_files(tmp_path, monkeypatch):
    image, generator, clock, refused = sound_image(tmp_path / "sound.db"), random.Random(SEED), Clock(), 0
    place = tmp_path / "place"
    path = place / "kernels.db"
    for number in range(FILES):
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        monkeypatch.chdir(place)  # a socket's path is short
        maker = odd_files.MAKERS[number % len(odd_files.MAKERS)]
        maker(path, image, generator)
        before = path.read_bytes() if path.is_file() and path.stat().st_size < 2**20 else None
        refused += every_look(path, clock, writable=True).total()
        if maker in (odd_files.other_application, odd_files.another_format, odd_files.text) and before:
            assert path.read_bytes() == before, maker.__name__
    tell("garbage files", {"files": FILES, "refused": refused})
    tell("garbage files: longest look", clock.longest())
    clock.check()
    assert FILES < refused < 0.95 * FILES * len(ways(path, True))
