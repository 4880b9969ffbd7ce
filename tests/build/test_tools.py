"""Programs of a toolchain: nothing of them outlives the process that runs them."""

import os
import signal
import subprocess
import sys
import time

import pytest

from gensor_kernels.build import tools
from gensor_kernels.errors import MachineError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the emulator runs on Linux")

#: A compiler that leaves a file in its temporary folder, and a child that waits.
TOOL = 'echo >"$TMPDIR/cc1.s"; sleep 3600 & echo $$ $! >pids.new; mv pids.new pids; wait'
RUNNING = f"""
import sys, threading
from gensor_kernels.build import tools
threading.Thread(target=tools.run, args=(["sh", "-c", {TOOL!r}],)).start()
"""


def ended(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


def waited(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL, "ctrl-c"])
def test_a_compiler_ends_with_its_process_and_leaves_no_file(end, tmp_path):
    (tmp_path / "temporary").mkdir()
    last = "waited_leave()" if end == "ctrl-c" else ""
    code = (
        RUNNING
        + """
import os, time
def waited_leave():
    from gensor_tuner.cli.start import leave
    while not os.path.exists("pids"):
        time.sleep(0.01)
    leave()
"""
        + last
    )
    environment = os.environ | {"TMPDIR": str(tmp_path / "temporary")}
    child = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=environment)
    waited((tmp_path / "pids").exists)
    pids = (tmp_path / "pids").read_text().split()
    if end != "ctrl-c":
        child.send_signal(end)
    assert child.wait(60) == (130 if end == "ctrl-c" else -end)
    waited(lambda: all(map(ended, pids)) and not list((tmp_path / "temporary").iterdir()))


def test_descriptors_that_are_passed_on_keep_their_numbers(tmp_path):
    """Of the smallest numbers, too, which shells have names for."""
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


def test_a_tool_gets_text_and_answers_in_english(monkeypatch):
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    done = tools.run(["sh", "-c", "cat; echo $LC_ALL >&2; kill -9 $$"], "text\n")
    assert (done.stdout, done.stderr[:2], done.returncode) == ("text\n", "C\n", 128 + 9)


@pytest.mark.parametrize("what", ["folder", "program"])
def test_what_cannot_run_is_an_error_of_the_machine(what, monkeypatch):
    monkeypatch.setattr(tools.tempfile, "tempdir", "/nowhere") if what == "folder" else monkeypatch.setenv("PATH", "")
    words = (
        r"temporary folder cannot be written \(No such .*set TMPDIR"
        if what == "folder"
        else "cannot be started: No such"
    )
    with pytest.raises(MachineError, match=words):
        tools.run(["true"])
