"""The memory of races: that of one call, on a slice where the arrays are large, and no race where no slice will do."""

import json
import tracemalloc

import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels.devices import sampling
from gensor_kernels.dispatch.api import current
from gensor_kernels.dispatch.api.rows import rows_parameters
from gensor_kernels.dispatch.calls.arguments import Operands, Operation
from gensor_kernels.dispatch.plans import trial
from gensor_kernels.operators.rows.views import workload as rows
from tests.devices.test_sampling import FakeCupy
from tests.doubles.device import MARK, FakeDevice, Numpy, Race
from tests.doubles.kernels import aligned, kernels, products, runtime_of, workload

pytestmark = pytest.mark.usefixtures("user_database")
ROWS = 32768
SHAPE = ROWS, 128
NBYTES = ROWS * 128 * 4


class Timed(FakeDevice):
    """Calls are made as the sampler of a GPU makes them; their times are those of `us`."""

    us = 10.0

    def __init__(self, **keywords):
        super().__init__(execute=self.marked, clock=Race(), **keywords)
        self.cupy = FakeCupy()

    @staticmethod
    def marked(device, code, launches):
        return lambda arguments, arrays, steps, workspace: arrays[0].fill(MARK)

    def sampler(self, calls):
        return sampling.Sampler(self.cupy, 0, [lambda call=call: self.timed_call(call) for call in calls])

    def timed_call(self, call):
        self.cupy.enqueued("call", self.us)
        return call()


def peak(work):
    """The most bytes that NumPy and the device have allocated at once during some work."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture
def softmax(monkeypatch):
    """softmax(free) -> a device with that much memory, and a function that calls softmax, of which it has kernels."""

    def make(free=None, device=None):
        wanted = rows("softmax", SHAPE, (1,), "float32")
        made = runtime_of(device or FakeDevice(clock=Race()), kernels(wanted))
        monkeypatch.setattr(made.device, "free_bytes", lambda: free)
        monkeypatch.setattr(current, "only", made)
        x = aligned(SHAPE)
        return made, lambda: float(gk.softmax(x, axis=1)[0, 0])

    monkeypatch.setattr(trial, "LEAST_SLICE", NBYTES // 16)
    monkeypatch.setenv("GENSOR_TUNE", "predicted")  # kernels serve before the race
    return make


def test_a_race_takes_the_memory_of_one_call(softmax, monkeypatch):
    """Four kernels and the library's call share what one call takes, however often each is made."""
    monkeypatch.setattr(sampling.time, "perf_counter", lambda: 0.0)
    made, call = softmax(device=Timed())
    call()
    (plan,), given = made.plans.values(), Operands((aligned(SHAPE),), None, ())
    library = peak(lambda: plan.call.by_library(given))
    launches = len(made.device.ran)
    race = peak(call)
    assert len(made.device.ran) - launches > 4 * sampling.ROUNDS
    assert library <= race < library + 1.6 * NBYTES  # the samples of the two results that are compared, as float64


@pytest.mark.parametrize(("free", "count"), [(4 * NBYTES, ROWS), (NBYTES, ROWS // 4), (2 * NBYTES - 1, ROWS // 2 - 1)])
def test_large_arrays_race_on_a_slice(softmax, free, count):
    """Times are those of all rows, and the winner serves these."""
    made, call = softmax(free)
    launches = []
    made.device.execute = lambda device, code, given: (
        lambda arguments, arrays, steps, workspace: (
            launches.append(arrays[0].shape[0]),
            arrays[0].fill(MARK),
        )
    )
    assert [call() for _ in range(3)] == [MARK] * 3 and len(made.device.races) == 1
    assert {*launches} == {ROWS, count}
    found = made.library.timings(rows("softmax", SHAPE, (1,), "float32"))
    ours = [row for row in found if row.kernel_digest]
    assert min(row.median_us for row in ours) == pytest.approx(5.0 * ROWS / count, rel=0.01)
    assert {json.loads(row.samples).get("share", 1.0) for row in found} == {count / ROWS}
    (plan,) = made.plans.values()
    assert plan.tier == 1


@pytest.mark.parametrize("free", [NBYTES // 16, 0, -1])
def test_without_memory_for_a_slice_nothing_races(softmax, free):
    made, call = softmax(free)
    assert [call() for _ in range(4)] == [MARK] * 4 and not made.device.races


def test_other_kernels_for_a_slice_are_no_race(softmax, monkeypatch):
    made, call = softmax(NBYTES)
    seen = []

    def contenders(request, library):
        seen.append(request.problem.workload.size["m"])
        return list(library.contents.kernels.values())[len(seen) % 2 :]

    monkeypatch.setattr(trial, "contenders", contenders)
    call()
    call()
    assert seen == [ROWS, ROWS // 4] and not made.device.races


@pytest.mark.parametrize(("free", "races"), [(4 * 64 * 64 * 4, 1), (4 * 64 * 64 * 4 - 1, 0)])
def test_a_product_is_raced_whole_or_not_at_all(free, races):
    made = runtime_of(FakeDevice(clock=Race()), kernels(workload(64, 64, 64)))
    made.device.free_bytes = lambda: free
    assert products(made, 3) == [0, *[MARK * races] * 2] and len(made.device.races) == races


@pytest.mark.parametrize(("free", "products"), [(NBYTES, 1), (0, 0)])
def test_a_kernel_is_compared_on_a_slice_too(softmax, monkeypatch, free, products):
    monkeypatch.setenv("GENSOR_TUNE", "off")
    made, call = softmax(free)
    shapes, exp = [], np.exp
    made.device.xp = Numpy(exp=lambda x: shapes.append(x.shape) or exp(x))
    assert call() == MARK and not shapes
    made.device.agreeing = False
    if free:
        with pytest.warns(RuntimeWarning, match="which serves in its place"):
            assert call() != MARK
    else:
        assert call() == MARK
    assert [shape[0] for shape in shapes[:1]] == [ROWS // 4] * products


def test_slices_of_operands():
    """Rows of the epilogue's operands and of `out` go along, broadcast ones stay."""
    x, row, column, all_of = (np.ones(shape) for shape in ((8, 3, 4), (4,), (8, 1, 1), (8, 3, 4)))
    steps = (*(Operation("add", each) for each in (row, column, all_of)), Operation("relu"))
    function, parameters = rows_parameters("softmax", (2,), 3)
    given = function.first_rows(Operands((x,), np.ones((8, 3, 4)), steps), parameters, 2)
    assert given.inputs[0].shape == (2, 3, 4) and given.out.shape == (2, 3, 4)
    assert [step.operand.shape for step in given.steps[:3]] == [(4,), (2, 1, 1), (2, 3, 4)]
    function, parameters = rows_parameters("reduce_sum", (1,), 3)
    (only,) = function.first_rows(Operands((x,), None, (Operation("add", np.ones((8, 4))),)), parameters, 2).steps
    assert only.operand.shape == (2, 4)
    function, parameters = rows_parameters("reduce_sum", (0,), 3)
    assert function.first_rows(Operands((x,), None, ()), parameters, 2) is None
