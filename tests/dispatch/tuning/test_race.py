"""Races: contenders, winners, calls without a race, and stored times."""

import json
import threading
import time
from dataclasses import replace
from functools import partial
from unittest.mock import Mock

import numpy as np
import pytest

import gensor_kernels
from gensor_database import Store, Timing, Verification, canonical, duration
from gensor_kernels.dispatch.api import current
from gensor_kernels.dispatch.calls import problem
from gensor_kernels.dispatch.calls.arguments import Operands, Operation
from gensor_kernels.dispatch.observe import counters
from gensor_kernels.dispatch.plans import trial
from gensor_kernels.dispatch.plans.make import choose
from gensor_kernels.dispatch.plans.plan import LibraryPlan
from gensor_kernels.dispatch.plans.trial import HOT_RUN, RACING_RUN, Trial
from gensor_kernels.dispatch.selection import library, predict
from gensor_kernels.dispatch.tuning import power_mode, race
from gensor_kernels.errors import BuildError
from gensor_kernels.operators.types.workload import Workload
from tests.dispatch.selection.test_tiers import request
from tests.doubles.device import FakeDevice, Prices, Race
from tests.doubles.kernels import aligned, asked, kernels, products, runtime_of, workload
from tests.threads import in_threads

pytestmark = pytest.mark.usefixtures("user_database")


def racer(wanted=None, times=(), **keywords):
    wanted = wanted or workload(64, 64, 64)
    timings = {wanted.key(): list(times)} if times else {}
    return runtime_of(FakeDevice(clock=Race(**keywords)), kernels(wanted), timings=timings)


@pytest.mark.parametrize("out", [False, True])
def test_the_second_call_of_a_kind_races_and_the_winner_serves(out, tmp_path):
    runtime = racer()
    assert products(runtime, 3, out) == [0, 55, 55] and len(runtime.device.races) == 1
    with Store.open(tmp_path / "user.db") as store:
        rows = list(store.rows(Timing))
    assert len(rows) == runtime.device.races[0] + 1 and {row.device for row in rows} == {Race.conditions}
    assert {row.vendor for row in rows if row.kernel_digest is None} == {"numpy.matmul"}
    again = racer(times=rows)  # another process: nothing races, the winner serves from the first call on
    assert products(again, 3) == [55, 55, 55] and not again.device.races


def test_a_wrong_kernel_never_serves(tmp_path, caplog):
    runtime = racer()
    runtime.device.agreeing = False
    assert products(runtime, 5) == [0] * 5
    with Store.open(tmp_path / "user.db") as store:
        found = [(row.method, row.outcome, row.kernel_digest) for row in store.rows(Verification)]
    assert found and {each[:2] for each in found} == {("device", "wrong")}
    assert not runtime.library.contents.kernels.keys() & {name for *_, name in found}
    assert "are not those of numpy, and nothing uses it any more" in caplog.text


def test_a_library_that_overflows_refutes_no_kernel(tmp_path, monkeypatch, caplog):
    """The library rounds a product to float16 before its epilogue, a kernel after it."""
    runtime = racer()
    runtime.device.agreeing = False
    monkeypatch.setattr(runtime.device, "multiply", lambda a, b, out: np.full((64, 64), np.inf))
    stored = set(runtime.library.contents.kernels)
    with caplog.at_level("INFO"):
        assert np.isinf(products(runtime, 5)).all()
    assert set(runtime.library.contents.kernels) == stored and "NaN or infinities at different places" in caplog.text
    with Store.open(tmp_path / "user.db") as store:
        assert not list(store.rows(Verification))


def test_the_others_race_again_and_serve():
    """Kernels serve from the first run on where the library needs several calls."""
    a, b, runtime, wrong = aligned((64, 64)), aligned((64, 64)), racer(), []
    device, stored = runtime.device, set(runtime.library.contents.kernels)

    def agrees(result, expected):
        wrong[:] = wrong or [device.ran[-1]]
        return device.ran[-1] not in wrong

    device.agrees = agrees
    found = [runtime.call(a, b, None, (Operation("relu"),), None, None)[0, 0] for _ in range(6)]
    (left,) = stored - set(runtime.library.contents.kernels)
    assert found == [55] * 6 and len(device.races) == 2 and device.ran[-1] not in wrong
    assert kernels(workload(64, 64, 64))[left].code.digest in wrong


class Lucky(Race):
    """Kernels are fast in a race and slow alone."""

    def __call__(self, calls):
        return super().__call__(calls) if len(calls) > 2 else [10.0, 11.0]


def test_a_winner_is_timed_alone_before_it_serves():
    steady, lucky = racer(), runtime_of(FakeDevice(clock=Lucky()), kernels(workload(64, 64, 64)))
    assert products(steady, 3) == [0, 55, 55] and len(steady.device.duels) == 1
    assert products(lucky, 100) == [0] * 100 and len(lucky.device.races) == 1
    contenders = lucky.device.races[0]
    assert len(lucky.device.duels) == contenders > 1  # one after the other
    found = [row.median_us for row in lucky.library.timings(workload(64, 64, 64))]
    assert sorted(found) == [10.0] + [11.0] * contenders


