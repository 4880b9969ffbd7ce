"""Programs of a toolchain: nothing of them outlives the process that runs them."""

import errno
import os
import signal
import subprocess
import sys
import tempfile

import pytest

from gensor_kernels.build import tools
from gensor_kernels.errors import MachineError
from tests.doubles.schedulers import alive, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the emulator runs on Linux")

#: A compiler that leaves a file in its temporary folder, and a child that waits.
TOOL = 'echo >"$TMPDIR/cc1.s"; sleep 3600 & echo $$ $! >pids.new; mv pids.new pids; wait'
RUNNING = f"""
import signal, sys, threading
from gensor_kernels.build import tools
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which nohup has set to be ignored
threading.Thread(target=tools.run, args=(["sh", "-c", {TOOL!r}],)).start()
"""


WAIT_AND_LEAVE = """
import os, time
from gensor_tuner.cli.start import leave
while not os.path.exists("pids"):
    time.sleep(0.01)
leave()
"""


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL, "ctrl-c"])
def test_a_compiler_ends_with_its_process_and_leaves_no_file(end, tmp_path):
    (tmp_path / "temporary").mkdir()
    code, environment = RUNNING, os.environ | {"TMPDIR": str(tmp_path / "temporary")}
    code += WAIT_AND_LEAVE if end == "ctrl-c" else ""
    child = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=environment)
    until((tmp_path / "pids").exists)
    pids = (tmp_path / "pids").read_text().split()
    if end != "ctrl-c":
        child.send_signal(end)
    assert child.wait(60) == (130 if end == "ctrl-c" else -end)
    until(lambda: not any(map(alive, pids)) and not list((tmp_path / "temporary").iterdir()))


def test_descriptors_that_are_passed_on_keep_their_numbers(tmp_path):
    """Shells have names for the smallest ones."""
    code = """
import os
from gensor_kernels.build import tools
for number in range(3, 12):
    os.dup2(os.open(".", os.O_RDONLY), number)
for number in range(3, 12):
    tools.run(["touch", f"/proc/self/fd/{number}/{number}"], pass_fds=[number])
"""
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert {each.name for each in tmp_path.iterdir()} == set(map(str, range(3, 12)))


def test_no_child_is_left_for_process_1():
    """In a container it may be the program itself, and wait for none but its own children."""
    code = """
import ctypes, os
from gensor_kernels.build import tools
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: orphans become children of this process
done = tools.run(["sh", "-c", "exit 3"])
try:
    print(os.waitpid(-1, 0))
except ChildProcessError:
    print(done.returncode, repr(done.stderr))
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "3 ''\n"


def test_a_tool_gets_text_and_answers_in_english(monkeypatch):
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    done = tools.run(["sh", "-c", "cat; echo $LC_ALL >&2; kill -9 $$"], "text\n")
    assert (done.stdout, done.stderr[:2], done.returncode) == ("text\n", "C\n", 128 + 9)


def test_what_cannot_run_is_an_error_of_the_machine(monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(subprocess, "run", refuse)
    with pytest.raises(MachineError, match="true cannot be started: Resource temporarily unavailable"):
        tools.run(["true"])
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    with pytest.raises(MachineError, match=r"temporary folder cannot be written \(No such .*set TMPDIR"):
        tools.run(["true"])
