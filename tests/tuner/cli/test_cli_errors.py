"""Mistakes of users: each gets one helpful sentence of at most 300 characters, the right exit code and no traceback."""

import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

import gensor_kernels as gk
from gensor_database.record import Record
from gensor_database.store import Store
from gensor_kernels.build import nvrtc
from gensor_kernels.devices.emulator.build import compiler
from gensor_kernels.operators.products import matmul
from gensor_tuner.cli import app as cli
from tests.database.test_layers import unprivileged

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")

LONGEST = 300
HEADER = "op,m,n,k,dtype\n"
BAD = """matmul,12,x,3,fp16
matmul,1,2
matmul,1,1,1,fp4_e2m1
,1,1,1,fp16
matmul,1,1,1,"fp16
conv2d,1,1,1,fp16
"""

GOOD = "op,m,n,k\nmatmul,0,2,3\n"  # an empty result: nothing is walked
TUNE = ("--arch", "sm_87", "--measure", "never", "--budget", "0", "--db", "{}/k.db", "--shapes")

#: Whole files that cannot be read: contents, and words of the sentence. Exit code 2.
FILES = {
    "semicolons of a spreadsheet": ("op;m;n;k\nmatmul;1;2;3\n", "(it has: op;m;n;k); columns are separated by commas"),
    "tabs": ("op\tm\tn\tk\nmatmul\t1\t2\t3\n", "columns are separated by commas"),
    "no header": ("matmul,128,128,128\n", "(it has: matmul, 128, 128, 128); the first line names the columns, as op"),
    "JSON": ('[{"op": "matmul", "m": 1}]', "the header has no column 'op'"),
    "UTF-16": (GOOD.encode("utf-16"), "is not UTF-8 text (byte 0): save it as UTF-8"),
    "a picture": (b"\x89PNG\r\n\x1a\n" + bytes(200), "is not UTF-8 text"),
    "a spreadsheet": (b"PK\x03\x04\x14\x00", "is a spreadsheet or another ZIP archive: save it as CSV"),
    "nothing": ("", "is empty: a header row is needed, such as op,m,n,k"),
    "a comment alone": ("# to be done\n\n", "is empty: a header row is needed"),
    "a header alone": ("op,m,n,k\n", "has a header and no rows"),
    "a column twice": ("op,m,m,k\nmatmul,1,2,3\n", "the header names a column twice: 'm'"),
}
#: A header, a row, and words of the sentence. Exit code 1, and other rows continue.
ROWS = """\
op,m,n,k | matmul,9999999999,2,3 | 'm': 9999999999 is larger than 2147483647
op,n,k | matmul,1,2 | column 'm': is required here and is missing or empty
op,m,n,k | matmul,1,2,3,4 | has 5 fields where the header has 4
op,shape | softmax,"(4, 8)" | '(4, 8)' is not a list of whole numbers such as 2x3
op,shape,axes | softmax,4x8,-1 | '-1' is not a list of whole numbers such as 2;3
op,shape,axes | softmax,4x8,5 | axis 5 is out of bounds for array of dimension 2
op,h,w,c,k_out,r,s | conv2d,2,2,4,4,5,5 | the filter does not fit the padded image
op,h,w,c,k_out,r,s,stride_h | conv2d,8,8,4,4,3,3,0 | stride_h is 0: expected 1 or more
op,h,w,c,k_out,r,s,groups | conv2d,8,8,4,4,3,3,3 | c = 4 is no multiple of groups = 3
op,m,n,k,trans_b | matmul,1,2,3,True | 'True' is not one of 0, 1
op,h,w,c,k_out,r,s,layout | conv2d,8,8,4,4,3,3,HWC | 'HWC' is unknown: did you mean nhwc
op,m,n,k,epilogue | matmul,1,2,3,bias_rellu | 'rellu' is unknown: did you mean relu
op,m,n,k,epilogue | matmul,1,2,3,bias+relu | operations are joined by _, as in bias_relu
op,m,n,k,epilogue | matmul,1,2,3,bias_bias_bias_bias_bias_bias_bias_bias_bias | 9 operations, at most 6
op,queries,head,heads,kv_heads | attention,128,64,8,3 | heads are a multiple of the heads of k and v
op,m,n,k,dtype | matmul,1,2,3,16 | '16' is unknown: did you mean fp16?
op,m,n,k,dtype | matmul,1,2,3,fp8 | 'fp8' is unknown: did you mean fp8_e4m3, fp8_e5m2?
op,m,n,k | linear,1,2,3 | 'linear' is unknown: did you mean matmul (with trans_b = 1)?
op,m,n,k,count | matmul,1,2,3,1.5 | 'count': '1.5' is not a whole number
op,m,n,k | matmul,,2,3 | column 'm': is required here and is missing or empty
op,m,n,k | matmull,1,1,1 | column 'op': 'matmull' is unknown: did you mean matmul
op,m,n,k,dtype | matmul,1,2,3,string | 'string' is not one of fp64, fp64_ozaki, fp32, tf32, fp16, bf16, int8
op,m,n,k | fft,1,2,3 | 'fft' is not one of matmul, batched_matmul
op,m,n,k | gemv,2,2,3 | m = 1 or n = 1
op,m,n,k,count | matmul,8,8,8,0 | column 'count'
op,m,n,k,any_size | matmul,64,64,64,2 | column 'any_size'
"""
#: Text that is no size.
WHOLE = ("-1", "128.5", "1e3", '"1,024"', "64*2", "1_0", "\uff11", "9" * 50)
#: Command lines: words of the sentence. Exit code 2.
COMMANDS = {
    "a shapes file alone": (("{}/good.csv",), "goes with its option, as in --shapes FILE"),
    "a model alone": (("--arch", "sm_87", "net.onnx"), "goes with its option, as in --model FILE"),
    "swapped options": (("--arch", "{}/good.csv", "--shapes", "sm_87"), "unknown arch '"),
    "one part twice": (("--arch", "orin-nano-8gb", *TUNE, "{}/good.csv"), "--arch names one part twice"),
    "a budget for two": (("--arch", "sm_90", *TUNE, "{}/good.csv", "--budget", "9"), "--budget takes one --arch"),
    "distrust of nobody": ((*TUNE, "{}/good.csv", "--distrust"), "--distrust goes with --cluster"),
    "no shard": ((*TUNE, "{}/good.csv", "--shard", "4/3"), "--shard takes I/N with 1 <= I <= N, such as 3/16"),
    "no cluster": ((*TUNE, "{}/good.csv", "--cluster", "host:1"), "--cluster takes tcp://HOST:PORT, tls://"),
    "a worker's host": (("fleet", "worker", "--scheduler", "host"), "--scheduler takes tcp://HOST:PORT or tls://HOST"),
    "a worker without certificates": (
        ("fleet", "worker", "--scheduler", "tls://127.0.0.1:9"),
        "tls://127.0.0.1:9 needs certificates: set distributed.comm.tls.ca-file",
    ),
    "two files": ((*TUNE, "{}/good.csv", "--shapes", "{}/good.csv"), "--shapes was given more than once"),
    "one dash": (("-arch", "sm_87"), "No such option: -a (gensor-tune --help lists the options)"),
    "a misspelt option": ((*TUNE, "{}/good.csv", "--shape", "x"), "No such option: --shape: did you mean --shapes?"),
    "a misspelt command": (("exprot", "x.csv"), "No such command 'exprot'. Did you mean 'export'"),
    "an ending left out": (("export", "{}/x", "--db", "{}/ours.db"), "export knows the endings .csv, .json"),
    "minutes": ((*TUNE, "{}/good.csv", "--budget", "5m"), "'--budget': '5m' is not a number"),
    "a misspelt strategy": ((*TUNE, "{}/good.csv", "--strategy", "evolutoin"), "did you mean evolution?"),
    "a budget below 0": ((*TUNE, "{}/good.csv", "--budget", "-1"), "'--budget': -1 is not at least 0"),
    "no finalists": ((*TUNE, "{}/good.csv", "--top", "0"), "'--top': 0 is not at least 1 and at most 256"),
    "half a job": ((*TUNE, "{}/good.csv", "--jobs", "0.5"), "'--jobs': '0.5' is not a whole number"),
    "a folder of shapes": ((*TUNE, "{}/folder"), "folder: cannot be read: Is a directory"),
    "a database that is a table": (("show", "--db", "{}/good.csv"), "good.csv: file is not a database"),
    "JSON into a folder": ((*TUNE, "{}/good.csv", "--json", "{}/folder"), "folder: cannot be written: Is a directory"),
    "a report of nothing": (("report", "--db", "{}/ours.db"), "has no records: tune into it first"),
    "an absent export": (("import", "{}/none.jsonl", "--db", "{}/ours.db"), "none.jsonl cannot be read: No such file"),
    "memory in words": (("measure", "--db", "{}/ours.db", "--memory", "all"), "500M or 2G, not 'all'"),
    "no shapes": (("--arch", "sm_87"), "gensor-tune --arch sm_87 --shapes shapes.csv"),
    "unknown arch": (("--arch", "sm_88", "--shapes", "{}/empty.csv"), "did you mean sm_80, sm_86, sm_87, sm_89?"),
    "a choice": ((*TUNE, "{}/empty.csv", "--measure", "maybe"), "one of auto, never, require"),
    "device": ((*TUNE, "{}/empty.csv", "--verify", "device"), "--verify device needs a GPU of sm_87: CuPy "),
    "json": ((*TUNE, "{}/empty.csv", "--json", "{}/no/x.json"), "x.json: cannot be written"),
    "a quote": ((*TUNE, "{}/quote.csv"), "quote.csv:1: is not a CSV row: unexpected end of data (is a quote not clos"),
    "a folder": ((*TUNE, "{}/empty.csv", "--db", "{}"), " is a folder, not a database file (another database: "),
    "merge what is absent": (("merge", "{}/none.db", "--db", "{}/ours.db"), "cannot merge: "),
    "no cache folder": ((*TUNE, "{}/empty.csv", "--db", "{}/ours.db"), "set GENSOR_CACHE_DIR to a writable folder"),
    "absent database": (("show", "--db", "{}/none.db"), "tune into it first, or name another database with --db"),
    "no such kernel": (("show", "--db", "{}/ours.db", "--kernel", "abc"), "no kernel whose digest begins with 'abc'"),
    "unknown part": (("show", "--db", "{}/ours.db", "--arch", "orin"), "did you mean orin-nano-8gb, orin-nx-16gb, agx"),
    "export": (
        ("export", "{}/x.db", "--db", "{}/ours.db"),
        "has rows of no capability: --arch sm_XX says which",
    ),
    "export to nowhere": (("export", "{}/no/x.csv", "--db", "{}/ours.db"), "x.csv cannot be written: No such file"),
    "an unknown graph": ((*TUNE, "{}/good.csv", "--graph", "tree"), "--graph: 'tree' is not one of full, paper"),
    "a strategy of a graph": ((*TUNE, "{}/good.csv", "--strategy", "random", "--graph", "paper"), "leave out --strat"),
    "times without CuPy": (("--arch", "sm_87", "--shapes", "{}/good.csv", "--measure", "require"), "CuPy"),
    "binaries of records": (("export", "{}/x.csv", "--binaries", "--db", "{}/ours.db"), "--binaries goes with --json"),
}


