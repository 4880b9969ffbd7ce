"""Phases of a transposed convolution, for the phase rewrite: a stride leaves most taps without a pixel.

Outputs whose positions have equal remainders by the strides meet the same taps of the filter.  These outputs are an
ordinary convolution of the image with these taps, of stride 1 (phases.cuh).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import gcd
from typing import NamedTuple

from gensor_kernels.operators.types.workload import Workload

from .sides import along, output_size

NAME = "conv2d_transpose"


class Axis(NamedTuple):
    """Phases along h or w: number of ``phases`` with taps, most ``taps`` and most ``outputs`` of a phase
    (``PhasedAxis``)."""

    phases: int
    taps: int
    outputs: int


def axis(sizes: Mapping[str, int], side: str) -> Axis:
    """Return the phases along "h" or "w"."""
    _, taps, stride, dilation, _, _ = along(sizes, side)
    pace = stride // gcd(stride, dilation)
    return Axis(min(pace, taps), -(-taps // pace), -(-output_size(sizes, side, True) // stride))


def phases(workload: Workload) -> int:
    """Return the number of phases with taps."""
    return axis(workload.size, "h").phases * axis(workload.size, "w").phases


def least_depth(workload: Workload) -> int:
    """Return the fewest products in an output's sum, over all phases."""
    z = workload.size
    down, across = (axis(z, side).phases for side in "hw")
    return (z["r"] // down) * (z["s"] // across) * (z["c"] // z["groups"])


def all_phases(workload: Workload) -> Workload:
    """Return a convolution that is as much work as all phases together, with phases as groups.

    Each group has the outputs of the largest phase and, in a row, the mean number of taps of a phase, rounded up:
    blocks of all phases run side by side, so that the time is between the sum of all phases and the longest.  Pixels
    that only cropped outputs read are left out.
    """
    z, (down, across) = workload.size, (axis(workload.size, side) for side in "hw")
    count = down.phases * across.phases
    taps = -(-z["r"] * z["s"] // count)
    ones = dict.fromkeys(("stride_h", "stride_w", "dilation_h", "dilation_w"), 1)
    h, w = min(z["h"], down.outputs), min(z["w"], across.outputs + taps - 1)
    around = {"h": h, "w": w, "pad_bottom": down.outputs - h, "pad_right": across.outputs - w + taps - 1}
    sizes = {"r": 1, "s": taps, "pad_top": 0, "pad_left": 0, **ones, **around}
    sizes |= {name: z[name] * count for name in ("c", "k_out", "groups")}
    kept = {name: z[name] for name in z if not name.startswith("output_padding")}
    return replace(workload, operator="conv2d", sizes=tuple({**kept, **sizes}.items()))
