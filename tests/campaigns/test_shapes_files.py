"""Shapes files and arguments of gensor-tune as nobody means them: a sentence and an exit code, never a traceback.

Some hundred by default; 20,000 with GENSOR_CAMPAIGN=full.
"""

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

from .files import shapes_fuzz
from .lives.checks import Clock

FILES = 16_000 if FULL else 400
CALLS = 4_000 if FULL else 64
UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202e]")


def test_files(tmp_path):
    generator, path = random.Random(SEED), tmp_path / "shapes.csv"
    clock, counts = Clock(), Counter()
    for number in range(FILES):
        data = shapes_fuzz.contents(generator)
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
SOUND = (("where",), ("show", "--db", "k.db"), ("show", "-h"), ("-h",))


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
        given = arguments(generator, names) if number % 8 else list(generator.choice(SOUND))
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
