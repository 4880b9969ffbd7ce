"""The walk: determinism, budget, replay, restarts from elites, both graphs, and its quality against brute force."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.walk_vs_brute_force import SHARE, measure, random_search, spaces, summary
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators import matmul
from gensor_kernels.programs.space import Space
from gensor_tuner.graph import Graph, expanded
from gensor_tuner.walk import replay, walk

from .synthetic import Spaces, ToySpace


@pytest.fixture(scope="module")
def real():
    """A space that both families serve."""
    return Space(matmul.workload(500, 700, 900, dtype="float16", trans_b=True, epilogue="bias"), lookup("sm_87"))


@pytest.mark.parametrize("budget", [40, 300, None])
def test_counts_distinct_complete_programs_and_keeps_the_budget(budget):
    space = ToySpace()
    found = walk(Spaces((space,)), budget=budget)
    codes = np.concatenate(space.evaluated)
    assert np.unique(codes).size == codes.size == found.evaluations
    assert budget is None or found.evaluations <= budget
    assert found.steps == 16_000 or found.evaluations == budget


def test_best_is_sorted_distinct_and_true():
    space = ToySpace()
    found = walk(Spaces((space,)), keep=50)
    programs, seconds = zip(*found.best, strict=True)
    assert len(set(programs)) == 50 and list(seconds) == sorted(seconds)
    points = np.array([space.point(program) for program in programs])
    assert np.array_equal(space.potential(points), seconds)
    assert seconds[0] == space.best()


@pytest.mark.parametrize("graph", ["full", "paper"])
def test_replay_follows_the_path_to_the_best(real, graph):
    for seed in range(3):
        found = walk(real, seed=seed, chains=8, steps=60, graph=graph)
        assert replay(real, found) == replay(real, found.to_json()) == found.best[0][0]
        family = real.family(found.family)
        point = np.array([c.values.index(v) for c, v in zip(family.coordinates, found.start, strict=True)])
        visited = [family.encode(point)]
        lattice = Graph(family, graph)
        for token in expanded(found.path):
            point = lattice.follow(point, token)
            visited.append(family.encode(point))
        assert len(set(visited)) == len(visited), "the path has a loop"
        assert len(found.to_json()) < 2000 and json.loads(found.to_json())["seed"] == seed


def test_replay_refuses_what_is_not_there(real):
    found = walk(real, chains=4, steps=30, start="random")
    with pytest.raises(ValueError, match="no family 'rows'"):
        replay(real, replace(found, family="rows"))
    with pytest.raises(ValueError, match="no action 'warp_q"):
        replay(real, replace(found, path="warp_q+"))
    with pytest.raises(ValueError, match="does not exist"):
        replay(real, replace(found, path="level+*3"))


def test_same_arguments_same_walk_in_any_process(real):
    script = (
        "from gensor_kernels.machine.arch import lookup\n"
        "from gensor_kernels.operators import matmul\n"
        "from gensor_kernels.programs.space import Space\n"
        "from gensor_tuner.walk import walk\n"
        "w = matmul.workload(500, 700, 900, dtype='float16', trans_b=True, epilogue='bias')\n"
        "found = walk(Space(w, lookup('sm_87')), seed=5, chains=8, steps=40)\n"
        "print(found.to_json(), found.evaluations, [(p.to_json(), s.hex()) for p, s in found.best])\n"
    )
    texts = []
    for hash_seed, threads in (("0", "1"), ("123", "2")):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "OMP_NUM_THREADS": threads}
        command = [sys.executable, "-c", script]
        texts.append(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    here = walk(real, seed=5, chains=8, steps=40)
    programs = [(program.to_json(), seconds.hex()) for program, seconds in here.best]
    assert texts[0] == texts[1] == f"{here.to_json()} {here.evaluations} {programs}\n"
    assert walk(real, seed=6, chains=8, steps=40).to_json() != here.to_json()


def test_walking_on_from_elites_never_loses_ground(real):
    first = walk(real, seed=1, chains=4, steps=20, budget=400)
    start = [program for program, _ in first.best[:8]]
    again = walk(real, seed=1, chains=8, steps=50, start=start)
    assert again.best[0][1] <= first.best[0][1]
    axes = real.family(again.family).coordinates
    assert dict(zip((c.name for c in axes), again.start, strict=True)) in [dict(program.values) for program in start]


def test_feedback_moves_the_walk_away_from_spilling_programs():
    space = Space(matmul.workload(2048, 2048, 2048, dtype="float16", trans_b=True), lookup("sm_87"))
    first = walk(space, chains=16, steps=100).best[0][0]
    family = space.family(first.family)
    family.add_feedback(first, registers=255, spill_bytes=4096)
    again = walk(space, chains=16, steps=100, start=[first])
    assert again.best[0][0] != first
    assert again.best[0][1] < family.potential(family.point(first)[None])[0]


def test_chains_walk_in_every_family_that_is_near():
    near, far = ToySpace(name="near", scale=2.0), ToySpace(name="far", scale=200.0)
    best = ToySpace(name="best")
    found = walk(Spaces((near, best, far)), chains=16, steps=100)
    assert found.family == "best" and found.best[0][0].family == "best"
    assert len(np.concatenate(near.evaluated)) > 120
    assert len(np.concatenate(far.evaluated)) < 40


def test_paper_graph_starts_at_the_minimal_program_and_uses_only_its_actions(real):
    found = walk(real, graph="paper", chains=16, steps=100)
    family = real.family(found.family)
    assert found.start == tuple(c.values[i] for c, i in zip(family.coordinates, family.start(), strict=True))
    used = {token.rstrip("+-") for token in expanded(found.path)}
    kinds = {c.name: c.kind for c in family.coordinates}
    assert {kinds[name] for token in used for name in token.split("&")} <= {"tile", "cache", "vthread"}
    assert "level-" not in expanded(found.path) and expanded(found.path).count("level+") == 2


def test_nowhere_to_start_is_an_error(real):
    with pytest.raises(ValueError, match="no legal Program to start from"):
        walk(real, start=[])
    with pytest.raises(ValueError, match="graph must be one of"):
        walk(real, graph="tree")


def test_random_search_baseline_is_exact():
    phi = np.array([1.0, 1.01, 2.0, 3.0, 5.0])
    rng = np.random.default_rng(0)
    best = np.array([phi[rng.choice(5, 2, replace=False)].min() for _ in range(20_000)])
    expected, hits = random_search(phi, 2)
    assert abs(expected - (best.mean() - 1)) < 0.01
    assert abs(hits - (best <= 1.02).mean()) < 0.02
    assert random_search(phi, 5) == (0.0, 1.0)


def test_walk_finds_the_optimum_of_enumerable_spaces():
    """A smaller version of `python -m benchmarks.walk_vs_brute_force`."""
    rows = [measure(space, phi, seed=i, baselines=False) for i, (space, phi) in enumerate(spaces(6, seed=1))]
    figures = summary(rows)
    assert {row.family for row in rows} == {"contraction_mma", "contraction_simt"}
    assert all(row.programs >= 20_000 and row.evaluations <= SHARE * row.programs for row in rows)
    assert figures["walk within 2 %"] == 1
    assert figures["walk mean regret"] < figures["random mean regret"] < figures["start mean regret"]


def test_the_benchmark_lists_its_results():
    stored = Path(__file__).parent.parent / "benchmarks/results/walk_vs_brute_force.json"
    figures = json.loads(stored.read_text())["summary"]
    assert figures["spaces"] >= 100 and figures["evaluated"] <= SHARE
    assert figures["walk within 2 %"] >= 0.95
    assert figures["walk mean regret"] < figures["random mean regret"]
