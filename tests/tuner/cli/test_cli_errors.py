"""What gensor-tune says when something is wrong: one sentence on stderr that helps, no traceback, an exit code."""

import json
import os
import shutil
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from gensor_database.record import Record
from gensor_database.store import Store
from gensor_kernels.build import nvrtc
from gensor_kernels.devices.emulator.build import compiler
from gensor_kernels.operators.products import matmul
from tests.database.test_layers import unprivileged

cli = pytest.importorskip("gensor_tuner.cli.app")

HEADER = "op,m,n,k,dtype\n"
BAD = """matmul,12,x,3,fp16
matmul,1,2
matmul,1,1,1,fp4_e2m1
matmull,1,1,1,fp16
,1,1,1,fp16
matmul,1,1,1,string
matmul,1,1,1,"fp16
conv2d,1,1,1,fp16
"""


@pytest.fixture
def gensor_tune(gensor_tune, tmp_path):
    """gensor_tune("show", "--db", "x.db") -> (exit code, stdout, stderr); {} in an argument is a fresh folder."""
    (tmp_path / "bad.csv").write_text(HEADER + BAD)
    (tmp_path / "quote.csv").write_text('op,"m,n,k\n')
    (tmp_path / "near.csv").write_text("op,m,n,k,Dtype\nmatmul,8,8,8,fp16\n")
    (tmp_path / "header.csv").write_text(HEADER)
    (tmp_path / "empty.csv").write_text(HEADER + "matmul,0,2,3,fp16\n")
    (tmp_path / "text.db").write_text("this is text, and more of it than a database has in its header\n" * 9)
    Store.open(tmp_path / "ours.db").close()

    return gensor_tune


TUNE = ("--arch", "sm_87", "--shapes")
WRONG = {
    "no shapes": (("--arch", "sm_87"), "gensor-tune --arch sm_87 --shapes shapes.csv"),
    "unknown arch": (("--arch", "sm_88", "--shapes", "{}/empty.csv"), "did you mean sm_80, sm_86, sm_87, sm_89?"),
    "missing shapes": ((*TUNE, "{}/none.csv"), "none.csv: cannot be read: No such file"),
    "no rows": ((*TUNE, "{}/header.csv"), "header.csv: has a header and no rows: each row is one operator, such as "),
    "a near column": ((*TUNE, "{}/near.csv"), "near.csv:1: column 'Dtype' is unknown: did you mean dtype?"),
    "a choice": ((*TUNE, "{}/empty.csv", "--measure", "maybe"), "one of auto, never, require"),
    "device": ((*TUNE, "{}/empty.csv", "--verify", "device"), "--verify device needs a GPU of sm_87: CuPy "),
    "json": ((*TUNE, "{}/empty.csv", "--db", "{}/ours.db", "--json", "{}/no/x.json"), "x.json: cannot be written"),
    "a quote": (
        (*TUNE, "{}/quote.csv"),
        "quote.csv:1: is not a CSV row: unexpected end of data (is a quote not closed?)",
    ),
    "a folder": ((*TUNE, "{}/empty.csv", "--db", "{}"), " is a folder, not a database file (another database: "),
    "show a folder": (("show", "--db", "{}"), " is a folder, not a database file"),
    "merge nothing": (("merge", "--db", "{}/ours.db"), "Missing argument 'FILE"),
    "merge what is absent": (("merge", "{}/none.db", "--db", "{}/ours.db"), "cannot merge: "),
    "merge text": (("merge", "{}/text.db", "--db", "{}/ours.db"), "text.db: file is not a database"),
    "no cache folder": ((*TUNE, "{}/empty.csv", "--db", "{}/ours.db"), "set GENSOR_CACHE_DIR to a writable folder"),
    "not a database": ((*TUNE, "{}/empty.csv", "--db", "{}/text.db"), "another database: --db FILE"),
    "absent database": (("show", "--db", "{}/none.db"), "tune into it first, or name another database with --db"),
    "no such kernel": (("show", "--db", "{}/ours.db", "--kernel", "abc"), "no kernel whose digest begins with 'abc'"),
    "unknown part": (("show", "--db", "{}/ours.db", "--arch", "orin"), "did you mean orin-nano-8gb, orin-nx-16gb, agx"),
    "export": (("export", "{}/x.db", "--db", "{}/ours.db"), "needs --arch sm_XX"),
    "export to nowhere": (("export", "{}/no/x.csv", "--db", "{}/ours.db"), "x.csv cannot be written: No such file"),
    "subcommand": (("shwo",), "show"),
}


