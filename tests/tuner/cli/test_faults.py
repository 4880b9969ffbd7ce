"""gensor-tune interrupted, without threads, semaphores or output; its walkers, compilers and requests failing."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from unittest.mock import Mock

import pytest

from gensor_database import Record, Store
from gensor_kernels.build.parallel import ordered_map
from gensor_kernels.operators.products import matmul
from gensor_tuner.cli import STOPPED
from gensor_tuner.run import worker
from gensor_tuner.tasks import local
from gensor_tuner.tasks.local import Local
from tests.dispatch.tuning.test_faults_worker import ends_soon
from tests.doubles.schedulers import until
from tests.doubles.tasks import Counted

COUNT = 8
TASKS = [Counted(number) for number in range(COUNT)]
MAIN = "from gensor_tuner.cli.start import main; main()"


def started(code, *arguments, **options):
    """A process of Python whose outputs are read."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", code, *arguments], **pipes, **options)


def printed(code, environment=os.environ):
    """What a process of Python prints until it ends well."""
    child = started(code, env=environment)
    out, err = child.communicate(timeout=120)
    assert child.returncode == 0, err
    return out


@pytest.mark.parametrize("delay", [0.0, 1.0, 4.0])
def test_ctrl_c_says_what_is_kept_and_leaves_nothing_running(delay, tmp_path):
    (tmp_path / "temporary").mkdir()
    rows = "".join(f"matmul,{16 * i},16,32,fp64\n" for i in range(1, 9))
    (tmp_path / "shapes.csv").write_text("op,m,n,k,dtype\n" + rows)
    command = ["--arch", "sm_87", "--shapes", "shapes.csv", "--db", "k.db", "--measure", "never", "--jobs", "2"]
    environment = os.environ | {"TMPDIR": str(tmp_path / "temporary")}
    child = started(MAIN, *command, cwd=tmp_path, start_new_session=True, env=environment)
    assert child.stderr.readline()
    time.sleep(delay)
    os.killpg(child.pid, signal.SIGINT)
    out, err = child.communicate(timeout=120)
    if child.returncode == 0:
        return  # a fast machine had ended before
    assert child.returncode in (130, -signal.SIGINT)
    assert "Traceback" not in err and err.endswith("run the same command again to go on\n"), err
    assert re.search(r"compilations?\n", err)  # the summary
    for line in subprocess.run(["ps", "-A", "-o", "pid=,pgid="], capture_output=True, text=True).stdout.splitlines():
        pid, group = map(int, line.split())
        assert group != child.pid or ends_soon(pid)
    until(lambda: not list((tmp_path / "temporary").iterdir()))
    reported = sum(" ok " in line for line in out.splitlines())
    if (tmp_path / "k.db").exists():
        with Store.open(tmp_path / "k.db") as store:
            assert len(list(store.rows(Record))) >= reported


COMPILING = """
import sys
from gensor_tuner.cli import start
start.keep_interrupts()
from gensor_kernels.build import nvrtc
source = "".join("struct S%d { int a; };" % number for number in range(100_000))  # seconds in the front end alone
print("compiling", flush=True)
try:
    nvrtc.compile_many([(source, "sm_87")])
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_ctrl_c_is_not_taken_by_nvrtc():
    """Its front end would end the process, with exit code 4."""
    child = started(COMPILING)
    assert child.stdout.readline() == "compiling\n"
    time.sleep(0.5)
    child.send_signal(signal.SIGINT)
    assert child.wait(60) == 130


def test_no_library_starts_threads_before_the_signal_is_blocked():
    """Threads inherit the mask: one of NumPy's that does not block the signal would run NVRTC's handler."""
    assert printed("import sys, gensor_tuner.cli.start; print('numpy' in sys.modules)") == "False\n"


WALKING = """
import os, pathlib, sys
from gensor_tuner.cli import start

def run():
    from gensor_tuner.tasks.local import Local
    from tests.doubles.tasks import Counted
    with Local(2) as executor:
        executor.map([Counted(number) for number in range(8)])
        tasks = [path for pid in ["self", *start.descendants(os.getpid())]
                 for path in pathlib.Path(f"/proc/{pid}/task").iterdir()]
        told = [dict(line.split(":", 1) for line in (path / "status").read_text().splitlines()) for path in tasks]
    taken = [not (int(each["SigBlk"], 16) | int(each["SigIgn"], 16)) >> 1 & 1 for each in told]
    print(len(taken) > 4, sum(taken))

if __name__ == "__main__":
    start.keep_interrupts()
    run()
"""


def test_processes_that_walk_leave_the_signal_blocked_in_every_thread(tmp_path):
    """Every thread of the command and of its walkers blocks SIGINT; only sigwait takes it.

    CPython's resource tracker unblocks it in the thread that starts the tracker.
    """
    (tmp_path / "walking.py").write_text(WALKING)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, tmp_path / "walking.py"], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "True 1\n"


COUNTING = """
import os, sys, types
from gensor_tuner.cli import start
def run():
    before = len(os.listdir("/proc/self/task"))
    import numpy
    numpy.ones((500, 500)) @ numpy.ones((500, 500))
    print(len(os.listdir("/proc/self/task")) - before)
