"""A tuning process that fails at the start, in the middle and at the end of an answer: the error, the kernel to blame,
a new process for the next request, and no process that remains."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from gensor_kernels.dispatch.tuning import worker
from gensor_kernels.dispatch.tuning.worker import Ended, Worker, WorkerError
from tests.campaign_size import sample
from tests.threads import in_threads

DIGEST = "d" * 64
PATIENCE = 2.0

#: Actions of a process in place of its next message; no kernel can cause those of the second group.
BLAMED = {
    "exits": "raise SystemExit(3)",
    "exits without an error": "os._exit(0)",
    "crashes": "os.kill(os.getpid(), signal.SIGSEGV)",
    "aborts": "os.abort()",
    "closes its output": "os.close(1); time.sleep(60)",
    "hangs": "time.sleep(60)",
    "hangs and ignores signals": "signal.signal(15, signal.SIG_IGN); signal.signal(2, signal.SIG_IGN); time.sleep(60)",
    "stops": "os.kill(os.getpid(), signal.SIGSTOP)",
    "half a line": "os.write(1, b'{\"status\": ')",
    "an endless line": "os.write(1, b'x' * 3_000_000)",
    "endless lines": "while True: os.write(1, b'not json\\n')",
    "a byte at a time": "while True: os.write(1, b'{'); time.sleep(0.05)",
    "bytes that are no text": "os.write(1, bytes(range(128, 256)) + b'\\n')",
    "zeros": "os.write(1, bytes(5000) + b'\\n')",
    "a list": "os.write(1, b'[]\\n')",
    "a number": "os.write(1, b'17\\n')",
    "deep nesting": "os.write(1, b'[' * 500_000 + b'\\n')",
    "an endless number": "os.write(1, b'9' * 500_000 + b'\\n')",
    "an object of unknown words": "os.write(1, b'{\"ok\": true}\\n')",
    "a number for a kernel": "os.write(1, b'{\"trying\": 3}\\n')",
    "a path for a digest": 'os.write(1, b\'{"trying": "../../x"}\\n\')',
    "a traceback": "1 / 0",
}
UNBLAMED = {
    "is killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "is terminated": "os.kill(os.getpid(), signal.SIGTERM)",
}
BEFORE = {
    "start": "",
    "middle": f'os.write(1, b\'{{"trying": "{DIGEST}"}}\\n\')',
    "end": f'os.write(1, b\'{{"trying": "{DIGEST}"}}\\n{{"trying": null}}\\n\')',
}
PROCESS = """
import os, signal, sys, time
sys.stdin.readline()
if os.path.exists({flag!r}):
    os.write(1, b'{{"status": "ok"}}\\n')
    sys.stdin.readline()
    raise SystemExit
open({flag!r}, "w").close()
os.write(1, b"a library's chatter\\n")
{before}
{instead}
"""


@pytest.fixture
def start_worker(tmp_path):
    """started(code, ...) -> a Worker of processes that run it; all are gone at the end."""
    made = []

    def start(code, patience=PATIENCE):
        made.append(Worker((sys.executable, "-S", "-c", code), patience))
        return made[-1]

    yield start
    for each in made:
        each.close()


FAULTS = [(kind, stage) for kind in (*BLAMED, *UNBLAMED) for stage in BEFORE]


@pytest.mark.parametrize(("kind", "stage"), sample(FAULTS, 12))
def test_a_fault_is_an_error_and_the_next_request_has_a_new_process(kind, stage, start_worker, tmp_path):
    instead = (BLAMED | UNBLAMED)[kind]
    made = start_worker(PROCESS.format(flag=str(tmp_path / "once"), before=BEFORE[stage], instead=instead))
    began = time.monotonic()
    with pytest.raises(WorkerError) as caught:
        made.ask({})
    assert time.monotonic() - began < PATIENCE + worker.LAST_SECONDS
    assert caught.value.trying == (DIGEST if stage == "middle" and kind in BLAMED else None)
    assert isinstance(caught.value, Ended) == (kind in UNBLAMED)
    assert str(caught.value).startswith("the tuning process ") and len(str(caught.value)) < 200
    assert made.ask({}) == {"status": "ok"}


def test_children_of_a_hanging_process_are_killed(start_worker, tmp_path):
    """A compiler, for example."""
    code = f"""
