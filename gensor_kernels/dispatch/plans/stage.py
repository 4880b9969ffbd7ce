"""Stage a call: lower it to a problem of kernels, with copies of arrays whose layouts no kernel takes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gensor_kernels.dispatch.calls.arguments import Operands
from gensor_kernels.dispatch.calls.problem import Problem, broadcast, is_odd, operand_dtype, repeats_itself, view_of
from gensor_kernels.dispatch.functions.base import (
    AbstractCall,
    After,
    Copy,
    Copying,
    KernelCall,
    NeedsCopies,
    Spread,
    memory_order,
)
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators import operator
from gensor_kernels.operators.types.workload import View, contiguous

from .plan import Call, Inputs, Plan, Steps

if TYPE_CHECKING:
    from gensor_kernels.dispatch.calls.array import DeviceArray

#: How often a call is made again with copies of the copies before.
MOST_COPIES = 3
OPERANDS_COPIED, RESULT_COPIED = "operands are copied", "the result goes through a temporary"


@dataclass(frozen=True)
class Lowered:
    """A call as kernels compute it after copies of inputs (`copies`, empty for none) and epilogue operands (`spread`).

    `parameters` and `after` are those of NeedsCopies; `temporary`: the result goes into a new array, not into `out`.
    `words` describe the copies of inputs; `windows` are those of a contraction.
    """

    problem: Problem
    copies: tuple[Copying | None, ...] = ()
    spread: tuple[Spread | None, ...] = ()
    parameters: Any = None
    after: After | None = None
    temporary: bool = False
    words: tuple[str, ...] = ()
    windows: tuple[View, ...] = ()

    @property
    def copied(self) -> bool:
        """Whether anything is copied first."""
        return any(self.copies) or any(self.spread)

    @property
    def staged(self) -> str | None:
        """A description of the copies before the launch, or None without copies."""
        copied = self.words or (OPERANDS_COPIED,) * self.copied
        return "; ".join((*copied, *(RESULT_COPIED,) * self.temporary)) or None


class StagedPlan(Plan):
    """Copies arrays of layouts that no kernel takes and makes the call again, or copies a new result to `out`."""

    def __init__(self, call: Call, tier: int, lowered: Lowered, switched: bool):
        super().__init__(call)
        self.tier, self.lowered, self.switched = tier, lowered, switched
        self.reason = lowered.staged or ""

    def serve(self, inputs: Inputs, out: DeviceArray, steps: Steps) -> DeviceArray:
        """Copy, call, and make the result of that of the call."""
        call, lowered = self.call, self.lowered
        if self.switched and not call.device.tf32():
            return call.again(Operands(inputs, out, steps), math="ieee")
        if not lowered.copied and lowered.parameters is None:
            return call.through_temporary(Operands(inputs, out, steps))
        copies = lowered.copies or (None,) * len(inputs)
        arrays = [self._copy(array, copy) for array, copy in zip(inputs, copies, strict=True)]
        steps = tuple(
            step if spread is None else step._replace(operand=spread.make(call.device, step.operand, call.result.shape))
            for step, spread in zip(steps, lowered.spread, strict=True)
        )
        if lowered.after is None:
            return call.again(Operands(arrays, out, steps), lowered.parameters)
        value = call.again(Operands(arrays, None, steps), lowered.parameters)
        return lowered.after(call.device, value, call.result, out)

    def _copy(self, array: DeviceArray, copy: Copying | None) -> DeviceArray:
        return array if array is None or copy is None else copy.make(self.call.device, array)


def stage(call: Call, operands: Operands) -> Lowered:
    """Lower a call to a problem of kernels, with a new result where no kernel writes the layout of `out`."""
    pointer = call.runtime.pointer
    inputs, out, steps = operands
    if out is not None and out.dtype == call.result.dtype and not (is_odd(out, pointer(out)) or repeats_itself(out)):
        try:
            return _lower(call, inputs, view_of(out, pointer(out)), steps, fresh=False)
        except UnsupportedError:
            pass  # where it was not `out`, the new array will not do either
    return replace(_lower(call, inputs, call.result.view(), steps, fresh=True), temporary=out is not None)


def _lower(call: Call, inputs: Inputs, target: View, steps: Steps, fresh: bool) -> Lowered:
    """Lower with the epilogue's operands in place, else with copies of the axes they have, else of all axes."""
    views, odd = _inputs(call, inputs)
    abstract = AbstractCall(
        *(views, target, call.parameters, steps, (), call.result, call.math, fresh),
        emulated=call.device.emulated,
        arch=call.device.arch,
    )
    nothing = (None,) * len(steps)
    if not any(step.operand is not None for step in steps):
        return replace(_lower_inputs(call, replace(abstract, operands=nothing), odd), spread=nothing)
    error: UnsupportedError | None = None
    for copied, whole in ((False, False), (True, False), (True, True)):
        spread = tuple(_spread(call, step.operand, target, copied, whole) for step in steps)
        operands = tuple(_operand(call, step.operand, each) for step, each in zip(steps, spread, strict=True))
        try:
            return replace(_lower_inputs(call, replace(abstract, operands=operands), odd), spread=spread)
        except UnsupportedError as each:
            error = error or each
    assert error is not None
    raise error


