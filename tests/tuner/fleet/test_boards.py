"""Boards measure what other machines compile: a worker with a pretend GPU advertises its part."""

import asyncio
import signal
import subprocess
import sys
from dataclasses import asdict, replace
from functools import cache
from types import SimpleNamespace

import pytest

pytest.importorskip("distributed", reason="Dask is not installed")

import gensor_kernels
from gensor_database.record import Timing, Verification
from gensor_database.store import Store
from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.devices.device import Code
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul
from gensor_tuner.build.binaries import Compile
from gensor_tuner.build.pool import candidate
from gensor_tuner.fleet import cluster as clusters
from gensor_tuner.fleet import wire, worker
from gensor_tuner.fleet.abilities import abilities
from gensor_tuner.fleet.cluster import Cluster, Fleet, LostTaskError, Member, Running
from gensor_tuner.gpu import GpuError
from gensor_tuner.measure.board import FAILURES, Board, BoardGoneError, ExecuteOnDevice, RemoteTimer, Time
from gensor_tuner.measure.timer import Timed, Times
from gensor_tuner.run.class_run import ClassRun, Options
from gensor_tuner.tasks.local import Local
from gensor_tuner.tasks.task import ignore, to_plain
from gensor_tuner.verify.verify import Execute, Verdict
from tests.doubles.kernels import forget_gpus
from tests.doubles.schedulers import ROOT, alive, children, free_port, process, scheduler, until
from tests.doubles.strict.machine import installed

pytestmark = [pytest.mark.fleet, pytest.mark.usefixtures("needs_emulator")]
PART = "orin-nano-8gb"
DEVICE = {"GENSOR_FLEET_DEVICE": "tests.doubles.board:open_timer", "PYTHONPATH": str(ROOT)}
WORKLOAD = matmul.workload(16, 16, 32, dtype="float64")


@cache
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
    return Time.from_arguments(wire.unpack(wire.asked(task)))


def received(task, answer):
    """A result as it arrives from another machine."""
    return wire.result_of(task, wire.pack({"result": answer}))


def timed(board, given, vendor=False):
    """What a board answers to a task that times kernels, after their ways to the board and back."""
    task = Time(PART, WORKLOAD, given, vendor)
    there = sent(task)
    found = board.time(there.workload, there.kernels, there.vendor)
    assert received(task, task.pack(found)) == found
    return found


@pytest.mark.parametrize(
    ("fault", "words"),
    [("die", "the process that ran it ended with 7"), ("fault", "KernelFault: out_of_bounds: an illegal")],
)
def test_a_kernel_that_fails_is_blamed_and_the_others_are_timed(board, fault, words):
    there = sent(Time(PART, WORKLOAD, kernels(), False)).kernels
    first, second = (set(dict(code.constants).items()) for _, code in there)
    found = timed(board(BOARD_FAULT=fault, BOARD_BLAMED=repr(sorted(first - second)[0])), kernels(), vendor=True)
    assert found.timed[0] is None and found.timed[1].median_us > 0 and found.failed == (0,)
    assert found.why[0].startswith(f"it failed on the device: {words}") and found.why[1] == "" and not found.lost


def test_a_kernel_that_hangs_is_blamed(board):
    made = board(BOARD_FAULT="hang")
    made.seconds = 2.0
    found = timed(made, kernels(1))
    assert found.timed == (None,) and found.failed == (0,) and "did not end within 2 s" in found.why[0]


@pytest.mark.parametrize("fault", ["die", "killed"])
def test_one_end_of_the_process_is_no_kernels_fault(board, tmp_path, fault):
    found = timed(board(BOARD_FAULT=fault, BOARD_ONCE=str(tmp_path / "once")), kernels())
    assert all(each.median_us > 0 for each in found.timed) and not found.failed and (tmp_path / "once").exists()


def test_who_is_always_killed_blames_no_kernel(board):
    made = board(BOARD_FAULT="killed")
    with pytest.raises(RuntimeError, match="no kernel is to blame: the process that ran it ended with -9"):
        timed(made, kernels(1))
    with pytest.raises(GpuError, match="could not verify a kernel: the process that ran it ended with -9"):
        made.verify(*kernels(1)[0], WORKLOAD)


