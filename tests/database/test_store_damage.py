"""Damaged, foreign and hostile files: never a wrong row, never an exception but StoreError."""

import random
import signal
import sqlite3
import time
import warnings

import pytest

from gensor_database import (
    Catalog,
    CorruptStoreError,
    ForeignStoreError,
    Kernel,
    NewerStoreError,
    Record,
    Store,
    StoreError,
    StoreWarning,
    Timing,
)
from gensor_database import connection as sql
from gensor_database.record import TABLES
from tests.doubles.store_rows import ARCH, PART, add_rows, altered, class_key, kernel_rows, key, rows

NUMBERS = range(3)
FLIPS = 1_000


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """Return a shipped-style database with small pages, so that flips hit rows rather than free space."""
    path = tmp_path_factory.mktemp("image") / "image.db"
    with Store.open(path) as store:
        for number in NUMBERS:
            store.add(*rows(number))
        store.replace_portfolio(ARCH, PART, class_key(), [kernel_rows(n)[1].digest for n in NUMBERS])
        store.connection.execute("PRAGMA journal_mode=DELETE")
        store.connection.execute("PRAGMA page_size=512")
        store.connection.execute("VACUUM")
    return path.read_bytes()


def everything(store: Store) -> dict[str, set[object]]:
    return {kind.TABLE: set(store.rows(kind)) for kind in TABLES}


def answers(store: Store) -> dict[int, object]:
    """Return the answer of a look-up for each key, down to the binary; by both ways of looking."""
    catalog = Catalog([store], ARCH)
    found = {}
    for number in NUMBERS:
        for entry in (store.find(key(number), ARCH, PART), catalog.find(key(number), PART)):
            if entry is not None:
                found[number, len(found)] = (entry.record, entry.kernel, entry.binary(), entry.record.key)
    return found


def test_bit_flips_never_change_what_is_answered(image, tmp_path):
    path = tmp_path / "flipped.db"
    path.write_bytes(image)
    with Store.open(path, readonly=True) as store:
        good = everything(store)
        truth = {row.key: row for row in good["record"]}
        kernels = {row.digest: row for row in good["kernel"]}
        binaries = {row.digest: row for row in good["binary"]}
        assert len(answers(store)) == 2 * len(NUMBERS)
    generator = random.Random(0)
    refused = altered = 0
    with warnings.catch_warnings(), open(path, "r+b", buffering=0) as file:
        warnings.simplefilter("ignore", StoreWarning)
        for _ in range(FLIPS):
            position, bit = generator.randrange(len(image)), generator.randrange(8)
            file.seek(position)
            file.write(bytes([image[position] ^ 1 << bit]))
            try:
                with Store.open(path, readonly=True, immutable=True, timeout=0) as store:
                    found = everything(store)
                    altered += found != good
                    for table, present in found.items():
                        assert present <= good[table], (position, bit, table)
                    for record, kernel, binary, asked in answers(store).values():
                        assert record == truth[asked] and kernel == kernels[record.kernel_digest]
                        assert binary is None or binary == binaries[kernel.binary_digest]
            except StoreError:
                refused += 1
            file.seek(position)
            file.write(image[position : position + 1])
    assert refused > FLIPS / 100 and altered > FLIPS / 10  # the flips did hit schema and rows


@pytest.mark.parametrize("kind", TABLES, ids=lambda kind: kind.TABLE)
def test_every_column_of_every_table_is_covered(image, tmp_path, kind):
    path = tmp_path / "changed.db"
    for column in ("digest", *kind.columns()):
        path.write_bytes(image)
        altered(path, f"UPDATE {kind.TABLE} SET {column} = 'changed' || rowid")
        with Store.open(path, readonly=True) as store, pytest.warns(StoreWarning, match="digest"):
            assert list(store.rows(kind)) == []


def test_one_damaged_row_does_not_hide_the_others(image, tmp_path):
    path = tmp_path / "one.db"
    path.write_bytes(image)
    altered(path, ("UPDATE record SET error = CAST(X'ff00fe' AS TEXT) WHERE key = ?", (key(2),)))
    with Store.open(path, readonly=True) as store, pytest.warns(StoreWarning):
        assert {row.key for row in store.rows(Record)} == {key(n) for n in NUMBERS if n != 2}
        assert store.find(key(2), ARCH, PART) is None and store.find(key(1), ARCH, PART) is not None


def test_a_damaged_row_is_healed_by_adding_it_again(image, tmp_path):
    path = tmp_path / "heal.db"
    path.write_bytes(image)
    altered(path, "UPDATE kernel SET abi = 99")
    with Store.open(path) as store:
        with pytest.warns(StoreWarning):
            assert store.find(key(1), ARCH, PART) is None
        assert store.add(*rows(1)) == 1
        assert store.find(key(1), ARCH, PART).kernel == kernel_rows(1)[1]


