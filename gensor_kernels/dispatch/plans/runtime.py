"""One Runtime per device: from a call to a Plan, and the dictionary of Plans.

`call` is the path of every call. Everything else happens once per distinct call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from gensor_kernels import config, forking
from gensor_kernels.devices.device import Device
from gensor_kernels.dispatch.calls.arguments import PRECISIONS, Operation, kind, resolve
from gensor_kernels.dispatch.observe import counters
from gensor_kernels.dispatch.observe import record as observe_record
from gensor_kernels.dispatch.selection.library import Library
from gensor_kernels.dispatch.tuning import copy_race
from gensor_kernels.dispatch.tuning.background import Background
from gensor_kernels.dispatch.tuning.power_mode import watch
from gensor_kernels.dispatch.tuning.writeback import Notes
from gensor_kernels.operators.types.workload import Workload

from . import make as plans_make
from . import recorded as plans_recorded
from .failures import instead
from .key import about, laid, places
from .plan import FallbackPlan, Plan
from .trial import Trial

#: Plans kept per device; beyond it they are all forgotten (a program whose shapes never repeat).
MOST_PLANS = 65536


class Runtime:
    """Calls on one device."""

    def __init__(self, device: Device, library: Library):
        self.device, self.library = device, library
        self.pointer, self.where = device.pointer, device.where
        self.plans: dict[tuple[Any, ...], Plan] = {}
        self.find: Callable[[Any], Any] = self.plans.get
        self.after_fork()
        forking.renew(self)
        self.troubles: tuple[type[Exception], ...] = (MemoryError, *device.refusals)
        self.tuned: set[str] = set()
        self.raced: set[str] = set()
        self.loaded: set[str] = set()
        self.wholes: dict[copy_race.Kind, tuple[float, float]] = {}  # microseconds, ours and the library's
        self.notes, self.background = Notes(), Background(self)
        library.conditions = device.conditions()
        counters.runtimes.add(self)
        observe_record.attach(self)
        watch(self)

    def after_fork(self) -> None:
        """A lock that nobody holds, and no trials: a race may have been held by a thread of the parent."""
        self.lock = threading.RLock()
        self.plans.clear()

    def bypass(self, on: bool) -> None:
        """While calls or hits are counted every call takes the way of a first one, where that is done."""
        self.find = plans_recorded.unseen if on or config.counts_hits() else self.plans.get

    def call(self, a: Any, b: Any, out: Any, steps: tuple[Operation, ...], dtype: Any, precision: str | None) -> Any:
        """`a @ b` with the epilogue `steps`, into `out` or a new array. matmul's short way does the same."""
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
                key += about(steps, self.pointer)
            if self.where is not None:
                key += places((a, b, out, *(step.operand for step in steps)), self.where)
            plan = self.find(key)
        except (AttributeError, TypeError):
            return self._other(a, b, out, steps, dtype, precision)
        if plan is None:
            return self.first(key, a, b, out, steps, dtype, precision, pa, pb, pc)
        try:
            return plan.run(a, b, out, steps, pa, pb, pc)
        except self.troubles as error:
            plan = self.instead(key, plan, error, a, b, out, steps, dtype, precision)
        return plan.run(a, b, out, steps, pa, pb, pc)

    def _other(self, a: Any, b: Any, out: Any, steps: Any, dtype: Any, precision: str | None) -> Any:
        """The same of arrays that are not CuPy's."""
        self.check(a, b, out, steps, precision)
        pa, pb, pc = (0 if array is None else self.pointer(array) for array in (a, b, out))
        odd = pa & 15, pb & 15, pc & 15
        key: tuple[Any, ...] = (laid(a), laid(b), out if out is None else laid(out), odd, dtype, precision)
        key += about(steps, self.pointer)
        if self.where is not None:
            key += places((a, b, out, *(step.operand for step in steps)), self.where)
        plan = self.find(key)
        if plan is None:
            return self.first(key, a, b, out, steps, dtype, precision, pa, pb, pc)
        try:
            return plan.run(a, b, out, steps, pa, pb, pc)
        except self.troubles as error:
            plan = self.instead(key, plan, error, a, b, out, steps, dtype, precision)
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

    def first(
        self, key: Any, a: Any, b: Any, out: Any, steps: Any, dtype: Any, precision: Any, pa: int, pb: int, pc: int
    ) -> Any:
        """The first call of its kind, or any while calls are recorded."""
        plan = self.plans.get(key)
        if plan is None:
            plan = self._made(key, a, b, out, steps, dtype, precision)
        else:
            counters.seen(plan)
        try:
            return plans_recorded.run(self, plan, a, b, out, steps, pa, pb, pc)
        except self.troubles as error:
            plan = self.instead(key, plan, error, a, b, out, steps, dtype, precision)
        return plans_recorded.run(self, plan, a, b, out, steps, pa, pb, pc)

    def instead(
        self, key: Any, plan: Plan, error: Exception, a: Any, b: Any, out: Any, steps: Any, dtype: Any, precision: Any
    ) -> Plan:
        """The library's Plan in the place of one that raised `error`; see mishaps.instead."""

        def library(reason: str) -> Plan:
            call = resolve(a, b, out, steps, dtype, self.precision(precision))
            return FallbackPlan(self, call, reason, precision)

        return instead(self, key, plan, error, library)

    def _made(self, key: Any, a: Any, b: Any, out: Any, steps: Any, dtype: Any, precision: Any) -> Plan:
        """A new Plan, made once even when several threads arrive together."""
        self.check(a, b, out, steps, precision)
        with self.lock:
            plan = self.plans.get(key)
            if plan is None:
                counters.misses.add()
                plan, keep = plans_make.plan(self, a, b, out, steps, dtype, precision)
                if keep:
                    self.keep(key, plan)
        return plan

    def keep(self, key: Any, plan: Any) -> None:
        """Keeps a Plan for later calls; the caller holds the lock."""
        if len(self.plans) >= MOST_PLANS:
            self.plans.clear()
        self.plans[key] = plan

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
            self.wholes = {kind: times for kind, times in self.wholes.items() if kind[0] != workload.key()}
            self.plans.clear()

    def refresh(self) -> None:
        """Reads the databases again and forgets what followed from them."""
        with self.lock:
            self.library.reload()
            for known in (self.plans, self.wholes, self.tuned, self.raced, self.loaded):
                known.clear()

    def adapt(self, conditions: str) -> None:
        """Under other conditions (see Device.conditions) kinds of calls are planned anew, and may race again."""
        self.library.adapt(conditions)
        with self.lock:
            self.raced.clear()
            self.wholes.clear()
            self.plans.clear()
