"""Matrix products with a gate or a norm in their epilogue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gensor_kernels.dispatch.calls.arguments import FusedEpilogue, Operation, named_dtype, operations
from gensor_kernels.dispatch.functions.fused_matmul import GATED, NORMED, Norm
from gensor_kernels.operators.products import gated
from gensor_kernels.operators.types.epilogue import NORMS
from gensor_kernels.shown import shown

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from gensor_kernels.dispatch.calls.array import DeviceArray
    from gensor_kernels.dispatch.plans.runtime import Runtime

#: eps where a call names none: PyTorch's of a layer norm, Llama's of an rms norm.
EPS = {"layernorm": 1e-5, "rmsnorm": 1e-6}


def fused(
    runtime: Runtime,
    a: DeviceArray,
    b: DeviceArray,
    arguments: Any,
    out: DeviceArray,
    dtype: DTypeLike | None,
    precision: str | None,
) -> Any:
    """Compute a matmul with a gate or a norm; `arguments` are the arguments of `operations`."""
    alpha, bias, add, activation, epilogue = arguments
    found = _norm_in(epilogue)
    if found is None:
        name, own, steps = _parse_gate(*arguments)
        given, function = None if dtype is None else named_dtype(dtype), GATED[gated.GATES[name]]
        return runtime.serve(function, (a, b, own), given, out, steps, precision)
    if bias is not None or add is not None or activation is not None:
        raise ValueError("epilogue= gives the whole order: put bias, add and activation into it")
    first, norm, last = found
    try:
        before, after = operations(alpha, epilogue=first), operations(epilogue=last)
    except FusedEpilogue:
        raise ValueError("an epilogue has one gate or norm at most") from None
    norm = norm._replace(before=len(before), dtype=None if dtype is None else named_dtype(dtype))
    return runtime.serve(NORMED, (a, b), norm, out, (*before, *after), precision)


def _parse_gate(
    alpha: Any, bias: DeviceArray, add: DeviceArray, activation: str | None, epilogue: Any
) -> tuple[str, DeviceArray, tuple[Operation, ...]]:
    """Return (gate, the bias before it, operations after it) of the arguments of `operations`.

    ValueError if anything but one bias comes before the gate.
    """
    if epilogue is None:
        name, items = str(activation), []
        before = operations(alpha, bias, add)
    else:
        listed = list(epilogue)
        names = _names(listed)
        place = next(place for place, name in enumerate(names) if name in gated.GATES)
        name, items = names[place], listed[place + 1 :]
        if not isinstance(listed[place], str) and len(listed[place]) > 1:
            raise ValueError(f"epilogue operation {name!r} takes no values")
        before = operations(alpha, bias, add, activation, listed[:place])
    if len(before) > 1 or any(step.name != "bias" for step in before):
        named = ", ".join(step.name for step in before)
        raise ValueError(f"only one bias may come before {name}, not {named}")
    try:
        after = operations(epilogue=items)
    except FusedEpilogue:
        raise ValueError("an epilogue has one gate at most") from None
    return name, before[0].operand if before else None, after


def _norm_in(epilogue: Any) -> tuple[list[Any], Norm, list[Any]] | None:
    """Split an epilogue into (operations before its norm, the norm, operations after it), or None without a norm."""
    items = [] if epilogue is None else list(epilogue)
    names = _names(items)
    places = [place for place, name in enumerate(names) if name in NORMS]
    if not places:
        return None
    place, name = places[0], names[places[0]]
    given = items[place][1:] if not isinstance(items[place], str) else ()
    if len(given) > 1 or any(not isinstance(each, (int, float)) or not each > 0 for each in given):
        raise ValueError(f"{name} takes an eps above 0, as in ('{name}', 1e-5), not {shown(given)}")
    return items[:place], Norm(name, float(given[0]) if given else EPS[name], 0), items[place + 1 :]


def _names(items: list[Any]) -> list[str]:
    """Return the names of an epilogue's operations, "" for what has none."""
    names = (item[0] if isinstance(item, (tuple, list)) and item else item for item in items)
    return [name if isinstance(name, str) else "" for name in names]
