"""How long a kernel is expected to take where only a prediction is known: the prediction, times what others took of it.

The factors are the 8 and 92 % quantiles of measured over predicted time of 496 kernels for 129 workloads on one H100
(benchmarks/results/h100-sxm.jsonl.gz). 80 % of the times of a workload that was left out were between them; the
quantiles were widened from 10 and 90 %, which held 77 %. No other part was measured.
"""

from __future__ import annotations

#: The part whose times gave the factors.
MEASURED_PART = "h100-sxm"
#: By family, where at least ten workloads were timed.
_FACTORS = {
    "attention": (0.64, 2.64),
    "attention_wgmma": (1.17, 2.18),
    "contraction_mma": (1.07, 2.75),
    "contraction_simt": (0.81, 1.56),
    "contraction_wgmma": (1.13, 2.39),
    "rows": (1.03, 1.95),
}
#: Factors of the other families together.
_OTHERS = (1.34, 2.80)


def expected_us(predicted_us: float, family: str) -> tuple[float, float]:
    """Return the microseconds between which 80 % of times are expected that were predicted to be `predicted_us`.

    Examples
    --------
    >>> expected_us(100.0, "attention")
    (64.0, 264.0)
    """
    low, high = _FACTORS.get(family, _OTHERS)
    return low * predicted_us, high * predicted_us
