"""Split of a Program's predicted time into shares of the roofline's resources that sum to the whole.

Resources overlap, so "the time of the DRAM" is not defined by itself. A resource's share is its Shapley value: its
contribution to the prediction, averaged over every order in which the resources could be added (L. S. Shapley, A value
for n-person games, 1953). The split needs only Terms and the potential.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, replace

import numpy as np

from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import Terms, seconds

#: Resource -> its Terms, set to zero to remove its cost. "latency" also removes the arch's latencies.
RESOURCES: Mapping[str, tuple[str, ...]] = {
    "math": ("math", "multiplies"),
    "issue": ("issue",),
    "shared": ("wavefronts",),
    "L2": ("l2_bytes",),
    "DRAM": ("dram_bytes", "epilogue_bytes"),
    "latency": ("chain", "request", "stalls"),
    "ends": ("prologue", "epilogue", "epilogue_busy"),
}
LAUNCH = "launch"  # the remainder where every resource is free
MEANING = {
    "math": "multiplying: the tensor cores' or the FMA pipes' time",
    "issue": "other instructions of the main loop",
    "shared": "shared-memory accesses, conflicts included",
    "L2": "bytes requested from the L2",
    "DRAM": "bytes from and to DRAM",
    "latency": "waiting for memory and dependent instructions",
    "ends": "prologue and epilogue of the blocks",
    LAUNCH: "launching, and further launches of the same call",
}
NONE = 1e-20  # bytes: the potential divides by l2_bytes


def shares(terms: Terms, arch: Arch) -> dict[str, float]:
    """Return each resource's and the launch's share of one Program's predicted time; shares are >= 0 and sum to 1."""
    count = len(RESOURCES)
    subsets = np.arange(1 << count)
    present = (subsets[:, None] >> np.arange(count) & 1).astype(np.float32)
    values = _times(terms, arch, present)
    sizes = present.sum(axis=1).astype(int)
    weight = np.array([math.factorial(s) * math.factorial(count - s - 1) for s in range(count)]) / math.factorial(count)
    found = {}
    for place, name in enumerate(RESOURCES):
        without = subsets[present[:, place] == 0]
        gain = values[without | 1 << place] - values[without]
        found[name] = max(float((gain * weight[sizes[without]]).sum()), 0.0)
    found[LAUNCH] = float(values[0])
    total = sum(found.values())
    return {name: value / total for name, value in found.items()}


def _times(terms: Terms, arch: Arch, present: np.ndarray) -> np.ndarray:
    """Return predicted seconds with only the resources of each row of `present` (subsets, resources)."""
    one = {each.name: np.asarray(getattr(terms, each.name), np.float32).reshape(-1)[:1] for each in fields(terms)}
    values = {name: np.repeat(value, len(present)) for name, value in one.items()}
    for place, names in enumerate(RESOURCES.values()):
        for name in names:
            values[name] = values[name] * present[:, place]
    values["l2_bytes"] = np.maximum(values["l2_bytes"], np.float32(NONE))
    made = Terms(**values)
    instant = replace(arch, l2_latency=0.0, dram_latency=0.0)
    waits = present[:, list(RESOURCES).index("latency")] > 0
    return np.where(waits, seconds(made, arch), seconds(made, instant))
