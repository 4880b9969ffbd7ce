"""The ablation of the chain's temperature: its walks count what they evaluate, and its variants do what they say."""

import json
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import temperature
from benchmarks.spaces import convolution_terms
from gensor_kernels.machine import roofline
from gensor_kernels.machine.arch import lookup
from gensor_tuner.search.markov import COLD, Schedule
from gensor_tuner.search.walk import walk

from ..tuner.search.synthetic import Spaces, ToySpace
from .clblast_space import write_space
from .test_convolution_terms import configurations

FEW = Schedule(chains=8, steps=60, hot=0.03, cycle=30)


@pytest.fixture
def few_steps(monkeypatch):
    """Walks of 8 chains and 60 steps."""
    monkeypatch.setattr(temperature, "CHAINS", 8)
    monkeypatch.setattr(temperature, "STEPS", 60)


def begun(seed=0, budget=None, families=None):
    families = families or [temperature.Known(ToySpace())]
    return temperature.Begun.of(families, seed, budget)


def by_name():
    return {variant.name: variant for variant in temperature.variants()}


@pytest.mark.parametrize("name", list(by_name()))
@pytest.mark.parametrize("budget", [None, 300])
def test_a_walk_counts_the_programs_that_it_evaluated(few_steps, name, budget):
    known = temperature.Known(ToySpace())
    best, count = begun(3, budget, [known]).walked(by_name()[name])
    evaluated = known.region.phi[: len(known.region)][known.region.complete[: len(known.region)]]
    if budget is None:
        assert count == known.region.evaluations and best == evaluated.min()
    else:
        # Few chains that return to their own best points may find nothing new.
        least = 0 if name.endswith("elite first") else 0.9 * budget
        assert least < count <= budget and best >= evaluated.min()


def test_other_walks_of_a_space_do_not_change_a_walk(few_steps):
    chosen = temperature.variants()[:3]
    fresh = [begun(seed, 500).walked(variant) for seed in range(4) for variant in chosen]
    shared = [temperature.Known(ToySpace())]
    again = [begun(seed, 500, shared).walked(variant) for seed in range(4) for variant in chosen]
    assert again == fresh


def test_the_greedy_variant_walks_as_the_tuner_does(few_steps):
    usual = by_name()["greedy, elite"]
    families = [temperature.Known(ToySpace(name="near")), temperature.Known(ToySpace(name="far", scale=1.3))]
    runs = np.array([begun(seed, None, families).walked(usual) for seed in range(6)])
    spaces = Spaces((ToySpace(name="near"), ToySpace(name="far", scale=1.3)))
    found = [walk(spaces, seed=seed, chains=8, steps=60) for seed in range(6)]
    expected = np.array([(each.best[0][1], each.evaluations) for each in found])
    # The random numbers differ, their distribution does not.
    assert runs[:, 0].mean() == pytest.approx(expected[:, 0].mean(), rel=0.05)
    assert runs[:, 1].mean() == pytest.approx(expected[:, 1].mean(), rel=0.1)


def test_schedules():
    named = by_name()
    for hot, cycle in ((0.02, 30), (0.03, 100)):
        plan = replace(FEW, hot=hot, cycle=cycle)
        assert (named["annealed, elite"].inverse_taus(replace(plan, hot=COLD)) == plan.inverse_taus()).all()
    assert (named["greedy, elite"].inverse_taus(FEW) == replace(FEW, hot=COLD).inverse_taus()).all()
    assert [temperature.schedule(budget, 30, 64, 250).hot for budget in (None, 10**6, 500)] == [COLD, COLD, 0.02]
    np.testing.assert_allclose(named["greedy, starts"].inverse_taus(FEW), 1 / COLD, rtol=1e-5)
    np.testing.assert_allclose(named["tau 0.1, elite"].inverse_taus(FEW), 10, rtol=1e-5)
    assert [name for name, each in named.items() if each.rests] == [
        f"{kind}, {restart}" for restart in temperature.RESTARTS for kind in ("annealed", "greedy")
    ]


@pytest.mark.parametrize("restart", temperature.RESTARTS)
def test_restarts_go_where_they_should(restart):
    known = temperature.Known(ToySpace())
    ((_, _, ids),) = begun(1, None, [known]).starts
    chains = temperature.Varied(
        known, ids, replace(FEW, steps=600), np.random.default_rng(0), by_name()[f"greedy, {restart}"]
    )
    places = []
    real = chains._restart

    def noted(due):
        real(due)
        places.extend(
            zip(chains.at[due].tolist(), [sorted(known.region.log_phi[chains.best])[1]] * len(due), strict=True)
        )

    chains._restart = noted
    chains.walk(0, temperature.Progress(), None)
    after = places if restart == "elite first" else places[len(ids) - FEW.chains :]
    assert after
    if restart == "starts":
        assert {at for at, _ in after} <= set(ids.tolist()) and len({at for at, _ in after}) > 5
    else:
        assert all(known.region.log_phi[at] <= worst for at, worst in after)


def test_figures_are_shares_beside_the_base():
    base = [np.array([[0.1, 100], [0.0, 100]]), np.array([[0.0, 50], [0.0, 50]])]
    other = [np.array([[0.0, 50], [0.0, 50]]), np.array([[0.04, 25], [0.0, 25]])]
    found = temperature.figures(other, base)
    assert found == {
        **{"mean": 0.01, "median": 0.0, "worst": 0.04, "within_2": 0.75, "evaluations": 0.5},
        **{"better": 1, "worse": 1},
    }


def test_the_command_on_a_measured_space_and_on_the_potential(tmp_path, capsys):
    shape, arch = configurations(), lookup("rtx-a4000")
    times = roofline.seconds(convolution_terms.terms(shape, arch), arch) * 1e3
    data = write_space(tmp_path / "toy_space.csv", shape, times)
    out = tmp_path / "out.json"
    arguments = [
        f"{data}:rtx-a4000",
        "--workloads",
        "1",
        "--seeds",
        "2",
        "--potential-seeds",
        "2",
        "1",
        "--jobs",
        "1",
        "--json",
        str(out),
    ]
    assert temperature.main([*arguments, "--plot", str(tmp_path / "out.png")]) == 0
    body = json.loads(out.read_text())
    assert set(body["results"]) == {"toy, rtx-a4000", "potential"} and len(body["workloads"]) == 1
    assert body["seeds"]["potential"] == {"1000": 2, "steps": 1}
    measured = body["results"]["toy, rtx-a4000"]
    assert list(measured) == ["64", "256", "1024"] and set(measured["64"]) == set(by_name())
    usual = [measured[budget]["annealed, elite"] for budget in measured]
    assert usual[0]["mean"] >= usual[1]["mean"] >= usual[2]["mean"] >= 0 and usual[0]["evaluations"] == 1
    assert set(body["results"]["potential"]["steps"]) == {name for name, each in by_name().items() if each.rests}
    assert "greedy, elite" in capsys.readouterr().out
