"""Learn direct ways (dispatch/direct.py): which arguments of a public function a Plan launches on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from gensor_kernels.arrays import DeviceArray
from gensor_kernels.dispatch.calls.arguments import Operands
from gensor_kernels.dispatch.calls.problem import clearance
from gensor_kernels.dispatch.kept import Key
from gensor_kernels.dispatch.tuning.tuned_calls import TunedCalls

from .launch import LaunchPlan
from .plan import Plan, Steps
from .trial import HOT_RUN, Trial

#: Types of arguments that mean what they are equal to; others are not kept alive by a key either.
PLAIN = (type(None), bool, int, str, list, tuple)
#: Ways kept per Runtime; beyond it they are all forgotten, and learned again.
MOST_WAYS = 16384
#: The run from which a kind of call without a way is left alone.
LAST_RUN = 2 * HOT_RUN


class Unknown(Exception):
    """Raised for an array that is not known to be an argument, or another array at its address."""


class Witness:
    """Serves calls as they are, and notes those that a public function makes, without those that a Plan makes."""

    def __init__(self) -> None:
        self.seen: list[tuple[Plan, Operands, Any]] = []
        self._within = False

    def serve(self, plan: Plan, operands: Operands) -> Any:
        """Serve a call; see Binder.serve."""
        if self._within:
            return plan.serve(*operands)
        self._within = True
        try:
            result = plan.serve(*operands)
        finally:
            self._within = False
        self.seen.append((plan, operands, result))
        return result


def learn(runtime: Any, key: Key, runs: int, values: Sequence[Any], call: Callable[[], Any]) -> Any:
    """Make a call in full, and keep its way where it has one.

    Calls are witnessed at runs 2, 4, 8 and so on, up to one after a trial would be over: kinds of calls that never come
    back, or have no way, do not pay.
    """
    if not all(type(value) is runtime.array or _is_plain(value) for value in values):
        return call()
    runs += 1
    if len(runtime.ways) >= MOST_WAYS:
        runtime.ways.clear()
    runtime.ways[key] = runs if runs < LAST_RUN else False
    if runs < 2 or runs & (runs - 1) or runtime.device.capturing():
        return call()
    epoch, witness = runtime.epoch, Witness()
    with runtime.bound_by(witness):
        returned = call()
    if len(witness.seen) == 1:
        way = _way(runtime, values, *witness.seen[0], returned)
        with runtime.lock:
            if way is not None and runtime.epoch == epoch:  # no Plan was forgotten meanwhile
                runtime.ways[key] = way
    return returned


def _is_plain(value: object) -> bool:
    """Return whether equal arguments of a type mean the same: 0.0 and -0.0 do not."""
    if type(value) is float:
        return value != 0.0
    return type(value) in PLAIN or isinstance(value, (np.dtype, type))


def _way(
    runtime: TunedCalls,
    values: Sequence[Any],
    plan: Plan,
    operands: Operands,
    result: DeviceArray,
    returned: DeviceArray,
) -> tuple[Any, ...] | None:
    """Return what serves calls like one that was witnessed, or None: see `direct_way`."""
    inputs, out, steps = operands
    if isinstance(plan, Trial):
        return None
    given = [(place, value) for place, value in enumerate(values) if type(value) is runtime.array]
    places = {id(value): place for place, value in given}
    if len(places) < len(given):  # which of two arguments that are one array is read where?
        return None
    try:
        if isinstance(plan, LaunchPlan):
            if plan.call.function.written(inputs, plan.call.parameters):  # beyond the result
                return _writing(runtime, values, plan, operands, (result, returned))
            return _launching(runtime, given, plan, operands, (result, returned))
        if returned is not result:
            return None
        arrays = (*inputs, out, *(step.operand for step in steps))
        pick: Any = itemgetter(*(-1 if each is None else places[id(each)] for each in arrays))
    except (KeyError, Unknown):
        return None
    count, plain = len(inputs), _without_arrays(steps)

    def serve(values: list[Any]) -> Any:
        values.append(None)  # at -1
        found = pick(values)
        if not plain:
            return plan.serve(found[:count], found[count], ())
        pairs = zip(plain, found[count + 1 :], strict=True)
        return plan.serve(found[:count], found[count], tuple(step._replace(operand=operand) for step, operand in pairs))

    return serve, None, None, True


def _without_arrays(steps: Steps) -> Steps:
    """Return an epilogue that keeps no array alive."""
    return tuple(step._replace(operand=None) for step in steps)


def _launching(
    runtime: TunedCalls,
    given: list[tuple[int, Any]],
    plan: LaunchPlan,
    operands: Operands,
    results: tuple[Any, Any],
) -> tuple[Any, ...] | None:
    """Return the way of a launch: arrays that the function made of its arguments are known by their addresses."""
    inputs, out, steps = operands
    addresses = [runtime.pointer(value) for _, value in given]

    def number(array: DeviceArray) -> int:
        if array is None:
            return 0
        found = [index for index, (_, value) in enumerate(given) if value is array]
        if not found:  # a view of an argument, of all its elements
            address, about = runtime.pointer(array), (array.size, array.dtype)
            found = [
                index
                for index, (_, value) in enumerate(given)
                if addresses[index] == address and (value.size, value.dtype) == about
            ]
        if len(found) != 1:
            raise Unknown
        return found[0] + 1

    a, b, *more = (*inputs, None)[: max(len(inputs), 2)]
    others = [each for each in (*more, *(step.operand for step in steps)) if each is not None]
    pick = itemgetter(number(a), number(b), number(out), *(number(each) for each in others))
    result, returned = results
    run, place = plan.at, None
    if out is not None:
        place = given[number(out) - 1][0]
        if returned is not given[number(out) - 1][1]:
            return None
    elif type(returned) is tuple:
        if not _are_entries(runtime, result, returned):
            return None
        run = _in_entries(plan.at)
    elif returned is not result:
        if not _is_reshaped(runtime, result, returned):
            return None
        run = plan.reshaped(returned.shape).at
    if plan.scalars:
        run = partial(run, steps=_without_arrays(steps))
    return run, pick, place, plan.allocates or out is None


def _writing(
    runtime: TunedCalls, values: Sequence[Any], plan: LaunchPlan, operands: Operands, results: tuple[Any, Any]
) -> tuple[Any, ...] | None:
    """Return the way of a launch that also writes its last input, which the function returns after the result.

    The caller gives it in a pair after `out`, or every call makes it.
    """
    (*read, written), out, _ = operands
    result, returned = results
    if type(returned) is not tuple or returned[1] is not written:  # but a copy
        return None
    given = [(place, value) for place, value in enumerate(values) if type(value) is runtime.array]
    place = next((place for place, value in given if value is written), None)
    inputs = operands.inputs if place is not None else tuple(read)
    way = _launching(runtime, given, plan, operands._replace(inputs=inputs), (result, returned[0]))
    if way is None:
        return None
    launch, pick, place_out, allocates = way
    if place is None:
        empty, pointer, shape, dtype = plan.empty, plan.pointer, tuple(written.shape), written.dtype

        def launch_on_new(out: DeviceArray, *addresses: int) -> Any:
            new = empty(shape, dtype)
            result = launch(out, *addresses, pointer(new))
            return None if result is None else (result, new)

        return launch_on_new, pick, place_out, True
    near = [clearance(each, written) for each in (*read[:2], out, *(each for each in read[2:] if each is not None))]

    def launch_on_given(pair: list[DeviceArray], *addresses: int) -> Any:
        at = addresses[-1]
        for (low, high), address in zip(near, addresses):  # noqa: B905 - strict takes time; the last is its own
            if low < at - address < high:
                return None
        result = launch(pair[0], *addresses)
        return None if result is None else (result, pair[1])

    return launch_on_given, pick, slice(place - 1, place + 1), allocates


def _are_entries(runtime: TunedCalls, result: DeviceArray, returned: tuple[Any, ...]) -> bool:
    """Return whether a function returned all entries of a new result along its first axis."""
    return len(returned) == len(result) and all(
        type(each) is runtime.array
        and runtime.pointer(each) == runtime.pointer(entry)
        and (each.shape, each.strides, each.dtype) == (entry.shape, entry.strides, entry.dtype)
        for each, entry in zip(returned, result, strict=True)
    )


def _in_entries(launch: Callable[..., Any]) -> Callable[..., Any]:
    """Return a launch whose result is the tuple of these entries."""

    def launch_all(*given: Any, **named: Any) -> Any:
        result = launch(*given, **named)
        return None if result is None else tuple(result)

    return launch_all


def _is_reshaped(runtime: TunedCalls, result: DeviceArray, returned: DeviceArray) -> bool:
    """Return whether what a function returned is a new result in another shape."""
    return (
        type(returned) is runtime.array
        and runtime.pointer(returned) == runtime.pointer(result)
        and returned.dtype == result.dtype
        and returned.size == result.size
        and bool(returned.flags.c_contiguous and result.flags.c_contiguous)
    )
