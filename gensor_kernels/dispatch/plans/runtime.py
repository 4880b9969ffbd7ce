"""One Runtime per device: calls whose kind is new, and what their Plans follow from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels import config
from gensor_kernels.devices.device import Device
from gensor_kernels.devices.driver import ResidencyError
from gensor_kernels.dispatch.calls.arguments import Operands, named_dtype, wider_result
from gensor_kernels.dispatch.functions.base import Function
from gensor_kernels.dispatch.functions.contraction import CONTRACTION, Spec
from gensor_kernels.dispatch.functions.matmul import MATMUL
from gensor_kernels.dispatch.kept import Key
from gensor_kernels.dispatch.observe import counters, record
from gensor_kernels.dispatch.observe.dry_run import Question, asking
from gensor_kernels.dispatch.selection.library import Library
from gensor_kernels.dispatch.tuning.background import Background
from gensor_kernels.dispatch.tuning.power_mode import watch
from gensor_kernels.dispatch.tuning.tuned_calls import TunedCalls
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.operators.types.workload import Workload

from . import make, recorded, ways
from .bound import Binder, binding
from .plan import Call, Inputs, LibraryPlan, Plan

if TYPE_CHECKING:
    from gensor_kernels.dispatch.calls.array import DeviceArray
    from gensor_kernels.dispatch.selection.pins import Pins


class Runtime(TunedCalls):
    """Calls on one device: `first` serves the first of each kind, warm ones are those of Calls (dispatch/key.py)."""

    def __init__(self, device: Device, library: Library, pins: Pins | None = None):
        super().__init__(device, library, pins)
        self.background = Background(self)
        record.attach(self)
        watch(self)

    def with_pins(self, pins: Pins | None) -> Runtime:
        """Return a Runtime for deterministic calls on the same device."""
        return Runtime(self.device, self.library.timeless(), pins)

    def dry_run(self) -> AbstractContextManager[None]:
        """Within it, calls of this thread raise a Question in place of being computed."""
        return self._the_slow_way(asking, True)

    def bound_by(self, binder: Binder) -> AbstractContextManager[None]:
        """Within it, calls of this thread leave their launches to a Binder."""
        return self._the_slow_way(binding, binder)

    @contextmanager
    def _the_slow_way(self, variable: ContextVar[Any], value: Any) -> Iterator[None]:
        """Within it, a variable of this thread is set, and every call takes the way of a first one."""
        token = variable.set(value)
        with self.lock:
            self._detours += 1
            self.bypass()
        try:
            yield
        finally:
            variable.reset(token)
            with self.lock:
                self._detours = max(0, self._detours - 1)  # a child may have been forked meanwhile
                self.bypass()

    def first(
        self, key: Key, function: Function, operands: Operands, parameters: Any, precision: str | None
    ) -> DeviceArray:
        """Serve the first call of its kind, or any while calls are recorded; raise a Question in a dry run."""
        if asking.get():
            self.check_call(function, operands, precision)
            call = self.kind_of(function, operands.inputs, parameters, operands.out, precision)
            function.check(call.result, operands.out, operands.steps)
            raise Question(call, operands)
        plan = self.known(key)
        if plan is None:
            self.check_call(function, operands, precision)
            plan = self._plan(key, function, operands, parameters, precision)
        else:
            self._note_hit(plan)
        try:
            try:
                return _serve(plan, operands)
            except ResidencyError as error:
                self._refuse_teams(error)
                plan = self._plan(key, function, operands, parameters, precision)
                return _serve(plan, operands)
        except self.troubles as error:
            plan = self.instead(key, plan, error)
        return _serve(plan, operands)

    def _refuse_teams(self, error: ResidencyError) -> None:
        """Plan all calls again without kernels whose blocks wait for one another, for the rest of the process."""
        config.logger().warning("%s: other kernels serve in their place on this device", error)
        self.library.refuse([name for name, family in FAMILIES.items() if family.together])
        self.expire()

    def _plan(self, key: Key, function: Function, operands: Operands, parameters: Any, precision: str | None) -> Plan:
        """Make the Plan of a new kind of call, for which other threads with such a call wait, and no others."""
        with self.turns.at(key):
            known: Plan | None = self.known(key)  # another thread may have made it meanwhile
            if known is not None:
                self._note_hit(known)
                return known
            counters.misses.add()
            epoch = self.epoch
            call = self.kind_of(function, operands.inputs, parameters, operands.out, precision)
            plan, keep = make.make(call, operands)
            if keep:
                self.keep(key, plan, epoch)
        return plan

    def _note_hit(self, plan: Plan) -> None:
        """Count a call whose Plan was there, while such calls are counted."""
        if self.counts_hits:
            counters.note_hit(plan)

    def kind_of(
        self,
        function: Function,
        inputs: Inputs,
        parameters: Any,
        out: DeviceArray = None,
        precision: str | None = None,
    ) -> Call:
        """Return what the Plans of a kind of call share."""
        if function is MATMUL and parameters is None and out is not None:
            parameters = wider_result(np.promote_types(inputs[0].dtype, inputs[1].dtype), out.dtype)
        elif function is CONTRACTION:
            parameters = Spec(parameters.form, None if parameters.dtype is None else named_dtype(parameters.dtype))
        result = function.result(inputs, parameters)
        return Call(self, function, parameters, result, precision, self.precision(precision))

    def learn(self, key: Key, runs: int, values: Sequence[Any], call: Callable[[], Any]) -> Any:
        """Make a call in full, and keep its direct way where it has one (ways.py)."""
        return ways.learn(self, key, runs, values, call)

    def precision(self, precision: str | None) -> str:
        """Return the math mode of float32 products, by default that of the library's switch."""
        return precision or ("tf32" if self.device.tf32() else "ieee")

    def instead(self, key: Key, plan: Plan, error: Exception) -> Plan:
        """Return the library's Plan in the place of one that raised `error`.

        For this call where memory for copies or a workspace was lacking, for all where the driver refused the launch.
        Such a launch has done nothing, and what was allocated before it is free again: the library can still serve the
        call. Raises `error` where it was the library's own, where there is none to turn to, and where kernels are
        pinned.
        """
        if self.device.emulated or plan.tier == 4 or self.device.capturing() or self.pins is not None:
            raise error
        scarce = isinstance(error, MemoryError)
        reason = f"{'there is no memory to run a kernel' if scarce else 'the launch was refused'}: {error}"
        config.logger().warning("%s; the call goes to %s", reason, self.device.xp.__name__)
        library = LibraryPlan(plan.call, reason)
        if not scarce:
            with self.lock:
                self.plans.keep(key, library)
                self.epoch += 1
        return library

    def consider(self, workload: Workload) -> None:
        """Have a frequent Workload tuned in the background."""
        self.background.consider(workload)

    def refine(self, workload: Workload) -> None:
        """Have a Workload with its first kernel tuned to the end in the background."""
        self.background.refine(workload)


def _serve(plan: Plan, operands: Operands) -> DeviceArray:
    """Run a Plan; while calls are recorded, count the call, and while they are bound, keep its launch."""
    binder = binding.get()
    if binder is not None:
        return binder.serve(plan, operands)
    return recorded.serve(plan, operands) if record.active else plan.serve(*operands)
