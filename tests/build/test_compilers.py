"""Processes that compile in parallel with this one: the same bytes, also after the death of a process."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from gensor_kernels.build import nvrtc
from gensor_kernels.build.compilers import CompileProcess, Compilers, Lost
from tests.doubles.emulated_kernels import toy
from tests.doubles.schedulers import alive, until

KERNEL = toy("two_entries")
SOURCES = [f"#define REGISTERS {n}\n{KERNEL}" for n in (4, 8, 12)]
VERSION = nvrtc.version(nvrtc._nvrtc())


@pytest.fixture
def own(monkeypatch):
    """Compilers of this test alone."""
    made = Compilers()
    monkeypatch.setattr(nvrtc, "COMPILERS", made)
    yield made
    made.close()
    assert not made._all and not made._here


@contextmanager
def one_started(own):
    with own.allow(1), own.lend(VERSION):
        with own.lend(VERSION) as started:
            assert own._all == [started] and not own._idle
        yield started


@pytest.fixture
def process():
    made = CompileProcess(VERSION)
    yield made
    made.close()


def test_a_process_compiles_the_same_bytes(process):
    for source in (*SOURCES, "int x = ;"):
        library = nvrtc._nvrtc()
        assert process.compile(source.encode(), "sm_87") == nvrtc.compile_text(library, source.encode(), "sm_87")


def test_threads_compile_in_several_processes(own):
    alone = [nvrtc.compile_cubin(source, "sm_87") for source in SOURCES]
    assert not own._all  # a single compilation starts none
    assert nvrtc.compile_many([(source, "sm_87") for source in SOURCES], 1) == alone and not own._all
    with own.allow(2), own.lend(VERSION) as first:
        assert first is None  # this process
        assert nvrtc.compile_many([(source, "sm_87") for source in SOURCES], 3) == alone
        assert 1 <= len(own._all) <= 2 and own._idle


@pytest.mark.parametrize("when", ["waiting", "working"])
def test_a_source_of_a_dead_process_is_compiled_here(own, when, monkeypatch):
    sent = CompileProcess._send

    def killed(self, block):
        sent(self, block)
        os.kill(self._process.pid, signal.SIGKILL)

    with one_started(own) as started:
        if when == "waiting":
            started._process.kill()
            started._process.wait()
        else:
            monkeypatch.setattr(CompileProcess, "_send", killed)
        binary = nvrtc.compile_cubin(SOURCES[0], "sm_87")
        assert not own._all and started._process.returncode is not None
    assert binary == nvrtc.compile_cubin(SOURCES[0], "sm_87") and binary.error is None


def test_no_process_without_an_interpreter_or_with_another_nvrtc(own, monkeypatch):
    with pytest.raises(Lost, match="NVRTC"):
        CompileProcess("11.0")
    for name in ("", "/no/python", None):
        monkeypatch.setattr(sys, "executable", name)
        with pytest.raises(Lost):
            CompileProcess(VERSION)
    with own.allow(1), own.lend(VERSION), own.lend(VERSION) as second:
        assert second is None


def test_an_answer_that_is_no_answer_is_lost(process, monkeypatch):
    monkeypatch.setattr(process, "_block", lambda: b"[1, 2]")
    with pytest.raises(Lost, match="JSON"):
        process.compile(SOURCES[0].encode(), "sm_87")


def test_a_forked_child_leaves_the_processes_to_its_parent(own):
    with one_started(own) as started:
        pass
    with own.allow(1), own.lend(VERSION):
        child = os.fork()
    if child == 0:
        assert own._allowed == own._all == [] and not own._here
        with own.allow(1), own.lend(VERSION):
            made = nvrtc.compile_cubin(SOURCES[0], "sm_87") if own._all == [] else None
        own.close()
        os._exit(0 if made is not None and made.error is None else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert started.compile(SOURCES[0].encode(), "sm_87")[0] is None


def test_processes_end_with_this_one():
    code = (
        "from gensor_kernels.build import nvrtc\n"
        "from gensor_kernels.build.compilers import COMPILERS as made\n"
        "version = nvrtc.version(nvrtc._nvrtc())\n"
        "with made.allow(1), made.lend(version), made.lend(version) as process:\n"
        "    print(process._process.pid, flush=True)\n"
        "import os, sys; {end}\n"
    )
    for end in ("pass", "os._exit(0)", "os.kill(os.getpid(), 9)"):
        text = subprocess.run([sys.executable, "-c", code.format(end=end)], capture_output=True, text=True).stdout
        until(lambda pid=int(text): not alive(pid))


def test_ctrl_c_does_not_end_a_process(process):
    os.kill(process._process.pid, signal.SIGINT)
    assert process.compile(SOURCES[0].encode(), "sm_87")[0] is None
