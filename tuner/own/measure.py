"""Measuring of a user's kernel on this machine's GPU, in another process: a kernel may fault, or never end.

A configuration runs at the sizes of verification first, between zones of poison and next to the reference. Then all of
a round are timed interleaved, as this package's own kernels are, and `Search` chooses the next round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from gensor_kernels.devices.device import Device
from gensor_kernels.errors import BuildError
from gensor_kernels.families.core.program import Program
from gensor_kernels.own.configuration import Given, draw
from gensor_kernels.own.description import NUMBER, READ, Value
from gensor_kernels.own.launch import Call, Launchable
from gensor_tuner.build.pool import features
from gensor_tuner.gpu import GpuError, free_memory
from gensor_tuner.measure.board import FAILED, NOT_LOADED, attempted, timed_without_failing
from gensor_tuner.measure.timer import Timed, Timer, Times, open_timer
from gensor_tuner.measure.tournament import Rounds
from gensor_tuner.output import note
from gensor_tuner.verify.device_process import ATTEMPTS, DeviceProcess, EndedError, Say
from gensor_tuner.verify.on_device import GUARD, POISON, poisoned

from .space import Built, OwnSpace
from .verify import Check, LaunchError, Verdict

WHEN = ("auto", "never", "require")


@dataclass
class Measured:
    """Times by Program, with the conditions they were taken in, and what failed on the device."""

    times: dict[Program, Timed] = field(default_factory=dict)
    failed: dict[Program, Verdict] = field(default_factory=dict)
    conditions: str = ""


def measured_here(space: OwnSpace, check: Check, ranked: Sequence[tuple[Program, float]], measure: str) -> Measured:
    """Measure configurations, (Program, predicted seconds), where this machine's GPU is the space's part.

    `measure` is "auto", "never", or "require", which raises GpuError where nothing can be measured.
    """
    found = Measured()
    if measure == "never":
        return found
    try:
        with DeviceProcess(partial(open_timer, space.arch), answered) as child:
            Bench(space, check, child, found).measure(ranked)
    except (GpuError, RuntimeError) as error:  # the latter for a child that fails whatever it is asked
        if measure == "require" and not found.times:
            raise GpuError(f"--measure require needs a GPU that is {space.arch.part}: {error}") from None
        if getattr(error, "worth_telling", True):
            note(f"not measuring: {error}")
    return found


class Search:
    """Which configurations are measured next, of (Program, predicted seconds) and of neighbours of the fastest.

    After every round a Gaussian process over the terms of counts corrects the predictions, and the neighbours of the
    fastest configuration whose neighbours are unknown are counted.
    """

    def __init__(self, space: OwnSpace, ranked: Sequence[tuple[Program, float]]):
        self.space = space
        self.programs = [program for program, _ in ranked]
        self.predicted = np.array([seconds for _, seconds in ranked])
        self.able = np.ones(len(ranked), bool)
        self._rounds = Rounds(len(ranked))
        self._left: set[Program] = set()

    @property
    def leader(self) -> Program | None:
        """The fastest configuration so far."""
        return None if self._rounds.leader is None else self.programs[self._rounds.leader]

    def next(self) -> list[Program]:
        """Return the configurations of a round, the leader first; none when two rounds gained nothing."""
        self._look_around()
        described = features(self.space.counts(self.programs), self.space.arch)
        return [self.programs[column] for column in self._rounds.next(self.predicted, described, self.able)]

    def add(self, times: Mapping[Program, float]) -> float:
        """Record measured seconds of a round, the leader's first; return the correction for the clock's drift."""
        columns = [self.programs.index(program) for program in times]
        return self._rounds.add(columns, np.array([*times.values()]))

    def fail(self, program: Program) -> None:
        """Leave out a configuration."""
        column = self.programs.index(program)
        self.able[column] = False
        self._rounds.fail([column])

    def _look_around(self) -> None:
        seconds = self._rounds.seconds
        order = [self.programs[column] for column in np.argsort(seconds) if np.isfinite(seconds[column])]
        middle = next((program for program in order if program not in self._left), None)
        if middle is None:
            return
        self._left.add(middle)
        known = set(self.programs)
        new = [each for each in self.space.around(middle) if each not in known]
        predicted = self.space.predicted(new)
        runs = np.isfinite(predicted)
        self.programs += [each for each, able in zip(new, runs, strict=True) if able]
        self.predicted = np.append(self.predicted, predicted[runs])
        self.able = np.append(self.able, np.ones(int(runs.sum()), bool))
        self._rounds.grow(int(runs.sum()))


class Bench:
    """Measures configurations of a space in rounds, by a child that has the GPU; `found` is added to."""

    def __init__(self, space: OwnSpace, check: Check, child: DeviceProcess, found: Measured):
        self.space, self.check, self.child, self.found = space, check, child, found

    def measure(self, ranked: Sequence[tuple[Program, float]]) -> None:
        """Time configurations until two rounds gain nothing."""
        search = Search(self.space, ranked)
        while programs := search.next():
            leader = search.leader
            for program in programs:
                if program != leader and not self._runs(program):
                    search.fail(program)
            entrants = [each for each in programs if each not in self.found.failed]
            if not entrants or entrants == [leader]:
                continue
            times = self._times([self.space.built[each] for each in entrants])
            if times.lost:
                raise GpuError(times.lost, worth_telling=True)
            self.found.conditions = self.found.conditions or times.conditions
            if self.found.conditions != times.conditions:
                raise GpuError(f"the conditions {times.conditions} are not those of earlier times", worth_telling=True)
            for program, why in zip(entrants, times.why, strict=True):
                if why:
                    search.fail(program)
                    self._fail(program, Verdict("failed", why))
                    self.found.times.pop(program, None)  # the leader may fail when it is timed again
            kept = {program: each for program, each in zip(entrants, times.timed, strict=True) if each is not None}
            if kept:
                drift = search.add({program: each.median_us * 1e-6 for program, each in kept.items()})
                fresh = {program: each.scaled(drift) for program, each in kept.items() if program != leader}
                self.found.times.update(fresh)

    def _runs(self, program: Program) -> bool:
        """Whether a configuration computes on the device what the reference does, at the sizes of verification."""
        built = self.space.built[program]
        verdict = self.check.of(built.configuration, [partial(self._run, launchable(built))])
        if verdict.outcome != "ok":
            self._fail(program, replace(verdict, detail=f"on the device: {verdict.detail}"))
        return verdict.outcome == "ok"

    def _fail(self, program: Program, verdict: Verdict) -> None:
        self.found.failed[program] = verdict

    def _run(
        self,
        what: Launchable,
        arguments: Sequence[Given],
        constants: Mapping[str, np.ndarray],
        sizes: Mapping[str, int],
    ) -> None:
        """Launch over copies of the arguments, and write the results to them; LaunchError where it fails."""
        answer: Any = None
        for _ in range(ATTEMPTS):  # a busy machine does not explain two failures
            try:
                answer = self.child.ask(("run", (what, list(arguments), dict(constants), dict(sizes))))
                break
            except EndedError as error:
                if error.killed:
                    raise GpuError(f"a launch was killed: {error}", worth_telling=True) from None
                answer = str(error)
        if isinstance(answer, str):
            raise LaunchError(answer)
        for number, found in answer.items():
            np.copyto(arguments[number], found)  # arrays alone are answered

    def _times(self, some: Sequence[Built]) -> Times:
        described = [launchable(each) for each in some]

        def ask(left: list[int], say: Say) -> Any:
            return self.child.ask(("time", ([described[number] for number in left], self.space.sizes)), say)

        return timed_without_failing(len(described), ask)


def launchable(built: Built) -> Launchable:
    """Return what another process launches of a configuration."""
    return Launchable(replace(built.configuration), built.binary.cubin, built.entry.name)


# ---- in the child


def answered(timer: Timer, question: Any, say: Say) -> tuple[Any, bool]:
    """Answer a question; see `DeviceProcess`."""
    kind, asked = question
    if kind == "time":
        some, sizes = asked
        return attempted(timer, lambda: timed(timer, some, sizes, say), len(some))
    try:
        found = executed(timer.device, *asked)
        free_memory(timer.device)
        return found, False
    except LaunchError as error:
        return str(error), False
    except Exception as error:  # driver errors have no common base class
        return f"{type(error).__name__}: {error}", True


@dataclass(frozen=True)
class Zoned:
    """A copy of an array on a device, between zones of poison."""

    memory: Any
    array: Any

    @classmethod
    def of(cls, device: Device, given: np.ndarray) -> Zoned:
        """Copy an array of the host."""
        memory = device.xp.full(given.nbytes + 2 * GUARD, POISON, np.uint8)
        array = memory[GUARD : GUARD + given.nbytes].view(given.dtype).reshape(given.shape)
        array[...] = device.xp.asarray(given)
        return cls(memory, array)

    def intact(self) -> bool:
        """Whether the zones still hold the poison."""
        return poisoned(self.memory[:GUARD]) and poisoned(self.memory[GUARD + self.array.nbytes :])


def place(device: Device, arguments: Sequence[Given]) -> dict[int, Zoned]:
    """Return copies of the arrays among the arguments, by their places."""
    return {number: Zoned.of(device, each) for number, each in enumerate(arguments) if isinstance(each, np.ndarray)}


def joined(what: Launchable, names: Mapping[str, Value], placed: Mapping[int, Zoned]) -> list[Any]:
    """Return the arguments of a launch: the arrays, and the numbers of a configuration."""
    described = enumerate(what.configuration.description.arguments)
    return [
        placed[number].array if number in placed else np.frombuffer(each.number(names), each.dtype)[0]
        for number, each in described
    ]


def launch(device: Device, what: Launchable, call: Call, placed: Mapping[int, Zoned], sizes: Mapping[str, int]) -> None:
    """Launch once, and wait; LaunchError where a zone of poison was written."""
    arguments = joined(what, {**dict(what.configuration.knobs), **sizes}, placed)
    device.synchronize()  # raises errors of earlier work before the kernel could be blamed
    call(arguments, sizes)
    device.synchronize()
    for number, each in placed.items():
        if not each.intact():
            raise LaunchError(f"memory next to argument {number} was written")


def executed(
    device: Device,
    what: Launchable,
    arguments: Sequence[Given],
    constants: Mapping[str, np.ndarray],
    sizes: Mapping[str, int],
) -> dict[int, np.ndarray]:
    """Return what a launch leaves in its arrays, by their places; LaunchError where it writes what it may not."""
    placed = place(device, arguments)
    launch(device, what, what.on(device, constants), placed, sizes)
    found = {number: device.host(each.array) for number, each in placed.items()}
    for number, each in enumerate(what.configuration.description.arguments):
        if each.role == READ and found[number].tobytes() != np.asarray(arguments[number]).tobytes():
            raise LaunchError(f"argument {number}, which is described as read only, was written")
    return found


def timed(timer: Timer, some: Sequence[Launchable], sizes: Mapping[str, int], say: Say) -> Times:
    """Time configurations at the tuned sizes, over as many sets of arrays as exceed the L2 cache."""
    device, why = timer.device, [""] * len(some)
    drawn: dict[object, tuple[list[dict[int, Zoned]], dict[str, np.ndarray]]] = {}
    runners: list[list[Any]] = []
    able: list[int] = []
    for number, what in enumerate(some):
        say(number)
        described, names = what.configuration.description, {**dict(what.configuration.knobs), **sizes}
        arrays = [each for each in (*described.arguments, *described.constants) if each.role != NUMBER]
        key = tuple(each.extents(names) for each in arrays)  # knobs may pad arrays
        if key not in drawn:
            arguments, constants = draw(described, names, seed=0)
            count = timer.sets_of(sum(each.nbytes for each in arguments if isinstance(each, np.ndarray)))
            drawn[key] = [place(device, arguments) for _ in range(count)], constants
        sets, constants = drawn[key]
        try:
            call = what.on(device, constants)
            launch(device, what, call, sets[0], sizes)
        except BuildError as error:
            why[number] = f"{NOT_LOADED}{error}"
        except LaunchError as error:
            why[number] = f"{FAILED}{error}"
        else:
            able.append(number)
            runners.append([partial(call, joined(what, names, placed), sizes) for placed in sets])
    timer.watch = lambda index: say(able[index] if index < len(able) else len(some))
    found = dict(zip(able, timer.race(runners), strict=True)) if able else {}
    return Times(tuple(found.get(number) for number in range(len(some))), None, timer.conditions(), tuple(why))
