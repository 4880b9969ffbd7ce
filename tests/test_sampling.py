"""The sampler on a device whose time is simulated: samples are the device's time, in turns, behind enough fill."""

import json

import numpy as np
import pytest

from gensor_kernels.devices import sampling


class FakeCupy:
    """A device with a queue: fills and calls take `device` microseconds each, one after the other."""

    __version__ = "14.0"

    def __init__(self, fill_us=100.0):
        self.cuda, self.runtime, self.fill_us = self, self, fill_us
        self.now, self.log = 0.0, []

    def driverGetVersion(self):
        return 12090

    def alloc(self, size):
        self.allocated = size
        return self

    def memset_async(self, value, size):
        assert size == self.allocated
        self.now += self.fill_us
        self.log.append("fill")

    def call(self, name, us):
        def run():
            self.now += us
            self.log.append(name)

        return run

    def get_current_stream(self):
        return self

    def synchronize(self):
        self.log.append("synchronize")

    def Event(self):
        device = self

        class Event:
            def record(self):
                self.at = device.now

            def synchronize(self):
                pass

        return Event()

    def get_elapsed_time(self, start, end):
        return (end.at - start.at) * 1e-3


def test_samples_are_the_devices_time_in_turns():
    cupy = FakeCupy()
    found = sampling.sampled(cupy, 50e6, [cupy.call("a", 30.0), cupy.call("b", 200.0)])
    assert np.allclose(found, [[30.0] * sampling.ROUNDS, [200.0] * sampling.ROUNDS])
    assert cupy.allocated == 100_000_000
    rounds = [each for each in cupy.log if each != "fill"][4:]  # each was called twice before
    assert rounds == ["a", "a", "b", "b"] * sampling.ROUNDS + ["synchronize"]
    for index, name in enumerate(cupy.log[10:]):  # no sample begins with warm operands
        before = cupy.log[10 + index - 1]
        assert name not in ("a", "b") or before == "fill" or before == name


def test_long_calls_are_sampled_few_times_and_short_ones_repeated():
    cupy = FakeCupy()
    (slow,) = sampling.sampled(cupy, 0, [cupy.call("a", 60_000.0)])
    assert slow == [pytest.approx(60_000.0)] * sampling.FEW_ROUNDS and cupy.log.count("a") == 2 + sampling.FEW_ROUNDS
    cupy = FakeCupy()
    (quick,) = sampling.sampled(cupy, 0, [cupy.call("a", 2.0)])
    assert np.allclose(quick, 2.0) and cupy.log.count("a") == 2 + sampling.MOST_REPEATS * sampling.ROUNDS
    assert cupy.allocated == sampling.SMALLEST_FILL


def test_the_fill_outlasts_the_host(monkeypatch):
    """A host that takes 1 ms to enqueue a call is hidden behind ten fills of 100 us for each."""
    clock = [0.0]
    monkeypatch.setattr(sampling.time, "perf_counter", lambda: clock[0])
    cupy = FakeCupy()

    def work():
        clock[0] += 1e-3
        cupy.now += 50.0
        cupy.log.append("a")

    sampling.sampled(cupy, 0, [work])
    tail = cupy.log[cupy.log.index("a", cupy.log.index("a") + 1) + 1 :]
    assert tail.index("a") >= 10


def test_conditions_name_what_times_hang_on(monkeypatch, tmp_path):
    monkeypatch.setattr(sampling, "POWER_MODE", tmp_path / "status")
    assert json.loads(sampling.conditions(FakeCupy())) == {"cupy": "14.0", "driver": 12090}
    (tmp_path / "status").write_text("pmode:0002\n")
    assert json.loads(sampling.conditions(FakeCupy()))["power_mode"] == "pmode:0002"
