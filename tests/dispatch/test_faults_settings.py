"""Homes that are absent or read-only, settings that are nonsense, streams that are closed, clocks that jump."""

import os
import subprocess
import sys
import textwrap
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest

from gensor_database import Record, Store, StoreWarning
from gensor_kernels import config
from gensor_kernels.dispatch.selection import library, load
from gensor_kernels.dispatch.tuning import background
from gensor_kernels.errors import ConfigError
from tests.doubles.kernels import ARCH, products, raced, workload

pytestmark = pytest.mark.usefixtures("user_database")

ROOT = Path(__file__).resolve().parents[2]
CALLS = """
from gensor_kernels.dispatch.selection import load
from tests.doubles.kernels import ARCH, products, raced
made = raced()
made.library = load.library(ARCH)
made.library._take(raced().library.contents)
found = products(made, 3)
import os
os.write({fd}, repr(found).encode())
"""


def child(code=CALLS, fd=1, environment=None, closed=(), **keywords):
    """The result of a child process; variables that are None are absent from its environment."""
    variables = {**os.environ, "GENSOR_TUNE": "auto", **(environment or {})}
    variables = {name: value for name, value in variables.items() if value is not None}
    shut = "".join(f" {number}>&-" for number in closed)
    command = ["sh", "-c", f'exec "$0" -c "$1"{shut}', sys.executable, textwrap.dedent(code.format(fd=fd))]
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=120, **keywords)


RIGHT = "[0.0, 55.0, 55.0]"
NONSENSE = {
    "GENSOR_TUNE": "sideways",
    "GENSOR_BACKGROUND": "perhaps",
    "GENSOR_RACE": "later",
    "GENSOR_DETERMINISTIC": "off\t",
    "GENSOR_DISABLE": "-1",
    "GENSOR_LOG": "\udcff",
    "GENSOR_SITE_DB": "/dev/null/\udcfe",
    "GENSOR_DB": "~nobody-of-this-name/x.db",
    "GENSOR_RECORD": "/proc/no/such/file.csv",
    "GENSOR_CACHE_DIR": "\n",
}


def test_nonsense_in_every_variable():
    done = child(environment=NONSENSE)
    assert (done.stdout, done.returncode) == (RIGHT, 0), done.stderr
    for name in ("GENSOR_TUNE=", "GENSOR_DISABLE=", "GENSOR_LOG=", "file.csv: "):
        assert done.stderr.count(name) == 1, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["GENSOR_DB", "GENSOR_SITE_DB"])
def test_a_home_that_does_not_exist_is_a_config_error(name, monkeypatch, caplog):
    monkeypatch.setenv(name, "~nobody-of-this-name/x.db")
    with pytest.raises(ConfigError, match=rf"^{name}=~nobody-of-this-name/x\.db cannot be used: "):
        config.user_database() if name == "GENSOR_DB" else config.site_database()
    monkeypatch.setattr(config, "_warned", set())
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        assert load.read(ARCH).kernels  # the packaged one
    said = caplog.text + "".join(str(each.message) for each in heard)
    assert ("kept for this process only" if name == "GENSOR_DB" else "a database is left out") in said


def test_a_deleted_working_folder(tmp_path):
    (tmp_path / "here").mkdir()
    code = f"import os, sys; os.chdir({str(tmp_path / 'here')!r}); os.rmdir(os.getcwd())" + CALLS
    path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(ROOT)])
    done = child(code, environment={"GENSOR_DB": "user.db", "GENSOR_SITE_DB": "site.db", "PYTHONPATH": path})
    assert (done.stdout, done.returncode) == (RIGHT, 0), done.stderr