def leaves(image: bytes, table: str, path) -> list[int]:
    """Pages, of 4,096 bytes, that hold the rows of a table, in their order; it has more than one, in one level."""
    connection = sqlite3.connect(path)
    (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    connection.close()
    page = image[(root - 1) * 4096 : root * 4096]
    assert page[0] == 5  # an interior page of a table: https://sqlite.org/fileformat2.html#b_tree_pages
    cells = [int.from_bytes(page[at : at + 2], "big") for at in range(12, 12 + 2 * int.from_bytes(page[3:5], "big"), 2)]
    return [int.from_bytes(page[at : at + 4], "big") for at in (*cells, 8)]


@pytest.mark.parametrize("first_is_lost", [False, True])
def test_pages_that_lead_back_are_not_followed_for_ever(tmp_path, first_is_lost):
    path = tmp_path / "circles.db"
    with Store.open(path) as store:
        for number in range(120):
            store.add(*rows(number))
        store.connection.execute("PRAGMA journal_mode=DELETE")
        good = set(store.rows(Record))
    image = bytearray(path.read_bytes())
    pages = leaves(image, "record", path)
    assert len(pages) >= 7

    def put(place: int, content: bytes) -> None:
        image[(pages[place] - 1) * 4096 : pages[place] * 4096] = content

    put(4, image[(pages[1] - 1) * 4096 : pages[1] * 4096])  # rows that were there, then a page that is none
    put(5, bytes(4096))
    if first_is_lost:
        put(0, bytes(4096))
    path.write_bytes(image)
    previous = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it goes round in circles"))
    signal.alarm(60)
    try:
        with Store.open(path, readonly=True) as store, warnings.catch_warnings():
            warnings.simplefilter("ignore", StoreWarning)
            found = set(store.rows(Record))
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
    lost = 3 + first_is_lost  # pages of the table
    assert found <= good and len(found) > len(good) * (1 - (lost + 1) / len(pages))


def test_garbage_files(tmp_path, image):
    generator = random.Random(1)
    path = tmp_path / "garbage.db"
    for trial in range(200):
        size = generator.choice([0, 1, 15, 16, 99, 100, 512, 4096, len(image)])
        data = bytearray(generator.randbytes(size))
        kept = generator.choice([0, 16, 100, 512, 2048]) if trial % 2 else 0
        data[:kept] = image[: min(kept, size)]
        path.write_bytes(data)
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", StoreWarning)
            try:
                with Store.open(path, readonly=True, timeout=0) as store:
                    assert all(set(found) <= set() for found in everything(store).values())
            except StoreError:
                pass
        assert time.process_time() - start < 1
        assert path.read_bytes() == data


def test_text_instead_of_a_database(tmp_path):
    path = tmp_path / "notes.db"
    path.write_text("these are notes, not a database\n" * 100)
    for readonly in (False, True):
        with pytest.raises(CorruptStoreError, match=r"notes\.db"):
            Store.open(path, readonly)
    assert path.read_text().startswith("these are notes")


def test_a_database_of_another_application_is_left_alone(tmp_path):
    path = altered(tmp_path / "other.db", "CREATE TABLE notes (x)")
    before = path.read_bytes()
    for readonly in (False, True):
        with pytest.raises(ForeignStoreError, match="not a database of gensor-kernels"):
            Store.open(path, readonly)
    with Store.open(tmp_path / "ours.db"):
        pass
    with pytest.raises(ForeignStoreError):
        Store.open(altered(tmp_path / "ours.db", "PRAGMA application_id=0"))
    assert path.read_bytes() == before


@pytest.mark.parametrize("readonly", [False, True])
@pytest.mark.parametrize(
    ("version", "error", "word"),
    [
        (-1, ForeignStoreError, "older"),
        (0, ForeignStoreError, "older"),
        (3, ForeignStoreError, "older"),
        (sql.SCHEMA_VERSION + 1, NewerStoreError, "newer"),
    ],
)
def test_a_file_of_another_schema_version_is_refused_unchanged(tmp_path, readonly, version, error, word):
    path = tmp_path / "k.db"
    add_rows(path, *rows(1))
    before = altered(path, "CREATE TABLE novelty (x)", f"PRAGMA user_version={version}").read_bytes()
    with pytest.raises(error, match=rf"k\.db was written by an? {word} gensor-kernels \(schema {version}, this one"):
        Store.open(path, readonly)
    assert path.read_bytes() == before


def test_the_schema_in_the_file_is_the_commented_one(tmp_path):
    with Store.open(tmp_path / "new.db") as store:
        kept = "".join(row[3] or "" for row in sql.schema_rows(store.connection))
    for kind in (Kernel, Record, Timing):
        for column in kind.columns():
            line = next(line for line in kept.splitlines() if line.strip().startswith(f"{column} "))
            assert "--" in line, (kind.TABLE, column)
