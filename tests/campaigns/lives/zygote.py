"""Lives of gensor-tune at a fraction of a second each: a process that has everything imported forks one per request.

A request is a line of JSON on stdin, {"scene": a function of scenes.py, "arguments": [...], "gate": [...], "output":
folder}; the answer is {"status": of waitpid, "calls": counted by the gate}.
Walks and compilations of requests with "warm" are remembered by the lives after it, which are then as long as what
they do to the database; and no life waits long for a lock, which only a failing call can be holding.
"""

import ctypes
import functools
import importlib
import json
import os
import signal
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path

from gensor_database import Store
from gensor_kernels.build import nvrtc
from gensor_tuner.strategies import request as request_module

#: Seconds that a life waits for a lock, and of a whole life.
PATIENCE, LIMIT = 0.3, 60.0


def serve() -> None:
    gate = ctypes.CDLL(os.environ.pop("LD_PRELOAD"))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    request_module.search = functools.cache(request_module.search)
    nvrtc.compile_cubin = functools.cache(nvrtc.compile_cubin)
    opened = Store.__init__
    Store.__init__ = lambda store, *rest: opened(store, *rest[:-1], min(rest[-1], PATIENCE))
    for line in sys.stdin:
        request = json.loads(line)
        if request.get("warm"):
            run(request["scene"], request["arguments"])
            sys.stdout.flush()  # what a child inherits unwritten it would write again
            print("{}", file=answers, flush=True)
            continue
        child = os.fork()
        if child == 0:
            live(gate, request)
        print(json.dumps({"status": wait_for(child), **calls(request)}), file=answers, flush=True)


def run(scene: str, arguments: list) -> None:
    getattr(importlib.import_module("tests.campaigns.lives.scenes"), scene)(*arguments)


def live(gate: ctypes.CDLL, request: dict) -> None:
    """The life of a child: it ends as an interpreter would, but for what the parent has registered to be done then."""
    output, code = Path(request["output"]), 0
    os.setsid()
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(output / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    folder, acks, log, at, action, failure = request["gate"]
    gate.gate(*(os.fsencode(each) for each in (folder, acks, log)), ctypes.c_long(at), action, failure)
    try:
        run(request["scene"], request["arguments"])
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    gate.gate_count.restype = ctypes.c_long
    counted = output / "counted"
    counted.write_text(str(gate.gate_count()))
    counted.rename(output / "calls")  # a life may be killed while it writes
    os._exit(code)


def wait_for(child: int) -> int:
    """How a child ended; one that takes too long is killed, which shows as SIGALRM."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        time.sleep(0.002)
    for kill in (os.kill, os.killpg):  # its group may not exist yet
        with suppress(ProcessLookupError):
            kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return signal.SIGALRM


def calls(request: dict) -> dict:
    path = Path(request["output"], "calls")
    return {"calls": int(path.read_text())} if path.exists() else {}


if __name__ == "__main__":
    serve()
