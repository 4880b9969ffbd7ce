"""Databases that are made to harm: each maker fills an ordinary connection to a new file.

Some have other tables than ours; the others have exactly ours, with hostile rows.
"""

import lzma
import sqlite3

from gensor_database import Binary, Kernel, Portfolio, Record, Source, Timing, Verification
from gensor_database import connection as sql
from gensor_database.rows import insert
from tests.doubles.store_rows import ARCH, PART, kernel_rows, rows

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
DEEP = "[" * 100_000 + "]" * 100_000
COLUMNS = "i AS digest, i AS family, i AS abi, i AS class_key, i AS program, i AS arch, i AS binary_digest"
VIEW = f"DROP TABLE kernel; CREATE VIEW kernel AS {ENDLESS} SELECT {COLUMNS} FROM n"


def _script(statements):
    return lambda connection: connection.executescript(statements)


def _rewrite(table, old, new):
    """The text of a table's schema, edited without SQLite's checks."""

    def make(connection):
        connection.execute("PRAGMA writable_schema=ON")
        edit = "UPDATE sqlite_master SET sql = replace(sql, ?, ?) WHERE type = 'table' AND name = ?"
        connection.execute(edit, (old, new, table))

    return make


def roots_swapped(connection):
    """The text of every table is ours, but `kernel` has the pages of `timing`, and an index is of another table."""
    connection.execute("PRAGMA writable_schema=ON")
    roots = dict(connection.execute("SELECT name, rootpage FROM sqlite_master"))
    for name, other in (("kernel", "timing"), ("record_key", "kernel_class"), ("source", "source")):
        connection.execute("UPDATE sqlite_master SET rootpage = ? WHERE name = ?", (roots[other], name))


def root_of_no_page(connection):
    connection.execute("PRAGMA writable_schema=ON")
    connection.execute("UPDATE sqlite_master SET rootpage = 2147483647 WHERE name = 'record'")


def many_tables(connection):
    connection.execute("PRAGMA writable_schema=ON")
    text = "'table', 't' || i, 't' || i, 2, 'CREATE TABLE t' || i || ' (a, b, c, d)'"
    connection.execute(f"INSERT INTO sqlite_master {ENDLESS} SELECT {text} FROM n LIMIT 200000")


def a_million_rows(connection):
    """Rows that do not match their digests, in the tables that are read first."""
    values = f"printf('%064x', i), 'f', 1, 'c', 'p', '{ARCH}', 'b'"
    connection.execute(f"INSERT INTO kernel {ENDLESS} SELECT {values} FROM n LIMIT 1000000")


def zip_bombs(connection):
    """Compressed values that are a thousand times larger outside than inside."""
    bomb = lzma.compress(bytes(2**28), check=lzma.CHECK_NONE, preset=0)
    for number in range(40):
        connection.execute("INSERT INTO source VALUES (?, ?)", (f"{number:064x}", bomb))
        values = (f"{number:064x}", "s", "{}", ARCH, bomb, 0, 0, 0, 0, "{}", "t")
        connection.execute(f"INSERT INTO binary VALUES ({', '.join('?' * 11)})", values)


def huge_values(connection):
    marks = ", ".join("?" * 13)
    connection.execute(f"INSERT INTO record VALUES ({marks})", [b"x" * 60_000_000, *"abcdefghijkl"])
    connection.execute("INSERT INTO source VALUES ('d', zeroblob(100000000))")


def deep_json(connection):
    """Rows that match their digests and whose JSON is nested too deep to parse."""
    kernel = Kernel("contraction_mma", 1, DEEP, DEEP, ARCH, "b" * 64)
    for row in (
        kernel,
        Verification(kernel.digest, "emulator", "ok", None, 0.1, DEEP),
        Record(DEEP, ARCH, PART, 1, kernel.digest, 1.0, 1.0, "ok", None, DEEP, DEEP),
        Timing(DEEP, ARCH, PART, kernel.digest, None, 1.0, DEEP, DEEP),
        Portfolio(ARCH, PART, DEEP, 0, kernel.digest),
    ):
        insert(connection, row)


