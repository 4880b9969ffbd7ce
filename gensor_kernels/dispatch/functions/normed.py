"""Products of CuPy arrays whose rows are normalised: what a call means to kernels, and the same from the library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from gensor_kernels.dispatch.calls.arguments import FusedAsked, Operation, named_dtype, operations, resolve
from gensor_kernels.dispatch.calls.fallback import apply_steps
from gensor_kernels.dispatch.plans.function import Asked, Called, Copy, Function, Result, Staged, Understood
from gensor_kernels.dispatch.plans.runtime import Runtime
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators import operator
from gensor_kernels.operators.products import normed
from gensor_kernels.operators.rows.norms import VERIFIED_EPS
from gensor_kernels.operators.types.epilogue import NORMS
from gensor_kernels.operators.types.geometry import BATCH_AXES, Geometry
from gensor_kernels.operators.types.workload import Workload

from .gated import folded, inputs_of

#: eps where a call names none: PyTorch's of a layer norm, Llama's of an rms norm.
EPS = {"layernorm": 1e-5, "rmsnorm": 1e-6}


class Norm(NamedTuple):
    """A norm by name, its eps, and how many operations come before it: the parameters of a call."""

    name: str
    eps: float
    before: int
    dtype: np.dtype[Any] | None = None


@dataclass(frozen=True)
class NormedProduct(Function):
    """behind(norm(before(a b))) over the rows of the product of a (..., m, k) or (k,) and b (..., k, n)."""

    name: str = "matmul with a norm"

    def result(self, inputs: Sequence[Any], parameters: Norm) -> Result:
        """That of matmul; ValueError for a b without columns, TypeError for what are no real numbers."""
        a, b = inputs
        if b.ndim < 2:
            raise ValueError(f"{parameters.name} normalises rows of a product: b has columns, not {tuple(b.shape)}")
        call = resolve(a, b, None, (), parameters.dtype)
        if call.dtype.kind in "iubc":
            raise TypeError(f"{parameters.name} of {call.dtype}: expected real floating-point arrays")
        return Result(call.shape, call.dtype)

    def understand(self, asked: Asked) -> Understood:
        """Any strides; arrays of another dtype are converted first."""
        a, b = asked.inputs
        assert a is not None and b is not None
        p: Norm = asked.parameters
        dtype = inputs_of(asked.result.dtype, a, b)
        if a.dtype != dtype or b.dtype != dtype:
            raise Staged(*(Copy(dtype, tuple(range(len(x.shape)))) for x in (a, b)))
        axes, views = folded(a, b, asked.out, asked.operands)
        if len(axes.batch) > BATCH_AXES:
            raise UnsupportedError(f"{len(axes.batch)} batch axes that cannot be merged; kernels take {BATCH_AXES}")
        first, second, out = (axes.view(index, views[index]) for index in range(3))
        workload = normed.workload_from_operands(
            *(p.name, first, second, out, p.before),
            math="tf32" if dtype == "float32" and asked.math == "tf32" else "ieee",
            epilogue=[step.name for step in asked.steps],
        )
        extents = tuple(extent for extent, _ in axes.batch)
        geometry = Geometry(
            (axes.m, axes.n, axes.k),
            (1, 1, 1, *extents)[-BATCH_AXES:],  # type: ignore[arg-type]
            *(axes.strides(0), axes.strides(1), axes.strides(2)),
            tail=normed.told(p.eps, p.before),
        )
        numbers = iter(range(3, len(views)))
        return Understood(
            workload,
            geometry,
            operands=tuple(None if view is None else axes.strides(next(numbers)) for view in asked.operands),
        )

    def called(self, workload: Workload, arrays: Mapping[str, Any]) -> Called:
        """The eps is that of verification."""
        declared: Any = operator(workload.operator)
        wide = None if arrays["c"].dtype == arrays["a"].dtype else arrays["c"].dtype
        norm = Norm(declared.norm, VERIFIED_EPS, workload.size["before"], wide)
        return Called((arrays["a"], arrays["b"]), norm)

    def library(self, device: Any, inputs: Sequence[Any], parameters: Norm, math: str | None) -> Any:
        """The product, in at least float32; the rest is in `finished`."""
        a, b = inputs
        call = resolve(a, b, None, (), parameters.dtype)
        wide = np.promote_types(call.dtype, np.float32)
        kind = np.dtype(np.float32) if call.dtype.name == "bfloat16" and call.batch else call.dtype
        return device.product(a.astype(kind, copy=False), b.astype(kind, copy=False), math).astype(wide, copy=False)

    def finished(
        self, device: Any, value: Any, steps: tuple[Operation, ...], parameters: Norm, dtype: np.dtype[Any]
    ) -> Any:
        """Operations, norm, operations."""
        value = apply_steps(device, value, steps[: parameters.before], value.dtype, value.dtype)
        if parameters.name == "layernorm":
            value = value - value.mean(axis=-1, keepdims=True)
        square = (value * value).mean(axis=-1, keepdims=True)
        value = value / device.xp.sqrt(square + value.dtype.type(parameters.eps))
        return apply_steps(device, value, steps[parameters.before :], dtype, value.dtype)


NORMED = NormedProduct()


def listed(epilogue: Any) -> tuple[list[Any], Norm, list[Any]] | None:
    """What comes before the norm of an epilogue, the norm, and what comes behind it; None where it has none."""
    items = [] if epilogue is None else list(epilogue)
    names = [item[0] if isinstance(item, (tuple, list)) and item else item for item in items]
    places = [place for place, name in enumerate(names) if isinstance(name, str) and name in NORMS]
    if not places:
        return None
    place, name = places[0], names[places[0]]
    given = items[place][1:] if not isinstance(items[place], str) else ()
    if len(given) > 1 or any(not isinstance(each, (int, float)) or not each > 0 for each in given):
        raise ValueError(f"{name} takes an eps above 0, as in ('{name}', 1e-5), not {given}")
    return items[:place], Norm(name, float(given[0]) if given else EPS[name], 0), items[place + 1 :]


def product(
    runtime: Runtime, a: Any, b: Any, alpha: Any, epilogue: Any, out: Any, dtype: Any, precision: str | None
) -> Any:
    """A call of matmul whose epilogue has a norm; ValueError for two of them, or one beside a gate."""
    from gensor_kernels.dispatch.plans.calls import call

    found = listed(epilogue)
    assert found is not None
    try:
        before, behind = operations(alpha, epilogue=found[0]), operations(epilogue=found[2])
    except FusedAsked:
        raise ValueError("an epilogue has one gate or norm at most") from None
    norm = found[1]._replace(before=len(before), dtype=None if dtype is None else named_dtype(dtype))
    return call(runtime, NORMED, (a, b), norm, out, (*before, *behind), precision)
