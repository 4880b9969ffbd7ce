"""gensor-tune verify: damage, differences, orphans, cubins; what each is called and what it does to the exit code."""

import dataclasses
import json
import sqlite3
from collections import Counter
from contextlib import closing
from itertools import product

import pytest

from gensor_database import Record, Source, Store, Timing, Verification
from gensor_kernels.build.nvrtc import toolchain
from tests.doubles.kernels import ARCH, workload
from tests.doubles.store_rows import add_rows
from tests.doubles.store_rows import rows as toy_rows
from tests.doubles.stored import kernel_rows, lines, record_of, stock


@pytest.fixture
def verify(gensor_tune, tmp_path):
    """verify("--rebuild") -> (exit code, what is said of each row by status, stderr) of k.db."""

    def run(*arguments, db=tmp_path / "k.db"):
        found = tmp_path / "found.jsonl"
        code, out, err = gensor_tune("verify", "--db", db, "--json", found, *arguments)
        said = {}
        for each in lines(found):
            said.setdefault(each["status"], []).append(each)
        assert len(out.splitlines()) == sum(map(len, said.values()))
        return code, said, err

    return run


def test_a_sound_database(verify, tmp_path):
    stock(tmp_path / "k.db")
    code, said, told = verify()
    assert code == 0 and set(said) == {"ok"} and len(said["ok"]) == 3
    assert f"3 kernels of {tmp_path / 'k.db'} checked" in told
    code, said, told = verify("--arch", "sm_90")  # only these kernels are derived
    assert code == 0 and not said and "0 kernels of" in told


