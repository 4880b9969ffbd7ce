"""Databases made to harm: refused, or read with every row checked; within a second each, however they are opened.

A sample of files/hostile_schemas.py in a push, all of them nightly.
"""

import random
import shutil
import warnings
from collections import Counter

import pytest

from gensor_database import Catalog, ForeignStoreError, Kernel, Store, StoreError, StoreWarning, open_layers
from gensor_database.record import TABLES
from gensor_kernels.dispatch.selection import load, untrusted
from gensor_kernels.machine.arch import lookup
from tests.campaign_size import FULL, SEED, sample, tell
from tests.doubles.store_rows import ARCH, PART, add_rows, kernel_rows, key, rows, stock

from .files import odd_files
from .files.hostile_schemas import ELSEWHERE, OPENED, REFUSED, make_database
from .lives.checks import Clock

#: The rows of the one Workload that is looked for.
TRUE = {row.digest: row for row in rows(1)}


def ways(path, writable):

    def user():
        with open_layers(ARCH, path, timeout=0.1) as layers:
            layers.load(ARCH)

    def site():
        with open_layers(ARCH, None, path, timeout=0.1) as layers:
            load.contents(layers.load(ARCH, None, untrusted.well_formed), lookup(ARCH))

    def find(readonly=True):
        with Store.open(path, readonly, timeout=0.1) as store:
            entry = store.find(key(1), ARCH, PART)
            assert entry is None or (entry.record in TRUE.values() and entry.kernel in TRUE.values())
            Catalog([store], ARCH)

    def table(kind):
        with Store.open(path, readonly=True, immutable=True) as store:
            for row in store.rows(kind):
                assert row.digest_of([getattr(row, name) for name in row.columns()]) == row.digest

    found = {"user": user, "site": site, "find": find}
    found |= {kind.TABLE: lambda kind=kind: table(kind) for kind in TABLES}
    return found | ({"open for writing": lambda: find(False)} if writable else {})


def every_look(path, clock, writable=False):
    """The number of refusals of each way, measured by a Clock."""
    refused = Counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)
        for name, look in ways(path, writable).items():
            with clock.measure(name):
                try:
                    look()
                except StoreError:
                    refused[name] += 1
    return refused


FILES = 5_000 if FULL else len(odd_files.KINDS)


def test_garbage_files(tmp_path, monkeypatch):
    image = stock(tmp_path / "sound.db", *range(20), journal="DELETE").read_bytes()
    generator, clock, refused = random.Random(SEED), Clock(), 0
    place = tmp_path / "place"
    path = place / "kernels.db"
    for number in range(FILES):
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        monkeypatch.chdir(place)  # a socket's path is short
        kind = list(odd_files.KINDS)[number % len(odd_files.KINDS)]
        odd_files.KINDS[kind](path, image, generator)
        before = path.read_bytes() if path.is_file() and path.stat().st_size < 2**20 else None
        refused += every_look(path, clock, writable=True).total()
        if kind in odd_files.FOREIGN and before:
            assert path.read_bytes() == before, kind
    tell("garbage files", {"files": FILES, "refused": refused})
    clock.check()
    assert FILES < refused < 0.95 * FILES * len(ways(path, True))


def look(path):
    clock = Clock()
    refused = every_look(path, clock)
    clock.check()
    return refused


@pytest.mark.parametrize("name", sample(list(REFUSED), 3))
def test_a_database_with_other_tables_is_refused(tmp_path, name):
    path = make_database(tmp_path / "hostile.db", REFUSED[name])
    before = path.read_bytes()
    refused = look(path)
    assert refused["find"] and all(refused[kind.TABLE] for kind in TABLES) and path.read_bytes() == before
    for readonly in (False, True):
        with pytest.raises(StoreError) as error:
            Store.open(path, readonly)
        assert "\n" not in str(error.value)
        assert name in ELSEWHERE or (type(error.value) is ForeignStoreError and "other tables" in str(error.value))
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", sample(list(OPENED), 1))
def test_hostile_rows_are_not_served(tmp_path, name):
    path = make_database(tmp_path / "hostile.db", OPENED[name])
    look(path)


COMMANDS = [
    (name, command)
    for name in ("hostile strings", "deep json", "another rows digest", "zip bombs")
    for command in (("show",), ("merge",), ("verify",), ("export", "out.csv"), ("where",), ("prune",))
]


@pytest.mark.parametrize(("name", "command"), sample(COMMANDS, 2))
def test_commands_print_a_sentence(tmp_path, monkeypatch, gensor_tune, name, command):
    path = make_database(tmp_path / "hostile.db", OPENED[name])
    shutil.copy(path, tmp_path / "other.db")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GENSOR_SITE_DB", str(path))
    files = {"merge": ["other.db", "--db", "new.db"], "where": []}.get(command[0], ["--db", "hostile.db"])
    code, _, err = gensor_tune(*command, *files)
    assert code in (0, 1, 2) and "Traceback" not in err, err


@pytest.mark.filterwarnings("ignore::gensor_database.StoreWarning")
def test_good_rows_among_hostile_ones_are_served(tmp_path):
    def make(connection):
        for each in (OPENED["wrong types"], OPENED["hostile strings"], OPENED["zip bombs"]):
            each(connection)

    path = make_database(tmp_path / "mixed.db", make)
    add_rows(path, *rows(1))
    with Store.open(path, readonly=True) as store:
        entry = store.find(key(1), ARCH, PART)
        assert entry.kernel == kernel_rows(1)[1] and entry.binary() == kernel_rows(1)[0]
        assert store.get(Kernel, kernel_rows(1)[1].digest) is not None