@pytest.mark.parametrize(("arguments", "words"), WRONG.values(), ids=WRONG)
def test_a_wrong_command_says_what_to_do(gensor_tune, arguments, words, monkeypatch, tmp_path):
    if "GENSOR_CACHE_DIR" in words:
        monkeypatch.setenv("GENSOR_CACHE_DIR", str(tmp_path / "bad.csv"))
    code, out, err = gensor_tune(*arguments)
    assert code == 2 and words in err and "Traceback" not in err and not out
    assert arguments[0] != "merge" or "another database" not in err  # that advice is about --db


def test_bad_rows_are_named_and_the_others_go_on(gensor_tune):
    code, out, err = gensor_tune(*TUNE, "{}/bad.csv", "--db", "{}/ours.db", "--measure", "never")
    assert code == 1
    for words in (
        "2: column 'n': 'x' is not a whole number",
        "3: has 3 fields where the header has 5\n",
        "5: column 'op': 'matmull' is unknown: did you mean matmul",
        "6: column 'op': is required here and is missing or empty\n",
        "7: column 'dtype': 'string' is not one of fp64, fp64_ozaki, fp32, tf32, fp16, bf16, int8",
        "8: is not a CSV row: unexpected end of data (is a quote not closed?)\n",
    ):
        assert f"bad.csv:{words}" in err
    assert "no kernel family of this version serves fp4_e2m1 operands\n" in out
    assert "7 failed, 1 unsupported" in err


def test_a_row_that_the_budget_does_not_reach_is_skipped(gensor_tune, tmp_path):
    (tmp_path / "two.csv").write_text("name,op,m,n,k\nlate,matmul,64,64,64\nlarge,matmul,1048576,32,4096\n")
    words = (*TUNE, "{}/two.csv", "--db", "{}/ours.db", "--measure", "never", "--budget", "0", "--json", "{}/out.jsonl")
    code, out, err = gensor_tune(*words)
    found = {each["name"]: each for each in map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())}
    assert code == 1 and "1 skipped" in err and "1 unsupported" in err and "failed" not in out + err
    assert found["late"]["status"] == "skipped" and "budget of 0 s was spent" in found["late"]["error"]
    assert found["large"]["status"] == "unsupported"
    assert found["large"]["error"] == "its operands (a 16 GiB, b 512 KiB, c 128 MiB) exceed the 8 GiB of orin-nano-8gb"
    assert found["large"]["error"] in out


def test_a_budget_begins_once_the_model_is_read(gensor_tune, monkeypatch, tmp_path):
    now, asked = [0.0], {}

    @contextmanager
    def reading(*_):
        now[0] += 60.0
        yield tmp_path / "empty.csv"

    monkeypatch.setattr(cli.commands, "shapes_of", reading)
    monkeypatch.setattr(cli.commands, "tune", lambda *_, **options: asked.update(options) or 0)
    monkeypatch.setattr(cli.time, "monotonic", lambda: now[0])
    code, _, err = gensor_tune("--arch", "sm_87", "--model", "net.onnx", "--budget", "60", "--db", "{}/ours.db")
    assert code == 0 and asked["budget"] == 60
    assert err == "gensor-tune: net.onnx was read in 1 min, which --budget does not count\n"


def test_columns_that_are_not_read_are_told_once(gensor_tune, tmp_path):
    (tmp_path / "more.csv").write_text("op,m,n,k,colour\nmatmul,0,2,3,red\nmatmul,0,2,4,red\n")
    code, _, err = gensor_tune(*TUNE, "{}/more.csv", "--db", "{}/ours.db", "--measure", "never")
    assert code == 0 and err.count("more.csv: columns that are not read: colour\n") == 1 == err.count("colour")


