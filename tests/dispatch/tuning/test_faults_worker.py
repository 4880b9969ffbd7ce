"""A tuning process that misbehaves at the start, in the middle and at the end of an answer: an error that says so, the
right kernel to blame, a fresh process for the next request, and nothing left behind."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from gensor_kernels.dispatch.tuning import worker
from gensor_kernels.dispatch.tuning.worker import Ended, Worker, WorkerError
from tests.threads import in_threads

DIGEST = "d" * 64
PATIENCE = 2.0

#: What a process does in the place of its next message. Those of the second group end as no kernel can end them.
BLAMED = {
    "exits": "raise SystemExit(3)",
    "ends as if all were well": "os._exit(0)",
    "crashes": "os.kill(os.getpid(), signal.SIGSEGV)",
    "aborts": "os.abort()",
    "closes its output": "os.close(1); time.sleep(60)",
    "hangs": "time.sleep(60)",
    "hangs and ignores signals": "signal.signal(15, signal.SIG_IGN); signal.signal(2, signal.SIG_IGN); time.sleep(60)",
    "stops": "os.kill(os.getpid(), signal.SIGSTOP)",
    "half a line": "os.write(1, b'{\"status\": ')",
    "no end of a line": "os.write(1, b'x' * 3_000_000)",
    "no end of lines": "while True: os.write(1, b'not json\\n')",
    "a drop at a time": "while True: os.write(1, b'{'); time.sleep(0.05)",
    "bytes that are no text": "os.write(1, bytes(range(128, 256)) + b'\\n')",
    "zeros": "os.write(1, bytes(5000) + b'\\n')",
    "a list": "os.write(1, b'[]\\n')",
    "a number": "os.write(1, b'17\\n')",
    "a deep nest": "os.write(1, b'[' * 500_000 + b'\\n')",
    "an endless number": "os.write(1, b'9' * 500_000 + b'\\n')",
    "an object without a word we know": "os.write(1, b'{\"ok\": true}\\n')",
    "a number for a kernel": "os.write(1, b'{\"trying\": 3}\\n')",
    "text that is no digest": 'os.write(1, b\'{"trying": "../../x"}\\n\')',
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
def started(tmp_path):
    """started(code, ...) -> a Worker of processes that run it; all are gone at the end."""
    made = []

    def start(code, patience=PATIENCE):
        made.append(Worker((sys.executable, "-S", "-c", code), patience))
        return made[-1]

    yield start
    for each in made:
        each.close()


@pytest.mark.parametrize("stage", BEFORE)
@pytest.mark.parametrize("kind", [*BLAMED, *UNBLAMED])
def test_misbehaviour_is_an_error_and_the_next_process_a_fresh_one(kind, stage, started, tmp_path):
    instead = (BLAMED | UNBLAMED)[kind]
    made = started(PROCESS.format(flag=str(tmp_path / "once"), before=BEFORE[stage], instead=instead))
    began = time.monotonic()
    with pytest.raises(WorkerError) as caught:
        made.ask({})
    assert time.monotonic() - began < PATIENCE + worker.LAST_SECONDS
    assert caught.value.trying == (DIGEST if stage == "middle" and kind in BLAMED else None)
    assert isinstance(caught.value, Ended) == (kind in UNBLAMED)
    assert str(caught.value).startswith("the tuning process ") and len(str(caught.value)) < 200
    assert made.ask({}) == {"status": "ok"}


def test_a_hanging_process_takes_its_own_along(started, tmp_path):
    """A compiler, say, that would go on working for nobody."""
    code = f"""
import os, time
if not os.fork():
    open({str(tmp_path / "pid")!r}, "w").write(str(os.getpid()))
time.sleep(60)
"""
    made = started(code, patience=3.0)
    with pytest.raises(WorkerError, match=r"did not answer within 3 s"):
        made.ask({})
    assert gone(int((tmp_path / "pid").read_text()))


def gone(pid, seconds=5.0):
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


def test_ctrl_c_ends_the_process_and_the_next_answer_is_the_next_ones(started, tmp_path):
    code = """
import json, os, sys, time
for line in sys.stdin:
    request = json.loads(line)
    if "wait" in request:
        time.sleep(request["wait"])
    os.write(1, json.dumps({"status": request["name"], "pid": os.getpid()}).encode() + b"\\n")
"""
    made = started(code, patience=30.0)
    first = made.ask({"name": "first"})["pid"]
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        made.ask({"name": "late", "wait": 20})
    assert gone(first)
    assert made.ask({"name": "second"})["status"] == "second"


def test_requests_of_many_threads_get_their_own_answers(started):
    code = """
import json, os, sys
for line in sys.stdin:
    os.write(1, json.dumps({"trying": None}).encode() + b"\\n")
    os.write(1, json.dumps({"status": json.loads(line)["name"]}).encode() + b"\\n")
"""
    made, found = started(code, patience=30.0), {}

    def ask(name):
        found[name] = [made.ask({"name": f"{name}.{index}"})["status"] for index in range(20)]

    in_threads(ask, range(8))
    assert found == {name: [f"{name}.{index}" for index in range(20)] for name in range(8)}


@pytest.mark.parametrize(
    "error", [OSError(24, "Too many open files"), OSError(12, "Cannot allocate memory"), RuntimeError("no fork now")]
)
def test_a_process_that_cannot_be_started_is_an_error_like_others(error, started, monkeypatch):
    def refuse(*arguments, **keywords):
        raise error

    made = started("")
    monkeypatch.setattr(worker.subprocess, "Popen", refuse)
    with pytest.raises(WorkerError, match=r"^the tuning process cannot be started: (Too many|Cannot alloc|no fork)"):
        made.ask({})


def test_a_command_that_is_not_there():
    with pytest.raises(WorkerError, match="cannot be started: No such file"):
        Worker(("/no/such/python",)).ask({})


def test_stop_does_not_wait_for_an_answer_and_is_for_good(started):
    made, caught = started("import time; time.sleep(60)", patience=60.0), []

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


def test_the_clock_may_jump(started, monkeypatch):
    """Patience is measured by a clock that nobody sets."""
    made = started('import os, time; time.sleep(0.5); os.write(1, b\'{"status": "ok"}\\n\')', patience=30.0)
    real, offsets = time.time, iter([0, -(10**9), 10**9] * 1000)
    monkeypatch.setattr(time, "time", lambda: real() + next(offsets))
    assert made.ask({})["status"] == "ok"
