"""Forks, and the ends of programs: no child waits for a lock of its parent, no process remains, no row is doubled."""

import contextlib
import importlib
import os
import pkgutil
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

import gensor_kernels
from gensor_database import Store, Timing, Verification
from gensor_kernels.dispatch.selection.library import Kernel
from gensor_kernels.dispatch.tuning import background
from gensor_kernels.dispatch.tuning.worker import Worker
from gensor_kernels.families.core.program import Program
from gensor_kernels.operators.products import matmul
from tests.campaign_size import sample
from tests.doubles.kernels import products, raced, workload

from .test_faults_worker import ends_soon

ROOT = Path(__file__).resolve().parents[3]
SECONDS = 60.0

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="forks are a POSIX matter"),
    pytest.mark.usefixtures("user_database"),
]


def program(code, seconds=SECONDS, **keywords):
    """A finished child that ran `code` from the repository's root."""
    command = [
        sys.executable,
        "-c",
        "from tests.doubles.kernels import products, raced, tuning, workload\n" + textwrap.dedent(code),
    ]
    environment = {**os.environ, "GENSOR_TUNE": "auto", **keywords.pop("environment", {})}
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=seconds, env=environment, **keywords
    )


def in_child(action):
    """The exit code of a forked child that calls `action`, 0 if it returns; the child has a minute."""
    pid = os.fork()
    if not pid:
        signal.alarm(int(SECONDS))
        try:
            action()
            os._exit(0)
        except BaseException as error:
            os.write(2, repr(error).encode())
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


# ---- forks


def test_locks_that_other_threads_hold_are_free_in_a_child(monkeypatch, tmp_path):
    made, shared = raced(), Worker(("false",))
    products(made, 3)
    locks = [made.lock, made.background._lock, made.notes._lock, made.library._taking, made.library._reading]

    def use():
        products(made, 3, out=True)  # another kind of call: planned, raced and noted
        made.renew(made.library_workload)
        made.background.drop()
        shared.close()

    made.library_workload = workload(64, 64, 64)
    assert hold_and_fork([*locks, shared._lock], use) == 0


def module_locks():
    """Locks of the package's modules by module and name."""
    kinds = type(threading.Lock()), type(threading.RLock())
    loaded = {name: module for name, module in sys.modules.items() if name.startswith("gensor_")}
    return {
        (name, own): value for name in loaded for own, value in vars(loaded[name]).items() if isinstance(value, kinds)
    }


def hold_and_fork(locks, use):
    """Exit code of a child that uses locks and is forked while another thread holds them."""
    held, over = threading.Event(), threading.Event()

    def hold():
        with contextlib.ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock)
            held.set()
            over.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    try:
        return in_child(use)
    finally:
        over.set()
        holder.join()


def test_every_lock_of_a_module_is_free_in_a_child():
    # Whatever other tests have imported: every module counts, and none of them imports torch.
    for module in pkgutil.walk_packages(gensor_kernels.__path__, "gensor_kernels."):
        importlib.import_module(module.name)
    before = module_locks()
    assert len(before) >= 10

    def use():
        taken = {place: lock.acquire(timeout=0.1) for place, lock in module_locks().items()}
        assert all(taken.values()) and taken.keys() == before.keys(), taken

    assert hold_and_fork(before.values(), use) == 0


def test_a_child_computes_cached_values_itself(monkeypatch):
    """The code of a kernel, for example, while another thread reads or compiles it."""
    program, workload = Program("gemv", {"level": 0}), matmul.workload(8, 8, 8)
    reading, over = threading.Event(), threading.Event()
    slow = Kernel("slow", program, workload, lambda: (reading.set(), over.wait())[1])
    quick = Kernel("quick", program, workload, lambda: 7)
    reader = threading.Thread(target=lambda: slow.code)
    reader.start()
    reading.wait()
    monkeypatch.setattr(sys.modules[__name__], "SECONDS", 5.0)  # long enough for a child that waits for nothing
    try:
        assert in_child(lambda: check(quick.code == 7 and quick.code == 7)) == 0
    finally:
        over.set()
        reader.join()
    assert slow.code is True and quick.__dict__.get("code") is None


def test_a_race_of_another_thread_does_not_block_a_child():
    made = raced()
    products(made, 1)
    (trial,) = made.plans.values()
    with trial._turn:  # as if it raced
        assert in_child(lambda: check(products(made, 3) == [0, 55, 55])) == 0


def check(holds):
    assert holds


def test_rows_that_wait_are_written_by_the_parent_alone(monkeypatch, tmp_path):
    made = raced()
    with Store.open(tmp_path / "user.db") as store:
        store.connection.execute("BEGIN IMMEDIATE")
        products(made, 3)
        assert made.notes._waiting
        assert in_child(lambda: check(not made.notes._waiting)) == 0
        store.connection.execute("ROLLBACK")
        made.notes.flush(5.0)
        assert len(list(store.rows(Timing))) == made.device.races[0] + 1