def test_a_kernel_that_the_host_launches_slowly_does_not_serve():
    """6 us of the device after 20 us of the host, against 8 and 8: also where the times are read again."""
    runtime = racer(ours=6.0, theirs=8.0)
    runtime.device.clock.host = (8.0, 20.0)
    assert products(runtime, 4) == [0] * 4 and len(runtime.device.races) == 1
    rows = runtime.library.timings(workload(64, 64, 64))
    assert {row.median_us for row in rows} >= {6.0, 8.0}  # of the device, as tuning stores them
    assert {json.loads(row.samples)["host_us"] for row in rows} == {8.0, 20.0}
    again = racer(times=rows, ours=6.0, theirs=8.0)
    assert products(again, 4) == [0] * 4 and not again.device.races
    call, operands = asked(again, aligned((64, 64)), aligned((64, 64)))
    assert "but the host takes longer to launch it" in choose(call, operands, False)[0].reason
    quick = racer(ours=6.0, theirs=8.0)
    quick.device.clock.host = (8.0, 5.0)
    assert products(quick, 3) == [0, 55, 55]


@pytest.mark.parametrize("ours", [20.0, 10.0, 9.9])
def test_a_kernel_that_does_not_win_never_serves(ours):
    runtime = racer(ours=ours)
    assert products(runtime, 100) == [0] * 100 and len(runtime.device.races) == 1
    (plan,) = runtime.plans.values()
    assert not isinstance(plan, trial.Trial)  # it has stepped aside


#: (settings, binaries of the kernels, faults of the device, words of the log)
WITHOUT_RACES = [
    ({"GENSOR_TUNE": "off"}, None, (), ""),
    ({"GENSOR_DETERMINISTIC": "1"}, None, (), ""),
    ({"GENSOR_RACE": "0"}, None, (), ""),
    ({}, b"", (), ""),
    ({}, None, ("sample",), "a race was called off"),
    ({}, None, {"load": BuildError("the driver refused it")}, "does not race"),
]


@pytest.mark.parametrize(("settings", "cubin", "fails", "words"), WITHOUT_RACES)
def test_calls_without_a_race_go_to_the_library(settings, cubin, fails, words, monkeypatch, caplog):
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    runtime = runtime_of(FakeDevice(clock=Race(), fails=fails), kernels(workload(64, 64, 64), cubin))
    with caplog.at_level("INFO", "gensor_kernels"):
        assert products(runtime, 4) == [0] * 4
    assert words in caplog.text and caplog.text.count("a race was called off") <= 1
    assert not runtime.device.races or "sample" in fails
    assert power_mode.watch(runtime) is None


def test_without_races_nothing_waits_for_the_stream(monkeypatch):
    """Products, fused products and calls with copies serve on a stream that must not be waited for: it waits for a
    collective whose other half this thread sends later."""
    monkeypatch.setenv("GENSOR_RACE", "0")
    waits = dict.fromkeys(("sample", "synchronize"), pytest.fail.Exception("the program hangs"))
    made = runtime_of(FakeDevice(clock=Race(), fails=waits), kernels(workload(64, 64, 64)))
    a, wide = aligned((64, 64)), aligned((64, 64), np.float64).astype(np.float32)[::-1].astype(np.float16)
    for _ in range(trial.HOT_RUN + 2):
        made.call(a, a, None, (), None, None)
        made.call(a, a, None, (Operation("relu"),), None, None)
        made.call(a, wide, None, (), None, None)
        made.contract("ij,jk", a, wide)
    assert not any(isinstance(plan, trial.Trial) for plan in made.plans.values())


def test_no_race_inside_graph_capture():
    runtime = racer()
    assert products(runtime, 1) == [0]
    runtime.device.is_capturing = True
    products(runtime, 3)
    assert not runtime.device.races
    runtime.device.is_capturing = False
    assert products(runtime, 2) == [55, 55] and len(runtime.device.races) == 1


def test_a_result_that_overlaps_an_operand_is_not_raced():
    runtime, a = racer(), aligned((64, 64))
    for _ in range(4):
        runtime.call(a, aligned((64, 64)), a, (), None, None)
    assert not runtime.device.races
    assert problem.overlaps(runtime.pointer, Operands([aligned((4, 4)), a[31:]], a[:32], ()))
    assert not problem.overlaps(runtime.pointer, Operands([a[32:], None], a[:32], ()))


def test_other_conditions_are_another_race():
    """A new driver: what was measured serves until the race that may demote it."""
    first = racer()
    products(first, 3)
    rows = [row for rows in first.library.contents.timings.values() for row in rows]
    later = racer(times=rows, ours=30.0)
    later.device.clock.conditions = later.library.conditions = '{"driver":2}'
    assert products(later, 3) == [55, 0, 0] and len(later.device.races) == 1
    assert not later.library.reload() and products(later, 1) == [0]