def _inputs(call: Call, inputs: Inputs) -> tuple[tuple[View | None, ...], tuple[Copy | None, ...]]:
    """Return the Views of inputs, and the copies of inputs whose elements are not naturally aligned."""
    views: list[View | None] = []
    odd: list[Copy | None] = []
    for array in inputs:
        address = 0 if array is None else call.runtime.pointer(array)
        copy = (
            Copy(array.dtype.name, memory_order(array.strides))
            if array is not None and is_odd(array, address)
            else None
        )
        plain = copy and contiguous(tuple(array.shape), array.dtype.name)
        views.append(copy.view(plain) if copy and plain else None if array is None else view_of(array, address))
        odd.append(copy)
    return tuple(views), tuple(odd)


def _lower_inputs(call: Call, abstract: AbstractCall, odd: tuple[Copy | None, ...]) -> Lowered:
    """Lower a call whose epilogue operands are settled."""
    first: NeedsCopies | None = NeedsCopies(*odd) if any(odd) else None
    words: list[str] = [first.args[0]] if first else []
    for _ in range(MOST_COPIES + 1):
        try:
            found = call.function.lower(abstract)
        except NeedsCopies as needed:
            if first is None or first.copies == odd:
                copies = tuple(copy or other for copy, other in zip(needed.copies, odd, strict=True))
                first = NeedsCopies(*copies, parameters=needed.parameters, after=needed.after)
                words.clear()
            words.append(needed.words)
            parameters = abstract.parameters if needed.parameters is None else needed.parameters
            views = tuple(
                view if view is None or copy is None else copy.view(view)
                for view, copy in zip(abstract.inputs, needed.copies, strict=True)
            )
            out = abstract.out if needed.out is None else needed.out
            abstract = replace(abstract, inputs=views, parameters=parameters, out=out)
        else:
            problem = Problem(found.workload, found.geometry, _strides(abstract, found))
            plain = Lowered(problem, windows=found.windows)
            if first is None:
                return plain
            return replace(
                plain, copies=first.copies, parameters=first.parameters, after=first.after, words=tuple(words)
            )
    raise UnsupportedError("no copy of the operands lies as kernels take them")


def _strides(abstract: AbstractCall, found: KernelCall) -> tuple[Any, ...]:
    """Return the strides of the epilogue's operands along the axes that the operator declares."""
    if found.operands is not None:
        return found.operands
    declared, workload = operator(found.workload.operator), found.workload
    return tuple(
        None if view is None else declared.output(workload, found.declared(view.strides)) for view in abstract.operands
    )


def _spread(call: Call, operand: DeviceArray, target: View, copied: bool, whole: bool) -> Spread | None:
    """Return the copy of an epilogue operand with its axes in the output's order in memory; `whole`: with all axes.

    Without `copied` only operands that no kernel reads, whatever the call, are copied.
    """
    if operand is None:
        return None
    dtype = operand_dtype(operand.dtype)
    if not copied and operand.dtype == dtype and not is_odd(operand, call.runtime.pointer(operand)):
        return None
    shape = call.result.shape
    missing = len(shape) - operand.ndim
    own = tuple(
        whole or (axis >= missing and operand.shape[axis - missing] != 1 and operand.strides[axis - missing] != 0)
        for axis in range(len(shape))
    )
    return Spread(memory_order(target.strides), own, dtype)


def _operand(call: Call, operand: DeviceArray, spread: Spread | None) -> View | None:
    """Return an epilogue operand as the result's shape sees it."""
    if operand is None:
        return None
    if spread is not None:
        return spread.view(call.result.shape)
    return broadcast(view_of(operand, call.runtime.pointer(operand)), call.result.shape)
