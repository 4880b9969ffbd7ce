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


def fills_before(log, name):
    """Return the number of fills before each run of calls of this name that are timed in turns."""
    counts, fills = [], 0
    for before, each in zip([None, *log], log, strict=False):
        if each == name and before != name:
            counts.append(fills)
        fills = fills + 1 if each == "fill" else 0
    return counts[2:]  # after the two runs that warm up


def sampled(timing, cupy, call, l2=0):
    """(microseconds, fills before each sample) of a call "a" in a race or by the tuner's clock."""
    if timing == "race":
        (found,) = sampling.take_samples(cupy, l2, [call])
        return found, fills_before(cupy.log, "a")
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
    """60 ms of the device after 10 us of the host: there is little to hide."""
    cupy = simulated(monkeypatch, FakeCupy())
    found, counts = sampled(timing, cupy, cupy.call("a", 60_000.0, host=10.0))
    assert np.allclose(found, 60_000.0) and set(counts) == {2}


def test_a_call_that_waits_for_the_device_is_not_padded_for_ever(monkeypatch):
    """No fill hides a host that waits for the device itself."""
    cupy = simulated(monkeypatch, FakeCupy())

    def call():
        cupy.enqueued("a", 300_000.0)
        cupy.synchronize()

    sampling.take_samples(cupy, 0, [call])
    before = [each for each in cupy.log if each != "synchronize"]
    assert set(fills_before(before, "a")) == {sampling.MOST_HIDDEN_US / cupy.fill_us + 1}


def test_samples_are_the_devices_time_in_turns():
    cupy = FakeCupy()
    found = sampling.take_samples(cupy, 50e6, [cupy.call("a", 30.0), cupy.call("b", 200.0)])
    assert np.allclose(found, [[30.0] * sampling.ROUNDS, [200.0] * sampling.ROUNDS])
    assert 99_000_000 < cupy.allocated <= 100_000_000
    rounds = [each for each in cupy.log if each in ("a", "b")][4:]  # each was called twice before
    assert rounds == ["a", "a", "b", "b"] * sampling.ROUNDS and cupy.log[-1] == "synchronize"
    start = cupy.log.index("fill", cupy.log.index("b"))
    for index, name in enumerate(cupy.log[start:]):  # no sample begins with warm operands
        before = cupy.log[start + index - 1]
        assert name not in ("a", "b") or before == "fill" or before == name


def test_long_calls_are_sampled_few_times_and_short_ones_repeated():
    cupy = FakeCupy()
    (slow,) = sampling.take_samples(cupy, 0, [cupy.call("a", 60_000.0)])
    assert slow == [pytest.approx(60_000.0)] * sampling.FEW_ROUNDS and cupy.log.count("a") == 2 + sampling.FEW_ROUNDS
    cupy = FakeCupy()
    (quick,) = sampling.take_samples(cupy, 0, [cupy.call("a", 2.0)])
    assert np.allclose(quick, 2.0) and cupy.log.count("a") == 2 + sampling.MOST_REPEATS * sampling.ROUNDS
    assert cupy.allocated == sampling.SMALLEST_FILL
    assert [len(each) for each in sampling.take_samples(cupy, 0, [cupy.call("a", 2.0)] * 2, 4)] == [4, 4]


def test_the_fill_outlasts_the_host(monkeypatch):
    """A host that takes 1 ms to enqueue a call is hidden by ten fills of 100 us for each."""
    cupy = simulated(monkeypatch, FakeCupy())
    sampling.take_samples(cupy, 0, [cupy.call("a", 50.0, host=1e3)])
    assert min(fills_before(cupy.log, "a")) >= 10


def test_conditions_name_what_times_hang_on(monkeypatch, tmp_path):
    monkeypatch.setattr(sampling, "POWER_MODE", tmp_path / "status")
    assert json.loads(sampling.conditions(FakeCupy())) == {"cupy": "14.0", "driver": 12090}
    (tmp_path / "status").write_text("pmode:0002\n")
    assert json.loads(sampling.conditions(FakeCupy()))["power_mode"] == "pmode:0002"
