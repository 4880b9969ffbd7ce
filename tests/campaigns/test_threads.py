"""Sixteen threads that call while kernels are raced, tuned and swapped: all results are correct.

GENSOR_CAMPAIGN=full: 16 threads of 10,000 calls; by default a hundredth of that.

HOT: runs after which a kind of call is tuned; TUNED: Workloads that tuning finds a kernel for; SWAPS: further times
that all Plans are made again.
"""

import sys
import threading
import time

import numpy as np
import pytest

from gensor_kernels.dispatch.plans import trial
from gensor_kernels.dispatch.plans.runtime import Runtime
from gensor_kernels.dispatch.selection import library
from gensor_kernels.dispatch.tuning import background as background_tuning
from tests.campaign_size import FULL
from tests.doubles.device import FakeDevice
from tests.doubles.exact import Exact, Turns
from tests.doubles.kernels import workload

from .lives.calls import KINDS, Kind, stock

THREADS = 16
CALLS, HOT, TUNED, SWAPS = (10_000, 64, 50, 20) if FULL else (100, 4, 5, 3)


class Stores:
    """Databases that tuning adds to: at first a few kernels, each tuned Workload brings more and a record."""

    def __init__(self):
        self.kernels = stock()
        self.order = sorted(self.kernels)
        self.shown, self.records = 4, {}

    def read(self):
        shown = {digest: self.kernels[digest] for digest in self.order[: self.shown]}
        return library.Contents(shown, {key: each for key, each in self.records.items() if each in shown})

    def tune(self, wanted, arch, notes, device, background):
        """Stands for the tuning process: the last kernel shown that fits is the record."""
        self.shown = min(self.shown + 1, len(self.order))
        fitting = [digest for digest in self.order[: self.shown] if self.kernels[digest].fits(wanted)]
        fitting = fitting if len(self.records) < TUNED else []
        if fitting:
            self.records[wanted.key()] = fitting[-1]
        return bool(fitting)


@pytest.fixture
def stores(monkeypatch, tmp_path):
    monkeypatch.setenv("GENSOR_DB", str(tmp_path / "user.db"))
    monkeypatch.delenv("GENSOR_TUNE", raising=False)
    made = Stores()
    monkeypatch.setattr(background_tuning, "tune", made.tune)
    monkeypatch.setattr(background_tuning, "MOST_FAILURES", sys.maxsize)
    monkeypatch.setattr(trial, "HOT_RUN", HOT)
    before = sys.getswitchinterval()
    monkeypatch.delenv("GENSOR_BACKGROUND", raising=False)
    sys.setswitchinterval(1e-4)
    yield made
    sys.setswitchinterval(before)


def test_every_result_is_right_while_kernels_are_swapped(stores):
    device = FakeDevice(execute=Exact(stores.kernels), clock=Turns())
    runtime = Runtime(device, library.Library(read=stores.read))
    kinds, start = [Kind(index) for index in range(KINDS)], threading.Barrier(THREADS)
    wrong, done, over = [], [], []

    def work(number):
        rng = np.random.default_rng(number)
        start.wait()
        for index in rng.integers(0, KINDS, CALLS):
            try:
                if not np.array_equal(kinds[index].call(runtime), kinds[index].expected):
                    wrong.append(f"kind {index} by thread {number}")
            except BaseException as error:
                wrong.append(repr(error))
            done.append(number)

    def swap():
        """The end of a tuning, repeated."""
        for swaps in range(1, SWAPS):
            while len(done) < swaps * THREADS * CALLS // SWAPS and not over:
                time.sleep(0.001)
            runtime.renew(workload(16, 16, 16))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    swapper = threading.Thread(target=swap)
    for each in (*threads, swapper):
        each.start()
    for each in threads:
        each.join()
    over.append(True)
    swapper.join()
    runtime.background.join(60)
    assert not wrong, (len(wrong), wrong[:5])
    assert not device.execute.errors
    assert len(device.races) > KINDS / 2 and len(set(device.ran)) >= 3  # kernels did serve, not one alone
    assert stores.records
    assert len(device.ran) > CALLS
    print(f"campaign: {THREADS * CALLS} calls, {len(device.ran)} launches of {len(set(device.ran))} kernels")
    print(f"campaign: {len(device.races)} races, {len(stores.records)} Workloads tuned")
