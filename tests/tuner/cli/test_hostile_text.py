"""Texts of a foreign database reach terminals, spreadsheets and programs as text, never as commands to them."""

import ast
import csv
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gensor_database import Record, Store, Timing
from gensor_tuner import output
from tests.doubles.kernels import ARCH, workload
from tests.doubles.store_rows import add_rows
from tests.doubles.stored import kernel_rows, lines

#: Clears the screen, sets the window's title, turns text around, hides, ends a line.
EVIL = "\x1b[2J\x1b]0;t\x07\u202e\u2066\u200b\x9b31m\r\n\x85\u2028"
FORMULAS = ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\uff1d1+1")


@pytest.fixture
def kernel(tmp_path):
    """k.db, whose every text but keys is hostile; all digests match. Its kernel."""
    wanted = workload(64, 64, 64)
    source, binary, kernel, verdict = kernel_rows(wanted)[0]
    constants = json.dumps({EVIL: 1}, ensure_ascii=False)
    binary = dataclasses.replace(binary, toolchain=EVIL, facts=EVIL, constants=constants)
    program = json.dumps({**json.loads(kernel.program), EVIL: 1}, ensure_ascii=False)
    kernel = dataclasses.replace(kernel, program=program, binary_digest=binary.digest)
    strange = dataclasses.replace(kernel, family=EVIL, class_key=EVIL)
    verdict = dataclasses.replace(verdict, kernel_digest=kernel.digest, error=EVIL, cases=EVIL, counters=EVIL)
    record = Record(wanted.key(), ARCH.name, f"part{EVIL}", kernel.abi, kernel.digest, 5.0, 1.0, "ok", EVIL, EVIL, EVIL)
    orphan = dataclasses.replace(record, part=f"other{EVIL}", kernel_digest=f"gone{EVIL}")
    timing = Timing(wanted.key(), ARCH.name, f"part{EVIL}", kernel.digest, None, 5.0, EVIL, EVIL)
    add_rows(tmp_path / "k.db", source, binary, kernel, strange, verdict, record, orphan, timing)
    return kernel


def harmless(text):
    assert all(line.isprintable() for line in text.split("\n")), ascii(text)
    return True


COMMANDS = {
    "show": ("show",),
    "show a kernel": ("show", "--kernel", ""),
    "verify": ("verify",),
    "where": ("where",),
    "report": ("report", "-o", "{}/page.html"),
    "doctor": ("doctor",),
    "measure": ("measure",),
    "prune": ("prune", "--dry-run"),
    "clean": ("clean", "--dry-run"),
    "merge": ("merge", "{}/k.db", "-o", "{}/\u5c42.db"),
    "csv": ("export", "{}/\u5c42.csv"),
    "rows": ("export", "-", "--json"),
    "tune": ("--arch", "sm_87", "--shapes", "{}/\u5c42.csv", "--measure", "never"),
    "archs": ("archs",),
    "a part": ("archs", "orin nano"),
    "completion": ("completion", "bash"),
    "version": ("--version",),
}


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
def test_terminals_get_no_character_that_they_obey(gensor_tune, kernel, monkeypatch, tmp_path, arguments):
    monkeypatch.setenv("GENSOR_DB", str(tmp_path / "k.db"))
    (tmp_path / "\u5c42.csv").write_text("op,m,n,k\nmatmul,0,8,8\n")
    _, out, err = gensor_tune(*arguments)
    assert harmless(out) and harmless(err)
    if arguments[0] in ("show", "verify", "report"):
        assert r"\x1b[2J" in out and r"\u202e" in out


ONE_BY_ONE = """
import json, sys
from gensor_tuner.cli import start
start.keep_interrupts = lambda: None
for arguments in json.loads(sys.argv[1]):
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="strict")
    sys.argv = ["gensor-tune", *arguments]
    try:
        start.main()
    except SystemExit as ended:
        print("ended", *arguments, ended.code)
"""


