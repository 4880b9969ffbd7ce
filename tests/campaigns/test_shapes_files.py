"""Shapes files and arguments of gensor-tune as people, spreadsheets and attackers make them: sound ones, changed.

They get a sentence and an exit code, never a traceback.

Some hundred by default; 20,000 with GENSOR_CAMPAIGN=full.
"""

import codecs
import random
import re
from collections import Counter

import pytest
import typer.main
from typer.testing import CliRunner

from gensor_kernels.errors import GensorError
from gensor_tuner.cli import app, tuning
from gensor_tuner.run.tune import Run
from gensor_tuner.shapes.reader import ShapesError, read_shapes
from tests.campaign_size import FULL, SEED, tell
from tests.doubles.store_rows import stock

from .lives.checks import Clock

FILES = 16_000 if FULL else 400
CALLS = 4_000 if FULL else 64
UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202e]")
#: Names of operators, columns and types; numbers.
WORDS = (
    *("", "op ", " 8 ", "9" * 5000, "1 2", "bias_" * 7, "1x" * 40, "matmul "),
    *"op name m k batch dtype epilogue count trans_b groups r pad_top shape axes heads causal layout_a note".split(),
    *"matmul conv2d max_pool2d softmax reduce_sum rnn_lstm attention quantised_int4 MATMUL __import__".split(),
    *"fp16 tf32 int4 fp4_e2m1 complex64_3m row NHWC bias_relu swiglu scale;scale 1x2x3 2;3 0x0 lower_right".split(),
    *"0 1 7 64 4096 2147483648 9999999999999999999 -1 +1 1.0 1e9 1_000 0x10 007 １２ ٣ ² nan inf 1,5 true".split(),
)
HOSTILE = (
    *("=cmd|' /C calc'!A0", "'; DROP TABLE kernel; --", "$(touch x)", "\\", "\x1b[2J", "\u202e", "\ufeff"),
    *("\ud7ff", "\x85", "\u2028", "a\x0bb", "\x1c", "\x00", '"', '""', '"a', 'a"b"', "\t", "x" * 3000),
    *"=1+1 @SUM(A1) -2+3 `id` ../../etc %s%n{0}{op} 😀😀😀😀😀😀😀😀😀😀 ''' sm_87 --arch -I/etc".split(),
)
SOUND = (
    "name,op,m,n,k,dtype,epilogue,count,note\nqkv,matmul,64,128,256,fp16,bias_relu,12,x\n,gemv,1,4096,4096,fp32,,,\n",
    "op,n,h,w,c,k_out,r,s,pad_top,layout,groups\nconv2d,8,56,56,64,128,3,3,1,NHWC,1\nconv2d,1,14,14,32,32,3,3,,nchw,32\n",
    "op,dtype,shape,axes\nsoftmax,fp16,1x12x128x128,3\nreduce_sum,fp32,128x32x11x11,2;3\nrelu,fp32,4x5,\n",
    "op,heads,queries,keys,head,causal,batch\nattention,12,100,,64,lower_right,2\nattention,4,7,9,128,none,\n",
    "op,m,n,k,batch,trans_b,layout_a,layout_b,align_a,align_b,align_c,out\nmatmul,64,64,64,2,1,k,k,16,4,16,fp32\n",
    "op,hidden,batch,timesteps\nrnn_lstm,512,16,25\nrnn_gru,128,1,7\n",
    "op,n,h,w,c,r,s,stride_h,ceil_mode\nmax_pool2d,8,112,112,64,3,3,2,1\navg_pool2d,1,8,8,8,2,2,2,0\n",
    "op,groups,m,n,k,dtype_b,group,zeros\nragged_matmul,4,64,64,64,,,\nmatmul,,16,4096,4096,int4,128,1\n",
)
ENCODINGS = ("utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16", "utf-32", "latin-1", "cp1252", "utf-7", "cp500")
ENDS = ("\n", "\n", "\r\n", "\r", "\n\n", "\x0b", "\u2028", "")


def contents(generator):
    """The bytes of one file: some cells changed, added, left out or in another order, at times some bytes."""
    if generator.random() < 0.05:
        return generator.randbytes(generator.randrange(3000))
    lines = [line.split(",") for line in generator.choice(SOUND).splitlines()]
    for _ in range(generator.randrange(1, 5)):
        cells = generator.choice(lines[generator.random() < 0.8 :])  # mostly not the header
        at, more = generator.randrange(len(cells) + 1), generator.random() < 0.9
        cells[at : at + generator.randrange(3)] = [generator.choice(generator.choice((WORDS, WORDS, HOSTILE)))] * more
        if generator.random() < 0.1:
            generator.shuffle(cells)
    text = generator.choice(ENDS if generator.random() < 0.2 else ENDS[:3]).join(",".join(cells) for cells in lines)
    text += generator.choice(("\n", "", "\n#comment\n", "\n,,,\n", "\x1a"))
    data = text.encode(generator.choice(ENCODINGS), "replace")
    if generator.random() < 0.1:
        data = generator.choice([codecs.BOM_UTF8, codecs.BOM_UTF16_LE, b"\x00", b"\xff"]) + data
    if data and generator.random() < 0.1:
        at = generator.randrange(len(data))
        data = data[:at] + generator.randbytes(2) + data[at + generator.randrange(3) :]
    return data


