"""Boards measure what other machines compile: a worker with a pretend GPU advertises its part."""

import signal
import subprocess
import sys

import pytest

pytest.importorskip("distributed", reason="Dask is not installed")

import gensor_kernels
from gensor_database.record import Timing, Verification
from gensor_database.store import Store
from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.devices.device import Code
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul
from gensor_kernels.programs.registry import FAMILIES
from gensor_tuner.build.pool import candidate
from gensor_tuner.measure.board import Board, BoardGoneError
from gensor_tuner.measure.on_board import Time
from tests.doubles.schedulers import ROOT, free_port, process, scheduler, until
from tests.doubles.strict.machine import installed
from tests.tuner.fleet.test_command import alive, children

pytestmark = [pytest.mark.fleet, pytest.mark.usefixtures("needs_emulator")]
PART = "orin-nano-8gb"
DEVICE = {"GENSOR_FLEET_DEVICE": "tests.doubles.board:open_timer", "PYTHONPATH": str(ROOT)}
WORKLOAD = matmul.workload(16, 16, 32, dtype="float64")


def kernels(count=2):
    """Kernels of WORKLOAD, compiled."""
    family, arch = FAMILIES["contraction_simt"], lookup(PART)
    first = family.starters(WORKLOAD, arch)[0]
    found = []
    for program in [first, *(first.replace(block_k=each) for each in (8, 16, 32))]:
        each = candidate(family, program, WORKLOAD)
        if all(each.constants != other.constants for other, _ in found):
            binary = compile_cubin(each.source(), arch.target)
            if binary.error is None:
                made = Code(each.name, each.source(), (), arch.target, binary.cubin)
                found.append((each, made))
    return tuple(found[:count])


# ---- the process that owns the GPU