@pytest.fixture
def gensor_tune(gensor_tune, tmp_path):
    """gensor_tune("show", "--db", "x.db") -> (exit code, stdout, stderr); {} in an argument is a folder with files."""
    (tmp_path / "folder").mkdir()
    texts = {"good": GOOD, "bad": HEADER + BAD, "quote": 'op,"m,n,k\n', "empty": HEADER + "matmul,0,2,3,fp16\n"}
    for name, text in texts.items():
        (tmp_path / f"{name}.csv").write_text(text)
    Store.open(tmp_path / "ours.db").close()
    return gensor_tune


def sentence(err: str, words: str, start: str = "gensor-tune: ") -> str:
    """The one line that has the words; no line is a traceback, or longer than a person reads."""
    (line,) = [line for line in err.splitlines() if words in line]
    assert line.startswith(start) and len(line) <= LONGEST
    assert "Traceback" not in err and "Warning" not in err
    return line


def test_no_argument_shows_the_help_and_files_that_cannot_be_read_are_named(gensor_tune, tmp_path):
    code, out, err = gensor_tune()
    assert (code, out) == (2, "") and err.startswith("Usage: gensor-tune --arch ARCH (") and "  --arch ARCH " in err
    for content, words in FILES.values():
        (tmp_path / "bad.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
        code, out, err = gensor_tune(*TUNE, "{}/bad.csv")
        assert (code, out) == (2, "") and err == sentence(err, words) + "\n"


def test_rows_that_cannot_be_read(gensor_tune, tmp_path):
    numbers = [f"op,m,n,k | matmul,{text},2,3 | is not a whole number" for text in WHOLE]
    for header, row, words in (line.split(" | ") for line in [*ROWS.splitlines(), *numbers]):
        (tmp_path / "bad.csv").write_text(f"{header}\n{row}\n")
        code, out, _ = gensor_tune(*TUNE, "{}/bad.csv")
        reasons = "\n".join(line.partition(" bad row: ")[2] for line in out.splitlines())
        assert code == 1 and "bad.csv:2: " in sentence(reasons, words, str(tmp_path))


@pytest.mark.parametrize(("arguments", "words"), COMMANDS.values(), ids=COMMANDS)
def test_a_command_line_that_cannot_be_run(arguments, words, gensor_tune, monkeypatch, tmp_path):
    if "GENSOR_CACHE_DIR" in words:
        monkeypatch.setenv("GENSOR_CACHE_DIR", str(tmp_path / "bad.csv"))
    code, out, err = gensor_tune(*arguments)
    assert (code, out) == (2, "") and err == sentence(err, words) + "\n"
    assert arguments[0] != "merge" or "another database" not in err  # that advice is about --db


SOUND = {
    "a byte order mark": b"\xef\xbb\xbfop,m,n,k\nmatmul,0,2,3\n",
    "spaces around cells": b"op, m, n, k \n matmul , 0 , 2 , 3 \n",
    "carriage returns": b"op,m,n,k\r\nmatmul,0,2,3\r\n",
    "a comment in front": b"# my model\n\nop,m,n,k\nmatmul,0,2,3\n",
    "capital operators": b"op,m,n,k\nMatMul,0,2,3\n",
}


def test_files_as_editors_and_spreadsheets_write_them_are_read(gensor_tune, tmp_path):
    for name, content in SOUND.items():
        (tmp_path / "file.csv").write_bytes(content)
        code, out, _ = gensor_tune(*TUNE, "{}/file.csv", "--jobs", "0")
        assert code == 0 and "an empty result needs no kernel" in out, name


def test_bad_rows_are_named_and_the_others_go_on(gensor_tune, tmp_path):
    code, out, err = gensor_tune(*TUNE, "{}/bad.csv", "--db", "{}/ours.db")
    assert code == 1
    for words in (
        "2: column 'n': 'x' is not a whole number",
        "3: has 3 fields where the header has 5\n",
        "5: column 'op': is required here and is missing or empty\n",
        "6: is not a CSV row: unexpected end of data (is a quote not closed?)\n",
    ):
        assert re.search(rf" bad row: \S+{re.escape('bad.csv:' + words)}", out) and words not in err
    assert "no kernel family of this version serves fp4_e2m1 operands\n" in out
    assert "5 failed, 1 unsupported" in err
    (tmp_path / "more.csv").write_text("op,m,n,k,colour\nmatmul,0,2,3,red\nmatmul,0,2,4,red\n")
    code, _, err = gensor_tune(*TUNE, "{}/more.csv")
    assert code == 0 and err.count("more.csv: columns that are not read: colour\n") == 1 == err.count("colour")


def test_a_row_that_the_budget_does_not_reach_is_skipped(gensor_tune, tmp_path):
    (tmp_path / "two.csv").write_text("name,op,m,n,k\nlate,matmul,64,64,64\nlarge,matmul,1048576,32,4096\n")
    words = (*TUNE, "{}/two.csv", "--db", "{}/ours.db", "--budget", "0", "--json", "{}/out.jsonl")
    code, out, err = gensor_tune(*words)
    found = {each["name"]: each for each in map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())}
    assert code == 1 and "1 skipped" in err and "1 unsupported" in err and "failed" not in out + err
    assert found["late"]["status"] == "skipped" and "budget of 0 s was spent" in found["late"]["error"]
    assert found["large"]["status"] == "unsupported"
    assert found["large"]["error"] == "its operands (a 16 GiB, b 512 KiB, c 128 MiB) exceed the 8 GiB of orin-nano-8gb"
    assert found["large"]["error"] in out


