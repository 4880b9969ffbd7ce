"""Search strategies: budgets, determinism, the search that a publication describes, and the keys of requests."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import lookup
from gensor_kernels.machine.attributes import from_attributes
from gensor_kernels.operators.products import matmul
from gensor_tuner.fleet import wire
from gensor_tuner.run.class_run import Options
from gensor_tuner.run.result import provenance
from gensor_tuner.strategies import STRATEGIES, Search, strategy
from gensor_tuner.strategies.landscape import Landscape
from gensor_tuner.strategies.learned import STRUCTURE, Evolution
from gensor_tuner.strategies.request import Request, search
from tests.tuner.search.synthetic import Spaces, ToySpace

LEARNING = ("evolution", "annealing")


def toys():
    return Spaces((ToySpace(name="near"), ToySpace(scale=3.0, name="far")))


@pytest.mark.parametrize("name", [name for name in STRATEGIES if name != "paper"])
def test_a_strategy_spends_its_evaluations_and_no_more(name):
    if name in LEARNING:
        pytest.importorskip("lightgbm")
    space = toys()
    found = strategy(name)(Search(space, seed=4, evaluations=150, keep=20))
    codes = [np.concatenate([np.empty(0, int), *family.evaluated]) for family in space.families]
    assert sum(map(len, codes)) == sum(np.unique(each).size for each in codes) == found.evaluations == 150
    again = strategy(name)(Search(toys(), seed=4, evaluations=150, keep=20))
    assert again.best == found.best
    programs, seconds = zip(*found.best, strict=True)
    assert len(set(programs)) == len(programs) and list(seconds) == sorted(seconds)
    for program, cost in found.best[:3]:
        (family,) = (each for each in space.families if each.family.name == program.family)
        assert family.potential(family.point(program)[None])[0] == cost


def test_exhaustive_finds_the_optimum_or_refuses_and_random_comes_nearer_with_more():
    found = strategy("exhaustive")(Search(toys()))
    assert found.best[0][1] == ToySpace().best()
    assert found.evaluations == 2 * sum(len(points) for points in ToySpace().enumerate())
    regrets = [
        np.median([strategy("random")(Search(toys(), seed=s, evaluations=n)).best[0][1] for s in range(9)])
        for n in (16, 64, 256)
    ]
    assert regrets == sorted(regrets, reverse=True) and regrets[0] > regrets[2]
    space = Space(matmul.workload(512, 512, 512), lookup("sm_87"))
    with pytest.raises(UnsupportedError, match="an exhaustive search looks at"):
        strategy("exhaustive")(Search(space))


@pytest.mark.parametrize("name", LEARNING)
def test_learning_finds_more_than_chance(name):
    pytest.importorskip("lightgbm")
    seconds = {
        each: np.median([strategy(each)(Search(toys(), seed=s, evaluations=128)).best[0][1] for s in range(3)])
        for each in (name, "random")
    }
    assert seconds[name] < seconds["random"]


def test_mutation_redraws_one_coordinate_and_crossover_takes_from_both_parents():
    landscape, rng = Landscape(Search(toys()), 100), np.random.default_rng(0)
    parents = landscape.random(200, rng)
    changed = landscape.mutate(parents, rng)
    mates = rng.permutation(parents)
    crossed = landscape.crossover(parents, mates, rng)
    kept = moved = 0
    for code, mutant, mate, child in np.stack([parents, changed, mates, crossed], axis=1):
        (number,) = landscape.family_of(np.array([code]))
        assert landscape.family_of(np.array([mutant, child])).tolist() == [number, number]
        a, b, d = landscape.points(number, np.array([code, mutant, child]))
        assert landscape.families[number].legal(np.array([b, d])).all()
        assert (a != b).sum() <= 1
        moved += (a != b).any()
        if landscape.family_of(np.array([mate]))[0] == number:
            c = landscape.points(number, np.array([mate]))[0]
            assert ((d == a) | (d == c)).all()
            kept += (d != a).any()
        else:
            assert child == code
    assert moved > 150 and kept > 30


def test_sketches_are_drawn_evenly():
    landscape = Landscape(Search(Spaces((ToySpace(),))), 100)
    population = Evolution(landscape, np.random.default_rng(0)).annotate(2000)
    points = landscape.points(0, population)
    structural = [i for i, axis in enumerate(landscape.families[0].coordinates) if axis.kind in STRUCTURE]
    _, counts = np.unique(points[:, structural], axis=0, return_counts=True)
    assert len(counts) == 15 and counts.min() > 0.6 * counts.max()


def test_a_request_names_its_strategy_and_so_does_the_record(monkeypatch):
    monkeypatch.setattr("gensor_tuner.strategies.plain.USUAL", 200)
    workload, arch = matmul.workload(64, 64, 64), lookup("sm_87")
    found = search(Request(workload, arch, 0, "full", strategy="random"))
    assert len(found.best) == len(found.trails) == 12 and all(not trail.legs for trail in found.trails)
    assert found.best != search(Request(workload, arch, 0, "full")).best
    assert json.loads(provenance(Options(strategy="random")))["strategy"] == "random"
    assert provenance(Options(strategy="walk")) == provenance(Options()) and "strategy" not in provenance(Options())


ASKED = """
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul
from gensor_tuner.strategies.request import Request
print(Request(matmul.workload(64, 48, 40), lookup("sm_87"), 0, "full").key)
"""


def test_equal_walks_have_one_key_in_every_process():
    """A run that continues after an interruption is another process."""
    own = Request(matmul.workload(64, 48, 40), lookup("sm_87"), 0, "full").key
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        found = subprocess.run(
            [sys.executable, "-c", ASKED], env=environment, capture_output=True, text=True, check=True
        )
        assert found.stdout.strip() == own


@pytest.mark.parametrize("capability, name", [((8, 7), "Orin"), ((9, 0), "NVIDIA H100 PCIe X")])
def test_a_walk_travels_with_the_figures_of_any_gpu(capability, name):
    arch = from_attributes(capability, name, 8, 0.408, 100.0, 2 << 20, 8 << 30)
    own = Request(matmul.workload(64, 48, 40), arch, 3, "full")
    there = Request.from_arguments(wire.unpack(wire.asked(own)))
    assert there == own and there.key == own.key and there.arch.rates == arch.rates


def test_walks_that_may_find_something_else_have_another_key():
    own = Request(matmul.workload(64, 48, 40), lookup("sm_87"), 0, "full")
    arch = lookup("sm_87")
    others = [
        replace(own, seed=1),
        replace(own, graph="paper"),
        replace(own, strategy="random"),
        replace(own, evaluations=10),
        replace(own, workload=matmul.workload(64, 48, 56)),
        replace(own, arch=lookup("sm_90")),
        replace(own, arch=replace(arch, features=arch.features - {"tf32"})),
        replace(own, arch=replace(arch, rates={**arch.rates, "imad": 1.0})),
    ]
    assert len({own.key, *(each.key for each in others)}) == 1 + len(others)
