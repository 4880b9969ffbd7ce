"""`deterministic`: one kernel per kind of call, independent of timings, and lists of kernels shared by processes."""

import asyncio
import contextvars
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import gensor_kernels
from gensor_database import Timing
from gensor_kernels import PinError, blocks, config
from gensor_kernels.dispatch.api import current
from gensor_kernels.dispatch.api.deterministic import Block
from gensor_kernels.dispatch.calls.arguments import Operation
from gensor_kernels.dispatch.plans import trial
from gensor_kernels.errors import BuildError, ToolMissingError
from gensor_kernels.shown import no_array
from tests.doubles.device import FakeDevice, Race
from tests.doubles.kernels import ARCH, aligned, kernels, put, runtime_of, workload

pytestmark = pytest.mark.usefixtures("user_database")
WANTED = workload(64, 64, 64)
RELU = (Operation("relu"),)


def runtime(times=(), **more):
    """A Runtime whose database has kernels with these times in microseconds, and 50 of the library."""
    stored = kernels(WANTED, **more)
    timings = {}
    for wanted in (WANTED, WANTED.with_epilogue(["relu"])) if times else ():
        place = wanted.key(), ARCH.name, ARCH.part
        rows = [Timing(*place, name, None, us) for us, name in zip(times, sorted(stored), strict=False)]
        timings[wanted.key()] = [*rows, Timing(*place, None, "numpy", 50.0)]
    return runtime_of(FakeDevice(clock=Race()), stored, timings=timings)


def served(made, steps=RELU, runs=3):
    """The digest of the code that each product launches, or "library"."""
    found, a = [], aligned((64, 64))
    for _ in range(runs):
        before = len(made.device.ran)
        made.call(a, a, None, steps, None, None)
        found.append(made.device.ran[before] if len(made.device.ran) > before else "library")
    return found


@pytest.fixture(params=["block", "variable"])
def fixed(request, monkeypatch):
    """A function from a Runtime to the one that serves in deterministic mode."""
    if request.param == "block":
        block = Block()
        with blocks.deterministic.within(block):
            yield block.of
    else:
        monkeypatch.setenv("GENSOR_DETERMINISTIC", "1")
        yield lambda made: made.refresh() or made


@pytest.mark.parametrize("steps", [RELU, ()])
@pytest.mark.parametrize("mode", ["auto", "predicted"])
def test_databases_with_other_timings_have_the_same_kernel(fixed, steps, mode, monkeypatch):
    monkeypatch.setenv("GENSOR_TUNE", mode)
    forwards, backwards = [1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0]
    found = {tuple(served(fixed(runtime(times)), steps)) for times in ((), forwards, backwards)}
    ((first, *rest),) = found
    assert set(rest) == {first} and (first == "library") is (not steps and mode == "auto")


def test_a_block_ends_and_leaves_nothing():
    assert served(runtime([1.0, 2.0, 3.0, 4.0])) != served(runtime([4.0, 3.0, 2.0, 1.0]))  # timings decide outside
    made = runtime([1.0])
    _, *before = served(made, ())
    races = len(made.device.races)
    with blocks.deterministic.within(block := Block()):
        assert config.deterministic() and served(block.of(made), ()) == ["library"] * 3
        assert block.of(made) is block.of(made)
        assert not any(isinstance(plan, trial.Trial) for plan in block.of(made).plans.values())
    assert not config.deterministic() and served(made, ()) == [*before, before[0]] != ["library"] * 3
    assert len(made.device.races) == races == 1


# ---- lists of kernels


@pytest.fixture
def pin(tmp_path):
    return tmp_path / "kernels.json"


def pinned(path, made, **more):
    """The digests of `served` in a block with a list."""
    with pytest.MonkeyPatch.context() as only:
        put(only, made)
        with gensor_kernels.deterministic(pin=path):
            return served(current.current_runtime(), **more)


@pytest.mark.parametrize("mode", ["auto", "predicted"])
def test_a_list_is_written_once_and_then_decides(pin, mode, monkeypatch):
    made = runtime()
    first = pinned(pin, made)
    (row,) = json.loads(pin.read_text())["pins"]
    assert (row["part"], row["workload"]) == (made.device.arch.part, json.loads(WANTED.with_epilogue(["relu"]).key()))
    slowest = sorted(set(kernels(WANTED)) - {row["served"][0]["kernel"]})[0]
    monkeypatch.setenv("GENSOR_TUNE", mode)
    for entry, expected in (
        ({"kernel": slowest, "stored": slowest, "program": {}}, kernels(WANTED)[slowest].code.digest),
        ("library", "library"),
    ):
        pin.write_text(json.dumps({"gensor_pins": 1, "pins": [{**row, "served": [entry]}]}))
        assert pinned(pin, made) == [expected] * 3 != first
    pin.unlink()
    monkeypatch.setenv("GENSOR_TUNE", "auto")
    assert pinned(pin, runtime(), steps=()) == ["library"] * 3
    monkeypatch.setenv("GENSOR_TUNE", "predicted")  # without the list a kernel would serve
    assert pinned(pin, runtime(), steps=()) == ["library"] * 3


