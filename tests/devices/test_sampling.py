"""The sampler on a device whose time is simulated: samples are the device's time, in turns, after enough fill."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from gensor_kernels.devices import driver, sampling
from gensor_tuner.measure.timer import CudaClock


class FakeCupy:
    """A device with a queue and an L2 cache: reads, writes and calls take microseconds of the device, one after
    the other; the host runs ahead, and waits where it synchronises.

    The first `dirty` bytes that a call brings into the cache wait until as many dirty bytes are written back.
    """

    __version__ = "14.0"

    fill_us, l2, bytes_per_us = 100.0, 16e6, 1e6

    def __init__(self):
        self.cuda = self.runtime = self
        self.now, self.host, self.dirty, self.log = 0.0, 0.0, 0.0, []

    def driverGetVersion(self):
        return 12090

    def Device(self, number):
        return SimpleNamespace(attributes={"L2CacheSize": int(self.l2)})

    def enqueued(self, name, us):
        self.now = max(self.now, self.host) + us
        self.log.append(name)

    def zeros(self, shape, dtype):
        self.data, self.nbytes = self, int(np.prod(shape)) * np.dtype(dtype).itemsize
        self.allocated = self.nbytes
        return self

    def memset_async(self, value, size):
        assert size == self.allocated
        self.enqueued("fill", self.fill_us)
        self.dirty = min(self.l2, size)

    def sum(self, axis):
        assert axis == 1
        self.enqueued("fill", self.fill_us)
        self.dirty -= min(self.dirty, self.allocated)

    def call(self, name, us, read=0.0, host=0.0):
        def run():
            self.host += host
            written_back = min(self.dirty, read)
            self.dirty -= written_back
            self.enqueued(name, us + written_back / self.bytes_per_us)

        return run

    def get_current_stream(self):
        return self

    def synchronize(self):
        self.log.append("synchronize")
        self.host = max(self.host, self.now)

    def Event(self):
        device = self

        class Event:
            def record(self):
                self.at = device.now = max(device.now, device.host)

            def synchronize(self):
                device.host = max(device.host, self.at)

        return Event()

    def get_elapsed_time(self, start, end):
        return (end.at - start.at) * 1e-3


@pytest.fixture(autouse=True)
def no_driver(monkeypatch):
    def missing(name):
        raise OSError(f"no driver has {name}")

    monkeypatch.setattr(driver, "driver_function", missing)


def simulated(monkeypatch, cupy):
    """The host also has the simulation's clock."""
    monkeypatch.setattr(sampling.time, "perf_counter", lambda: cupy.host * 1e-6)
    return cupy


@pytest.fixture
def cupy(monkeypatch):
    return simulated(monkeypatch, FakeCupy())


def sample(cupy, *calls, l2=0):
    return sampling.Sampler(cupy, l2, calls).first()


def fills_before(log):
    """Return the number of fills before each run of calls "a" that are timed in turns."""
    counts, fills = [], 0
    for before, each in zip([None, *log], log, strict=False):
        if each == "a" and before != "a":
            counts.append(fills)
        fills = fills + 1 if each == "fill" else 0
    return counts[2:]  # after the two runs that warm up


def sampled(timing, cupy, call, l2=0):
    """(microseconds, fills before each sample) of a call "a" in a race or by the tuner's clock."""
    if timing == "race":
        (found,) = sample(cupy, call, l2=l2)
        return found.us, fills_before(cupy.log)
    clock = CudaClock(SimpleNamespace(cupy=cupy, number=0))
    cupy.log.clear()
    return [clock.measure([call]) * 1e6], [cupy.log.count("fill")]


@pytest.mark.parametrize("timing", ["race", "tuner"])
def test_no_sample_waits_for_what_the_fill_wrote(monkeypatch, timing):
    """A call that reads 12 MB through a cache of 16: a fill that writes makes it wait for 12 MB to be written back."""
    cupy = simulated(monkeypatch, FakeCupy())
    found, _ = sampled(timing, cupy, cupy.call("a", 50.0, read=12e6), cupy.l2)
    assert np.allclose(found, 50.0)