@pytest.mark.parametrize(
    ("changed", "until"),
    [
        ({"cupy": "14"}, 55),
        ({"cublas": 2}, 55),
        ({"cutensor": 3}, 55),
        ({"accelerators": "cub,cutensor"}, 0),
    ],
)
def test_another_library_is_another_race(changed, until):
    """The old win serves until then, but for other accelerators: with these the library's call is another one. Times of
    kernels last."""
    first, before = racer(), {"cublas": 1, "cupy": "13", "driver": 1}
    first.device.clock.conditions = first.library.conditions = canonical(before)
    products(first, 3)
    rows = [row for rows in first.library.contents.timings.values() for row in rows]
    later = racer(times=rows, ours=30.0)
    later.device.clock.conditions = later.library.conditions = canonical({**before, **changed})
    wanted = workload(64, 64, 64)
    lasting = [row for row in later.library.timings(wanted) if row.kernel_digest]
    assert lasting == [row for row in rows if row.kernel_digest] and not later.library.is_current(wanted)
    later.library.note([replace(row, device=later.library.conditions) for row in rows if row.vendor])
    assert later.library.is_current(wanted) and len(later.library.timings(wanted)) == len(rows)
    again = racer(times=rows, ours=30.0)
    again.device.clock.conditions = again.library.conditions = later.library.conditions
    assert products(again, 2)[0] == until and len(again.device.races) == 1


def test_another_power_mode_is_noticed_while_a_program_runs(monkeypatch):
    """The kernel wins in one mode and loses in the other; the program is served by the winner of each."""
    runtime = racer()
    device = runtime.device
    device.clock.conditions = '{"power_mode":"0"}'
    runtime.adapt(device.conditions())
    assert products(runtime, 3) == [0, 55, 55]
    thread = power_mode.watch(runtime, seconds=0.01)
    device.clock.ours, device.clock.conditions = 30.0, '{"power_mode":"1"}'
    assert wait_for(lambda: not runtime.plans)
    assert products(runtime, 3) == [55, 0, 0] and len(device.races) == 2
    device.clock.conditions = '{"power_mode":"0"}'
    assert wait_for(lambda: not runtime.plans)
    assert products(runtime, 3) == [55] * 3 and len(device.races) == 2
    device.conditions = lambda: 1 // 0
    thread.join(5)
    assert not thread.is_alive() and products(runtime, 1) == [55]


def wait_for(truth):
    deadline = time.monotonic() + 10
    while not truth() and time.monotonic() < deadline:
        time.sleep(0.005)
    return truth()


def test_threads_hold_one_race():
    runtime = racer()
    products(runtime, 1)
    found, start = [], threading.Barrier(8)

    def work(_):
        start.wait()
        found.extend(products(runtime, 20))

    in_threads(work, range(8))
    assert len(runtime.device.races) == 1 and len(found) == 160 and set(found) <= {0.0, 55.0} and found[-1] == 55


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), None])
def test_times_that_cannot_be_stored_still_decide(error, monkeypatch, tmp_path, caplog):
    """With one warning per process; the error is that of a disk, or of a folder that is a file."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GENSOR_DB", str(tmp_path / ("user.db" if error else "file/user.db")))
    if error:
        monkeypatch.setattr(Store, "open", Mock(side_effect=error))
    for runtime in (racer(), racer()):
        assert products(runtime, 3) == [0, 55, 55]
        assert products(runtime, 3) == [55] * 3
    assert [each.levelname for each in caplog.records].count("WARNING") == 1
    assert "kept for this process only" in caplog.text


def test_favourites_race_and_no_more_than_a_few():
    wanted = workload(64, 64, 64)
    runtime = racer(wanted)
    wish = request(wanted)
    entered = race.contenders(wish, runtime.library)
    seconds = dict(zip(runtime.library.contents.kernels, predict_seconds(runtime, wanted), strict=True))
    assert 1 <= len(entered) <= race.CONTENDERS
    assert seconds[entered[0].digest] == min(seconds.values())
    assert all(seconds[each.digest] <= race.NEAR * min(seconds.values()) for each in entered)
    slowest = max(seconds, key=seconds.get)
    recorded = library.Library(replace(runtime.library.contents, records={wanted.key(): slowest}))
    assert race.contenders(wish, recorded)[0].digest == slowest  # what tuning chose always runs
    huge = workload(32768, 32768, 32768)
    assert len(race.contenders(request(huge), recorded)) == 1


def predict_seconds(runtime, wanted):
    return predict.predict(list(runtime.library.contents.kernels.values()), wanted, runtime.device.arch)


def test_contractions_race_on_the_callers_arrays():
    runtime = racer()
    a, b = aligned((64, 64)), aligned((64, 64))
    found = [float(runtime.contract("ij,jk", a, b)[0, 0]) for _ in range(3)]
    assert found == [0, 55, 55] and len(runtime.device.races) == 1
    slow = racer(ours=50.0)
    assert [float(slow.contract("ij,jk", a, b)[0, 0]) for _ in range(70)] == [0] * 70
    assert [type(plan) for plan in slow.plans.values()] == [LibraryPlan]


# ---- calls whose arrays are copied first race as a whole: copies and kernel against the library's call


def ticking(launch=10.0, copy=10.0):
    """A device whose launches, copies and calls of the library take these microseconds."""
    return FakeDevice(clock=Prices(launch, copy=copy))


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
