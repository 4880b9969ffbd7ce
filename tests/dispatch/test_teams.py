"""Kernels whose blocks all wait for one another, over the strict double of the driver: on devices that do not start so
many at once, as under MPS and in green contexts, other kernels serve."""

from dataclasses import replace

import pytest

import gensor_kernels as gk
from gensor_kernels.dispatch.api import current
from gensor_kernels.dispatch.plans.runtime import Runtime
from gensor_kernels.dispatch.recurrent import layers
from gensor_kernels.dispatch.selection import library
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.operators.types.workload import Workload

pytest.importorskip("cupy")
from tests.doubles.captured import single
from tests.doubles.strict import surface
from tests.doubles.strict.machine import without_races
from tests.doubles.strict.results import Status
from tests.doubles.strict.stored import cubin
from tests.doubles.strict.system import System

HIDDEN, STEPS = 320, (3, 5)


def arrays(steps):
    return (single(*shape) for shape in ((steps, 1, 8), (4 * HIDDEN, 8), (4 * HIDDEN, HIDDEN)))


def kernel(family, workload, arch):
    starters = FAMILIES[family].starters(workload, arch)
    made = library.generate(max(starters, key=lambda each: each.get("slices", 0)), workload, arch)
    code = replace(made.code, cubin=cubin(made.code.target, made.code.text, made.launches(workload)))
    return replace(made, read=lambda: code)


@pytest.fixture
def machine(monkeypatch):
    """A device with the kernel of a team, which is recorded, and one of a block."""
    with without_races(monkeypatch, "orin-nano-super") as found:
        monkeypatch.setattr(layers, "_is_best", lambda *_: True)
        device = found.device()
        monkeypatch.setattr(current, "only", Runtime(device, library.Library(arch=device.arch)))
        asked = gk.explain(gk.lstm, *arrays(STEPS[0]))
        workloads = [Workload.from_json(asked.steps[-1].workload).with_sizes(steps=each) for each in STEPS]
        made = [kernel(name, workloads[0], device.arch) for name in ("recurrent_slices", "recurrent")]
        contents = library.Contents(
            {each.digest: each for each in made}, {each.key(): made[0].digest for each in workloads}
        )
        found.only = Runtime(device, library.Library(contents, arch=device.arch))
        monkeypatch.setattr(current, "only", found.only)
        yield found


def launched(machine, steps):
    before = len(machine.context.launches)
    gk.lstm(*arrays(steps))
    return [(each.function.name, each.together) for each in machine.context.launches[before:]]


def fewer(machine, monkeypatch):
    """Its blocks are more than the multiprocessors of this process."""
    monkeypatch.setitem(machine.context.part.attributes, "MultiProcessorCount", 1)


def none_together(machine, monkeypatch):
    """The device starts no blocks together."""
    launch = System.launch

    def refusing(self, *given, together=False, **more):
        if together:
            raise Status(801)
        return launch(self, *given, **more)

    monkeypatch.setattr(System, "launch", refusing)


def counted(machine, monkeypatch):
    """CuPy counts the places itself, once the driver has refused."""
    fewer(machine, monkeypatch)
    call = surface.Function.__call__

    def counting(self, *given):
        if given[5:] == (True,):
            raise ValueError("Too large grid size")
        return call(self, *given)

    monkeypatch.setattr(surface.Function, "__call__", counting)


@pytest.mark.parametrize("change", [fewer, none_together, counted])
def test_blocks_that_do_not_start_together_are_tried_once(machine, monkeypatch, change, caplog):
    """Kernels of one block serve from then on, whatever the size, also where Plans were made before."""
    team, block = [("recurrent_slices", True)], [("recurrent", False)]
    assert launched(machine, STEPS[0]) == launched(machine, STEPS[1]) == team
    with monkeypatch.context() as patch:
        change(machine, patch)
        assert launched(machine, STEPS[0]) == block and "do not start together" in caplog.text
        caplog.clear()
        assert launched(machine, STEPS[0]) == launched(machine, STEPS[1]) == block and not caplog.text
    machine.only.refresh()
    assert launched(machine, STEPS[1]) == block


def test_other_errors_of_their_launch_do_not_change_the_choice(machine, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(System, "launch", failing)
        gk.lstm(*arrays(STEPS[0]))  # by the library
    assert launched(machine, STEPS[1]) == [("recurrent_slices", True)]


def failing(self, *given, **more):
    raise Status(701)