@pytest.mark.parametrize("timing", ["race", "tuner"])
def test_the_fill_does_not_grow_with_the_call(monkeypatch, timing):
    """20 ms of the device after 10 us of the host: there is little to hide."""
    cupy = simulated(monkeypatch, FakeCupy())
    found, counts = sampled(timing, cupy, cupy.call("a", 20_000.0, host=10.0))
    assert np.allclose(found, 20_000.0) and set(counts) == {2}


def waiting(cupy, us, host=0.0):

    def call():
        cupy.host += host
        cupy.enqueued("a", us)
        cupy.synchronize()

    return call


def test_a_call_that_waits_for_the_device_is_not_padded_for_ever(cupy):
    """No fill hides a host that waits for the device itself."""
    sample(cupy, waiting(cupy, 20_000.0))
    before = [each for each in cupy.log if each != "synchronize"]
    assert set(fills_before(before)) == {sampling.MOST_HIDDEN_US / cupy.fill_us + 1}


def test_samples_are_the_devices_time_in_turns(cupy):
    found = sample(cupy, cupy.call("a", 100.0), cupy.call("b", 200.0), l2=50e6)
    assert np.allclose([each.us for each in found], [[100.0] * sampling.ROUNDS, [200.0] * sampling.ROUNDS])
    assert 99_000_000 < cupy.allocated <= 100_000_000
    rounds = [each for each in cupy.log if each in ("a", "b")][4:]  # each was called twice before
    assert rounds == ["a", "b"] * sampling.ROUNDS and cupy.log[-1] == "synchronize"
    start = cupy.log.index("fill", cupy.log.index("b"))
    for index, name in enumerate(cupy.log[start:]):  # no sample begins with warm operands
        before = cupy.log[start + index - 1]
        assert name not in ("a", "b") or before == "fill" or before == name


def test_short_calls_are_repeated(cupy):
    (quick,) = sample(cupy, cupy.call("a", 2.0))
    assert np.allclose(quick.us, 2.0) and cupy.log.count("a") == 2 + sampling.MOST_REPEATS * sampling.ROUNDS
    assert cupy.allocated == sampling.SMALLEST_FILL


def test_the_fill_outlasts_the_host(cupy):
    """A host that takes 1 ms to enqueue a call is hidden by ten fills of 100 us for each."""
    sample(cupy, cupy.call("a", 50.0, host=1e3))
    assert min(fills_before(cupy.log)) >= 10


def test_the_host_is_timed_beside_the_device(cupy):
    ours, theirs = sample(cupy, cupy.call("a", 6.0, host=20.0), cupy.call("b", 8.0, host=8.0))
    assert np.allclose(ours.us, 6.0) and np.allclose(ours.host, 20.0) and ours.felt_us == pytest.approx(20.0)
    assert np.allclose(theirs.us, 8.0) and np.allclose(theirs.host, 8.0) and theirs.felt_us == pytest.approx(8.0)
    assert ours.device_us == pytest.approx(6.0) and ours.felt() == pytest.approx(ours.host)


def test_a_call_that_waits_for_the_device_does_not_pay_for_the_fill(cupy):
    (found,) = sample(cupy, waiting(cupy, 300.0, host=10.0))
    assert max(found.host) == pytest.approx(310.0)


@pytest.mark.parametrize("ours", [450_000.0, 100_000.0, 200.0])
def test_a_call_of_half_a_second_is_made_once(cupy, ours):
    theirs, fast = sample(cupy, cupy.call("theirs", 500_000.0, host=30.0), cupy.call("ours", ours, host=10.0))
    assert cupy.log.count("theirs") == 1 and np.allclose(theirs.us, 500_000.0, rtol=1e-3)
    assert fast.us[0] == pytest.approx(ours, rel=0.1) and (ours < 1e3 or cupy.log.count("ours") == 1)


