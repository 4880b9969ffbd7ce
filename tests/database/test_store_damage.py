"""Damaged, foreign and hostile files: never a wrong row, never an exception but StoreError."""

import signal
import sqlite3

import pytest

from gensor_database import CorruptStoreError, ForeignStoreError, NewerStoreError, Record, Store, StoreWarning
from gensor_database import connection as sql
from tests.doubles.store_rows import ARCH, PART, add_rows, altered, kernel_rows, key, rows, stock


def test_a_damaged_row_hides_no_other_and_is_healed_by_adding_it_again(tmp_path):
    path = altered(
        stock(tmp_path / "k.db", 0, 1, 2),
        ("UPDATE record SET error = CAST(X'ff00fe' AS TEXT) WHERE key = ?", (key(2),)),
        ("UPDATE kernel SET abi = 99 WHERE digest = ?", (kernel_rows(1)[1].digest,)),
    )
    with Store.open(path) as store, pytest.warns(StoreWarning):
        assert {row.key for row in store.rows(Record)} == {key(0), key(1)}
        assert [store.find(key(number), ARCH, PART) is not None for number in range(3)] == [True, False, False]
        assert store.add(*rows(1), *rows(2)) == 2
        assert [store.find(key(n), ARCH, PART).kernel for n in (1, 2)] == [kernel_rows(n)[1] for n in (1, 2)]


def leaves(image: bytes, table: str, path) -> list[int]:
    """Pages, of 4,096 bytes, that hold the rows of a table, in their order; it has more than one, in one level."""
    connection = sqlite3.connect(path)
    (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    connection.close()
    page = image[(root - 1) * 4096 : root * 4096]
    assert page[0] == 5  # an interior page of a table: https://sqlite.org/fileformat2.html#b_tree_pages
    cells = [int.from_bytes(page[at : at + 2], "big") for at in range(12, 12 + 2 * int.from_bytes(page[3:5], "big"), 2)]
    return [int.from_bytes(page[at : at + 4], "big") for at in (*cells, 8)]


@pytest.mark.filterwarnings("ignore::gensor_database.StoreWarning")
@pytest.mark.parametrize("first_is_lost", [False, True])
def test_pages_that_lead_back_are_not_followed_for_ever(tmp_path, first_is_lost):
    path = tmp_path / "circles.db"
    with Store.open(stock(path, *range(120), journal="DELETE"), readonly=True) as store:
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
        with Store.open(path, readonly=True) as store:
            found = set(store.rows(Record))
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
    lost = 3 + first_is_lost  # pages of the table
    assert found <= good and len(found) > len(good) * (1 - (lost + 1) / len(pages))


def test_text_and_a_database_of_another_application_are_left_alone(tmp_path):
    text, path = tmp_path / "notes.db", altered(tmp_path / "other.db", "CREATE TABLE notes (x)")
    text.write_text("these are notes, not a database\n" * 100)
    before = path.read_bytes(), text.read_bytes()
    for readonly in (False, True):
        with pytest.raises(ForeignStoreError, match="not a database of gensor-kernels"):
            Store.open(path, readonly)
        with pytest.raises(CorruptStoreError, match=r"notes\.db"):
            Store.open(text, readonly)
    Store.open(tmp_path / "ours.db").close()
    with pytest.raises(ForeignStoreError):
        Store.open(altered(tmp_path / "ours.db", "PRAGMA application_id=0"))
    assert (path.read_bytes(), text.read_bytes()) == before


@pytest.mark.parametrize("readonly", [False, True])
def test_a_file_of_another_schema_version_is_refused_unchanged(tmp_path, readonly):
    path = tmp_path / "k.db"
    add_rows(path, *rows(1))
    for version in (-1, 0, 3, sql.SCHEMA_VERSION + 1):
        newer = version > sql.SCHEMA_VERSION
        error, word = (NewerStoreError, "a newer") if newer else (ForeignStoreError, "an older")
        before = altered(path, f"PRAGMA user_version={version}", "PRAGMA journal_mode=DELETE").read_bytes()
        with pytest.raises(error, match=rf"k\.db was written by {word} gensor-kernels \(schema {version}, this one"):
            Store.open(path, readonly)
        assert path.read_bytes() == before