@pytest.mark.parametrize(
    ("fault", "count", "words"),
    [("memory", 2, "out of device memory"), ("fault", FAILURES + 1, f"{FAILURES} kernels failed one after the other")],
)
def test_what_every_kernel_meets_is_no_kernels_fault(board, fault, count, words):
    found = timed(board(BOARD_FAULT=fault), kernels(1) * count)
    assert found.lost.startswith(words) and found.timed == (None,) * count and not found.failed


def test_conditions_are_asked_without_a_workload_and_every_gpu_is_found(board):
    assert board(BOARD_MODE="7W").time(None, (), False).conditions == '{"number":0,"power_mode":"7W"}'
    board(BOARD_COUNT="2")
    assert worker._parts(pytest.fail) == {0: PART, 1: PART}


def test_a_gpu_that_does_not_come_back_takes_its_worker_out(board, tmp_path):
    with pytest.raises(BoardGoneError, match="fallen off the bus"):
        timed(board(BOARD_FAULT="die", BOARD_LEAVES="1", BOARD_GONE=str(tmp_path / "gone")), kernels(1))


GOOD = {"median_us": 2.0, "low_us": 1.0, "high_us": 3.0, "rounds": 15, "calls": 3}
TIMES = {"timed": [GOOD], "vendor": None, "conditions": "{}", "why": [""], "failed": [], "lost": ""}
IMPOSSIBLE_TIMES = [
    *({"timed": [GOOD | value]} for value in ({"median_us": float("nan")}, {"median_us": -1.0}, {"rounds": 0})),
    *({"timed": timed} for timed in ([GOOD, GOOD], [None])),
    *({"vendor": GOOD}, {"conditions": "[]"}, {"failed": [0]}, {"lost": "out of device memory"}, {"lost": None}),
]
OTHER_VERDICTS = [{"part": "h200"}, {"method": "emulator"}, {"outcome": "ok"}, {"outcome": "perfect"}]
IMPOSSIBLE_VERDICTS = [
    *({"seconds": -1}, {"seconds": 1e309}, {"runs": "3"}, {"runs": True}, {"runs": -1}, {"detail": 5}),
    *({"counters": {"barriers": -1}}, {"counters": {"barriers": "2"}}, {"branches": [1]}, {"sizes": {"m": 1}}),
    *({"worst": -0.5}, {"worst": "0"}),
]


def refuse(task, whole, changes, words=None):
    for change in changes:
        with pytest.raises(wire.CorruptError, match=words):
            received(task, whole | change)


def test_answers_that_no_worker_can_have_found_are_refused():
    (each,) = kernels(1)
    timing = Time(PART, WORKLOAD, kernels(1), False)
    assert received(timing, TIMES).timed[0].median_us == 2.0
    refuse(timing, TIMES, IMPOSSIBLE_TIMES)
    on_device, emulated = ExecuteOnDevice(PART, WORKLOAD, each), Execute(each[0], WORKLOAD)
    failed = asdict(Verdict("failed", "it died", method="device"))
    assert received(on_device, failed).part == PART
    refuse(on_device, failed, OTHER_VERDICTS, "verdict")
    for task, method in ((on_device, "device"), (emulated, "emulator")):
        wrong = asdict(Verdict("wrong", "it differs", worst=2.0, method=method))
        assert received(task, wrong | {"worst": 1e309}).worst == float("inf")  # the error of an infinite result
        refuse(task, wrong, IMPOSSIBLE_VERDICTS)
    good = asdict(emulated.run())
    assert received(emulated, good).runs > 1
    refuse(emulated, good, [{"runs": 1}], "without all cases")
    task = Compile(each[0].source(), lookup(PART).target)
    packed = to_plain(task.pack(task.run()))
    assert received(task, packed).registers
    (name,), binary = packed["binary"]["entries"], packed["binary"]
    wrong_bytes, unguarded = binary["entries"][name] | {"shared_bytes": -4}, packed["sass"][name] | {"unguarded": -1}
    changes = [{"binary": binary | {"seconds": -1.0}}, {"binary": binary | {"entries": {name: wrong_bytes}}}]
    refuse(task, packed, [*changes, {"sass": {name: unguarded}}], "is below 0")


class Losing(Local):
    """Loses every task that measures."""

    def map(self, tasks, done=ignore):
        if tasks and isinstance(tasks[0], Time):
            return [each.lost("planted") for each in tasks]
        return super().map(tasks, done)