@pytest.mark.parametrize("us", [6_000.0, 20_000.0, 45_000.0])
def test_ten_calls_are_the_most_of_long_ones(cupy, us):
    """A duel after the samples of all has calls left, then the budget is spent."""
    sampler = sampling.Sampler(cupy, 0, [cupy.call("a", us, host=10.0), cupy.call("b", 1.1 * us, host=10.0)])
    first = sampler.first()
    more = []
    while more[-1:] != [[]]:
        more.append(sampler.again((0, 1), 3))
    made = cupy.log.count("a"), cupy.log.count("b")
    assert made[0] == made[1] and sum(made) <= sampling.LEAST_CALLS and len(more) > 1
    assert len(first[0].us) >= 2


@pytest.mark.parametrize("count", [2, 5])
@pytest.mark.parametrize("us", [3.0, 100.0, 900.0, 1_500.0])
def test_shorter_calls_take_no_longer_than_the_budget(cupy, us, count):
    sampler = sampling.Sampler(cupy, 50e6, [cupy.call(str(each), us, host=10.0) for each in range(count)])
    began, found = cupy.host, sampler.first()
    for _ in range(100):
        sampler.again((0, 1), 3)
    assert cupy.host - began < 1.1 * sampling.BUDGET_US
    assert {len(each.us) for each in found} <= ({sampling.ROUNDS} if us < 900 else set(range(2, 10)))


def test_who_is_far_behind_leaves(cupy):
    """Short calls after a sample of the device's time alone, which is what is stored."""
    found = sample(cupy, *(cupy.call(name, us) for name, us in (("a", 70.0), ("b", 100.0), ("c", 211.0))))
    assert [len(each.us) for each in found] == [sampling.ROUNDS, sampling.ROUNDS, 1]
    assert np.allclose(found[2].us, 211.0) and cupy.log.count("c") == 3
    before = cupy.log.count("d"), cupy.log.count("e")
    found = sample(cupy, cupy.call("d", 4_000.0), cupy.call("e", 12_100.0))
    assert before == (0, 0) and cupy.log.count("e") == 1 and len(found[0].us) >= 2


def test_an_interrupted_host_costs_no_call_its_place(cupy):
    calls = []

    def interrupted():
        calls.append(1)
        cupy.host += 4_000.0 if len(calls) == 2 else 1.0
        cupy.enqueued("a", 50.0)

    found = sample(cupy, interrupted, cupy.call("b", 60.0, host=1.0))
    assert [len(each.us) for each in found] == [sampling.ROUNDS] * 2 and max(found[0].host) < 10.0


def test_a_call_that_loads_a_kernel_first_is_called_again(cupy):
    calls = []

    def loading():
        calls.append(1)
        cupy.host += 300_000.0 if len(calls) == 1 else 5.0
        cupy.enqueued("a", 50.0)

    found = sample(cupy, loading, cupy.call("b", 60.0, host=1.0))
    assert np.allclose(found[0].us, 50.0) and max(found[0].host) < 10.0
    assert [len(each.us) for each in found] == [sampling.ROUNDS] * 2  # compiling is no part of the race


def test_what_a_call_returns_is_dropped_before_the_next(cupy):
    """Results of gigabytes share the memory of one."""
    alive, most = [0], []

    class Result:
        def __init__(self):
            alive[0] += 1
            most.append(alive[0])

        def __del__(self):
            alive[0] -= 1

    def call():
        cupy.enqueued("a", 2.0)
        return Result()

    sample(cupy, call, call)
    assert max(most) == 1 and len(most) > 2 * sampling.MOST_REPEATS


def test_conditions_name_what_times_hang_on(monkeypatch, tmp_path):
    monkeypatch.setattr(sampling, "POWER_MODE", tmp_path / "status")
    assert json.loads(sampling.conditions(FakeCupy())) == {"cupy": "14.0", "driver": 12090}
    (tmp_path / "status").write_text("pmode:0002\n")
    assert json.loads(sampling.conditions(FakeCupy()))["power_mode"] == "pmode:0002"
