"""The candidates of a class: predictions, who is compiled first, facts about binaries, and the cover of all rows."""

import numpy as np
import pytest

from gensor_kernels.build.nvrtc import Binary, compile_cubin
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.rows import views as rows
from gensor_tuner.build.binaries import LEFT_OUT, Binaries
from gensor_tuner.build.cover import cover, limit_cover, portfolio, preferring, regrets
from gensor_tuner.build.pool import Pool, finalists
from gensor_tuner.tasks.local import Local
from tests.build.disassembled import DOUBLES, HOPPER, USUAL, miscompiled

ARCH = lookup("sm_87")


def test_a_candidate_of_a_portfolio_counts_with_its_best_division_of_k():
    asked = [matmul.workload(64, 64, k, dtype="float16") for k in (1024, 8192)]
    family = FAMILIES["contraction_mma"]
    whole = family.starters(asked[0], ARCH)[0].replace(split_k=1)
    divided = whole.replace(split_k=2)
    spaces = [Space(each, ARCH) for each in asked]
    pool = Pool(asked)
    pool.add(spaces[0], [whole, divided], siblings=False)
    column = {each.program: i for i, each in enumerate(pool.candidates)}
    alone, launched = pool.seconds(spaces), pool.relaunch_seconds(spaces)
    np.testing.assert_array_equal(launched[:, column[whole]], alone[:, column[whole]])
    others = Pool(asked)
    others.add(spaces[0], family.resplit(divided, asked[0], ARCH), siblings=False)
    best = others.seconds(spaces).min(axis=1)
    np.testing.assert_array_equal(launched[:, column[divided]], best)
    assert best[1] < alone[1, column[divided]]  # of a long k, more parts are faster than two
    # A candidate that must not be used has no time, however it is launched.
    pool.dead[pool.candidates[column[divided]].name] = "spills"
    assert np.isinf(pool.relaunch_seconds(spaces)[:, column[divided]]).all()


def test_finalists_hold_rows_in_different_places():
    asked = rows.workload("softmax", (512, 1024), (1,), dtype="float16")
    space, family = Space(asked, ARCH), FAMILIES["rows"]
    held = next(each for each in family.starters(asked, ARCH) if each["keep"] == 1)
    others = [held.replace(keep=0, items=items) for items in (1, 2, 4, 8)]
    pool = Pool([asked])
    pool.add(space, [held, *others], siblings=False)
    seconds = pool.seconds([space])
    slowest = np.array([[1.0 + (each.program["keep"] == 1) for each in pool.candidates]]) * seconds.min()
    chosen = {pool.candidates[column].program["keep"] for column in finalists(pool, slowest, 4)}
    assert chosen == {0, 1}


def test_candidates_that_share_a_refused_binary_are_dead_too(monkeypatch):
    asked = []

    def compile_cubin(source, target):
        asked.append(source)
        bad = "#define STAGES 3\n" in source
        return Binary(target, b"", error="too few registers\nat line 7" if bad else "as well")

    monkeypatch.setattr("gensor_tuner.build.binaries.compile_cubin", compile_cubin)
    workload = matmul.workload(2048, 2048, 512, dtype="float16")
    space, family = Space(workload, ARCH), FAMILIES["contraction_mma"]
    first = family.starters(workload, ARCH)[0].replace(raster=1)
    others = [first.replace(raster=2), first.replace(stages=4)]  # the raster is an argument at run time
    pool, made = Pool([workload]), Binaries(ARCH, Local(1), lambda *_: None)
    pool.add(space, [first, *others], siblings=False)
    by_program = {each.program: column for column, each in enumerate(pool.candidates)}
    assert np.isfinite(pool.seconds([space])).all()
    assert made.compile(pool, [by_program[first]], [space]) == 3  # one binary, two candidates without
    assert len(asked) == 1 and set(pool.dead.values()) == {"not compiled: too few registers"}
    assert np.isfinite(pool.seconds([space])[0]).nonzero()[0].tolist() == [by_program[others[1]]]
    # One that comes later with the same constants is news as well: the cover is to be chosen again.
    pool.add(space, [first.replace(raster=4)], siblings=False)
    column = next(column for column, each in enumerate(pool.candidates) if each.program == first.replace(raster=4))
    assert made.compile(pool, [column], [space]) == 1 and len(asked) == 1
    assert made.compile(pool, [column], [space]) == 0


@pytest.mark.parametrize("stored", [False, True])
def test_a_candidate_is_dead_if_ptxas_has_left_out_a_wait(stored):
    wrong, space, pool = miscompiled(), Space(DOUBLES, HOPPER), Pool([DOUBLES])
    pool.add(space, [wrong, USUAL], siblings=False)
    made = Binaries(HOPPER, Local(1), lambda *_: None)
    if stored:
        held = [made.hold(pool, each, compile_cubin(each.source(), HOPPER.target), [space]) for each in pool.candidates]
        assert held == [each.program == USUAL for each in pool.candidates]
    else:
        assert made.compile(pool, [0, 1], [space]) == 3
    (dead,) = (each for each in pool.candidates if each.program == wrong)
    assert pool.dead == {dead.name: f"not compiled: {LEFT_OUT}"} and [*made.facts] == [USUAL]
    assert made[dead].error == LEFT_OUT and made[dead].cubin == b""