def test_a_missing_compiler_says_how_to_install_it(gensor_tune, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    compiler.cache_clear()
    try:
        code, _, err = gensor_tune(*TUNE, "{}/empty.csv", "--db", "{}/ours.db")
    finally:
        compiler.cache_clear()
    assert code == 2 and "apt install g++" in err


def test_a_missing_nvrtc_says_how_to_install_it(gensor_tune, monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    for cached in (nvrtc._nvrtc, nvrtc.toolchain):
        cached.cache_clear()
    try:
        code, out, err = gensor_tune(*TUNE, "{}/empty.csv", "--db", "{}/ours.db")
    finally:
        for cached in (nvrtc._nvrtc, nvrtc.toolchain):
            cached.cache_clear()
    assert (
        (code, out) == (2, "") and "NVRTC compiler was not found" in err and "pip install 'gensor-kernels[tune]'" in err
    )


READ_ONLY = {
    "tune": (
        (*TUNE, "FOLDER/shapes.csv", "--db", "FOLDER/k.db", "--measure", "never"),
        "k.db cannot be written: the file",
    ),
    "new": ((*TUNE, "FOLDER/shapes.csv", "--db", "FOLDER/new.db", "--measure", "never"), "new.db cannot be used: Perm"),
    "merge": (
        ("merge", "FOLDER/k.db", "--db", "FOLDER/k.db"),
        "k.db cannot be written: the file or its folder is read-only",
    ),
    "csv": (("export", "FOLDER/x.csv", "--db", "FOLDER/k.db"), "x.csv cannot be written: Permission denied"),
    "db": (
        ("export", "FOLDER/x.db", "--db", "FOLDER/k.db", "--arch", "sm_87"),
        "x.db cannot be written: Permission denied",
    ),
}


@pytest.mark.skipif(os.name != "posix", reason="file modes are a POSIX matter")
@pytest.mark.parametrize(("arguments", "words"), READ_ONLY.values(), ids=READ_ONLY)
def test_read_only_files_and_folders_are_named(gensor_tune, arguments, words):
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "shapes.csv").write_text(HEADER + "matmul,0,2,3,fp16\n")
        with Store.open(Path(folder) / "k.db") as store:
            store.connection.execute("PRAGMA journal_mode=DELETE")
        (Path(folder) / "k.db").chmod(0o444)
        Path(folder).chmod(0o555)

        def check():
            with tempfile.TemporaryDirectory() as cache:  # the tests' own may not be one of this user's
                os.environ["GENSOR_CACHE_DIR"] = cache
                code, out, err = gensor_tune(*(each.replace("FOLDER", folder) for each in arguments))
            assert code == 2 and words in err and "Traceback" not in err and not out, err

        unprivileged(check)
        Path(folder).chmod(0o755)


def test_a_part_selects_the_records_of_its_capability(gensor_tune, tmp_path):
    for arch in ("sm_87", "8.7", "Orin Nano 8GB", "SM999"):  # the last: a GPU that archs.toml does not list
        code, out, _ = gensor_tune("show", "--db", "{}/ours.db", "--arch", arch)
        assert code == 0 and "0 record" in out
    with Store.open(tmp_path / "ours.db") as store:
        store.add(Record(matmul.workload(2, 2, 2).key(), "sm_87", "agx-orin-64gb", 1, None, None, 1.0, "failed"))
    for arch, shown in (("SM87", True), ("orin nx 8gb", True), ("sm_90a", False)):
        assert ("agx-orin-64gb" in gensor_tune("show", "--db", "{}/ours.db", "--arch", arch)[1]) == shown


def test_verify_tells_how_many_it_checked(gensor_tune):
    code, out, err = gensor_tune("verify", "--db", "{}/ours.db")
    assert (code, out) == (0, "") and "0 kernels of " in err
    assert Path(err.split(" of ")[1].split(" checked")[0]).name == "ours.db"
