"""Calls whose arrays are copied first race as a whole: copies and kernel against the library's call."""

from functools import partial

import numpy as np
import pytest

import gensor_kernels
from gensor_database import duration
from gensor_kernels.dispatch.api import current
from gensor_kernels.dispatch.observe import counters
from gensor_kernels.dispatch.plans.trial import HOT_RUN, RACING_RUN, Trial
from gensor_kernels.operators.types.workload import Workload
from tests.doubles.device import FakeDevice, Prices
from tests.doubles.kernels import aligned, kernels, runtime_of, workload


def ticking(launch=10.0, copy=10.0, call=30.0):
    """A device whose launches, copies and calls of the library take these microseconds."""
    return FakeDevice(clock=Prices(launch, call, copy))


pytestmark = pytest.mark.usefixtures("user_database")


def make_runtime(monkeypatch, device, wanted=None, **keywords):
    wanted = wanted or workload(64, 64, 64, **keywords)
    found = runtime_of(device, kernels(wanted))
    monkeypatch.setattr(current, "only", found)
    return found


def odd(shape):
    """Elements off their natural alignment: kernels take a copy."""
    raw = np.zeros(int(np.prod(shape)) * 4 + 1, np.uint8)
    return np.ndarray(shape, np.float32, raw.data, 1)


def values_of(results):
    """Who computed: 55 is a kernel's mark, 0 the library's."""
    return [float(each.flat[0]) for each in results]


@pytest.mark.parametrize("summed", [False, True])
@pytest.mark.parametrize("copies, kernel", [(10.0, True), (15.0, True), (20.0, False), (40.0, False)])
def test_a_call_that_copies_is_served_by_what_is_faster_with_the_copies(monkeypatch, copies, kernel, summed):
    """The kernel takes 10 us and the library 30, the copies of both operands, or the sum of one, `copies`: the kernel
    alone would win."""
    device = ticking(copy=copies if summed else copies / 2)
    runtime = make_runtime(monkeypatch, device)
    call = gensor_kernels.matmul, odd((64, 64)), odd((64, 64))
    if summed:
        call = gensor_kernels.einsum, "ijk,kl->il", np.zeros((64, 3, 64), np.float32), aligned((64, 64))
    results = [call[0](*call[1:]) for _ in range(5)]
    assert values_of(results) == [0.0] * (RACING_RUN - 1) + [55.0 if kernel else 0.0] * (6 - RACING_RUN)
    why = gensor_kernels.explain(*call)
    assert why.staged == ("the first operand is summed over j" if summed else "operands are copied")
    assert (why.tier == 1) == kernel
    if not kernel:
        assert f"timed with its copies: {duration(10 + copies, 4)}, the library 30 µs" in why.reason
    assert device.timed[-1] == [30.0, 10.0 + copies] and len(runtime.wholes) == 1
    assert all(time < 30.0 for time in device.timed[0][1:])  # the race of the kernels on the copies alone


def test_each_way_to_lie_has_a_timing_of_its_own(monkeypatch):
    device = ticking()
    runtime = make_runtime(monkeypatch, device)
    b = aligned((64, 64))
    wide = odd((64, 128))
    for a in (odd((64, 64)), wide[:, ::2], wide[:, :64]):
        for _ in range(4):
            gensor_kernels.matmul(a, b)
    assert len(runtime.wholes) == 3 and len({kind[0] for kind in runtime.wholes}) == 1


def test_untimed_the_library_serves_what_it_does_in_one_call(monkeypatch):
    """Even where the kernel on the copies is known to win: the copies are not in its time."""
    device = ticking()
    runtime = make_runtime(monkeypatch, device)
    plain, odd_one = aligned((64, 64)), odd((64, 64))
    for _ in range(3):
        assert values_of([gensor_kernels.matmul(plain, plain)])
    assert values_of([gensor_kernels.matmul(plain, plain)]) == [55.0]
    monkeypatch.setenv("GENSOR_DETERMINISTIC", "1")
    gensor_kernels.dispatch.api.current.only.plans.clear()
    assert values_of([gensor_kernels.matmul(odd_one, plain) for _ in range(4)]) == [0.0] * 4
    why = gensor_kernels.explain(gensor_kernels.matmul, odd_one, plain)
    assert why.tier == 4 and "no timing with the copies" in why.reason and not runtime.wholes
    monkeypatch.setenv("GENSOR_TUNE", "predicted")
    runtime.plans.clear()
    assert values_of([gensor_kernels.matmul(odd_one, plain)]) == [55.0]


@pytest.mark.parametrize("launch, kernel", [(100.0, True), (1110.0, False)])
def test_other_functions(monkeypatch, launch, kernel):
    """An image that is converted: a copy and a launch against the library's nine products, one per tap, and copies.

    The library needs several calls: until the timing what is predicted to be faster serves.
    """
    device, arguments = ticking(launch, copy=50.0), (aligned((1, 8, 8, 64)), aligned((64, 3, 3, 64), np.float64))
    conv2d = partial(gensor_kernels.conv2d, layout="NHWC", padding=1)
    monkeypatch.setattr(current, "only", runtime_of(device))
    why = gensor_kernels.explain(gensor_kernels.conv2d, *arguments, layout="NHWC", padding=1)
    make_runtime(monkeypatch, device, wanted=Workload.from_json(why.workload))
    results = values_of([conv2d(*arguments) for _ in range(5)])
    assert results == [55.0] * (RACING_RUN - 1) + [55.0 if kernel else 0.0] * (6 - RACING_RUN)
    alone, whole = device.timed
    assert set(alone[1:]) == {launch} and alone[0] == 1170.0 and whole == [1170.0, launch + 50.0]
    why = gensor_kernels.explain(gensor_kernels.conv2d, *arguments, layout="NHWC", padding=1)
    assert why.staged == "operands are copied" and (why.tier == 1) == kernel
    assert kernel or "timed with its copies: 1.16 ms, the library 1.17 ms" in why.reason


def test_without_kernels_for_the_copies_nothing_is_timed(monkeypatch):
    device = ticking()
    runtime = make_runtime(monkeypatch, device, dtype="float16")
    before = counters.races.value()
    for _ in range(HOT_RUN + 2):
        gensor_kernels.matmul(odd((64, 64)), aligned((64, 64)))
    assert counters.races.value() == before and not device.timed
    assert not any(isinstance(plan, Trial) for plan in runtime.plans.values())


def test_a_timing_that_fails_leaves_the_library(monkeypatch):
    device = ticking()
    runtime = make_runtime(monkeypatch, device)
    plain = aligned((64, 64))
    for _ in range(3):
        gensor_kernels.matmul(plain, plain)
    monkeypatch.setattr(device, "sampler", lambda *_: 1 // 0)
    a = odd((64, 64))
    assert values_of([gensor_kernels.matmul(a, plain) for _ in range(4)]) == [0.0] * 4
    assert not runtime.wholes


def test_after_tuning_it_is_timed_again(monkeypatch):
    device = ticking(copy=40.0)
    runtime = make_runtime(monkeypatch, device)
    a, b = odd((64, 64)), aligned((64, 64))
    for _ in range(4):
        gensor_kernels.matmul(a, b)
    (kind,) = runtime.wholes
    runtime.renew(gensor_kernels.operators.types.workload.Workload.from_json(kind[0]))
    assert not runtime.wholes
