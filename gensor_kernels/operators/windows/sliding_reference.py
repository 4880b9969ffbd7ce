"""What a sliding window's kernel should store, with its error bound: by the declaration, evaluated in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gensor_kernels.operators.tolerance import base as tolerance_base
from gensor_kernels.operators.tolerance.base import Expected, Magnitude
from gensor_kernels.operators.types.dtypes import facts, round_to
from gensor_kernels.operators.types.epilogue import Step
from gensor_kernels.operators.types.workload import Workload

from .sliding import Sliding


def expect(
    declared: Sliding,
    workload: Workload,
    plain: Mapping[str, np.ndarray],
    steps: Sequence[Step],
    *,
    structured: bool,
    integer_steps: int = 0,
    away: np.ndarray | None = None,
) -> Expected:
    """Values and bound behind an epilogue; ``plain`` are decoded, and kernels may multiply an image that is so far
    ``away`` from x.

    A maximum is exact.  Sums err as accumulation_bound says; an average is a sum times the rounded reciprocal of its
    count, two roundings more.
    """
    size, kind = declared.window(workload), facts(workload.accumulator)
    with np.errstate(all="ignore"):
        values = declared.reference(plain, size)
        if declared.kind == "maximum":
            # A window that lies in the padding alone has the least value of its type.
            values = np.maximum(values, -128.0) if kind.is_integer else values
            bound = np.zeros_like(values)
            if not steps and workload.dtype["x"] == workload.dtype["y"]:
                return Expected(values, bound, workload.dtype["y"])
        else:
            values, bound = _summed(declared, workload, plain, values, structured)
            if away is not None:
                bound = bound + declared.reference({**plain, "x": away, "w": np.abs(plain["w"])}, size)
                bound = np.where(np.isnan(bound), np.inf, bound)
    output = workload.dtype["y"]
    return tolerance_base.expect(
        values, bound, steps, accumulator=workload.accumulator, output=output, integer_steps=integer_steps
    )


def _summed(
    declared: Sliding, workload: Workload, plain: Mapping[str, np.ndarray], values: np.ndarray, structured: bool
) -> tuple[np.ndarray, np.ndarray]:
    """A sum of products, or an average, and the bound on a kernel's error."""
    size, kind = declared.window(workload), facts(workload.accumulator)
    if kind.is_integer:
        values = round_to(workload.accumulator, values)
        return values, np.zeros_like(values)
    high, wide = declared.sides(workload)
    count = np.ones(())
    if declared.kind == "average":
        count = np.maximum(np.multiply.outer(high.count(), wide.count()), 1)[None, :, :, None]
    total = declared.reference({name: np.abs(array) for name, array in plain.items()}, size) * count
    squares = declared.reference({name: array * array for name, array in plain.items()}, size) * count
    terms = high.window * wide.window
    norm = np.clip(np.sqrt(squares), total / np.sqrt(terms), total)
    bound = tolerance_base.accumulation_bound(
        values * count,
        Magnitude(total, norm),
        terms,
        dtype=workload.accumulator,  # products on the CUDA cores: nothing is truncated
        accumulator=workload.accumulator,
        structured=structured,
    )
    if declared.kind == "average":
        bound = bound / count + 2.0 * kind.unit_roundoff * np.abs(values) + kind.smallest_subnormal
        bound = np.where(np.isfinite(values), bound, 0.0)
    return values, bound