class Drifting:
    """A timer that finds other conditions each time, and kernels that become quicker and quicker."""

    emulated = False

    def __init__(self):
        self.rounds = []

    def on(self, executor):
        return self

    def objection(self, *_):
        return ""

    def times(self, workload, given, vendor=True, before=None):
        self.rounds.append(len(given))
        mode = f'{{"power_mode":"{len(self.rounds)}"}}'
        timed = tuple(Timed(9.0 / len(self.rounds), 1.0, 9.0, 15, 1) for _ in given)
        return Times(timed, None, mode, ("",) * len(given))


def class_run(executor, timer):
    return ClassRun(lookup(PART), [WORKLOAD], Options(top=2), executor, timer=timer)


def test_a_workload_whose_times_are_lost_gets_the_kernel_of_predictions():
    with Losing(1) as executor:
        (found,) = class_run(executor, RemoteTimer(PART, executor)).run()
        (expected,) = class_run(executor, None).run()
    assert found.candidate == expected.candidate is not None and found.error is None and not found.timings


def test_times_of_other_conditions_are_not_mixed():
    timer = Drifting()
    with Local(1) as executor:
        (found,) = class_run(executor, timer).run()
    assert len(timer.rounds) == 2  # no third one: who knows where it would run?
    assert len(found.timings) == timer.rounds[0] and {timed.median_us for *_, timed in found.timings} == {9.0}
    assert found.conditions == '{"power_mode":"1"}'


def test_a_machine_offers_a_process_for_each_gpu(monkeypatch):
    part, package = f"part:{PART}", abilities().resource("part")
    offers = worker._offers({0: PART, 2: "h200"}, 3)
    assert [each.gpu for each in offers] == [None, None, None, 0, 2]
    assert offers[3].resources == {part: 1.0, package: 1.0} and offers[4].environment == {"GENSOR_FLEET_GPU": "2"}
    assert all(each.resources == abilities().resources(1) for each in offers[:3])
    # A board without a compiler measures and does nothing else.
    lacking = replace(abilities(), facts={n: v for n, v in abilities().facts.items() if n not in ("nvrtc", "g++")})
    monkeypatch.setattr(worker, "abilities", lambda: lacking)
    assert [each.gpu for each in worker._offers({0: PART}, 4)] == [0]
    assert {name.partition(":")[0] for each in worker._offers({}, 1) for name in each.resources} == {"gensor-walk"}


def test_a_board_with_another_version_is_told(monkeypatch):
    cluster = Cluster("tcp://127.0.0.1:1")
    cluster._client = SimpleNamespace(scheduler=SimpleNamespace(address="tcp://127.0.0.1:1"))
    nobody = f"no worker of tcp://127.0.0.1:1 measures on {PART}"
    assert cluster._no_board(PART).startswith(f"{nobody}: on such a machine, run gensor-tune")
    other = replace(abilities(), facts=abilities().facts | {"package": "0.0 (old)"})
    resources = {f"part:{PART}": 1.0, other.resource("part"): 1.0}
    cluster.members["x"] = Member("x", "desk", "", 1, other, resources)
    assert not cluster.measuring(PART) and not cluster._could(Time(PART, None, (), False))
    assert cluster._no_board(PART).startswith(f"{nobody} (desk: its package is 0.0 (old), here it is ")
    equal = dict(worker._offers({0: PART}, 0)[0].resources)
    cluster.members["y"] = Member("y", "board", "", 1, abilities(), equal)
    assert [each.name for each in cluster.measuring(PART)] == ["board"]


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
    port, log = free_port(), tmp_path / "log"
    with scheduler(port), serving(port, tmp_path / "scratch", log=log) as machine:
        done = tune(tmp_path, port, "--measure", "require", "--verify", "device")
        below = [pid for pid, _ in children(machine.pid)]
        machine.send_signal(signal.SIGTERM)
        assert machine.wait(60) == 0 and below
        assert "Traceback" not in log.read_text()
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
    forget_gpus(monkeypatch)
    cupy = pytest.importorskip("cupy")
    with installed([PART]):  # a GPU whose driver is a double: an emulated device reads no times
        a, b = cupy.empty((16, 32)), cupy.empty((32, 16))
        told = gensor_kernels.explain(gensor_kernels.matmul, a, b)
    assert told.tier == 1 and told.kernel in {row.kernel_digest for row in times}, told