def wrong_types(connection):
    for table in ("source", "binary", "kernel", "verification", "record", "portfolio", "timing"):
        names = [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")]
        for place in range(len(names)):
            for value in (b"\xff\xfe", 1.5, -(2**63), "\udcff".encode("utf-8", "surrogateescape"), ""):
                values = ["x"] * len(names)
                values[place] = value
                marks = ", ".join("?" * len(names))
                connection.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", values)


def hostile_strings(connection):
    """Rows that match their digests, with text that is no Workload, Program or compiler option."""
    for text in ('"; DROP TABLE kernel; --', "$(touch x)", "-I/etc --options-file=/etc/passwd", "\0", "{}", "null"):
        binary = Binary(Source.of(text).digest, text, text, text.encode(), 1, 0, 0, 0, text, text)
        kernel = Kernel("contraction_mma", 1, text, text, ARCH, binary.digest)
        for row in (
            *(Source.of(text), binary, kernel),
            *(Verification(kernel.digest, "emulator", "ok"), Record(text, ARCH, PART, 1, kernel.digest, 1, 1, "ok")),
            *(Timing(text, ARCH, PART, kernel.digest, None, 1.0), Portfolio(ARCH, PART, text, 0, kernel.digest)),
        ):
            insert(connection, row)


def duplicated_keys(connection):
    """The unique indexes are not in the schema, and each key has rows that contradict each other."""
    for row in rows(1):
        insert(connection, row)
    connection.execute("PRAGMA writable_schema=ON")
    connection.execute("CREATE TABLE copy AS SELECT * FROM kernel")
    root = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'copy'").fetchone()[0]
    columns = "digest, family, abi + 1, class_key, program, arch, binary_digest"
    connection.execute(f"INSERT INTO copy SELECT {columns} FROM copy")
    connection.execute("UPDATE sqlite_master SET rootpage = ? WHERE name = 'kernel'", (root,))
    connection.execute("DELETE FROM sqlite_master WHERE name = 'copy'")


def another_rows_digest(connection):
    for number in (1, 2):
        for row in rows(number):
            insert(connection, row)
    first, second = (kernel_rows(number)[1].digest for number in (1, 2))
    for before, after in ((first, "x"), (second, first), ("x", second)):
        connection.execute("UPDATE kernel SET digest = ? WHERE digest = ?", (after, before))


#: Other tables than ours: refused before any of their rows is read.
REFUSED = {
    "a view in place of a table": _script(VIEW),
    "a trigger": _script("CREATE TRIGGER t AFTER INSERT ON binary BEGIN UPDATE binary SET cubin = X'00'; END"),
    "a trigger on reading tables": _script(
        f"CREATE TRIGGER t BEFORE INSERT ON kernel BEGIN INSERT INTO record(digest) {ENDLESS} SELECT i FROM n; END"
    ),
    "a column more": _script("ALTER TABLE record ADD COLUMN more TEXT"),
    "a generated column": _rewrite("source", "text BLOB NOT NULL", "text BLOB AS (hex(zeroblob(1e9)))"),
    "an index on an expression": _script("CREATE INDEX extra ON record (length(key))"),
    "a partial index": _script("CREATE INDEX extra ON record (key) WHERE arch LIKE '%%%%%%%%%%%%%%%%%%%%%%a'"),
    "an expensive check": _rewrite("record", "created INTEGER NOT NULL", "created CHECK (hex(zeroblob(9e8)))"),
    "a default that calls": _rewrite("source", "text BLOB NOT NULL", "text DEFAULT (load_extension('x'))"),
    "a missing collation": _rewrite("kernel", "arch TEXT NOT NULL", "arch TEXT COLLATE elsewhere"),
    "another affinity": _rewrite("timing", "median_us REAL", "median_us BLOB"),
    "a virtual table": _script("CREATE VIRTUAL TABLE extra USING fts5(text)"),
    "a virtual table that is not there": _rewrite(
        "source", "CREATE TABLE source (", "CREATE VIRTUAL TABLE source USING csv(filename=/etc/passwd, "
    ),
    "text that is no SQL": _rewrite("binary", "CREATE TABLE", "CREATE TABLE TABLE"),
    "a table without rowids": _rewrite("portfolio", "\n)", "\n) WITHOUT ROWID"),
    "a table more": _script("CREATE TABLE extra (x)"),
    "a table less": _script("DROP TABLE timing"),
    "an index less": _script("DROP INDEX record_key"),
    "many tables": many_tables,
    "another application": _script("PRAGMA application_id=7"),
    "a newer version": _script("PRAGMA user_version=99"),
    "a negative version": _script("PRAGMA user_version=-2147483647"),
    "an older version than any": _script("PRAGMA user_version=0"),
}
#: Files that SQLite cannot read or that have another header: refused for that reason.
ELSEWHERE = {
    *("a virtual table that is not there", "text that is no SQL", "many tables", "another application"),
    *("a newer version", "a negative version", "an older version than any"),
}
#: Exactly our tables: opened, and only rows that match their digests are used.
OPENED = {
    each.__name__.replace("_", " "): each
    for each in (
        *(roots_swapped, root_of_no_page, a_million_rows, zip_bombs, huge_values, deep_json, wrong_types),
        *(hostile_strings, duplicated_keys, another_rows_digest),
    )
}


def make_database(path, make):
    connection = sqlite3.connect(path, isolation_level=None)
    sql.create_tables(connection)
    connection.execute("PRAGMA synchronous=OFF")
    make(connection)
    connection.close()
    return path