@pytest.fixture
def board(monkeypatch):
    """A board in this process's child."""
    monkeypatch.setenv("GENSOR_FLEET_DEVICE", DEVICE["GENSOR_FLEET_DEVICE"])
    monkeypatch.setenv("PYTHONPATH", DEVICE["PYTHONPATH"])
    made = []

    def opened(**environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        made.append(Board())
        return made[-1]

    yield opened
    for each in made:
        each.stop(5.0)


def sent(task):
    """A task as it arrives on another machine."""
    return Time.from_json(task.to_json())


def test_kernels_of_other_machines_are_timed(board):
    task = sent(Time(PART, WORKLOAD, kernels(), True))
    found = board().time(task.workload, task.kernels, task.vendor)
    assert len(found.timed) == 2 and all(each.median_us > 0 for each in found.timed) and found.why == ("", "")
    assert task.unpack(task.pack(found) | {"timed": [vars(each) for each in found.timed]}) == found


def test_a_kernel_that_kills_the_process_is_blamed_and_the_others_are_timed(board):
    given = kernels()
    only = set(dict(sent(Time(PART, WORKLOAD, given, False)).kernels[0][1].constants).items())
    only -= set(dict(sent(Time(PART, WORKLOAD, given, False)).kernels[1][1].constants).items())
    task = sent(Time(PART, WORKLOAD, given, False))
    found = board(BOARD_FAULT="die", BOARD_BLAMED=repr(sorted(only)[0])).time(*_of(task))
    assert found.timed[0] is None and found.timed[1].median_us > 0 and found.failed == (0,)
    assert found.why == ("it failed on the device: the process that ran it ended with 7", "")


def test_a_kernel_that_hangs_is_blamed(board):
    task = sent(Time(PART, WORKLOAD, kernels(1), False))
    name = repr(sorted(dict(task.kernels[0][1].constants).items())[0])
    made = board(BOARD_FAULT="hang", BOARD_BLAMED=name)
    made.seconds = 2.0
    found = made.time(*_of(task))
    assert found.timed == (None,) and found.failed == (0,) and "did not end within 2 s" in found.why[0]


def test_a_gpu_that_does_not_come_back_takes_its_worker_out(board, tmp_path):
    task = sent(Time(PART, WORKLOAD, kernels(1), False))
    name = repr(sorted(dict(task.kernels[0][1].constants).items())[0])
    made = board(BOARD_FAULT="die", BOARD_BLAMED=name, BOARD_GONE=str(tmp_path / "gone"))
    with pytest.raises(BoardGoneError, match="fallen off the bus"):
        made.time(*_of(task))
        made.time(*_of(task))


def _of(task):
    return task.workload, task.kernels, task.vendor


def test_times_that_nobody_can_have_measured_are_refused():
    task = Time(PART, WORKLOAD, kernels(1), False)
    good = {"median_us": 2.0, "low_us": 1.0, "high_us": 3.0, "rounds": 15, "calls": 3}
    whole = {"timed": [good], "vendor": None, "conditions": "{}", "why": [""], "failed": []}
    assert task.unpack(whole).timed[0].median_us == 2.0
    for change in (
        {"timed": [good | {"median_us": float("nan")}]},
        {"timed": [good | {"median_us": -1.0}]},
        {"timed": [good | {"rounds": 0}]},
        {"timed": [good, good]},
        {"timed": [None]},
        {"vendor": good},
        {"conditions": "[]"},
        {"failed": [0]},
    ):
        with pytest.raises((ValueError, TypeError)):
            task.unpack(whole | change)


# ---- a cluster with a board


SHAPES = "op,m,n,k,dtype\nmatmul,16,16,32,fp64\n"


def tune(folder, port, *options):
    (folder / "shapes.csv").write_text(SHAPES)
    line = [sys.executable, "-m", "gensor_tuner.cli.start", "--arch", PART, "--shapes", str(folder / "shapes.csv")]
    line += ["--db", str(folder / "k.db"), "--top", "1", "--cluster", f"tcp://127.0.0.1:{port}", *options]
    return subprocess.run(line, capture_output=True, text=True, cwd=ROOT, timeout=300)


def serving(port, folder, **environment):
    """`gensor-tune fleet worker` with a pretend GPU."""
    command = ("gensor_tuner.cli.start", "fleet", "worker", "--scheduler", f"tcp://127.0.0.1:{port}", "--jobs", "1")
    return process(*command, "--scratch", str(folder), **DEVICE, **environment)


def test_times_arrive_and_dispatch_serves_them(tmp_path, monkeypatch, no_databases):
    port = free_port()
    with scheduler(port), serving(port, tmp_path / "scratch") as worker:
        done = tune(tmp_path, port, "--measure", "require", "--verify", "device")
        below = [pid for pid, _ in children(worker.pid)]
        worker.send_signal(signal.SIGTERM)
        worker.wait(60)
        assert worker.returncode == 0 and below
        until(lambda: not [pid for pid in below if alive(pid)])
    assert done.returncode == 0, done.stderr
    with Store.open(tmp_path / "k.db", readonly=True) as store:
        times = list(store.rows(Timing))
        assert {row.key for row in times} == {WORKLOAD.key()}
        assert {row.part for row in times} == {PART} and all(row.median_us > 0 for row in times)
        methods = {row.method for row in store.rows(Verification, outcome="ok")}
        assert methods == {"emulator", "device"}
    assert (tmp_path / "scratch").is_dir()
    monkeypatch.setenv("GENSOR_DB", str(tmp_path / "k.db"))
    monkeypatch.setenv("GENSOR_TUNE", "predicted")  # the emulator has no vendor's call to be faster than
    gensor_kernels.refresh()
    cupy = pytest.importorskip("cupy")
    with installed([PART]):  # a GPU whose driver is a double: an emulated device reads no times
        a, b = cupy.empty((16, 32)), cupy.empty((32, 16))
        told = gensor_kernels.explain(gensor_kernels.matmul, a, b)
    assert told.tier == 1 and told.kernel in {row.kernel_digest for row in times}, told


def test_a_part_that_nobody_has_is_one_sentence(tmp_path):
    port = free_port()
    with (
        scheduler(port),
        process(
            *("gensor_tuner.cli.start", "fleet", "worker", "--scheduler", f"tcp://127.0.0.1:{port}", "--jobs", "1"),
            *("--scratch", str(tmp_path / "scratch")),
        ),
    ):
        done = tune(tmp_path, port, "--measure", "require")
    assert done.returncode == 2 and done.stdout == ""
    assert f"no worker of tcp://127.0.0.1:{port} measures on {PART}: on such a machine, run gensor-tune" in done.stderr


def test_a_worker_waits_for_its_scheduler(tmp_path):
    port = free_port()
    with serving(port, tmp_path / "scratch"):
        with scheduler(port):
            assert tune(tmp_path, port, "--measure", "never").returncode == 0
        with scheduler(port):
            again = tune(tmp_path, port, "--measure", "require")
            assert again.returncode == 0, again.stderr


def test_an_address_that_is_none_is_refused(gensor_tune):
    code, _, err = gensor_tune("fleet", "worker", "--scheduler", "host")
    assert code == 2 and "--scheduler takes tcp://HOST:PORT or tls://HOST:PORT, not 'host'" in err