def test_calls_that_the_list_cannot_serve_are_refused(pin):
    pinned(pin, runtime())
    with pytest.raises(PinError, match=r"pins nothing for matmul of float32/float32/float32 with .*m = 64"):
        pinned(pin, runtime(), steps=())
    with pytest.raises(PinError, match=r"no kernel that .*kernels.json pins for .* use the databases"):
        pinned(pin, runtime_of(FakeDevice()))
    for fails, error, words in (
        ({"load": BuildError("refused")}, PinError, r"cannot be loaded here"),
        (("empty",), MemoryError, None),  # of a launch: the library does not take the call over
    ):
        made = runtime()
        made.device.fails = fails
        with pytest.raises(error, match=words):
            pinned(pin, made)


def test_lists_that_cannot_be_read_or_written(pin):
    for text in ("", "[]", "{}", '{"gensor_pins": 2}', '{"gensor_pins": 1, "pins": [{"served": [1]}]}'):
        pin.write_text(text)
        with pytest.raises(PinError, match=r"is no list of pinned kernels"), gensor_kernels.deterministic(pin):
            pass
    pin.unlink()
    with pytest.raises(TypeError, match="pin must be a path"), gensor_kernels.deterministic(pin=3):
        pass
    with pytest.raises(PinError, match="no such folder"), gensor_kernels.deterministic(pin / "more"):
        pass
    with pytest.raises(PinError, match=r"cannot be written to .*another process"), gensor_kernels.deterministic(pin):
        pin.write_text("another process's")
    pin.unlink()
    with pytest.raises(KeyError), gensor_kernels.deterministic(pin):
        raise KeyError
    assert not pin.exists()


def test_a_block_without_a_list_keeps_the_outer_one(pin):
    with gensor_kernels.deterministic(pin):
        outer = blocks.deterministic.own.get()
        with gensor_kernels.deterministic():
            assert blocks.deterministic.own.get() is outer
            with gensor_kernels.deterministic(pin.with_suffix(".inner")):
                assert len(blocks.deterministic.values()) == 2 and len(blocks.deterministic.innermost()) == 1
        assert not pin.exists()
    assert pin.exists() and not blocks.deterministic.open


# ---- threads and tasks


def test_threads_take_part_in_the_block_that_is_open(pin, monkeypatch):
    made = put(monkeypatch, runtime())
    monkeypatch.setattr(current, "inside", contextvars.ContextVar("none", default=None))
    monkeypatch.setattr(current, "lookup", lambda: current.deterministic_runtime(made))
    monkeypatch.setattr(current, "only", None)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(current.current_runtime).result() is made
        with gensor_kernels.deterministic(pin):
            mine = current.current_runtime()
            assert mine is not made and pool.submit(current.current_runtime).result() is mine
            assert pool.submit(config.deterministic).result()
            start, end = threading.Event(), threading.Event()

            def other():
                with gensor_kernels.deterministic(pin.with_suffix(".other")):
                    start.set()
                    end.wait(10)

            thread = threading.Thread(target=other)
            thread.start()
            start.wait(10)
            with pytest.raises(PinError, match=r"different lists: .*copy_context"):
                pool.submit(current.current_runtime).result()
            copied = contextvars.copy_context()
            assert pool.submit(copied.run, current.current_runtime).result() is mine
            end.set()
            thread.join()
        assert pool.submit(current.current_runtime).result() is made and not blocks.deterministic.open


def test_tasks_have_their_own_blocks(pin):
    async def task(path):
        with gensor_kernels.deterministic(path):
            await asyncio.sleep(0)
            return blocks.deterministic.own.get().pins.path

    async def both():
        return await asyncio.gather(*(task(pin.with_name(name)) for name in "ab"))

    assert [path.name for path in asyncio.run(both())] == ["a", "b"]


def test_a_thread_outside_of_an_emulated_block_gets_the_remedy(no_databases, monkeypatch):
    def fails():
        raise ToolMissingError("CuPy is not installed")

    a = np.ones((4, 4), np.float32)
    monkeypatch.setattr("gensor_kernels.devices.cuda.current_device", fails)
    monkeypatch.setattr(current, "lookup", current._cuda)
    monkeypatch.setattr(current, "only", None)
    with gensor_kernels.emulated("sm_87"), ThreadPoolExecutor(1) as pool:
        with pytest.raises(ToolMissingError, match=r"inside emulated\(...\): .*contextvars.copy_context"):
            pool.submit(gensor_kernels.matmul, a, a).result()
        copied = contextvars.copy_context()
        assert pool.submit(copied.run, gensor_kernels.matmul, a, a).result()[0, 0] == 4
        text = no_array("a", a, "cupy")
        assert "cupy.asarray(a)" in text and "inside emulated(...): " in text and "contextvars.copy_context" in text
    with pytest.raises(ToolMissingError, match=r"^CuPy is not installed$"):
        gensor_kernels.matmul(a, a)
