"""Mistakes of a first hour: each gets one sentence of at most 300 characters, the right exit code and no traceback.

What rows, files and command lines of other tests get wrong is not repeated here.
"""

import numpy as np
import pytest

import gensor_kernels as gk
from gensor_database.store import Store

pytest.importorskip("gensor_tuner.cli.app")
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")

LONGEST = 300
GOOD = "op,m,n,k\nmatmul,0,2,3\n"  # an empty result: nothing is walked
TUNE = ("--arch", "sm_87", "--measure", "never", "--budget", "0", "--db", "{}/k.db", "--shapes")

#: Whole files that cannot be read: contents, and words of the sentence. Exit code 2.
FILES = {
    "semicolons of a spreadsheet": (
        "op;m;n;k\nmatmul;1;2;3\n",
        "(it has: op;m;n;k); columns are separated by commas",
    ),
    "tabs": ("op\tm\tn\tk\nmatmul\t1\t2\t3\n", "columns are separated by commas"),
    "spaces": ("op m n k\nmatmul 1 2 3\n", "columns are separated by commas"),
    "no header": ("matmul,128,128,128\n", "(it has: matmul, 128, 128, 128); the first line names the columns, as op"),
    "JSON": ('[{"op": "matmul", "m": 1}]', "the header has no column 'op'"),
    "UTF-16": (GOOD.encode("utf-16"), "is not UTF-8 text (byte 0): save it as UTF-8"),
    "a picture": (b"\x89PNG\r\n\x1a\n" + bytes(200), "is not UTF-8 text"),
    "nothing": ("", "is empty: a header row is needed, such as op,m,n,k"),
    "a comment alone": ("# to be done\n\n", "is empty: a header row is needed"),
    "a header alone": ("op,m,n,k\n", "has a header and no rows"),
    "a column twice": ("op,m,m,k\nmatmul,1,2,3\n", "the header names a column twice: 'm'"),
    "capitals": ("OP,M,N,K\nmatmul,1,2,3\n", "columns 'OP', 'M', 'N', 'K' are unknown: did you mean op, m, n, k?"),
    "a misspelt column": ("op,m,n,k,epilouge\nmatmul,1,2,3,relu\n", "'epilouge' is unknown: did you mean epilogue?"),
}
#: One row behind its header: words of the sentence. Exit code 1, and other rows go on.
ROWS = {
    "negative": ("op,m,n,k", "matmul,-1,2,3", "'m': '-1' is not a whole number written in digits"),
    "a decimal point": ("op,m,n,k", "matmul,128.5,2,3", "'m': '128.5' is not a whole number"),
    "an exponent": ("op,m,n,k", "matmul,1e3,2,3", "'m': '1e3' is not a whole number"),
    "thousands": ("op,m,n,k", 'matmul,"1,024",2,3', "'m': '1,024' is not a whole number"),
    "arithmetic": ("op,m,n,k", "matmul,64*2,2,3", "'m': '64*2' is not a whole number"),
    "beyond 32 bits": ("op,m,n,k", "matmul,9999999999,2,3", "'m': 9999999999 is larger than 2147483647"),
    "fifty digits": ("op,m,n,k", f"matmul,{'9' * 50},2,3", "is not a whole number"),
    "no m": ("op,n,k", "matmul,1,2", "column 'm': is required here and is missing or empty"),
    "a field too many": ("op,m,n,k", "matmul,1,2,3,4", "has 5 fields where the header has 4"),
    "a tuple": ("op,shape", 'softmax,"(4, 8)"', "'(4, 8)' is not a list of whole numbers such as 2x3"),
    "axis -1": ("op,shape,axes", "softmax,4x8,-1", "'-1' is not a list of whole numbers such as 2;3"),
    "an axis too far": ("op,shape,axes", "softmax,4x8,5", "axes (5,) are not different axes of an array that has 2"),
    "a filter too large": ("op,h,w,c,k_out,r,s", "conv2d,2,2,4,4,5,5", "the filter does not fit the padded image"),
    "a stride of 0": ("op,h,w,c,k_out,r,s,stride_h", "conv2d,8,8,4,4,3,3,0", "stride_h is 0: expected 1 or more"),
    "groups": ("op,h,w,c,k_out,r,s,groups", "conv2d,8,8,4,4,3,3,3", "c = 4 is no multiple of groups = 3"),
    "True": ("op,m,n,k,trans_b", "matmul,1,2,3,True", "'True' is not one of 0, 1"),
    "a layout": ("op,h,w,c,k_out,r,s,layout", "conv2d,8,8,4,4,3,3,HWC", "'HWC' is unknown: did you mean nhwc"),
    "an epilogue": ("op,m,n,k,epilogue", "matmul,1,2,3,bias_rellu", "'rellu' is unknown: did you mean relu"),
    "a plus": ("op,m,n,k,epilogue", "matmul,1,2,3,bias+relu", "operations are joined by _, as in bias_relu"),
    "nine operations": ("op,m,n,k,epilogue", f"matmul,1,2,3,{'_'.join(['bias'] * 9)}", "9 operations, at most 6"),
    "heads": ("op,queries,head,heads,kv_heads", "attention,128,64,8,3", "heads are a multiple of the heads of k and v"),
    "bits for a dtype": ("op,m,n,k,dtype", "matmul,1,2,3,16", "'16' is unknown: did you mean fp16?"),
    "a dtype": ("op,m,n,k,dtype", "matmul,1,2,3,foat16", "'foat16' is unknown: did you mean fp16, bf16"),
    "8 bits": ("op,m,n,k,dtype", "matmul,1,2,3,fp8", "'fp8' is unknown: did you mean fp8_e4m3, fp8_e5m2?"),
    "linear": ("op,m,n,k", "linear,1,2,3", "'linear' is unknown: did you mean matmul (with trans_b = 1)?"),
    "conv3d": ("op,m,n,k", "conv3d,1,2,3", "'conv3d' is unknown: did you mean conv2d, conv1d"),
    "half a call": ("op,m,n,k,count", "matmul,1,2,3,1.5", "'count': '1.5' is not a whole number"),
}
#: Command lines: words of the sentence. Exit code 2.
COMMANDS = {
    "a shapes file alone": (("{}/good.csv",), "No such command '"),
    "swapped options": (("--arch", "{}/good.csv", "--shapes", "sm_87"), "unknown arch '"),
    "one part twice": (("--arch", "orin-nano-8gb", *TUNE, "{}/good.csv"), "--arch names one part twice"),
    "a budget for two": (("--arch", "sm_90", *TUNE, "{}/good.csv", "--budget", "9"), "--budget takes one --arch"),
    "distrust of nobody": ((*TUNE, "{}/good.csv", "--distrust"), "--distrust goes with --cluster"),
    "no shard": ((*TUNE, "{}/good.csv", "--shard", "4/3"), "--shard takes I/N with 1 <= I <= N, such as 3/16"),
    "no cluster": ((*TUNE, "{}/good.csv", "--cluster", "host:1"), "--cluster takes tcp://HOST:PORT, tls://"),
    "two files": ((*TUNE, "{}/good.csv", "--shapes", "{}/good.csv"), "--shapes was given more than once"),
    "one dash": (("-arch", "sm_87"), "No such option: -a (gensor-tune --help lists the options)"),
    "a misspelt option": ((*TUNE, "{}/good.csv", "--shape", "x"), "No such option: --shape: did you mean --shapes?"),
    "a misspelt command": (("exprot", "x.csv"), "No such command 'exprot'. Did you mean 'export'"),
    "a command of others": (("bench",), "No such command 'bench' (gensor-tune --help lists the commands)"),
    "an ending left out": (("export", "{}/x", "--db", "{}/ours.db"), "export knows the endings .csv, .json"),
    "minutes": ((*TUNE, "{}/good.csv", "--budget", "5m"), "--budget"),
    "a misspelt strategy": ((*TUNE, "{}/good.csv", "--strategy", "evolutoin"), "did you mean evolution?"),
    "a budget below 0": ((*TUNE, "{}/good.csv", "--budget", "-1"), "--budget"),
    "jobs below 0": ((*TUNE, "{}/good.csv", "--jobs", "-4"), "--jobs"),
    "no finalists": ((*TUNE, "{}/good.csv", "--top", "0"), "--top"),
    "a folder of shapes": ((*TUNE, "{}/folder"), "folder: cannot be read: Is a directory"),
    "a device name": (("--arch", "NVIDIA GeForce RTX 4090", "--shapes", "{}/good.csv"), "did you mean rtx-4090?"),
    "a board's name": (("--arch", "Jetson Orin", "--shapes", "{}/good.csv"), "unknown arch 'Jetson Orin'"),
    "no architecture": (("--arch", "", "--shapes", "{}/good.csv"), "unknown arch '': it is one of sm_75, "),
    "a database that is a table": (("show", "--db", "{}/good.csv"), "good.csv: file is not a database"),
    "JSON into a folder": ((*TUNE, "{}/good.csv", "--json", "{}/folder"), "folder: cannot be written: Is a directory"),
    "a report of nothing": (("report", "--db", "{}/ours.db"), "has no records: tune into it first"),
    "an absent export": (("import", "{}/none.jsonl", "--db", "{}/ours.db"), "none.jsonl cannot be read: No such file"),
    "absent benchmarks": (("check", "--baseline", "{}/none"), "none does not exist"),
    "memory in words": (
        ("measure", "--db", "{}/ours.db", "--memory", "all"),
        "500M or 2G, not 'all'",
    ),
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "good.csv").write_text(GOOD)
    (tmp_path / "folder").mkdir()
    Store.open(tmp_path / "ours.db").close()
    return tmp_path


