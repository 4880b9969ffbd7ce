"""One Runtime per device: from a call to a Plan, and the dictionary of Plans.

`call` is the path of every call. Everything else happens once per distinct call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import config, recording
from ..devices.device import Device
from ..errors import BuildError, UnsupportedError
from ..operators.geometry import Strides
from ..operators.workload import Workload
from ..programs import params
from ..programs.families import FAMILIES
from . import counting, tiers
from .arguments import PRECISIONS, Call, Operation, kind, resolve
from .fallback import integer_steps
from .keys import about, places
from .library import Kernel, Library
from .notes import Notes
from .plan import Bound, EmptyPlan, FallbackPlan, LaunchPlan, Plan, StagedPlan, SwitchedPlan
from .problem import LARGEST_EXTENT, Problem
from .racing import may
from .staging import Staging, problem_of
from .tierup import Background, improve
from .trials import Trial, TrialPlan

if TYPE_CHECKING:
    from .contract import Study

#: Plans kept per device; beyond it they are all forgotten (a program whose shapes never repeat).
MOST_PLANS = 65536


class Runtime:
    """Calls on one device."""

    def __init__(self, device: Device, library: Library):
        self.device, self.library = device, library
        self.pointer, self.where = device.pointer, device.where
        self.plans: dict[tuple[Any, ...], Plan] = {}
        self.find: Callable[[Any], Plan | None] = self.plans.get
        self.lock = threading.RLock()
        self.tuned: set[str] = set()
        self.raced: set[str] = set()
        self.loaded: set[str] = set()
        self.notes, self.background = Notes(), Background(self)
        library.conditions = device.conditions()
        recording.attach(self)

    def bypass(self, on: bool) -> None:
        """While calls are recorded: every call takes the way of a first one, on which it is counted."""
        self.find = counting.unseen if on else self.plans.get

    def call(self, a: Any, b: Any, out: Any, steps: tuple[Operation, ...], dtype: Any, precision: str | None) -> Any:
        """`a @ b` with the epilogue `steps`, into `out` or a new array."""
        pointer, pc = self.pointer, 0
        try:
            pa, pb, type_a, type_b = pointer(a), pointer(b), a.dtype, b.dtype
            # One flat, short tuple: each entry costs time to build, to hash and to compare. So equal types stand
            # there once, and alignments only where an address is not a multiple of 16.
            if out is None:
                types: Any = type_a if type_b is type_a else (type_a, type_b)
                odd: Any = (pa & 15, pb & 15) if (pa | pb) & 15 else 0
                key: tuple[Any, ...] = (a.shape, a.strides, b.shape, b.strides, types, odd, dtype, precision)
            else:
                pc, type_c = pointer(out), out.dtype
                types = type_a if type_b is type_a and type_c is type_a else (type_a, type_b, type_c)
                odd = (pa & 15, pb & 15, pc & 15) if (pa | pb | pc) & 15 else 0
                key = (a.shape, a.strides, b.shape, b.strides, types, odd, out.shape, out.strides, dtype, precision)
            if steps:
                key += about(steps, pointer)
            if self.where is not None:
                key += places((a, b, out, *(step.operand for step in steps)), self.where)
            plan = self.find(key)
        except (AttributeError, TypeError):
            self.check(a, b, out, steps, precision)
            raise
        if plan is None:
            return self._first(key, a, b, out, steps, dtype, precision, pa, pb, pc)
        return plan.run(a, b, out, steps, pa, pb, pc)

    def precision(self, asked: str | None) -> str:
        """The math mode of float32 products: what was asked for, else the library's own switch."""
        return asked or ("tf32" if self.device.tf32() else "ieee")

    def check(self, a: Any, b: Any, out: Any, steps: tuple[Operation, ...], precision: str | None) -> None:
        """TypeError or ValueError, in words, for arguments of another kind than this device's arrays."""
        if precision not in PRECISIONS:
            raise ValueError(f"precision must be one of {', '.join(map(repr, PRECISIONS))}, not {precision!r}")
        named = [("a", a), ("b", b), *((step.name, step.operand) for step in steps if step.operand is not None)]
        for name, value in named if out is None else [*named, ("out", out)]:
            if not self.device.is_array(value):
                raise TypeError(f"{name} must be a {self.device.xp.__name__} array, not {kind(value)}")

    def _first(
        self, key: Any, a: Any, b: Any, out: Any, steps: Any, dtype: Any, precision: Any, pa: int, pb: int, pc: int
    ) -> Any:
        """The first call of its kind, or any while calls are recorded."""
        plan = self.plans.get(key) or self._made(key, a, b, out, steps, dtype, precision)
        try:
            return counting.run(self, plan, a, b, out, steps, pa, pb, pc)
        except self.device.refusals as error:
            # A launch the driver refuses at once has done nothing: the library can still serve the call.
            config.logger().warning("a launch was refused (%s); the call goes to %s", error, self.device.xp.__name__)
            call = resolve(a, b, out, steps, dtype, self.precision(precision))
            plan = self.plans[key] = FallbackPlan(self, call, f"the launch was refused: {error}", precision)
            return counting.run(self, plan, a, b, out, steps, pa, pb, pc)

    # ---- planning

    def _made(self, key: Any, a: Any, b: Any, out: Any, steps: Any, dtype: Any, precision: Any) -> Plan:
        """A new Plan, made once even when several threads arrive together."""
        self.check(a, b, out, steps, precision)
        with self.lock:
            plan = self.plans.get(key)
            if plan is None:
                plan, keep = self._plan(a, b, out, steps, dtype, precision)
                if keep:
                    if len(self.plans) >= MOST_PLANS:
                        self.plans.clear()
                    self.plans[key] = plan
        return plan

    def _plan(
        self, a: Any, b: Any, out: Any, steps: Any, dtype: Any, precision: str | None, study: Study | None = None
    ) -> tuple[Plan, bool]:
        """(Plan, whether it holds for later calls too); `study` is of the contraction whose product this is."""
        call = resolve(a, b, out, steps, dtype, self.precision(precision))
        if study is not None:
            call = study.call(call)
        if 0 in call.shape:
            return EmptyPlan(self, call), True
        capturing = self.device.capturing()
        try:
            plan = self.plan_of(call, a, b, out, precision, capturing, racing=study is None)
        except Exception as error:
            if self.device.emulated:
                raise
            # Whatever went wrong in choosing or loading, the library would have worked.
            config.logger().warning("no kernel could be prepared: %s", error, exc_info=True)
            plan = FallbackPlan(self, call, f"no kernel could be prepared: {error}", precision)
        return plan, not capturing

    def plan_of(
        self, call: Call, a: Any, b: Any, out: Any, precision: str | None, capturing: bool, *, racing: bool = True
    ) -> Plan:
        """The Plan of a call whose result has elements; with `racing` on trial, where its kind is to race."""
        choice, problem, staging = self.choose(call, a, b, out, capturing, improving=True)
        plan = self._chosen(choice, problem, staging, call, (a, b, out), precision)
        if not racing or problem is None or staging is not None or capturing or not may(self, problem.workload):
            return plan
        assert self.device.arch is not None
        return TrialPlan(self, call, precision, tiers.Request(problem, self.device.arch, False, call.one_call), plan)

    def _chosen(
        self,
        choice: tiers.Choice,
        problem: Problem | None,
        staging: Staging | None,
        call: Call,
        arrays: tuple[Any, Any, Any],
        precision: str | None,
    ) -> Plan:
        reason = choice.reason
        if choice.kernel is not None and problem is not None:
            try:
                plan = self.bind(choice.kernel, problem, call, staging, arrays)
                plan.tier = choice.tier
                return SwitchedPlan(self, call, plan) if precision is None and call.math == "tf32" else plan
            except BuildError as error:
                reason = f"kernel {choice.kernel.digest[:12]} cannot be used here: {error}"
                config.logger().warning("%s", reason)
        return FallbackPlan(self, call, reason, precision, choice.standby)

    def standby(self, call: Call, a: Any, b: Any, out: Any, capturing: bool) -> Plan | None:
        """The Plan for this call inside graph capture; outside of one its kernel is loaded. None: there is none."""
        try:
            choice, problem, staging = self.choose(call, a, b, out, capturing, captured=True)
            if choice.kernel is None or problem is None:
                return None
            return self.bind(choice.kernel, problem, call, staging, (a, b, out))
        except Exception as error:
            config.logger().info("nothing stands by for graph capture: %s", error)
            return None

    def choose(
        self,
        call: Call,
        a: Any,
        b: Any,
        out: Any,
        capturing: bool,
        *,
        improving: bool = False,
        captured: bool = False,
    ) -> tuple[tiers.Choice, Problem | None, Staging | None]:
        """Which tier serves a call, the contraction it is, and what must be done to its arrays first.

        `improving` lets the call tier up, which may tune; without it nothing but memory is read. `captured`: choose
        as for a graph, in which the library's call cannot be recorded.
        """
        device = self.device
        if config.disabled() and not device.emulated:
            return tiers.Choice(4, "GENSOR_DISABLE is set"), None, None
        if device.arch is None:
            return tiers.Choice(4, device.unsupported), None, None
        operands = [step.operand for step in call.operations]
        if not all(array is None or device.is_local(array) for array in (a, b, out, *operands)):
            return tiers.Choice(4, "an operand is in the memory of another device"), None, None
        try:
            problem, staging = problem_of(call, a, b, out, self.pointer)
        except UnsupportedError as error:
            return tiers.Choice(4, error.reason), None, None
        request = tiers.Request(
            problem=problem,
            arch=device.arch,
            emulated=device.emulated,
            one_call=call.one_call,
            captured=capturing or captured,
            loaded=self.loaded if capturing else None,
        )
        choice = tiers.choose(request, self.library)
        if improving:
            choice = improve(request, choice, self.library, self.tuned, self.notes)
        return choice, problem, staging

    def settle(self, trial: Trial) -> None:
        """Puts the Plan of a trial that is over into its place; a kind of call that came so often is worth tuning."""
        with self.lock:
            for key in [key for key, plan in self.plans.items() if plan is trial]:
                self.plans[key] = trial.plan
        self.background.consider(trial.request.problem.workload)

    def renew(self, workload: Workload) -> None:
        """After a Workload was tuned: calls are planned anew, and its kinds may race again."""
        self.library.reload()
        with self.lock:
            self.raced.discard(workload.key())
            self.plans.clear()

    # ---- binding

    def bind(self, kernel: Kernel, problem: Problem, call: Call, staging: Staging | None, arrays: Any) -> Plan:
        """A Plan that launches `kernel`, which is loaded if it is not yet."""
        family, workload = FAMILIES[kernel.program.family], problem.workload
        launches = family.launches(kernel.program, workload)
        if max(each.grid for each in launches) > LARGEST_EXTENT:
            raise BuildError("its grid would have 2^31 blocks or more")
        launch = self.device.load(kernel.code, launches)
        self.loaded.add(kernel.digest)
        if staging is not None:
            return StagedPlan(self, call, staging)
        template = params.pack(
            problem.geometry,
            family.tiling(kernel.program, problem.geometry),
            steps=_steps(call, problem),
            integer_steps=integer_steps(call),
        )
        bound = Bound(template, launch, problem.swapped, family.workspace(kernel.program, workload))
        return LaunchPlan(self, call, bound, *arrays)


def _steps(call: Call, problem: Problem) -> list[params.Step]:
    steps = []
    for step, strides in zip(call.operations, problem.operands, strict=True):
        dtype = "float32" if step.operand is None else step.operand.dtype.name
        steps.append(params.Step(tiers.code_of(step.name), step.scalar, dtype, strides or Strides()))
    return steps
