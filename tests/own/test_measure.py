"""Configurations of a user's kernel are run and timed in a child that has the GPU; here the emulator is one."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import gensor_kernels
from gensor_database.record import Timing, Verification
from gensor_database.store import Store
from gensor_kernels import own
from gensor_kernels.devices.emulator.device import EmulatorDevice
from gensor_kernels.machine.arch import lookup
from gensor_tuner.gpu import GpuError
from gensor_tuner.measure import tournament
from gensor_tuner.measure.timer import HostClock, Timed, Timer, Times
from gensor_tuner.own import measure
from gensor_tuner.own.measure import Bench, Measured, answered
from gensor_tuner.own.space import OwnSpace
from gensor_tuner.own.verify import Check
from gensor_tuner.verify.device_process import EndedError
from tests.doubles import board
from tests.own.test_tune import SCALE, scale

pytestmark = pytest.mark.usefixtures("needs_emulator")
ARCH, SIZES = lookup("orin-nano-8gb"), {"n": 1000}
ROOT = Path(__file__).resolve().parents[2]


class Child:
    """A child in this process. Its device takes `share(knobs)` of predicted times, and `fails(knobs)` ends it."""

    predicted: dict

    def __init__(self, share, fails=lambda knobs: False, end="the process that ran it ended with 7"):
        self.share, self.fails, self.end = share, fails, end
        self.timer, self.asked = Timer(EmulatorDevice(ARCH), HostClock()), []

    def microseconds(self, knobs):
        return self.predicted[tuple(knobs.items())] * 1e6 * self.share(knobs)

    def ask(self, question, on_note=lambda note: None):
        kind, given = question
        knobs = [dict(each.configuration.knobs) for each in (given[0] if kind == "time" else given[:1])]
        self.asked.append((kind, knobs))
        for number, each in enumerate(knobs):
            on_note(number)
            if self.fails(each):
                raise EndedError(self.end)
        if kind == "run":
            return answered(self.timer, question, on_note)[0]
        times = tuple(Timed(*[self.microseconds(each)] * 3, 15, 100) for each in knobs)
        return Times(times, None, "{}", ("",) * len(knobs))


def measured(child, kernel=None, reference=lambda x: 3 * x, seen=lambda knobs: True):
    kernel = kernel or scale(knobs={"threads": [32, 64, 96, 128, 160, 192, 224, 256], "each": [1, 2, 3, 4, 5, 6]})
    space = OwnSpace(kernel.description, kernel.source, SIZES, ARCH)
    points = space.enumerated(100)
    ranked = sorted(zip(map(space.program, points), space.potential(np.array(points)), strict=True), key=lambda x: x[1])
    named = {program: tuple(dict(space.own.knobs(program)).items()) for program, _ in ranked}
    child.predicted = {named[program]: seconds for program, seconds in ranked}
    found = Measured()
    ranked = [each for each in ranked if seen(dict(named[each[0]]))]
    Bench(space, Check(kernel.description, reference, {"n": 100}, SIZES), child, found).measure(ranked)
    times = {named[program]: time.median_us for program, time in found.times.items()}
    return times, {named[program]: verdict for program, verdict in found.failed.items()}


def test_rounds_reach_the_fastest_and_end(monkeypatch):
    monkeypatch.setattr(tournament, "BATCH", 6)
    child = Child(lambda knobs: {1: 1.3, 4: 1.3}.get(knobs["each"], 1.0) * (0.8 if knobs["threads"] == 96 else 1.0))
    times, failed = measured(child)
    truth = {knobs: child.microseconds(dict(knobs)) for knobs in child.predicted}
    assert min(times, key=times.get) == min(truth, key=truth.get) and not failed
    assert [kind for kind, _ in child.asked].count("run") == len(times) < len(truth)  # each once, and not all
    rounds = [knobs for kind, knobs in child.asked if kind == "time"]
    assert rounds[1][0] == min(rounds[0], key=child.microseconds)  # the leader is timed again


def test_neighbours_of_the_fastest_are_measured():
    child = Child(lambda knobs: 0.5 ** (knobs["each"] - 1))
    kernel = scale(knobs={"threads": [64, 128], "each": [1, 2, 3, 4, 5, 6]})
    times, _ = measured(child, kernel, seen=lambda knobs: knobs["each"] == 1)
    assert dict(min(times, key=times.get))["each"] == 6  # five steps from the two that were given


def test_what_ends_the_child_is_left_out_and_the_rest_timed():
    times, failed = measured(Child(lambda knobs: 1.0, lambda knobs: knobs["threads"] == 64), scale())
    assert {dict(each)["threads"] for each in times} == {128} and len(times) == 2
    assert {dict(each)["threads"] for each in failed} == {64}
    assert {(each.outcome, each.detail) for each in failed.values()} == {
        ("failed", "on the device: the process that ran it ended with 7")
    }


def test_wrong_results_on_the_device_are_not_timed():
    child = Child(lambda knobs: 1.0)
    times, failed = measured(child, scale(), reference=lambda x: 4 * x)
    assert not times and {each.outcome for each in failed.values()} == {"wrong"} and len(failed) == 4
    assert all(kind == "run" for kind, _ in child.asked)


class Writes:
    """A configuration whose launch does something else."""

    configuration = own.configuration.Configuration(scale().description, SCALE, (("threads", 64), ("each", 1)), "sm_87")

    def __init__(self, does):
        self.does = does

    def on(self, device, constants):
        return lambda arguments, sizes: self.does(arguments)


@pytest.mark.parametrize(
    ("does", "reason"),
    [
        (lambda arguments: arguments[0].base[:4096].fill(0), "memory next to argument 0 was written"),
        (lambda arguments: arguments[1].base[-1:].fill(0), "memory next to argument 1 was written"),
        (lambda arguments: arguments[1].fill(0), "argument 1, which is described as read only, was written"),
    ],
)
def test_launches_that_write_what_they_may_not(does, reason):
    x = np.ones(100, np.float32)
    arguments = [np.zeros_like(x), x, np.int32(100).tobytes(), np.float32(3).tobytes()]
    timer = Timer(EmulatorDevice(ARCH), HostClock())
    question = ("run", (Writes(does), arguments, {}, {"n": 100}))
    assert answered(timer, question, lambda note: None) == (reason, False)


def test_a_kernel_is_measured_stored_and_loaded(gensor_tune, monkeypatch, tmp_path):
    monkeypatch.setattr(measure, "open_timer", board.open_part)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    best = scale().tune("orin-nano-8gb", SIZES, lambda x: 3 * x, keep=3, measure="require")
    times = [each.timed.median_us for each in best.found]
    assert times == sorted(times) and best.measured == 4 and not best.failed
    assert str(best).splitlines()[0].split()[:3] == ["configuration", "measured", "predicted"]
    best.save(tmp_path / "scale.db")
    best.to_t4(tmp_path / "scale.json")
    first = json.loads((tmp_path / "scale.json").read_text())["results"][0]
    assert first["objectives"] == ["time"] and first["times"]["runtimes"] == [times[0] * 1e-3]
    with Store.open(tmp_path / "scale.db", readonly=True) as store:
        rows = {row.kernel_digest: row for row in store.rows(Timing)}
        assert sorted(row.median_us for row in rows.values()) == times
        assert {json.loads(row.samples)["rounds"] for row in rows.values()} == {1}
        assert {json.loads(row.device)["power_mode"] for row in rows.values()} == {"15W"}
        assert sorted(row.method for row in store.rows(Verification)) == ["device"] * 3 + ["emulator"] * 3
    code, out, err = gensor_tune("show", "--db", "{}/scale.db")
    assert code == 0 and "scale" in out, err
    monkeypatch.setenv("GENSOR_FLEET_DEVICE", "tests.doubles.board:open_timer")
    code, out, err = gensor_tune("measure", "--db", "{}/scale.db")
    assert code == 0 and "scale" in out and "gensor_kernels.own.load times it when called" in out, (out, err)
    x = np.arange(1000, dtype=np.float32)
    out = np.zeros_like(x)
    with gensor_kernels.emulated("sm_87"):
        own.load(tmp_path / "scale.db")(out, x, 1000, 3.0)
    assert np.array_equal(out, 3 * x)


def test_without_the_part_nothing_is_measured(monkeypatch, capsys):
    found = [GpuError("CuPy is not installed")]

    def refused(arch):
        raise found[-1]

    monkeypatch.setattr(measure, "DeviceProcess", lambda opener, answer: opener())
    monkeypatch.setattr(measure, "open_timer", refused)
    tune = partial(scale().tune, "orin-nano-8gb", SIZES, lambda x: 3 * x, keep=1)
    assert tune().found[0].timed is None and not capsys.readouterr().err
    found.append(GpuError("the GPU here is sm_90, not sm_87", worth_telling=True))
    assert tune().found[0].timed is None
    assert "not measuring: the GPU here is sm_90, not sm_87" in capsys.readouterr().err
    with pytest.raises(GpuError, match="--measure require needs a GPU that is orin-nano-8gb: the GPU here is sm_90"):
        tune(measure="require")
    with pytest.raises(gensor_kernels.ConfigError, match="measure is one of auto, never, require, not 'always'"):
        tune(measure="always")
