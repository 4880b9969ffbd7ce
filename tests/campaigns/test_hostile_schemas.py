"""Databases made to harm: refused, or read with every row checked; within a second each, however they are opened.

A sample of files/hostile_schemas.py in a push, all of them nightly.
"""

import shutil

import pytest

from gensor_database import ForeignStoreError, Kernel, Store, StoreError
from gensor_database.record import TABLES
from tests.campaign_size import sample
from tests.doubles.store_rows import ARCH, PART, add_rows, kernel_rows, key, rows

from .files.hostile_schemas import ELSEWHERE, OPENED, REFUSED, make_database
from .files.looks import every_look
from .lives.checks import Clock


def look(path):
    """The number of refusals of each way to read the file."""
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