def test_a_budget_begins_once_the_model_is_read(gensor_tune, monkeypatch, tmp_path):
    now, asked = [0.0], []

    def reading(*_):
        now[0] += 60.0

    monkeypatch.setattr(cli, "write_shapes", reading)
    monkeypatch.setattr("gensor_tuner.cli.tuning.tune", lambda settings, _: asked.append(settings) or 0)
    monkeypatch.setattr(cli.time, "monotonic", lambda: now[0])
    code, _, err = gensor_tune("--arch", "sm_87", "--model", "net.onnx", "--budget", "60", "--db", "{}/ours.db")
    assert code == 0 and asked[0].budget == 60
    assert err == "gensor-tune: net.onnx was read in 1 min, which --budget does not count\n"


@pytest.mark.parametrize("missing", ["g++", "NVRTC"])
def test_a_missing_compiler_says_how_to_install_it(gensor_tune, monkeypatch, request, missing):
    if missing == "g++":
        monkeypatch.setattr(shutil, "which", lambda name: None)
    else:
        monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    words = {"g++": "apt install g++", "NVRTC": "pip install 'gensor-kernels[tune]'"}[missing]
    cached = (compiler, nvrtc._nvrtc, nvrtc.toolchain)
    request.addfinalizer(lambda: [each.cache_clear() for each in cached])
    for each in cached:
        each.cache_clear()
    code, out, err = gensor_tune(*TUNE, "{}/empty.csv", "--db", "{}/ours.db")
    assert (code, out) == (2, "") and words in err and (missing == "g++" or "NVRTC compiler was not found" in err)


