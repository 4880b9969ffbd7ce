"""The path of every contraction of two arrays: a key, a look-up, and the Plan's run. Imports little."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import config, recording

if TYPE_CHECKING:
    from .runtime import Runtime


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
    return plan.run(a, b, out, (), pa, pb, pc)


def _first(
    runtime: Runtime, key: Any, form: Any, a: Any, b: Any, out: Any, dtype: Any, pa: int, pb: int, pc: int
) -> Any:
    """The first call of its kind, or any while calls are recorded."""
    from . import tally
    from .contraction_rows import counted
    from .contractions import make, refused
    from .runtime import MOST_PLANS

    plan = runtime.plans.get(key)
    if plan is not None:
        tally.seen(plan)
    else:
        runtime.check(a, b, out, (), None)
        with runtime.lock:
            plan = runtime.plans.get(key)
            if plan is None:
                tally.misses.add()
                plan, keep = make(runtime, form, a, b, out, dtype)
                if keep:
                    if len(runtime.plans) >= MOST_PLANS:
                        runtime.plans.clear()
                    runtime.plans[key] = plan
    try:
        if recording.active:
            return counted(runtime, plan, a, b, out, pa, pb, pc)
        return plan.run(a, b, out, (), pa, pb, pc)
    except runtime.device.refusals as error:
        # A launch the driver refuses at once has done nothing: the library can still serve the call.
        config.logger().warning("a launch was refused (%s); the call goes to the library", error)
        plan = runtime.plans[key] = refused(runtime, plan, error)
        return plan.run(a, b, out, (), pa, pb, pc)