def test_the_damaged_row_is_named_wherever_it_lies_in_its_table(verify, tmp_path):
    """Digests and rows of a table are not in one order: one in the middle is taken, whose neighbours are sound."""
    stock(tmp_path / "k.db")
    with Store.open(tmp_path / "k.db") as store:
        for number in range(1, 6):
            store.add(Source.of(f"// {number}"), *toy_rows(number))
        store.replace_portfolio("sm_87", "orin-nano-8gb", "{}", [f"{number}" for number in range(5)])
    columns = {"source": "text", "binary": "registers", "kernel": "abi", "verification": "worst"}
    columns |= {"record": "bound_us", "portfolio": "rank", "timing": "median_us"}
    damaged = []
    with closing(sqlite3.connect(tmp_path / "k.db")) as connection:
        for table, column in columns.items():
            digests = [digest for (digest,) in connection.execute(f"SELECT digest FROM {table} ORDER BY digest")]
            assert len(digests) >= 5
            damaged.append((table, digests[len(digests) // 2]))
            connection.execute(f"UPDATE {table} SET {column} = 77 WHERE digest = ?", damaged[-1][1:])
        connection.commit()
    code, said, told = verify()
    assert code == 1 and [(each["table"], each["digest"]) for each in said["damaged"]] == damaged
    assert "7 damaged" in told


def test_a_damaged_index_is_named_and_ends_nothing(verify, tmp_path):
    """A bit in each byte of the headers and first pointers of every index page; rows in the tables are sound."""
    stock(tmp_path / "k.db", ((64, 64, 64),), kernels=2)
    with closing(sqlite3.connect(tmp_path / "k.db")) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        pages = [page for (page,) in connection.execute("SELECT rootpage FROM sqlite_master WHERE type = 'index'")]
    sound = (tmp_path / "k.db").read_bytes()
    shown = 0
    for number, (page, offset) in enumerate(product(pages, (0, 3, 4, 5, 6, 8, 9))):
        data = bytearray(sound)
        data[(page - 1) * size + offset] ^= 1 << number % 3
        (tmp_path / "x.db").write_bytes(data)
        code, said, told = verify(db=tmp_path / "x.db")
        assert "checked" in told and code == ("damaged" in said)
        assert {each["table"] for each in said.get("damaged", ())} <= {"structure"}
        shown += code
    assert shown > 50


NESTED = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize("where", ["program", "class_key", "constants", "codes"])
def test_json_that_nests_without_end_is_a_difference(verify, tmp_path, where):
    source, binary, kernel, _ = kernel_rows(workload(64, 64, 64))[0]
    if where in ("constants", "codes"):
        binary = dataclasses.replace(binary, constants=NESTED if where == "constants" else '{"EPILOGUE_CODES":-1}')
        kernel = dataclasses.replace(kernel, binary_digest=binary.digest)
    else:
        kernel = dataclasses.replace(kernel, **{where: NESTED})
    add_rows(tmp_path / "k.db", source, binary, kernel, record_of(workload(64, 64, 64), kernel))
    code, said, told = verify()
    assert code == 1 and [each["digest"] for each in said["differs"]] == [kernel.digest] and "Traceback" not in told


def changed(path, wanted, **values):
    """A database whose kernel has another binary than its Program says; all digests match."""
    source, binary, kernel, verdict = kernel_rows(wanted)[0]
    binary = dataclasses.replace(binary, **values)
    kernel = dataclasses.replace(kernel, binary_digest=binary.digest)
    with Store.open(path) as store:
        store.add(source, binary, kernel, dataclasses.replace(verdict, kernel_digest=kernel.digest))
        store.add(record_of(wanted, kernel))
    return source, binary, kernel


def test_what_is_not_derived_from_the_program_differs(verify, tmp_path):
    wanted = workload(64, 64, 64)
    plain = json.loads(kernel_rows(wanted)[0][1].constants)
    name = next(name for name, value in plain.items() if name != "EPILOGUE_CODES" and isinstance(value, int))
    other = json.dumps({**plain, name: plain[name] + 1}, sort_keys=True, separators=(",", ":"))
    for name, value, words in (
        ("constants", other, "its constants are not those of its Program"),
        ("source_digest", "ab" * 32, "its source differs from this version's"),
        ("target", "sm_90a", "it was compiled for sm_90a, not for sm_87"),
    ):
        changed(tmp_path / f"{name}.db", wanted, **{name: value})
        code, said, _ = verify(db=tmp_path / f"{name}.db")
        assert code == 1 and [each["reason"] for each in said["differs"]] == [words]
    # A Program of no lattice.
    _, _, kernel = changed(tmp_path / "k.db", workload(64, 64, 64))
    body = {**json.loads(kernel.program), "unheard_of": 1}
    bad = dataclasses.replace(kernel, program=json.dumps(body, sort_keys=True, separators=(",", ":")))
    add_rows(tmp_path / "k.db", bad, record_of(workload(64, 64, 96), bad))
    code, said, _ = verify()
    assert code == 1 and "its Program does not exist in this version" in said["differs"][0]["reason"]


def test_a_cubin_of_this_toolchain_must_be_the_one_compiled_here(verify, tmp_path):
    wanted = workload(64, 64, 64)
    changed(tmp_path / "k.db", wanted, toolchain=toolchain())
    assert verify()[0] == 0
    code, said, _ = verify("--rebuild")
    assert code == 1 and said["differs"][0]["reason"] == "its cubin differs from the one compiled here"
    changed(tmp_path / "elsewhere.db", wanted, toolchain="nvrtc 12.6.20")
    assert verify("--rebuild", db=tmp_path / "elsewhere.db")[0] == 0  # nothing to compare with


def test_outdated_incomplete_and_orphaned_rows_are_told_and_no_failure(verify, tmp_path):
    (wanted,) = stock(tmp_path / "k.db", ((64, 64, 64),), kernels=1)
    _, _, kernel, _ = kernel_rows(wanted)[0]
    ancient = dataclasses.replace(kernel, abi=kernel.abi - 1)
    without = dataclasses.replace(kernel, binary_digest="cd" * 32)
    with Store.open(tmp_path / "k.db") as store:
        store.add(ancient, record_of(wanted, ancient), without, record_of(workload(64, 64, 96), without))
        place = (wanted.key(), ARCH.name, ARCH.part)
        store.add(Timing(*place, "ee" * 32, None, 4.0), Verification("ee" * 32, "device", "ok"))
        store.add(Record(*place, 1, "ee" * 32, 1.0, 1.0, "ok", created=4), toy_rows(1)[0], toy_rows(1)[1])
    code, said, told = verify()
    assert code == 0 and {status: len(found) for status, found in said.items()} == dict(
        ok=1, outdated=1, incomplete=1, orphan=4
    )
    assert Counter(each["table"] for each in said["orphan"]) == dict(timing=1, verification=1, record=1, binary=1)
    assert "refresh --db" in told
