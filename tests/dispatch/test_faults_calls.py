"""Calls for which memory, the driver, the device or the environment fails: the library serves, else its own error."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from gensor_database import Record, Store, StoreWarning, Verification
from gensor_kernels import config
from gensor_kernels.dispatch.calls.arguments import Operation
from gensor_kernels.dispatch.plans import make
from gensor_kernels.dispatch.plans import trial as plans_trial
from gensor_kernels.dispatch.plans.stage import StagedPlan
from gensor_kernels.dispatch.selection import library, load
from gensor_kernels.dispatch.tuning import background, race
from gensor_kernels.errors import BuildError, ConfigError
from tests.doubles.device import FakeDevice, Fault, Race
from tests.doubles.kernels import ARCH, aligned, kernels, products, raced, runtime_of, workload

pytestmark = pytest.mark.usefixtures("user_database")


@pytest.fixture
def scarce(monkeypatch):
    """A Runtime that kernels serve by prediction, every one of them with a workspace."""
    monkeypatch.setenv("GENSOR_TUNE", "predicted")
    monkeypatch.setenv("GENSOR_DETERMINISTIC", "1")
    from gensor_kernels.families.registry import FAMILIES

    for family in FAMILIES.values():
        monkeypatch.setattr(family, "workspace", lambda *_: (4096, False))
    return runtime_of(stored=kernels(workload(64, 64, 64)))


def whole(shape, seed):
    array = aligned(shape)
    array[...] = np.random.default_rng(seed).integers(-4, 5, shape)
    return array


# ---- memory


@pytest.mark.parametrize("warm", [False, True])
def test_without_memory_for_a_workspace_the_library_serves_this_call(scarce, warm, caplog):
    a, b = whole((64, 64), 1), whole((64, 64), 2)
    relu = (Operation("relu"),)
    calls = [
        (lambda: scarce.contract("ij,jk", a, b), a @ b),
        (lambda: scarce.call(a, b, None, (), None, None), a @ b),
        (lambda: scarce.call(a, b, None, relu, None, None), np.maximum(a @ b, 0)),
        (lambda: scarce.call(a, b, aligned((64, 64)), (), None, None), a @ b),
        (lambda: scarce.call(a, b, aligned((64, 64)), relu, None, None), np.maximum(a @ b, 0)),
    ]
    for call, expected in calls:
        assert not warm or call()[0, 0] == 55
        scarce.device.fails = ("workspace",)
        for _ in range(2):
            np.testing.assert_array_equal(call(), expected)
        assert "no memory to run a kernel" in caplog.text
        scarce.device.fails = ()
        assert call()[0, 0] == 55  # there is memory again
        caplog.clear()
    scarce.device.emulated, scarce.device.fails = True, ("workspace",)  # without a library to fall back to
    with pytest.raises(MemoryError, match="workspace"):
        calls[1][0]()


def test_without_memory_for_copies_the_library_gets_the_callers_arrays(scarce, monkeypatch):
    a, b = whole((64, 64), 1), whole((64, 64), 2).astype(np.float64)
    call = lambda: scarce.call(a, b, None, (), np.float32, None)  # noqa: E731
    call()

    def refuse(*_):
        raise MemoryError("no memory for a copy")

    monkeypatch.setattr(StagedPlan, "_copy", refuse)
    np.testing.assert_array_equal(call(), (a @ b).astype(np.float32))


def test_without_memory_for_the_result_the_error_is_the_librarys(scarce, monkeypatch):
    a, b = whole((64, 64), 1), whole((64, 64), 2)

    def refuse(*_):
        raise MemoryError("the library's own words")

    with monkeypatch.context() as only, pytest.raises(MemoryError, match="the library's own words") as caught:
        only.setattr(scarce.device, "product", refuse)
        scarce.device.fails = ("empty", "workspace")
        scarce.call(a, b, None, (), None, None)
    assert not isinstance(caught.value.__context__, MemoryError)  # it is not reported as a consequence of ours
    scarce.device.fails = ()
    assert scarce.call(a, b, None, (), None, None)[0, 0] == 55


# ---- races


def culprit(failure, at):
    """A function that runs launches; the first kernel fails at start number `at`, with a Fault from then on."""
    bound, starts = [], count(1)

    def execute(device, code, launches):
        bound.append(code.digest)

        def launch(arguments, arrays, steps, workspace):
            device.synchronize()
            if code.digest == bound[0] and next(starts) == at:
                if isinstance(failure, Fault):
                    device.fails = dict.fromkeys(("product", "synchronize"), failure)
                raise failure
            arrays[0][...] = 55

        return launch

    return execute


class Sampled(Race):
    """Starts calls as sampling does: twice alone, then in turns."""

    def __call__(self, calls):
        return super().__call__([call for call in calls for _ in range(2)] + 4 * calls)[: len(calls)]


def failing(failure, at=1, count=2):
    """A Runtime with kernels of which the best one fails."""
    found = dict(sorted(kernels(workload(64, 64, 64)).items())[:count])
    return runtime_of(FakeDevice(execute=culprit(failure, at), clock=Sampled()), found)


@pytest.mark.parametrize(
    ("failure", "at"), [(ZeroDivisionError("refused"), 1), (MemoryError("no workspace"), 2), (RuntimeError("odd"), 4)]
)
def test_a_race_continues_without_a_kernel_that_fails(failure, at, monkeypatch, tmp_path):
    monkeypatch.setattr(race, "contenders", lambda request, shelf: list(shelf.contents.kernels.values()))
    made = failing(failure, at)
    assert products(made, 3) == [0, 55, 55] and made.device.races == [1]
    with Store.open(tmp_path / "user.db") as store:
        assert not list(store.rows(Verification))


@pytest.mark.parametrize(("at", "blamed"), [(1, 1), (2, 1), (4, 2)])
def test_a_kernel_that_ruins_the_device_in_a_race_never_runs_again(at, blamed, monkeypatch, tmp_path, caplog):
    """Where kernels took turns, any of them may be the cause."""
    monkeypatch.setattr(race, "contenders", lambda request, shelf: list(shelf.contents.kernels.values()))
    made = failing(Fault("an illegal memory access was encountered"), at)
    assert products(made, 1) == [0]
    with pytest.raises(Fault):  # the library's own error: nothing can run in this process
        products(made, 1)
    assert "cannot be used any more in this process" in caplog.text
    with Store.open(tmp_path / "user.db") as store:
        rows = list(store.rows(Verification))
    assert {(row.method, row.outcome) for row in rows} == {("device", "failed")} and len(rows) == blamed
    assert next(iter(made.library.contents.kernels)) in {row.kernel_digest for row in rows}


def test_a_library_call_that_fails_ends_the_race(monkeypatch):
    made = failing(RuntimeError("never"), at=10**9)
    products(made, 1)
    calls = []

    def fail(a, b, precision=None, out=None):
        calls.append(1)
        if len(calls) < 3:
            raise RuntimeError("the library's own trouble")
        return np.matmul(a, b, out=out)

    monkeypatch.setattr(made.device, "product", fail)
    with pytest.raises(RuntimeError, match="own trouble"):  # the call's own, not the race's
        products(made, 1)
    assert products(made, 3) == [0, 0, 0] and not made.device.races


def test_the_plan_stays_if_no_other_can_be_made_after_a_race(monkeypatch, caplog):
    made = failing(RuntimeError("never"), at=10**9)
    products(made, 1)

    def refuse(*_, **__):
        raise BuildError("gone meanwhile")

    (trial,) = made.plans.values()
    monkeypatch.setattr(trial, "_again", refuse)
    assert products(made, 4) == [0] * 4
    assert "after a race: gone meanwhile" in caplog.text


def test_a_broken_tuner_does_not_fail_the_call(monkeypatch, caplog):
    monkeypatch.delenv("GENSOR_BACKGROUND")
    made = failing(RuntimeError("never"), at=10**9)
    monkeypatch.setattr(made.background, "_is_good", lambda workload: 1 // 0)
    assert products(made, plans_trial.HOT_RUN + 1)[-1] == 55
    assert "tuning in the background failed" in caplog.text


# ---- Ctrl-C


def interrupt():
    raise KeyboardInterrupt


PLACES = {
    "planning": (make, "plan_of"),
    "loading": (FakeDevice, "load"),
    "launching": (FakeDevice, "launch"),
    "racing": (FakeDevice, "sampler"),
    "after the race": (library.Library, "note"),
    "storing": (Store, "add"),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("run", [0, 1, 2])
def test_ctrl_c_ends_one_call_and_harms_no_other(place, run, monkeypatch, tmp_path):
    made = raced()
    products(made, run)
    owner, name = PLACES[place]
    with monkeypatch.context() as only:
        only.setattr(owner, name, lambda *_, **__: interrupt())
        with suppress(KeyboardInterrupt):
            products(made, 1)
    found = products(made, 5)
    assert set(found) <= {0.0, 55.0}
    made.notes.flush(5.0)
    assert not made.notes._waiting and made.lock.acquire(timeout=1) is True
    for trial in made.plans.values():
        assert not isinstance(trial, plans_trial.Trial) or not trial._turn.locked()
    others = threading.Thread(target=lambda: found.extend(products(made, 3, out=True)))
    made.lock.release()
    others.start()
    others.join(20)
    assert len(found) == 8
    if (tmp_path / "user.db").exists():
        with Store.open(tmp_path / "user.db") as store:
            assert store.connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_ctrl_c_at_any_time_of_many_calls(monkeypatch):
    """A real signal at arbitrary times. Where Python cannot raise it, as in a weak reference's callback, it is reported
    and the program continues."""
    swallowed = []
    monkeypatch.setattr(sys, "unraisablehook", lambda report: swallowed.append(report.exc_type))
    made = raced()
    interrupted = 0
    for delay in range(40):
        made.plans.clear()
        made.raced.clear()
        previous = signal.signal(signal.SIGALRM, lambda *_: interrupt())
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.001 + delay * 0.0007)
            for _ in range(200):
                assert set(products(made, 1)) <= {0.0, 55.0}
        except KeyboardInterrupt:
            interrupted += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)
        assert set(products(made, 3)) <= {0.0, 55.0}
    assert interrupted and set(swallowed) <= {KeyboardInterrupt}


# ---- homes that are absent or read-only, settings that are nonsense, closed streams, clocks that jump


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