@pytest.mark.parametrize("encoding", ["ascii", "gbk"])
def test_characters_that_a_stream_lacks_are_escaped(kernel, encoding, tmp_path):
    """Every command that prints: a name of a row, of a file and of a part, and the unit \u00b5s."""
    (tmp_path / "\u5c42.csv").write_text("name,op,m,n,k\n\u00b5 \u5c42,matmul,0,8,8\n", encoding="utf-8")
    asked = [[each.replace("{}", str(tmp_path)) for each in arguments] for arguments in COMMANDS.values()]
    environment = os.environ | {"PYTHONIOENCODING": encoding, "GENSOR_DB": str(tmp_path / "k.db"), "GENSOR_\u00b5": "1"}
    command = [sys.executable, "-c", ONE_BY_ONE, json.dumps(asked)]
    done = subprocess.run(command, env=environment, capture_output=True, encoding=encoding, check=False)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert done.stdout.count("ended ") == len(asked)
    assert done.stdout.count(r"\xb5") >= 3 and ("\u5c42" in done.stdout) == (encoding == "gbk")


def test_output_prints_what_the_tuner_prints():
    """Only `say` escapes control characters; start.py prints its sentences before modules are loaded."""
    folder = Path(output.__file__).parent
    files = {str(path.relative_to(folder)): ast.walk(ast.parse(path.read_text())) for path in folder.rglob("*.py")}
    printing = {name for name, nodes in files.items() if any(getattr(node, "id", "") == "print" for node in nodes)}
    assert printing == {"output.py", "cli/start.py"}


def test_errors_and_conflicts_hold_none_either(gensor_tune, kernel, tmp_path):
    other = dataclasses.replace(kernel, program=kernel.program + " ")
    with Store.open(tmp_path / "b.db") as store, Store.open(tmp_path / "k.db", readonly=True) as first:
        for row in first.rows(Record, kernel_digest=kernel.digest):
            store.add(other, dataclasses.replace(row, kernel_digest=other.digest))
    code, out, err = gensor_tune("merge", "{}/b.db", "{}/k.db", "-o", "{}/c.db")
    assert code == 0 and "conflict: " in err and harmless(out) and harmless(err)
    code, out, err = gensor_tune("show", "--db", "{}/k.db", "--kernel", EVIL)
    assert code == 2 and harmless(out) and harmless(err)


def test_json_says_what_the_database_says(gensor_tune, kernel, tmp_path):
    code, out, _ = gensor_tune("show", "--json", "--db", "{}/k.db")
    found = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and out.isascii() and harmless(out) and len(found) == 2
    parts = {f"part{EVIL}", f"other{EVIL}"}
    assert {each["part"] for each in found} == parts and {each["walk"] for each in found} == {EVIL}
    gensor_tune("export", "{}/rows.jsonl", "--json", "--db", "{}/k.db")
    assert (tmp_path / "rows.jsonl").read_bytes().isascii()
    assert any(each["table"] == "record" and each["error"] == EVIL for each in lines(tmp_path / "rows.jsonl"))


def test_no_cell_of_a_spreadsheet_is_a_formula(gensor_tune, tmp_path):
    with Store.open(tmp_path / "k.db") as store:
        for number, text in enumerate((*FORMULAS, EVIL, "plain", "a-b=c")):
            key = workload(64, 64, 64 + 8 * number).key()
            store.add(Record(key, ARCH.name, text, 1, text, -5.0, 1.0, "ok"))
    code, _, _ = gensor_tune("export", "{}/records.csv", "--db", "{}/k.db")
    text = (tmp_path / "records.csv").read_bytes().decode()
    found = list(csv.DictReader(text.splitlines()))
    assert code == 0 and harmless(text) and len(found) == len(FORMULAS) + 3
    for row in found:
        assert row["part"] == row["kernel"] and row["part"][0] not in "=+-@\uff1d" and row["predicted_us"] == "-5.0"
    parts = {row["part"] for row in found}
    assert {"'=1+1", "'+1", "'-1", "'@SUM(A1)", r"'\t=1", r"'\r=1", "'\uff1d1+1", "plain", "a-b=c"} < parts
