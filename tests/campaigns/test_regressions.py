"""How often the regression check is right, on simulated traces: see tests/doubles/simulated_tuning.py for what they
are made of.

200 traces of each kind by default, 5,000 with GENSOR_CAMPAIGN=full; docs/regressions.md has the figures.
"""

import numpy as np
import pytest

from gensor_tuner.regression.verdicts import compare
from tests.campaign_size import FULL, tell
from tests.doubles.simulated_tuning import trace

TRACES = 5_000 if FULL else 200
NEWER = {"driver": "560.35", "clocked": True}

#: What happens -> the trace's keywords, the share that must be called slower, the share that may be.
KINDS = {
    "unchanged": ({}, 0.0, 0.01),
    "the driver changes": (NEWER, 0.0, 0.01),
    "the clock falls by 10 %": ({"machine": 0.1}, 0.0, 0.01),
    "the vendor's call becomes 8 % faster": ({"vendor": -0.08, **NEWER}, 0.0, 0.01),
    "ours becomes 5 % slower": ({"ours": 0.05}, 0.95, 1.0),
    "ours becomes 5 % slower as the driver changes": ({"ours": 0.05, **NEWER}, 0.95, 1.0),
    "ours becomes 5 % slower as the clock rises": ({"ours": 0.05, "machine": -0.09, **NEWER}, 0.95, 1.0),
    "ours becomes 10 % slower": ({"ours": 0.1}, 0.99, 1.0),
}


def share(seed: int, count: int = TRACES, **keywords: object) -> float:
    """The share of traces that are called slower."""
    rng = np.random.default_rng(seed)
    said = [compare(*trace(rng, **keywords))[0].verdict for _ in range(count)]
    return said.count("slower") / count


@pytest.mark.parametrize("kind", KINDS)
def test_slowdowns_are_flagged_and_nothing_else_is(kind):
    keywords, least, most = KINDS[kind]
    found = share(7, **keywords)
    tell(f"{kind}: called slower, of {TRACES}", f"{found:.2%}")
    assert least <= found <= most


@pytest.mark.skipif(not FULL, reason="figures for docs/regressions.md; GENSOR_CAMPAIGN=full")
@pytest.mark.parametrize("runs", [(5, 3), (8, 3), (10, 5), (20, 5), (20, 10)], ids=str)
@pytest.mark.parametrize("noise", [0.0035, 0.007, 0.01, 0.014])
def test_figures_by_runs_and_noise(runs, noise):
    found = [share(8, 2_000, before=runs[0], after=runs[1], noise=noise, ours=ours) for ours in (0.0, 0.05)]
    tell(f"{runs[0]} and {runs[1]} runs, noise {noise:.2%}: unchanged, 5 %", f"{found[0]:.2%}, {found[1]:.2%}")
    assert found[0] <= 0.01