READ_ONLY = {
    "tune": ((*TUNE, "FOLDER/shapes.csv", "--db", "FOLDER/k.db"), "k.db cannot be written: the file or its folder is"),
    "new": ((*TUNE, "FOLDER/shapes.csv", "--db", "FOLDER/new.db"), "new.db cannot be used: Permission denied"),
    "merge": (("merge", "FOLDER/k.db", "--db", "FOLDER/k.db"), "k.db cannot be written: the file or its folder is"),
    "csv": (("export", "FOLDER/x.csv", "--db", "FOLDER/k.db"), "x.csv cannot be written: Permission denied"),
    "db": (("export", "FOLDER/x.db", "--db", "FOLDER/k.db", "--arch", "sm_87"), "x.db cannot be written: Permission"),
}


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


A, B = np.ones((4, 3), np.float32), np.ones((3, 5), np.float32)
IMAGE, FILTERS = np.ones((1, 4, 8, 8), np.float32), np.ones((8, 4, 3, 3), np.float32)
CALLS = {
    "lists": (lambda: gk.matmul([[1.0]], [[2.0]]), TypeError, "not list"),
    "None": (lambda: gk.matmul(A, None), TypeError, "must be a numpy array, not None"),
    "text": (lambda: gk.matmul(A.astype("S3"), B), TypeError, "must be an array of numbers"),
    "integers": (lambda: gk.matmul(A.astype(int), B.astype(int)), gk.UnsupportedError, "cast to one of float64"),
    "a dtype in bits": (lambda: gk.matmul(A, B, dtype=16), TypeError, "16 is no dtype"),
    "weights of linear": (lambda: gk.linear(A, B), ValueError, "w (out, in), not (4, 3) and (3, 5)"),
    "single attention": (lambda: gk.attention(*[IMAGE] * 3), gk.UnsupportedError, "attention takes float16 or bfloat"),
    "a dtype of einsum": (lambda: gk.einsum("ij,jk", A, B, dtype="int9"), TypeError, "did you mean int8?"),
    "a dtype of sum": (lambda: gk.sum(A, dtype="foat32"), TypeError, "did you mean float32"),
    "a precision": (lambda: gk.matmul(A, B, precision="fast"), ValueError, "'fast'"),
    "an out": (lambda: gk.matmul(A, B, out=np.ones((4, 4), np.float32)), ValueError, "(4, 4)"),
    "subscripts": (lambda: gk.einsum("ij,jk->il", A, B), ValueError, "'l'"),
    "channels": (lambda: gk.conv2d(IMAGE, FILTERS[:, :3]), ValueError, "channels"),
    "a layout": (lambda: gk.conv2d(IMAGE, FILTERS, layout="HWCN"), ValueError, "'HWCN'"),
    "a padding": (lambda: gk.conv2d(IMAGE, FILTERS, padding="sane"), ValueError, "'sane'"),
    "an axis": (lambda: gk.softmax(A, axis=5), ValueError, "axis 5 is out of bounds"),
    "a normalised shape": (lambda: gk.layer_norm(A, 5), ValueError, "(4, 3)"),
    "a definition": (lambda: gk.define("nonsense"), ValueError, "'nonsense'"),
    "an arch of None": (lambda: gk.emulated(None).__enter__(), TypeError, "a name such as 'sm_87', not None"),
    "an absent file": (lambda: gk.warmup("none.csv"), FileNotFoundError, "no shapes file or database is there"),
}


@pytest.mark.parametrize(("call", "error", "words"), CALLS.values(), ids=CALLS)
def test_a_call_that_means_nothing(call, error, words):
    with gk.emulated("sm_87"), pytest.raises(error) as raised:
        call()
    text = str(raised.value)
    assert words in text and len(text) <= LONGEST and "\n" not in text
