"""Verification cases of convolutions under filters of one tap along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gensor_kernels.families.core.cases import Case
from gensor_kernels.operators.windows.conv_product import output_size

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload

#: The small case, from which others are made.
SMALL = "batch"
#: Coverage names of filters with one tap along an axis.
THIN = frozenset({"one_row", "one_column"})


def one_tap(cases: Sequence[Case]) -> list[Case]:
    """Return the small case under one tap along an axis, and along both."""
    small = next(case for case in cases if case.name == SMALL)
    return [replace(small, name=f"one tap along {axes}", workload=thin(small.workload, axes)) for axes in ("h", "hw")]


def thin(workload: Workload, axes: str) -> Workload:
    """Return a Workload of the same outputs with one tap along these axes and a stride.

    The first and the last output of an axis read the padding.
    """
    z = workload.size
    sizes: dict[str, int] = {}
    for axis, taps, before, after in (("h", "r", "top", "bottom"), ("w", "s", "left", "right")):
        if axis in axes:
            out = output_size(z, axis, False)
            pad = int(out > 1)  # a single output is of the image
            own = {axis: 2 * out - 1 - 2 * pad, taps: 1, f"stride_{axis}": 2, f"dilation_{axis}": 1}
            sizes |= own | {f"pad_{before}": pad, f"pad_{after}": pad}
    return workload.with_sizes(**sizes)
