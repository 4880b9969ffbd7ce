"""einsum of any number of operands: pairwise contractions, or one call of the array library's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.dispatch.calls.arguments import Operands, named_dtype
from gensor_kernels.dispatch.contractions.path import (
    Chain,
    Step,
    flags_of,
    make_chain,
    parse_operands,
    strategy_of,
    take,
)
from gensor_kernels.dispatch.contractions.spec import einsum_form
from gensor_kernels.dispatch.functions.contraction import CONTRACTION, Spec, check_out
from gensor_kernels.dispatch.key import key_of_several
from gensor_kernels.dispatch.observe import record
from gensor_kernels.dispatch.observe.dry_run import Question, asking
from gensor_kernels.dispatch.plans import make, recorded
from gensor_kernels.operators.expression.subscripts import from_sublists
from gensor_kernels.shown import is_masked, no_array

from .interop import is_foreign
from .prologue import apply_prologue, contraction

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from gensor_kernels.dispatch.calls.array import DeviceArray
    from gensor_kernels.dispatch.plans.plan import Call
    from gensor_kernels.dispatch.plans.runtime import Runtime


def contract_chain(
    runtime: Runtime,
    arguments: Sequence[Any],
    dtype: DTypeLike | None,
    optimize: Any,
    conjugate: Any = (),
    prologue: Any = None,
    out: DeviceArray = None,
) -> DeviceArray:
    """Compute einsum of these arguments."""
    if out is not None:
        runtime.require("out", out)
    text, operands = read_arguments(runtime, arguments)
    dtype = named_dtype(dtype) if isinstance(dtype, str) else dtype
    strategy, flags = strategy_of(optimize), flags_of(conjugate, len(operands))
    if prologue is not None and len(operands) == 2:
        a, b = operands
        return contraction(runtime, einsum_form(text, (flags[0], flags[1])), a, b, prologue, dtype, out)
    if prologue is not None and operands:
        operands[0] = apply_prologue(runtime, operands[0], prologue)
    if len(operands) == 1:
        return _give(out, _single(runtime, text, operands[0].conj() if flags[0] else operands[0], dtype))
    if len(operands) == 2:
        a, b = operands
        return runtime.contract(einsum_form(text, (flags[0], flags[1])), a, b, out, dtype)
    if asking.get():
        chain = make_chain(text, operands, dtype, strategy, flags)
        raise Question(steps=tuple(Question(call, each) for _, call, each in _calls(runtime, chain, operands)))
    chain = _chain(runtime, text, operands, dtype, strategy, flags)
    if chain.library:
        given = [each.conj() if flag else each for each, flag in zip(operands, flags, strict=True)]
        result = runtime.device.xp.einsum(text, *given, dtype=dtype, optimize=optimize)
        if record.active:
            for step, call, arrays in _calls(runtime, chain, operands):
                recorded.count(step, partial(recorded.describe, call, 4, arrays))
        return _give(out, result)
    for step in chain.steps:
        first, second = take(operands, step.places)
        operands.append(runtime.contract(step.form, first, second, None if operands else out, chain.dtype))
    return operands[0]


def _give(out: DeviceArray, value: DeviceArray) -> DeviceArray:
    """Return a result, in `out` where there is one; ValueError for one that does not fit."""
    check_out(out, value)
    return Operands((), out, ()).give(value)


def read_arguments(runtime: Runtime, arguments: Sequence[Any]) -> tuple[str, list[Any]]:
    """Return (subscripts, operands as arrays of the device) of either form of call."""
    if arguments and isinstance(arguments[0], str):
        text, operands = arguments[0], list(arguments[1:])
    else:
        text, operands = from_sublists(arguments)
    device = runtime.device
    if any(is_foreign(each, device) for each in operands if not device.is_array(each)):
        raise TypeError("arrays of other libraries are exchanged first")  # by the caller, who catches this
    for each in filter(is_masked, operands):
        raise TypeError(no_array("an operand", each, device.xp.__name__))
    return text, [each if device.is_array(each) else device.xp.asarray(each) for each in operands]


def _single(runtime: Runtime, text: str, operand: DeviceArray, dtype: DTypeLike | None) -> DeviceArray:
    """Return the library's view or sum of one operand; bfloat16 is summed in float32, which every library can."""
    (labels,), output = parse_operands(text, [operand])[0]
    if asking.get():
        raise Question(reason="one operand: the library's view or sum")
    library = runtime.device.xp.einsum
    if operand.dtype.name != "bfloat16" or dtype is not None or set(labels) == set(output):
        return library(text, operand, dtype=dtype)
    return library(text, operand.astype(np.float32)).astype(operand.dtype)


def _chain(
    runtime: Runtime,
    text: str,
    operands: list[DeviceArray],
    dtype: DTypeLike | None,
    strategy: Any,
    flags: tuple[bool, ...],
) -> Chain:
    """Return the Chain, from the Runtime's plans where it is there."""

    def made() -> Chain:
        found = make_chain(text, operands, dtype, strategy, flags)
        if not runtime.device.emulated:
            plans = (make.make(call, arrays)[0] for _, call, arrays in _calls(runtime, found, operands))
            found.library = all(plan.tier == 4 for plan in plans)
        return found

    chain: Chain = runtime.remember(key_of_several("chain", operands, text, dtype, strategy, flags), made)
    return chain


def _calls(runtime: Runtime, chain: Chain, operands: Sequence[DeviceArray]) -> Iterator[tuple[Step, Call, Operands]]:
    """Yield every step, its call and its operands: stand-ins for the results of steps before it."""
    arrays = list(operands)
    for step in chain.steps:
        pair = take(arrays, step.places)
        call = runtime.kind_of(CONTRACTION, pair, Spec(step.form, chain.dtype))
        yield step, call, Operands(pair, None, ())
        arrays.append(call.result.new(runtime.device))
