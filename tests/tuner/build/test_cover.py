import numpy as np

from gensor_tuner.build.cover import cover, limit_cover, portfolio, preferring, regrets

NAMES = ["c", "a", "b", "d"]
SECONDS = np.array(
    [[1.00, 1.01, 3.0, np.inf], [2.00, 2.01, 2.0, np.inf], [9.00, 5.00, 5.0, np.inf], [np.inf, np.inf, np.inf, np.inf]]
)


def test_every_row_that_can_be_served_is_within_the_band():
    chosen = cover(SECONDS, NAMES)
    assert chosen == [1]
    assert (regrets(SECONDS[:3])[:, chosen].min(axis=1) <= 1.02).all()


def test_the_cover_does_not_depend_on_the_order_of_rows_or_candidates():
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


def test_a_cover_that_is_too_large_gives_way_to_the_least_regret():
    """Two pairs of rows and a lone one that the pairs' candidates serve badly: its own comes before the second pair's,
    which the first pair's serves almost as well. A cover takes candidates by how many rows are open."""
    first, second, lone = [1.0, 1.1, 9.0], [1.1, 1.0, 9.0], [7.0, 8.0, 1.0]
    seconds = np.array([first, first, second, second, lone])
    assert limit_cover(seconds, ["a", "b", "c"], 3) == cover(seconds, ["a", "b", "c"]) == [0, 1, 2]
    assert limit_cover(seconds, ["a", "b", "c"], 2) == [0, 2]
    # What no candidate serves alone is served by several, most rows first.
    holes = np.array([[1.0, np.inf, np.inf], [1.0, np.inf, 2.0], [np.inf, 1.0, np.inf]])
    assert limit_cover(holes, ["c", "b", "a"], 2) == portfolio(holes, ["c", "b", "a"], 2) == [0, 1]


def test_a_limit_leaves_no_row_without_a_candidate():
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
