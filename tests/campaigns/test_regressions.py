"""Error rates of the regression check on simulated traces (tests/doubles/simulated_benchmarks.py).

A few traces of one kind in a push; nightly, all kinds and the figures of docs/regressions.md.
"""

import numpy as np
import pytest

from gensor_tuner.regression.verdicts import FAILING, compare
from tests.campaign_size import tell
from tests.doubles.simulated_benchmarks import CONTROLS, trace

NEWER = {"driver": "560.35", "clocked": True}
#: Event -> (keywords of the trace, the least share that is called slower, the largest share).
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
#: Runs before and after that docs/regressions.md recommends.
RECOMMENDED = {"before": 30, "after": 5}
#: Shares that may fail if nothing changed, with a steady control and with others.
STEADY, DISTURBED = 0.01, 0.05
#: Share of slowdowns by 20 % that may pass.
MISSED = 0.02


def share(seed: int, count: int, verdicts: tuple[str, ...] = ("slower",), **keywords: object) -> float:
    """The share of traces with one of these verdicts."""
    rng = np.random.default_rng(seed)
    results = [compare(*trace(rng, **keywords))[0].verdict for _ in range(count)]
    return sum(map(results.count, verdicts)) / count


def test_slowdowns_are_flagged():
    assert share(7, 200) <= 0.01 and share(7, 200, ours=0.05) >= 0.95
    assert share(10, 40, FAILING, control="steady", ours=0.2, **RECOMMENDED) >= 1 - MISSED


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
def test_slowdowns_are_flagged_and_nothing_else_is(kind):
    keywords, least, most = KINDS[kind]
    slower = share(7, 5_000, **keywords)
    tell(f"{kind}: called slower, of 5,000", f"{slower:.2%}")
    assert least <= slower <= most


@pytest.mark.nightly
@pytest.mark.parametrize("runs", [(5, 3), (30, 5)], ids=str)
@pytest.mark.parametrize("control", CONTROLS)
def test_a_noisy_control_neither_hides_nor_invents_a_slowdown(control, runs):
    """With the recommended number of runs, but for controls whose noise comes in spells."""
    keywords = {"control": control, "before": runs[0], "after": runs[1]}
    unchanged = share(9, 2_000, FAILING, **keywords)
    passed = 1 - share(10, 2_000, FAILING, ours=0.2, **keywords)
    machine = share(11, 2_000, FAILING, machine=0.1, **keywords)
    figures = f"{unchanged:.2%}, {passed:.2%}, {machine:.2%}"
    tell(f"{runs}, {control}: unchanged fails, 20 % slower passes, slower clock fails", figures)
    assert passed <= 0.15
    if runs == tuple(RECOMMENDED.values()) and "spells" not in control:
        assert unchanged <= (STEADY if control == "steady" else DISTURBED) and passed <= MISSED
