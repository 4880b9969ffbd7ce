"""What a call of a Function is to kernels, and what is copied first where arrays lie as none takes them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators import operator
from gensor_kernels.operators.types.workload import View

from .call_plans import Base
from .function import Asked, Copy, Result, Spread, Staged
from .problem import Problem, broadcast, view_of
from .staging import operand_dtype, repeats_itself


@dataclass(frozen=True)
class Studied:
    """A call as kernels see it, once inputs (`copies`, empty for none) and operands of the epilogue (`spread`) are
    copied. `temporary`: into a new array in place of `out`."""

    problem: Problem
    copies: tuple[Copy | None, ...] = ()
    spread: tuple[Spread | None, ...] = ()
    temporary: bool = False

    @property
    def copied(self) -> bool:
        """Whether anything is copied first."""
        return bool(self.copies) or any(self.spread)

    @property
    def staged(self) -> str | None:
        """What happens to the arrays first, in words; None for nothing."""
        words = ["operands are copied"] * self.copied + ["the result goes through a temporary"] * self.temporary
        return "; ".join(words) or None


def study(base: Base, inputs: Any, out: Any, steps: Any) -> Studied:
    """The problem a call is to kernels; for an `out` that none writes as it lies, into a new array."""
    if out is not None and not _needs_temporary(base, out):
        try:
            return _studied(base, inputs, view_of(out, base.runtime.pointer(out)), steps)
        except UnsupportedError:
            pass  # what is wrong may be another thing: then it is said of the new array
    return replace(_studied(base, inputs, base.result.view(), steps), temporary=out is not None)


def _studied(base: Base, inputs: Any, target: View, steps: Any) -> Studied:
    """With the epilogue's operands as they lie, else with copies of them: of what they have, else of all axes."""
    over = tuple(None if step.operand is None else _broadcast(base, step.operand) for step in steps)
    ways: list[tuple[Spread | None, ...]] = [(None,) * len(over)]
    if any(over):
        ways += [tuple(view and _spread(view, target, whole) for view in over) for whole in (False, True)]
    error: UnsupportedError | None = None
    for spread in ways:
        laid = tuple(s.view(v) if v and s else v for v, s in zip(over, spread, strict=True))
        try:
            return replace(_understood(base, inputs, target, steps, laid), spread=spread)
        except UnsupportedError as each:
            error = error or each
    assert error is not None
    raise error


def _understood(base: Base, inputs: Any, target: View, steps: Any, over: tuple[View | None, ...]) -> Studied:
    pointer = base.runtime.pointer
    copies: tuple[Copy | None, ...] = ()
    views = tuple(None if array is None else view_of(array, pointer(array)) for array in inputs)
    asked = Asked(views, target, base.parameters, steps, over, base.result, base.math)
    try:
        understood = base.function.understand(asked)
    except Staged as needed:
        copies = needed.copies
        staged = tuple(_copied(view, copy) for view, copy in zip(views, copies, strict=True))
        try:
            understood = base.function.understand(replace(asked, inputs=staged))
        except Staged:
            raise UnsupportedError("no copy of the operands lies as kernels take them") from None
    operands = understood.operands
    if operands is None:
        declared, workload = operator(understood.workload.operator), understood.workload
        operands = tuple(
            None if view is None else declared.output(workload, understood.declared(view.strides)) for view in over
        )
    return Studied(Problem(understood.workload, False, understood.geometry, operands), copies)


def _spread(view: View, target: View, whole: bool) -> Spread:
    """A copy of an operand with its axes in the output's order in memory; `whole`: with all of them."""
    order = sorted(range(len(target.shape)), key=lambda axis: -abs(target.strides[axis]))
    return Spread(tuple(order), tuple(whole or stride != 0 for stride in view.strides))


def _broadcast(base: Base, operand: Any) -> View:
    """An epilogue's operand as the result's shape sees it."""
    if operand.dtype != operand_dtype(operand.dtype):
        raise UnsupportedError(f"an epilogue operand of dtype {operand.dtype.name}")
    return broadcast(view_of(operand, base.runtime.pointer(operand)), base.result.shape)


def _needs_temporary(base: Base, out: Any) -> bool:
    """Whether no kernel writes `out` as it lies."""
    strides = (base.runtime.pointer(out), *out.strides)
    return out.dtype != base.result.dtype or repeats_itself(out) or any(s % out.dtype.itemsize for s in strides)


def _copied(view: View | None, copy: Copy | None) -> View | None:
    if view is None or copy is None:
        return view
    return Result(view.shape, np.dtype(copy.dtype), copy.order).view()
