"""The candidates of a class, their predictions, and which of them are compiled first."""

import numpy as np

from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.rows import views as rows
from gensor_tuner.build.pool import Pool, finalists

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