import os, time
if not os.fork():
    open({str(tmp_path / "pid")!r}, "w").write(str(os.getpid()))
time.sleep(60)
"""
    made = start_worker(code, patience=3.0)
    with pytest.raises(WorkerError, match=r"did not answer within 3 s"):
        made.ask({})
    assert ends_soon(int((tmp_path / "pid").read_text()))


def ends_soon(pid, seconds=5.0):
    """Whether a process ends soon; a zombie has."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text():
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def test_ctrl_c_ends_the_process_and_its_answer_is_not_taken_for_the_next(start_worker, tmp_path):
    code = """
import json, os, sys, time
for line in sys.stdin:
    request = json.loads(line)
    if "wait" in request:
        time.sleep(request["wait"])
    os.write(1, json.dumps({"status": request["name"], "pid": os.getpid()}).encode() + b"\\n")
"""
    made = start_worker(code, patience=30.0)
    first = made.ask({"name": "first"})["pid"]
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        made.ask({"name": "late", "wait": 20})
    assert ends_soon(first)
    assert made.ask({"name": "second"})["status"] == "second"


def test_one_process_answers_requests_of_many_threads(start_worker):
    code = """
import json, os, sys
for line in sys.stdin:
    os.write(1, json.dumps({"trying": None}).encode() + b"\\n")
    os.write(1, json.dumps({"status": json.loads(line)["name"], "pid": os.getpid()}).encode() + b"\\n")
"""
    made, answers, pids = start_worker(code, patience=30.0), {}, set()

    def ask(name):
        given = [made.ask({"name": f"{name}.{index}"}) for index in range(20)]
        answers[name] = [each["status"] for each in given]
        pids.update(each["pid"] for each in given)

    in_threads(ask, range(8))
    assert answers == {name: [f"{name}.{index}" for index in range(20)] for name in range(8)}
    (pid,) = pids
    made.close()
    assert ends_soon(pid) and made.ask({"name": "more"})["pid"] != pid  # another process


def test_a_process_that_cannot_be_started(start_worker, monkeypatch):
    with pytest.raises(WorkerError, match="cannot be started: No such file"):
        Worker(("/no/such/python",)).ask({})
    for error in (OSError(24, "Too many open files"), OSError(12, "Cannot allocate memory"), RuntimeError("no fork")):

        def refuse(*arguments, error=error, **keywords):
            raise error

        monkeypatch.setattr(worker.subprocess, "Popen", refuse)
        with pytest.raises(WorkerError, match=r"^the tuning process cannot be started: (Too many|Cannot al|no fork)"):
            start_worker("").ask({})


def test_stop_does_not_wait_for_an_answer(start_worker):
    made, caught = start_worker("import time; time.sleep(60)", patience=60.0), []

    def ask():
        try:
            made.ask({})
        except WorkerError as error:
            caught.append(error)

    waiting = threading.Thread(target=ask)
    waiting.start()
    while made._process is None:
        time.sleep(0.01)
    began = time.monotonic()
    made.stop()
    waiting.join(5.0)
    assert time.monotonic() - began < 5.0 and not waiting.is_alive()
    assert isinstance(caught[0], Ended) and caught[0].trying is None
    with pytest.raises(Ended, match="this program ends"):
        made.ask({})


def test_the_clock_may_jump(start_worker, monkeypatch):
    """Patience is measured by a monotonic clock."""
    made = start_worker('import os, time; time.sleep(0.5); os.write(1, b\'{"status": "ok"}\\n\')', patience=30.0)
    real, offsets = time.time, iter([0, -(10**9), 10**9] * 1000)
    monkeypatch.setattr(time, "time", lambda: real() + next(offsets))
    assert made.ask({})["status"] == "ok"
