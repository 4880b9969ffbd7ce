"""Matrix products with a gate or a norm in their epilogue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gensor_kernels.dispatch.calls.arguments import FusedEpilogue, named_dtype, operations
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
) -> DeviceArray:
    """Compute a matmul with a gate or a norm; `arguments` are the arguments of `operations`."""
    alpha, bias, add, activation, epilogue = arguments
    items = [activation] if epilogue is None else list(epilogue)
    names = [_name_of(item) for item in items]
    is_norm = any(name in NORMS for name in names)
    place = next(place for place, name in enumerate(names) if name in (NORMS if is_norm else gated.GATES))
    name, values = names[place], () if isinstance(items[place], str) else items[place][1:]
    if is_norm and (len(values) > 1 or any(not isinstance(each, (int, float)) or not each > 0 for each in values)):
        raise ValueError(f"{name} takes an eps above 0, as in ('{name}', 1e-5), not {shown(values)}")
    if values and not is_norm:
        raise ValueError(f"epilogue operation {name!r} takes no values")
    try:
        first = (alpha, bias, add) if epilogue is None else (alpha, bias, add, activation, items[:place])
        before = operations(*first)
        if not is_norm and (len(before) > 1 or any(step.name != "bias" for step in before)):
            named = ", ".join(step.name for step in before)
            raise ValueError(f"only one bias may come before {name}, not {named}")
        after = operations(epilogue=items[place + 1 :])
    except FusedEpilogue:
        raise ValueError(f"an epilogue has one gate{' or norm' if is_norm else ''} at most") from None
    given = None if dtype is None else named_dtype(dtype)
    if is_norm:
        norm = Norm(name, float(values[0]) if values else EPS[name], len(before), given)
        return runtime.serve(NORMED, (a, b), norm, out, (*before, *after), precision)
    own = before[0].operand if before else None
    return runtime.serve(GATED[gated.GATES[name]], (a, b, own), given, out, after, precision)


def _name_of(item: Any) -> str:
    """Return the name of an epilogue's operation, "" for an item without one."""
    name = item[0] if isinstance(item, (tuple, list)) and item else item
    return name if isinstance(name, str) else ""