def test_a_part_is_given_up_in_one_sentence_however_long_its_tasks_take_to_end():
    said, now, cancelled = [], [0.0], []

    async def cancel():
        cancelled.append(now[0])

    cluster = Cluster("tcp://127.0.0.1:9", said.append, clock=lambda: now[0])
    cluster._client = SimpleNamespace(scheduler=None)
    cluster._running["key"] = Running(Time(PART, WORKLOAD, (), False), SimpleNamespace(cancel=cancel))
    for now[0] in (0.0, 1.0, clusters.NOBODY_SECONDS + 1, clusters.NOBODY_SECONDS + 2, clusters.NOBODY_SECONDS + 3):
        asyncio.run(cluster._look_for_nobody())
    given_up = f"tasks for {PART} are given up until a worker has it"
    assert [line.partition(":")[0] for line in said] == ["tasks wait", given_up]
    assert cancelled == [clusters.NOBODY_SECONDS + 1]


@pytest.mark.nightly
def test_a_worker_waits_for_its_scheduler_and_refuses_a_kernel_that_faults(tmp_path):
    port = free_port()
    with serving(port, tmp_path / "scratch", BOARD_FAULT="fault", BOARD_BLAMED="('ITEMS', 1)"):
        with scheduler(port):
            assert tune(tmp_path, port, "--measure", "never").returncode == 0
        with scheduler(port):
            done = tune(tmp_path, port, "--measure", "require", "--top", "2")
    assert done.returncode == 0, done.stderr
    with Store.open(tmp_path / "k.db", readonly=True) as store:
        refused = list(store.rows(Verification, outcome="failed"))
        assert refused and {(row.method, row.provenance) for row in refused} == {("device", f'{{"part":"{PART}"}}')}
        assert all("KernelFault: out_of_bounds: an illegal memory access" in row.error for row in refused)
        times = list(store.rows(Timing))
        assert times and {row.device for row in times} == {'{"number":0,"power_mode":"15W"}'}
        assert not {row.kernel_digest for row in times} & {row.kernel_digest for row in refused}


@pytest.mark.nightly
def test_a_worker_whose_gpu_has_gone_says_so_and_does_not_come_back(tmp_path, monkeypatch):
    port, log, said = free_port(), tmp_path / "log", []
    task = Time(PART, WORKLOAD, kernels(1), False)
    plan = {"BOARD_FAULT": "die", "BOARD_LEAVES": "1", "BOARD_GONE": str(tmp_path / "gone")}
    with scheduler(port), serving(port, tmp_path / "scratch", log=log, **plan) as machine:
        with Cluster(f"tcp://127.0.0.1:{port}", said.append) as cluster:
            cluster.ready(["compile"], [PART])
            sent = cluster.submit(task)
            until(lambda: "GPU 0 cannot be opened any more, so nothing is measured on it" in log.read_text())
            until(lambda: not cluster.measuring(PART))
            monkeypatch.setattr(clusters, "NOBODY_SECONDS", 1.0)
            for each in (sent, cluster.submit(task)):
                with pytest.raises(LostTaskError, match=f"no worker of .* measures on {PART}"):
                    each.result(60)
            with Local(1) as here:
                fleet = Fleet(cluster, here)
                (times,) = fleet.map([task])
                assert times.lost and fleet.lost
                ((each, code),) = kernels(1)  # the machine's other process continues
                (binary,) = fleet.map([Compile(each.source(), code.target)])
            assert binary.cubin == code.cubin
        assert said.count(f"tasks for {PART} are given up until a worker has it") == 1
        assert not [line for line in said if "gave up a task" in line]
        below = [pid for pid, _ in children(machine.pid)]
        machine.send_signal(signal.SIGINT)
        assert machine.wait(60) == 0 and below
        until(lambda: not [pid for pid in below if alive(pid)])


@pytest.mark.nightly
def test_a_command_that_is_killed_leaves_no_process(tmp_path):
    port = free_port()
    once = tmp_path / "once"
    hanging = {"BOARD_FAULT": "hang", "BOARD_ONCE": str(once)}
    with scheduler(port), serving(port, tmp_path / "scratch", **hanging) as machine:
        with Cluster(f"tcp://127.0.0.1:{port}") as cluster:
            cluster.ready(["compile"], [PART])
            cluster.submit(Time(PART, WORKLOAD, kernels(1), False))
            until(once.exists)
            below = [pid for pid, _ in children(machine.pid)]
            machine.kill()
        assert below
        until(lambda: not [pid for pid in below if alive(pid)])
