"""Garbage in place of a database: every look ends within a second with sound rows, or with a StoreError.

It never ends with another exception, and files of others are not changed.

One file of each kind in a push, 5,000 with GENSOR_CAMPAIGN=full.
"""

import os
import random
import shutil

import pytest

from tests.campaign_size import FULL, SEED, tell
from tests.doubles.store_rows import stock

from .files import odd_files
from .files.looks import every_look, ways
from .lives.checks import Clock

FILES = 5_000 if FULL else len(odd_files.KINDS)

pytestmark = pytest.mark.skipif(os.name != "posix", reason="pipes, devices and links are POSIX")


def test_garbage_files(tmp_path, monkeypatch):
    image = stock(tmp_path / "sound.db", *range(20), journal="DELETE").read_bytes()
    generator, clock, refused = random.Random(SEED), Clock(), 0
    place = tmp_path / "place"
    path = place / "kernels.db"
    for number in range(FILES):
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        monkeypatch.chdir(place)  # a socket's path is short
        kind = odd_files.KINDS[number % len(odd_files.KINDS)]
        odd_files.put(kind, path, image, generator)
        before = path.read_bytes() if path.is_file() and path.stat().st_size < 2**20 else None
        refused += every_look(path, clock, writable=True).total()
        if kind in odd_files.FOREIGN and before:
            assert path.read_bytes() == before, kind
    tell("garbage files", {"files": FILES, "refused": refused})
    clock.check()
    assert FILES < refused < 0.95 * FILES * len(ways(path, True))