NAMES = ["c", "a", "b", "d"]
SECONDS = np.array(
    [[1.00, 1.01, 3.0, np.inf], [2.00, 2.01, 2.0, np.inf], [9.00, 5.00, 5.0, np.inf], [np.inf, np.inf, np.inf, np.inf]]
)


def test_a_cover_serves_every_row_within_the_band_whatever_the_order():
    chosen = cover(SECONDS, NAMES)
    assert chosen == [1]
    assert (regrets(SECONDS[:3])[:, chosen].min(axis=1) <= 1.02).all()
    rng = np.random.default_rng(5)
    seconds = rng.uniform(1, 1.2, (30, 40))
    names = [f"p{i:02}" for i in range(40)]
    first = {names[i] for i in cover(seconds, names)}
    rows, columns = rng.permutation(30), rng.permutation(40)
    again = cover(seconds[rows][:, columns], [names[c] for c in columns])
    assert {names[columns[i]] for i in again} == first


def test_between_equally_fast_candidates_the_one_that_issues_least_is_taken():
    seconds = np.array([[1.0, 1.004, 1.015]])
    assert cover(seconds, ["a", "b", "c"]) == [0]
    assert cover(seconds, ["a", "b", "c"], issued=np.array([[3.0, 2.0, 1.0]])) == [1]
    # Another candidate serves more rows, whatever it issues.
    both = np.array([[1.0, 1.004, 1.015], [9.0, 9.0, 1.0]])
    assert cover(both, ["a", "b", "c"], issued=np.array([[3.0, 2.0, 9.0]] * 2)) == [2]


def test_a_cover_that_is_too_large_gives_way_to_the_least_regret_and_leaves_no_row_without():
    """Two pairs of rows and a lone one that the pairs' candidates serve badly: its own comes before the second pair's,
    which the first pair's serves almost as well. A cover takes candidates by how many rows are open."""
    first, second, lone = [1.0, 1.1, 9.0], [1.1, 1.0, 9.0], [7.0, 8.0, 1.0]
    seconds = np.array([first, first, second, second, lone])
    assert limit_cover(seconds, ["a", "b", "c"], 3) == cover(seconds, ["a", "b", "c"]) == [0, 1, 2]
    assert limit_cover(seconds, ["a", "b", "c"], 2) == [0, 2]
    # What no candidate serves alone is served by several, most rows first.
    holes = np.array([[1.0, np.inf, np.inf], [1.0, np.inf, 2.0], [np.inf, 1.0, np.inf]])
    assert limit_cover(holes, ["c", "b", "a"], 2) == portfolio(holes, ["c", "b", "a"], 2) == [0, 1]
    seconds = np.array([[1.0, np.inf, np.inf, 2.0], [np.inf, 1.0, 3.0, np.inf], [np.inf, 3.0, 1.0, np.inf]])
    assert limit_cover(seconds, ["a", "b", "c", "d"], 1) == [1, 0]
    assert limit_cover(np.full((2, 2), np.inf), ["a", "b"], 1) == []


def test_portfolio_lowers_the_mean_regret_first_and_stops():
    seconds = np.array([[1.0, 10.0, 2.0], [10.0, 1.0, 2.0]])
    assert portfolio(seconds, ["x", "y", "z"], limit=1) == [2]
    three = portfolio(seconds, ["x", "y", "z"], limit=8)
    assert set(three) == {0, 1, 2} and three[0] == 2
    assert portfolio(np.full((2, 2), np.inf), ["x", "y"]) == []
    assert portfolio(np.empty((2, 0)), []) == []


def test_preferences_hold_within_their_factors_and_in_order():
    seconds = np.array([[1.0, 1.09, 1.015, 1.5], [1.0, 1.5, 1.01, 1.01], [np.inf, np.inf, 2.0, np.inf], [1, 1.2, 2, 2]])
    wide, compiled = (np.array([False, True, True, True]), 1.1), (np.array([True, False, True, False]), 1.02)
    kept = np.isfinite(preferring(seconds, wide, compiled)).tolist()
    # Wide first; of those the compiled one where it is near the row's best; else the row keeps what it has.
    assert kept[:3] == [[False, False, True, False]] * 3
    assert kept[3] == [True, False, True, False]  # nobody wide is near, and the compiled first one is
    assert np.isfinite(preferring(seconds, wide))[0].tolist() == [False, True, True, True]
    assert np.array_equal(preferring(seconds), seconds)