def test_files(tmp_path):
    generator, path = random.Random(SEED), tmp_path / "shapes.csv"
    clock, counts = Clock(), Counter()
    for number in range(FILES):
        data = contents(generator)
        path.write_bytes(data)
        with clock.measure(f"file {number}"):
            try:
                rows = read_shapes(path)
            except ShapesError as error:
                counts["refused"] += 1
                check_message(str(error), path, data)
                continue
        for row in rows:
            one = [row.workload is not None, row.unsupported is not None, row.error is not None]
            assert sum(one) == 1, (data, row)
            counts["workloads" if one[0] else "unsupported" if one[1] else "errors"] += 1
            if row.error is not None:
                check_message(row.error, path, data)
                assert row.error.startswith(f"{path}:{row.line}: "), row.error
            if row.workload is not None:
                assert 0 < row.count < 10**40
    tell("shapes files", {"files": FILES, **counts})
    clock.check()
    # Unsupported rows are the rarest: 10 to 33 in 700 files, by the seed.
    assert all(counts[each] > FILES / 400 for each in ("refused", "workloads", "unsupported", "errors")), counts


def check_message(text, path, data):
    """A message is one line that begins with the file, is not long, and does nothing to a terminal."""
    assert text.startswith(str(path)) and len(text) < len(str(path)) + 600, (text, data)
    assert not UNPRINTABLE.search(text), (text, data)


VALUES = (
    *("", " ", "é", "\x1b[2J", "9" * 40, "$(id)", "'; DROP TABLE kernel; --", "a\nb", "sm_87 -I/etc", "😀", "x" * 300),
    *"sm_87 sm_87a SM_87 orin-nano-8gb h200 sm_999 sm_ 87 -1 0 1 256 257 1e9 nan inf %s{0} ../..".split(),
    *"~nobody-here/x emulator none device never auto full paper maybe --arch -- - -h".split(),
    *"shapes.csv k.db text.db absent.csv folder /dev/null /dev/full x.db".split(),
)
OPTIONS = (
    *"--arch --shapes --db --top --budget --seed --jobs --measure --verify --graph --strategy --json".split(),
    *"--quiet -q --kernel --binaries --dry-run --other-abi --out --memory --nothing -h".split(),
)

#: One call in eight succeeds, whatever the seed.
SOUND_CALLS = (("where",), ("show", "--db", "k.db"), ("show", "-h"), ("-h",))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Files to name, and a run that stops where the tuning of rows would begin."""
    (tmp_path / "shapes.csv").write_text("op,m,n,k\nmatmul,8,8,8\nmatmul,x,1,1\n")
    (tmp_path / "text.db").write_text("this is no database, but it is long enough to be read as one\n" * 20)
    (tmp_path / "folder").mkdir()
    stock(tmp_path / "k.db", 1)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GENSOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("GENSOR_DB", str(tmp_path / "own" / "k.db"))
    monkeypatch.setattr(Run, "rows", lambda self, rows: iter(()))
    monkeypatch.setattr(tuning, "check_compilers", lambda verify, jobs: None)
    return tmp_path


def arguments(generator, names):
    found = [generator.choice(names)] if generator.random() < 0.7 else []
    for _ in range(generator.randrange(6)):
        if generator.random() < 0.6:
            found.append(generator.choice(OPTIONS))
        if generator.random() < 0.8:
            found.append(generator.choice(VALUES))
    if generator.random() < 0.3:
        found = ["--arch", generator.choice(VALUES), "--shapes", "shapes.csv", "--db", "x.db", *found]
    return found


def test_arguments(folder):
    names = sorted(set(typer.main.get_command(app.app).commands) - {"pretune"})  # which tunes
    generator, runner, clock, codes = random.Random(SEED), CliRunner(), Clock(), Counter()
    for number in range(CALLS):
        given = arguments(generator, names) if number % 8 else list(generator.choice(SOUND_CALLS))
        with clock.measure(" ".join(given)[:200]):
            result = runner.invoke(app.app, given)
        error = result.exception
        if error is not None and not isinstance(error, SystemExit):
            assert isinstance(error, GensorError), (given, result.exc_info)  # a sentence; cli.main
            text = str(error).replace("a\nb", "")  # a name that was given
            assert text and "\n" not in text, (given, str(error))
            codes[2] += 1
        else:
            assert result.exit_code in (0, 1, 2), (given, result.exit_code, result.output)
            codes[result.exit_code] += 1
        assert "Traceback" not in result.output, given
    tell("arguments", {"calls": CALLS, "subcommands": len(names), **codes})
    assert codes[0] > CALLS / 20 and codes[2] > CALLS / 4
