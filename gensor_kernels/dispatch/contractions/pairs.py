"""The path of every contraction of two arrays: a key, a look-up, and the Plan's run. Imports little."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from gensor_kernels.dispatch.observe import record as observe_record

if TYPE_CHECKING:
    from gensor_kernels.dispatch.plans.runtime import Runtime


def pair(runtime: Runtime, form: Any, a: Any, b: Any, out: Any, dtype: Any) -> Any:
    """The contraction of `a` and `b` that `form` names (see `forms`), into `out` or a new array.

    The key is built as for matmul: with `form` in front, so the two never meet.
    """
    pointer, pc = runtime.pointer, 0
    try:
        pa, pb, type_a, type_b = pointer(a), pointer(b), a.dtype, b.dtype
        types: Any = type_a if type_b is type_a else (type_a, type_b)
        odd: Any = (pa & 15, pb & 15) if (pa | pb) & 15 else 0
        key: tuple[Any, ...] = (form, a.shape, a.strides, b.shape, b.strides, types, odd, dtype)
        if out is not None:
            pc = pointer(out)
            key += (out.shape, out.strides, out.dtype, pc & 15)
        where = runtime.where
        if where is not None:
            key += (where(a), where(b), None if out is None else where(out))
        plan = runtime.find(key)
    except (AttributeError, TypeError):
        runtime.check(a, b, out, (), None)
        raise
    if plan is None:
        return _first(runtime, key, form, a, b, out, dtype, pa, pb, pc)
    try:
        return plan.run(a, b, out, (), pa, pb, pc)
    except runtime.troubles as error:
        from gensor_kernels.dispatch.plans.failures import instead

        from .plans import refused

        plan = instead(runtime, key, plan, error, partial(refused, runtime, plan))
    return plan.run(a, b, out, (), pa, pb, pc)


def _first(
    runtime: Runtime, key: Any, form: Any, a: Any, b: Any, out: Any, dtype: Any, pa: int, pb: int, pc: int
) -> Any:
    """The first call of its kind, or any while calls are recorded."""
    from gensor_kernels.dispatch.observe import counters
    from gensor_kernels.dispatch.plans.failures import instead

    from .plans import make, refused
    from .recorded import counted

    plan = runtime.plans.get(key)
    if plan is not None:
        counters.seen(plan)
    else:
        runtime.check(a, b, out, (), None)
        with runtime.lock:
            plan = runtime.plans.get(key)
            if plan is None:
                counters.misses.add()
                plan, keep = make(runtime, form, a, b, out, dtype)
                if keep:
                    runtime.keep(key, plan)

    def run(plan: Any) -> Any:
        if observe_record.active:
            return counted(runtime, plan, a, b, out, pa, pb, pc)
        return plan.run(a, b, out, (), pa, pb, pc)

    try:
        return run(plan)
    except runtime.troubles as error:
        plan = instead(runtime, key, plan, error, partial(refused, runtime, plan))
    return run(plan)
