"""Schedulers and workers of Dask as a user starts them: processes on the loopback."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@contextlib.contextmanager
def process(*command, log=os.devnull, **environment):
    """A process that is gone afterwards, with its children; `log` is the file of what it says on stderr."""
    with open(log, "wb") as said:
        child = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=subprocess.DEVNULL,
            stderr=said,
            start_new_session=True,
        )
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


@contextlib.contextmanager
def scheduler(port, *options, **environment):
    command = ("distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", port, "--no-dashboard", *options)
    with process(*map(str, command), **environment) as child:
        until(lambda: listens(port))
        yield child


@contextlib.contextmanager
def workers(port, count, *options, folder, preload="tests.doubles.fleet", **environment):
    address = f"tcp://127.0.0.1:{port}"
    command = ["distributed.cli.dask_worker", address, "--nworkers", count, "--nthreads", 1, "--no-dashboard"]
    command += ["--local-directory", folder, "--preload", preload, *options]
    with process(*map(str, command), **environment) as child:
        yield child


def listens(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def until(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.05)


def children(parent):
    """Processes below a process, with their command lines."""
    found, below = [], {parent}
    listed = {}
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError):
            with open(f"/proc/{int(entry)}/stat", encoding="utf-8") as file:
                above = int(file.read().rpartition(")")[2].split()[1])
            with open(f"/proc/{entry}/cmdline", encoding="utf-8") as file:
                listed[int(entry)] = above, file.read()
    for pid, (above, name) in sorted(listed.items()):
        if above in below:
            below.add(pid)
            found.append((pid, name))
    return found


def alive(pid):
    """Whether a process is there, and no zombie."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return file.read().rpartition(")")[2].split()[0] != "Z"
    return False
