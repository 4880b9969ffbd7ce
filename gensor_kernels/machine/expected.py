"""How long a kernel is expected to take where only a prediction is known: the prediction, times what others took of it.

The factors are quantiles of measured over predicted time of 401 kernels for 112 workloads on one H100, by
`python -m benchmarks.measured_kernels`. 80 % of the times of a workload that was left out were between them. No other
part was measured.
"""

from __future__ import annotations

#: The part whose times gave the factors.
MEASURED_PART = "h100-sxm"
#: Percent of times that are below the lower factor, and above the upper one.
OUTSIDE = 8.0
#: The fewest timed workloads with which a family has factors of its own.
LEAST_WORKLOADS = 10
#: By family.
_FACTORS = {
    "attention": (0.57, 1.91),
    "attention_wgmma": (0.91, 1.14),
    "contraction_mma": (0.87, 1.71),
    "contraction_wgmma": (0.86, 1.17),
    "rows": (0.87, 1.26),
}
#: Factors of the other families together.
_OTHERS = (0.85, 1.84)


def expected_us(predicted_us: float, family: str) -> tuple[float, float]:
    """Return the microseconds between which 80 % of times are expected that were predicted to be `predicted_us`.

    Examples
    --------
    >>> expected_us(100.0, "rows")
    (87.0, 126.0)
    """
    low, high = _FACTORS.get(family, _OTHERS)
    return low * predicted_us, high * predicted_us