sys.modules["gensor_tuner.cli.app"] = types.SimpleNamespace(main=run)
start.main()
"""


@pytest.mark.parametrize("asked", [None, "2"])
def test_blas_has_no_threads_that_wait_at_full_speed(asked):
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    environment |= {} if asked is None else {"OPENBLAS_NUM_THREADS": asked}
    assert int(printed(COUNTING, environment)) == (0 if asked is None else 1)


LEAVING = """
import subprocess, sys, threading, time
from gensor_tuner.cli import app, start
def run():
    threading.Thread(target=time.sleep, args=(3600,)).start()  # a compilation that takes long
    print(subprocess.Popen(["sleep", "3600"]).pid, flush=True)
    raise KeyboardInterrupt
app.main = run
start.main()
"""


def test_ctrl_c_waits_for_no_thread_and_leaves_no_child():
    child = started(LEAVING)
    out, err = child.communicate(timeout=120)  # the pipes are closed once the child's child is gone, too
    assert child.returncode == 130 and err == f"{STOPPED}\n"
    assert ends_soon(int(out))


ALONE = """
import os, time
from gensor_tuner.cli import start
from gensor_tuner.tasks.local import Local
from tests.doubles.tasks import Counted
with Local(2) as executor:
    executor.map([Counted(number) for number in range(8)])
    print(*start.descendants(os.getpid()), flush=True)
    time.sleep(60)
"""


def test_walkers_end_with_a_command_that_is_killed_alone():
    with started(ALONE, start_new_session=True) as child:
        walkers = list(map(int, child.stdout.readline().split()))
        child.kill()
    assert len(walkers) >= 2 and all(ends_soon(walker, 60.0) for walker in walkers)


def test_ctrl_c_that_is_ignored_stays_ignored():
    """As in what a shell runs in the background."""
    before = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN)"
    after = "import gensor_tuner.cli.start as s; s.keep_interrupts(); print(1, flush=True); time.sleep(0.5)"
    child = started(f"{before}; {after}")
    assert child.stdout.readline() == "1\n"
    child.send_signal(signal.SIGINT)
    assert child.wait(60) == 0


def test_walks_go_on_in_one_process_where_others_cannot_be_started(monkeypatch, capsys):
    """As without /dev/shm: semaphores are refused."""
    monkeypatch.setattr(local, "ProcessPoolExecutor", Mock(side_effect=OSError(38, "Function not implemented")))
    with Local(2) as executor:
        assert executor.map(TASKS) == list(range(COUNT))
    assert "walks go on in one process" in capsys.readouterr().err


def test_walks_go_on_where_a_walker_is_killed(capsys):
    with Local(2) as executor:

        def kill(index, _):
            for process in executor._processes if index == 0 else ():
                process.kill()

        assert executor.map(TASKS, kill) == list(range(COUNT))
        assert executor.map(TASKS) == list(range(COUNT))
    assert "walks go on in one process" in capsys.readouterr().err


def test_threads_that_cannot_be_started_are_done_without(monkeypatch):
    started = []

    def refuse(self):
        if started:
            raise RuntimeError("can't start new thread")
        started.append(self)
        return begin(self)

    begin = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert ordered_map(lambda x: (time.sleep(0.01), x * x)[1], [3, 1, 3, 2, 5], 4) == [9, 1, 9, 4, 25]
    assert ordered_map(lambda x: x * x, [3, 1, 3, 2, 5], 4) == [9, 1, 9, 4, 25]


@pytest.mark.parametrize("running", [False, True])
def test_an_error_nobody_foresaw_blames_only_a_kernel_that_runs(running, tmp_path):
    code = f"""
from gensor_tuner.run import worker
def answer(request, say):
    say({{"trying": {"'" + "d" * 64 + "'" if running else None}}})
    raise RuntimeError("an illegal memory access")
worker.answer = answer
worker.main()
"""
    done = subprocess.run([sys.executable, "-c", code], input="{}\n", capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout.count('"status":"failed"') == (not running)


@pytest.mark.parametrize("error", [MemoryError("no memory"), OSError(28, "No space left on device")])
def test_a_machine_that_lacks_something_is_an_answer(error, monkeypatch, tmp_path):
    monkeypatch.setattr(worker, "open_timer", Mock(side_effect=error))
    workload = matmul.workload(16, 16, 32, dtype="float64")
    request = {"workload": json.loads(workload.key()), "arch": "sm_87", "db": str(tmp_path / "user.db")}
    found = worker.answer(request)
    assert found["status"] == "failed" and str(error) in found["error"]