def test_the_tuning_process_stays_the_parents(monkeypatch):
    code = 'import os, sys\nfor line in sys.stdin: os.write(1, b\'{"status": "%d"}\\n\' % os.getpid())'
    made = Worker((sys.executable, "-S", "-c", code), 30.0)
    first = made.ask({})["status"]

    def use():
        assert made.ask({})["status"] != first
        made.close()

    assert in_child(use) == 0 and in_child(made.close) == 0 and in_child(made.stop) == 0
    assert made.ask({})["status"] == first
    made.close()


def test_a_child_closes_pipes_to_the_parents_tuning_process():
    """Else that process would not see the end of its input."""
    done = program("""
        import os, time
        made, pid = tuning("import sys; sys.stdin.read()")
        child = os.fork()
        if not child:
            for each in range(3): os.close(each)
            time.sleep(60)
            os._exit(0)
        print(pid, child, flush=True)
        os.kill(os.getpid(), 9)
    """)
    worker, child = map(int, done.stdout.split())
    try:
        assert ends_soon(worker)
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_child_that_ends_like_a_program_does_not_wait():
    """`sys.exit` in a forked child runs what its parent has registered for its end."""
    done = program("""
        import os, sys, time
        made, pid = tuning()
        child = os.fork()
        if not child:
            sys.exit(7)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.kill(pid, 0)
        print(code)
    """)
    assert (done.stdout, done.stderr, done.returncode) == ("7\n", "", 0)


def test_background_tuning_starts_in_a_child(monkeypatch):
    monkeypatch.setenv("GENSOR_TUNE", "auto")
    monkeypatch.delenv("GENSOR_BACKGROUND")
    made, over, asked = raced(), threading.Event(), []
    monkeypatch.setattr(background, "tune", lambda *request: over.wait() and False)

    made.background.consider(workload(64, 64, 64))
    assert made.background._thread is not None

    def use():
        background.tune = lambda *request: asked.append(1) or False
        made.background.consider(workload(32, 32, 32))
        made.background.join(30)
        assert asked

    assert in_child(use) == 0
    over.set()
    made.background.join(30)


# ---- ends of programs


KILLED = "import os, signal; signal.signal({0}, signal.SIG_DFL); os.kill(os.getpid(), {0})"  # nohup may ignore it
#: The last statement of a program -> (its exit code, tracebacks)
ENDS = {
    "": (0, 0),
    "raise SystemExit(3)": (3, 0),
    "1 / 0": (1, 1),
    "import signal; signal.raise_signal(2)": (-2, 1),
    "import os; os.kill(os.getpid(), 9)": (-9, 0),
    KILLED.format(1): (-1, 0),
    KILLED.format(15): (-15, 0),
}


@pytest.mark.parametrize("end", sample(list(ENDS), 2))
def test_a_program_that_ends_while_it_tunes_does_not_wait(end):
    code, tracebacks = ENDS[end]
    done = program(f"""
        made, pid = tuning({"'import sys; sys.stdin.read()'" if "os.kill" in end else ""})
        print(pid, flush=True)
        {end}
    """)
    assert done.returncode == code and ends_soon(int(done.stdout))
    assert done.stderr.count("Traceback") == tracebacks, done.stderr
    assert "gensor" not in done.stderr.lower() and "Fatal" not in done.stderr


def test_the_kernel_that_was_tried_at_the_end_is_not_to_blame(tmp_path):
    done = program(
        """
        import time
        made, pid = tuning("import json, time; print(json.dumps({'trying': 'd' * 64}), flush=True); time.sleep(600)")
        time.sleep(0.5)
        """,
        environment={"GENSOR_DB": str(tmp_path / "user.db")},
    )
    assert (done.returncode, done.stderr) == (0, "")
    with Store.open(tmp_path / "user.db") as store:
        assert not list(store.rows(Verification))


def test_calls_at_exit_are_served(tmp_path):
    """Although no thread can be started then."""
    done = program("""
        import atexit
        from gensor_kernels.dispatch.plans import trial
        made = raced()
        made.device.clock.ours = 50.0
        atexit.register(lambda: print(products(made, trial.HOT_RUN + 2)[-1]))
    """)
    assert done.stdout.splitlines() == ["0.0"] and done.returncode == 0 and not done.stderr


def test_no_thread_can_be_started(monkeypatch, caplog):
    monkeypatch.setenv("GENSOR_TUNE", "auto")

    def refuse(self):
        raise RuntimeError("can't start new thread")

    from gensor_kernels.dispatch.plans import trial as plans_trial

    made = raced()
    made.device.clock.ours = 50.0
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert products(made, plans_trial.HOT_RUN + 2) == [0.0] * (plans_trial.HOT_RUN + 2)
    assert made.background._thread is None