def sentence(err: str, words: str) -> str:
    """The one line that has the words; no line is a traceback, or longer than a person reads."""
    (line,) = [line for line in err.splitlines() if words in line]
    assert line.startswith("gensor-tune: ") and len(line) <= LONGEST
    assert "Traceback" not in err and "Warning" not in err
    return line


@pytest.mark.parametrize("mistake", FILES)
def test_a_file_that_cannot_be_read(mistake, gensor_tune, folder):
    content, words = FILES[mistake]
    (folder / "bad.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    code, out, err = gensor_tune(*TUNE, "{}/bad.csv")
    assert (code, out) == (2, "") and err == sentence(err, words) + "\n"


@pytest.mark.parametrize("mistake", ROWS)
def test_a_row_that_cannot_be_read(mistake, gensor_tune, folder):
    header, row, words = ROWS[mistake]
    (folder / "bad.csv").write_text(f"{header}\n{row}\n")
    code, _, err = gensor_tune(*TUNE, "{}/bad.csv")
    assert code == 1 and "bad.csv:2: " in sentence(err, words)


@pytest.mark.parametrize("mistake", COMMANDS)
def test_a_command_line_that_cannot_be_run(mistake, gensor_tune, folder):
    arguments, words = COMMANDS[mistake]
    code, out, err = gensor_tune(*arguments)
    assert (code, out) == (2, "") and err == sentence(err, words) + "\n"


def test_no_argument_shows_the_help(gensor_tune):
    code, out, err = gensor_tune()
    assert (code, out) == (2, "") and err.startswith("Usage: gensor-tune [OPTIONS] COMMAND") and "  --arch ARCH " in err


SOUND = {
    "a byte order mark": b"\xef\xbb\xbfop,m,n,k\nmatmul,0,2,3\n",
    "spaces around cells": b"op, m, n, k \n matmul , 0 , 2 , 3 \n",
    "carriage returns": b"op,m,n,k\r\nmatmul,0,2,3\r\n",
    "a comment in front": b"# my model\n\nop,m,n,k\nmatmul,0,2,3\n",
    "capital operators": b"op,m,n,k\nMatMul,0,2,3\n",
}


@pytest.mark.parametrize("file", SOUND)
def test_files_as_editors_and_spreadsheets_write_them_are_read(file, gensor_tune, folder):
    (folder / "file.csv").write_bytes(SOUND[file])
    code, out, _ = gensor_tune(*TUNE, "{}/file.csv", "--jobs", "0")
    assert code == 0 and "an empty result needs no kernel" in out


def test_bad_lines_of_an_export_are_refused_one_by_one(gensor_tune, folder):
    (folder / "bad.jsonl").write_text('{nonsense\n[]\n{"table": "kernel"}\n')
    code, _, err = gensor_tune("import", "{}/bad.jsonl", "--db", "{}/ours.db")
    assert code == 1 and all(len(line) <= LONGEST for line in err.splitlines())
    for number in (1, 2, 3):
        sentence(err, f"bad.jsonl:{number}: ")


# ---- calls

A, B = np.ones((4, 3), np.float32), np.ones((3, 5), np.float32)
IMAGE, FILTERS = np.ones((1, 4, 8, 8), np.float32), np.ones((8, 4, 3, 3), np.float32)
CALLS = {
    "shapes": (lambda: gk.matmul(A, A), ValueError, "size 4 is different from 3"),
    "lists": (lambda: gk.matmul([[1.0]], [[2.0]]), TypeError, "not list"),
    "None": (lambda: gk.matmul(A, None), TypeError, "must be a numpy array, not None"),
    "text": (lambda: gk.matmul(A.astype("S3"), B), TypeError, "must be an array of numbers"),
    "integers": (lambda: gk.matmul(A.astype(int), B.astype(int)), gk.UnsupportedError, "cast to one of float64"),
    "a dtype in bits": (lambda: gk.matmul(A, B, dtype=16), TypeError, "16 is no dtype"),
    "weights of linear": (lambda: gk.linear(A, B), ValueError, "w (out, in), not (4, 3) and (3, 5)"),
    "weights for a shape": (lambda: gk.rms_norm(A, A), TypeError, "normalized_shape must be an integer"),
    "single attention": (
        lambda: gk.attention(*[IMAGE] * 3),
        gk.UnsupportedError,
        "attention takes float16 or bfloat16",
    ),
    "a result to explain": (lambda: gk.explain(A), TypeError, "explain knows gensor_kernels.matmul"),
    "a dtype": (lambda: gk.matmul(A, B, dtype="flot16"), TypeError, "'flot16' is unknown: did you mean float16"),
    "a dtype of einsum": (lambda: gk.einsum("ij,jk", A, B, dtype="int9"), TypeError, "did you mean int8?"),
    "a dtype of sum": (lambda: gk.sum(A, dtype="foat32"), TypeError, "did you mean float32"),
    "a bias": (lambda: gk.matmul(A, B, bias=np.ones(4, np.float32)), ValueError, "does not broadcast"),
    "an activation": (lambda: gk.matmul(A, B, activation="rellu"), ValueError, "'rellu'"),
    "an epilogue of text": (lambda: gk.matmul(A, B, epilogue="bias_relu"), TypeError, "[('bias', x), 'relu']"),
    "a precision": (lambda: gk.matmul(A, B, precision="fast"), ValueError, "'fast'"),
    "an out": (lambda: gk.matmul(A, B, out=np.ones((4, 4), np.float32)), ValueError, "(4, 4)"),
    "subscripts": (lambda: gk.einsum("ij,jk->il", A, B), ValueError, "'l'"),
    "channels": (lambda: gk.conv2d(IMAGE, FILTERS[:, :3]), ValueError, "channels"),
    "a layout": (lambda: gk.conv2d(IMAGE, FILTERS, layout="HWCN"), ValueError, "'HWCN'"),
    "a padding": (lambda: gk.conv2d(IMAGE, FILTERS, padding="sane"), ValueError, "'sane'"),
    "an axis": (lambda: gk.softmax(A, axis=5), ValueError, "axis 5 is out of bounds"),
    "a normalised shape": (lambda: gk.layer_norm(A, 5), ValueError, "(4, 3)"),
    "rows of groups": (lambda: gk.grouped_matmul(A, np.ones((2, 3, 5), np.float32)), ValueError, "offsets or sizes"),
    "a definition": (lambda: gk.define("nonsense"), ValueError, "'nonsense'"),
    "an arch": (lambda: gk.emulated("orin").__enter__(), gk.UnknownArchError, "did you mean orin-nano-8gb, orin-nx-"),
    "an arch of None": (
        lambda: gk.emulated(None).__enter__(),
        TypeError,
        "arch must be a name such as 'sm_87', not None",
    ),
    "an absent file": (lambda: gk.warmup("none.csv"), FileNotFoundError, "no shapes file or database is there"),
}


@pytest.mark.parametrize("mistake", CALLS)
def test_a_call_that_means_nothing(mistake):
    call, error, words = CALLS[mistake]
    with gk.emulated("sm_87"), pytest.raises(error) as told:
        call()
    text = str(told.value)
    assert words in text and len(text) <= LONGEST and "\n" not in text


def test_there_are_forty_mistakes_and_more():
    assert len(FILES) + len(ROWS) + len(COMMANDS) + len(CALLS) >= 40
