"""One Runtime per device: from a call to its Plan, and the dictionary of Plans. Every key is built here.

A key is what two calls must share for one Plan to serve both: a flat tuple of numbers where time matters, because each
entry costs time to build, to hash and to compare. CuPy's `_shape` and `_strides` are the lists that its properties make
tuples of at every read, at twice the price. Each array's lists, of equal lengths, are followed by None, so that no two
different calls have equal keys. `call` is the path of matrix products, whose key matmul's short way (api/matmul.py)
shares, `contract` that of contractions, `serve` that of all other Functions. Everything else happens once per kind of
call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from gensor_kernels import config, forking
from gensor_kernels.devices.device import Device
from gensor_kernels.dispatch.calls.arguments import PRECISIONS, Operation, named_dtype, wider_result
from gensor_kernels.dispatch.calls.fallback import is_whole
from gensor_kernels.dispatch.functions.base import Function
from gensor_kernels.dispatch.functions.contraction import CONTRACTION, Spec
from gensor_kernels.dispatch.functions.matmul import MATMUL
from gensor_kernels.dispatch.observe import counters, record
from gensor_kernels.dispatch.observe.dry_run import Question, asking
from gensor_kernels.dispatch.selection.library import Library
from gensor_kernels.dispatch.tuning.background import Background
from gensor_kernels.dispatch.tuning.power_mode import watch
from gensor_kernels.dispatch.tuning.runtime import Kind
from gensor_kernels.dispatch.tuning.writeback import Notes
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.shown import no_array, shown

from . import make, recorded
from .bound import Binder, binding
from .plan import Call, Inputs, LibraryPlan, Plan, Steps
from .trial import Trial

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from gensor_kernels.dispatch.calls.array import DeviceArray
    from gensor_kernels.dispatch.selection.pins import Pins

#: Plans kept per device; beyond it they are all forgotten (a program whose shapes never repeat).
MOST_PLANS = 65536


def unseen(key: Any) -> None:
    """Stand for the look-up of Plans: no call has been seen before."""


def _serve(plan: Plan, inputs: Inputs, out: DeviceArray, steps: Steps) -> Any:
    """Run a Plan; while calls are recorded, count the call, and while they are bound, keep its launch."""
    binder = binding.get()
    if binder is not None:
        return binder.serve(plan, inputs, out, steps)
    return recorded.serve(plan, inputs, out, steps) if record.active else plan.serve(inputs, out, steps)


class Runtime:
    """Calls on one device."""

    def __init__(self, device: Device, library: Library, pins: Pins | None = None):
        self.device, self.library, self.pins = device, library, pins
        self.pointer, self.where = device.pointer, device.where
        self.plans: dict[tuple[Any, ...], Plan] = {}
        self.find: Callable[[Any], Any] = self.plans.get
        self.after_fork()
        forking.renew(self)
        self.troubles: tuple[type[Exception], ...] = (MemoryError, *device.refusals)
        self.tuned: set[str] = set()
        self.raced: set[str] = set()
        self.loaded: set[str] = set()
        self.wholes: dict[Kind, tuple[float, float]] = {}  # microseconds, ours and the library's
        self.notes, self.background = Notes(), Background(self)
        library.conditions = device.conditions()
        counters.runtimes.add(self)
        record.attach(self)
        watch(self)

    def after_fork(self) -> None:
        """Renew the lock, forget all Plans and dry runs: a thread of the parent may have held a lock or a race."""
        self.lock = threading.RLock()
        self.plans.clear()
        self._questions = 0  # dry runs and bindings that are under way, of any thread
        #: Counts the times that all Plans were forgotten: launches that were bound before are bound again.
        self.epoch = getattr(self, "epoch", -1) + 1
        self.bypass()

    def with_pins(self, pins: Pins | None) -> Runtime:
        """Return a Runtime for deterministic calls on the same device."""
        return Runtime(self.device, self.library.timeless(), pins)

    def bypass(self) -> None:
        """Serve every call like a first one while calls or hits are counted, or in a dry run."""
        slow = record.active or self._questions or config.counts_hits()
        self.find = unseen if slow else self.plans.get

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
            self._questions += 1
            self.bypass()
        try:
            yield
        finally:
            variable.reset(token)
            with self.lock:
                self._questions = max(0, self._questions - 1)  # a child may have been forked meanwhile
                self.bypass()

    def call(
        self,
        a: DeviceArray,
        b: DeviceArray,
        out: DeviceArray,
        steps: Steps,
        dtype: DTypeLike | None,
        precision: str | None,
    ) -> Any:
        """Compute `a @ b` with the epilogue `steps`, into `out` or a new array. matmul's short way does the same."""
        pc, odd = 0, None
        try:
            type_a, type_b = a.dtype, b.dtype
            if out is None:
                types: Any = type_a if type_b is type_a else (type_a, type_b)
                key: tuple[Any, ...] = (types, *a._shape, *a._strides, None, *b._shape, *b._strides)
                pa, pb = a.data.ptr, b.data.ptr
                if (pa | pb) & 15:
                    odd = pa & 15, pb & 15, 0
            else:
                type_c = out.dtype
                types = type_a if type_b is type_a and type_c is type_a else (type_a, type_b, type_c)
                key = (types, *a._shape, *a._strides, None, *b._shape, *b._strides, None, *out._shape, *out._strides)
                pa, pb, pc = a.data.ptr, b.data.ptr, out.data.ptr
                if (pa | pb | pc) & 15:
                    odd = pa & 15, pb & 15, pc & 15
            if odd is not None or dtype is not None or precision is not None:
                key += ((odd, dtype, precision),)
            if steps:
                key += self._about(steps)
            if self.where is not None:
                key += self._places((a, b, out), steps)
            plan = self.find(key)
        except (AttributeError, TypeError):  # arrays that are not CuPy's
            self.check(a, b, out, steps, precision)
            pa, pb, pc = (0 if array is None else self.pointer(array) for array in (a, b, out))
            key = ("matmul", self._key_of((a, b, out)), dtype, precision, *self._about(steps))
            if self.where is not None:
                key += self._places((a, b, out), steps)
            plan = self.find(key)
        if plan is None:
            return self._first(key, MATMUL, (a, b), dtype, out, steps, precision)
        try:
            return plan.run(a, b, out, steps, pa, pb, pc)
        except self.troubles as error:
            plan = self.instead(key, plan, error)
        return plan.serve((a, b), out, steps)

    def contract(
        self,
        form: Any,
        a: DeviceArray,
        b: DeviceArray,
        out: DeviceArray = None,
        dtype: DTypeLike | None = None,
        steps: Steps = (),
        math: Any = None,
    ) -> Any:
        """Compute the contraction of `a` and `b` that `form` names (contractions/spec.py), into `out` or a new array.

        The key begins with `form`, so that it equals no other function's.
        """
        pointer, pc = self.pointer, 0
        try:
            pa, pb, type_a, type_b = pointer(a), pointer(b), a.dtype, b.dtype
            types: Any = type_a if type_b is type_a else (type_a, type_b)
            odd: Any = (pa & 15, pb & 15) if (pa | pb) & 15 else 0
            key: tuple[Any, ...] = (form, a.shape, a.strides, b.shape, b.strides, types, odd, dtype)
            if out is not None:
                pc = pointer(out)
                key += (out.shape, out.strides, out.dtype, pc & 15)
            if steps or math is not None:
                key += (math, *self._about(steps))
            if self.where is not None:
                key += self._places((a, b, out), steps)
            plan = self.find(key)
        except (AttributeError, TypeError):
            self.check(a, b, out, steps, None)
            raise
        if plan is None:
            return self._first(key, CONTRACTION, (a, b), Spec(form, dtype), out, steps, math)
        try:
            return plan.run(a, b, out, steps, pa, pb, pc)
        except self.troubles as error:
            plan = self.instead(key, plan, error)
        return plan.serve((a, b), out, steps)

    def serve(
        self,
        function: Function,
        inputs: tuple[DeviceArray, ...],
        parameters: Hashable,
        out: DeviceArray = None,
        steps: Steps = (),
        precision: str | None = None,
    ) -> Any:
        """Compute a call of any Function, into `out` or a new array."""
        if function is MATMUL:
            a, b = inputs
            return self.call(a, b, out, steps, cast("np.dtype[Any] | None", parameters), precision)
        if function is CONTRACTION:
            (a, b), spec = inputs, cast(Spec, parameters)
            return self.contract(spec.form, a, b, out, spec.dtype, steps, precision)
        a, pa, pc = inputs[0], 0, 0
        try:
            if len(inputs) == 1 and hasattr(a, "_shape"):  # a CuPy array
                pa = a.data.ptr
                key: tuple[Any, ...] = (parameters, a.dtype, pa & 15, *a._shape, *a._strides, None, function.name)
                if out is not None:
                    pc = out.data.ptr
                    key += (out.dtype, pc & 15, *out._shape, *out._strides)
                if steps or precision is not None:
                    key += (None, precision, *self._about(steps))
            else:
                key = (function.name, parameters, precision, self._key_of((*inputs, out)), *self._about(steps))
            if self.where is not None:
                key += self._places((*inputs, out), steps)
            plan = self.find(key)
        except (AttributeError, TypeError):
            self._check(function, inputs, out, steps, precision)
            raise
        if plan is None:
            return self._first(key, function, inputs, parameters, out, steps, precision)
        try:
            return plan.run(a, None, out, steps, pa, 0, pc) if pa else plan.serve(inputs, out, steps)
        except self.troubles as error:
            plan = self.instead(key, plan, error)
        return plan.serve(inputs, out, steps)

    def _about(self, steps: Steps) -> tuple[Any, ...]:
        """Return the part of a key for an epilogue: alignment for addresses, for scalars whether they are whole."""
        parts: list[Any] = []
        for name, operand, scalar in steps:
            if operand is not None:
                parts += (name, operand.shape, operand.strides, operand.dtype, self.pointer(operand) & 15)
            else:
                parts.append(name)
            if scalar != 0.0 or type(scalar) is complex:
                parts += (is_whole(scalar), type(scalar) is complex)
        return tuple(parts)

    def _key_of(self, arrays: Inputs) -> tuple[Any, ...]:
        """Return the part of a key for arrays of any library."""
        pointer = self.pointer
        return tuple(None if x is None else (x.shape, x.strides, x.dtype, pointer(x) & 15) for x in arrays)

    def _places(self, arrays: Inputs, steps: Steps) -> tuple[Any, ...]:
        """Return the devices whose memory arrays are in."""
        where = self.where
        assert where is not None
        every = (*arrays, *(step.operand for step in steps))
        return tuple(None if array is None else where(array) for array in every)

    # ---- the first call of a kind

    def _first(
        self,
        key: Any,
        function: Function,
        inputs: tuple[DeviceArray, ...],
        parameters: Any,
        out: DeviceArray,
        steps: Steps,
        precision: str | None,
    ) -> Any:
        """Serve the first call of its kind, or any while calls are recorded; raise a Question in a dry run."""
        if asking.get():
            self._check(function, inputs, out, steps, precision)
            call = self._kind(function, inputs, parameters, out, precision)
            function.check(call.result, out, steps)
            raise Question(call, inputs, out, steps)
        plan = self.plans.get(key)
        if plan is not None:
            counters.note_hit(plan)
        else:
            self._check(function, inputs, out, steps, precision)
            with self.lock:  # several threads may arrive together
                plan = self.plans.get(key)
                if plan is None:
                    counters.misses.add()
                    call = self._kind(function, inputs, parameters, out, precision)
                    plan, keep = make.make(call, inputs, out, steps)
                    if keep:
                        self.keep(key, plan)
        try:
            return _serve(plan, inputs, out, steps)
        except self.troubles as error:
            plan = self.instead(key, plan, error)
        return _serve(plan, inputs, out, steps)

    def _kind(
        self,
        function: Function,
        inputs: tuple[DeviceArray, ...],
        parameters: Any,
        out: DeviceArray,
        precision: str | None,
    ) -> Call:
        """Return what the Plans of a kind of call share."""
        if function is MATMUL and parameters is None and out is not None:
            parameters = wider_result(np.promote_types(inputs[0].dtype, inputs[1].dtype), out.dtype)
        elif function is CONTRACTION:
            parameters = Spec(parameters.form, None if parameters.dtype is None else named_dtype(parameters.dtype))
        result = function.result(inputs, parameters)
        return Call(self, function, parameters, result, precision, self.precision(precision))

    def kind_of(self, function: Function, inputs: tuple[DeviceArray, ...], parameters: Any) -> Call:
        """Return a kind of call as it is known before its first call."""
        return self._kind(function, inputs, parameters, None, None)

    def precision(self, precision: str | None) -> str:
        """Return the math mode of float32 products, by default that of the library's switch."""
        return precision or ("tf32" if self.device.tf32() else "ieee")

    def check(
        self, a: DeviceArray, b: DeviceArray, out: DeviceArray, steps: tuple[Operation, ...], precision: str | None
    ) -> None:
        """Raise TypeError or ValueError, in words, for arguments of another kind than this device's arrays."""
        if precision not in PRECISIONS:
            raise ValueError(f"precision must be one of {', '.join(map(repr, PRECISIONS))}, not {shown(precision)}")
        self.require("a", a)
        self.require("b", b)
        self._require_others(out, steps)

    def check_inputs(self, inputs: Inputs, out: DeviceArray, steps: Steps) -> None:
        """Raise TypeError for inputs that are no arrays of this device."""
        for value in inputs:
            if value is not None:
                self.require("an operand", value)
        self._require_others(out, steps)

    def require(self, name: str, value: DeviceArray) -> None:
        """Raise TypeError for an argument that is no array of this device."""
        if not self.device.is_array(value):
            raise TypeError(no_array(name, value, self.device.xp.__name__))

    def _require_others(self, out: DeviceArray, steps: Steps) -> None:
        for step in steps:
            if step.operand is not None:
                self.require(step.name, step.operand)
        if out is not None:
            self.require("out", out)

    def _check(self, function: Function, inputs: Inputs, out: DeviceArray, steps: Steps, precision: str | None) -> None:
        if function.arguments:
            a, b = inputs
            self.check(a, b, out, steps, precision)
        else:
            self.check_inputs(inputs, out, steps)

    def instead(self, key: Any, plan: Plan, error: Exception) -> Plan:
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
                self.plans[key] = library
                self.epoch += 1
        return library

    def keep(self, key: Any, plan: Any) -> None:
        """Keep a Plan for later calls; the caller holds the lock."""
        if len(self.plans) >= MOST_PLANS:
            self.plans.clear()
        self.plans[key] = plan

    def settle(self, trial: Trial) -> None:
        """Put the Plan of a trial that is over into its place; a kind of call that came so often is worth tuning."""
        with self.lock:
            for key in [key for key, plan in self.plans.items() if plan is trial]:
                self.plans[key] = trial.plan
        self.background.consider(trial.request.problem.workload)

    def renew(self, workload: Workload) -> None:
        """Plan calls again after a Workload was tuned; its kinds may race again."""
        self.library.reload()
        with self.lock:
            self.epoch += 1
            self.raced.discard(workload.key())
            self.wholes = {kind: times for kind, times in self.wholes.items() if kind[0] != workload.key()}
            self.plans.clear()

    def refresh(self) -> None:
        """Read the databases again and forget all that followed from them."""
        with self.lock:
            self.epoch += 1
            self.library.reload()
            for known in (self.plans, self.wholes, self.tuned, self.raced, self.loaded):
                known.clear()

    def adapt(self, conditions: str) -> None:
        """Plan calls again under other conditions (see Device.conditions); all kinds may race again."""
        self.library.adapt(conditions)
        with self.lock:
            self.epoch += 1
            self.raced.clear()
            self.wholes.clear()
            self.plans.clear()