@pytest.mark.skipif(os.name != "posix", reason="file modes are a POSIX matter")
def test_a_read_only_home(monkeypatch):
    for name in ("GENSOR_DB", "GENSOR_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    folder = Path("/proc/self")  # not writable, even by root
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setattr(config, "_warned", set())
    made = raced()
    made.library.reload()
    with pytest.warns(RuntimeWarning, match="kept for this process only") as heard:
        assert products(made, 3) == [0, 55, 55] and products(made, 3) == [55] * 3
        assert not background.tune(workload(), ARCH)  # nowhere to store a kernel: no process is started
    assert len(heard) == 1


# ---- streams


NO_HOME = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "GENSOR_DB", "GENSOR_CACHE_DIR"))
LOGGING = {"GENSOR_LOG": "debug", "GENSOR_TUNE": "maybe"}


@pytest.mark.parametrize(
    ("closed", "environment", "first"),
    [
        ((), NO_HOME, ""),
        ((1,), LOGGING, ""),
        ((2,), LOGGING, ""),
        ((0, 1, 2), LOGGING, ""),
        ((), LOGGING | {"GENSOR_RECORD": "/proc/x"}, "import sys; sys.stderr.close()\n"),
    ],
    ids=["no home", "no stdout", "no stderr", "no streams", "stderr closed by the program"],
)
def test_missing_homes_and_streams(closed, environment, first, tmp_path):
    """Output for a closed stream is dropped, and does not go to files that were given its number."""
    target = tmp_path / "found"
    code = CALLS.replace("os.write({fd}, repr(found).encode())", f"open({str(target)!r}, 'w').write(repr(found))")
    done = child(first + code, closed=closed, environment=environment)
    assert done.returncode == 0 and target.read_text() == RIGHT, done.stderr


def test_progress_without_a_stderr(monkeypatch):
    tried = []

    def write(text):
        tried.append(text)
        raise OSError(5, "Input/output error")

    for stream in (None, SimpleNamespace(isatty=lambda: True, write=write)):
        monkeypatch.setattr(sys, "stderr", stream)
        background._say("tuning")
    assert len(tried) == 1 and "tuning" in tried[0]


# ---- clocks


def test_a_clock_that_jumps_loses_no_row(tmp_path, monkeypatch):
    """A board without a battery starts in 1970; the newest row is served."""
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    now, rows = time.time(), []
    with Store.open(tmp_path / "user.db") as store:
        for index, at in enumerate([now, now + 10**9, 0, now - 10**8, 1, now + 5]):
            with monkeypatch.context() as only:
                only.setattr(time, "time", lambda at=at: at)
                rows.append(Record("{}", "sm_87", "orin-nano-8gb", 1, None, float(index + 1), 1.0, "failed"))
            store.add(rows[-1])
        found = store.records("{}", "sm_87")
    assert {row.digest for row in found} == {row.digest for row in rows} and len(found) == 6
    assert [row.created for row in found] == sorted((row.created for row in rows), reverse=True)


def test_unexpected_errors_of_databases_keep_the_known_kernels(monkeypatch, caplog):
    made = raced()
    known = made.library.contents
    made.library._read = lambda: 1 // 0
    made.library.reload()
    assert made.library.contents.kernels == known.kernels and "the databases cannot be read" in caplog.text
    assert products(made, 3) == [0, 55, 55]
    assert library.Library(read=lambda: 1 // 0).contents == library.Contents()
    monkeypatch.setattr(config, "_warned", set())
    monkeypatch.setenv("GENSOR_TUNE", "sideways")
    with warnings.catch_warnings():
        warnings.simplefilter("error", StoreWarning)  # does not make an error of the setting
        with pytest.warns(RuntimeWarning, match="sideways"):
            assert products(raced(), 1) == [0]


def test_a_locked_database_is_left_out_after_a_while(monkeypatch, tmp_path):
    """By a rollback journal's exclusive lock: in WAL mode readers do not wait."""
    monkeypatch.setattr(load, "PATIENCE", 0.1)
    path = tmp_path / "kernels.db"
    monkeypatch.setenv("GENSOR_DB", str(path))
    with Store.open(path) as store:
        store.connection.execute("PRAGMA journal_mode=delete")
        store.connection.execute("BEGIN EXCLUSIVE")
        with pytest.warns(StoreWarning, match="is locked by another process"):
            load.library(ARCH)
