"""Three ways agree: a sample by the commit's hash; `python -m tests.public_cases` draws more."""

import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels.dispatch.functions import rows
from tests.campaign_size import SEED

from .ways import drawn, three_ways, verdict

CALLS = 150


def _rms(x):
    return (x / np.sqrt((x * x).mean(-1, keepdims=True) + 1)).astype(x.dtype)


X, HALF = np.linspace(-2, 2, 16).reshape(4, 4).astype(np.float32), np.full((1, 3), 1.375, np.float16)
SMALL, DATES, ROWS = np.full((1, 3), 30001, np.int16), np.zeros((4, 4), "M8[s]"), np.ones((1, 1, 4, 16), np.float16)
HALVES, EIGHTS = np.ones((2, 64), np.float16), np.ones((2, 64), np.int8)
#: Calls whose ways differed once, with the right values or the error.
ONCE = {
    "dot into an array with gaps": (lambda: gk.dot(X, X, np.zeros((4, 8), np.float32)[:, ::2]), X @ X),
    "norm of small integers": (lambda: gk.norm(SMALL, 1), np.array([30001 * 3**0.5])),
    "elementwise of integers": (lambda: gk.elementwise(SMALL, [("scale", 3)]), SMALL * np.int16(3)),
    "logsumexp of complex numbers": (lambda: gk.logsumexp(np.array([[0j, 3j]]), 1), np.log(1 + np.exp([3j]))),
    "sums that are not rounded": (
        lambda: gk.matmul(HALF, HALF.T, dtype="float32"),
        np.full((1, 1), 5.671875, np.float32),
    ),
    "sums after a prologue that are not rounded": (
        lambda: gk.matmul(HALF, HALF.T, dtype="float32", prologue=["relu"]),
        np.full((1, 1), 5.671875, np.float32),
    ),
    "a norm of linear": (lambda: gk.linear(X, X, epilogue=[("rmsnorm", 1.0)]), _rms(X @ X.T)),
    "NumPy's False": (lambda: gk.attention(ROWS, ROWS, ROWS, causal=np.False_), ROWS),
    "variances of nothing": (lambda: gk.var(X[:0], 0, ddof=-1), np.zeros(4, np.float32)),
    "NumPy's group": (lambda: gk.linear(HALVES, EIGHTS, scales=HALVES[:2, :2], group=np.int64(32)), HALVES[:, :2] * 64),
    "a gate of elements": (lambda: gk.elementwise(X, ["swiglu"]), gk.UnsupportedError),
    "a gate with a value": (lambda: gk.matmul(X, X, epilogue=[("swiglu", 0.0)]), ValueError),
    "rows without axes": (lambda: gk.grouped_matmul(np.array(2.0), X[None], [0]), ValueError),
    "a mode that is infinite": (lambda: gk.max_pool2d(ROWS, 1, ceil_mode=float("inf")), ROWS),
    "dates as terms": (lambda: gk.matmul(X, X, add=DATES), TypeError),
    "no rows, of dates": (lambda: gk.layer_norm(DATES[:0], 4), TypeError),
}


@pytest.mark.parametrize("way", ["kernel", "library"])
@pytest.mark.parametrize("name", ONCE)
def test_ways_that_differed_once(name, way, needs_emulator):
    call, wanted = ONCE[name]
    with three_ways() as ways, ways.by(way):
        try:
            found = call()
        except gk.UnsupportedError as error:
            assert wanted is gk.UnsupportedError or way == "kernel", error
        except (TypeError, ValueError) as error:
            assert type(error) is wanted
        else:
            assert found.dtype == wanted.dtype
            np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.usefixtures("needs_emulator")
def test_three_ways_agree():
    print(f"GENSOR_CAMPAIGN_SEED={SEED}")
    with three_ways() as ways:
        outcomes = [ways.run(*drawn(number, SEED)) for number in range(CALLS)]
    assert not [each.wrong for each in outcomes if each.wrong]
    assert sum(each.ways == {"kernel": "ok", "library": "ok"} for each in outcomes) > CALLS / 2


def test_a_wrong_library_is_noticed(monkeypatch, needs_emulator):
    monkeypatch.setattr(rows, "_squares", lambda x: x * x + 1)
    with three_ways() as ways:
        found = [ways.run("norm", drawn(number, 0)[1]) for number in range(8)]
    assert any(each.ways["library"] == "wrong" and f"norm:{each.seed}: library: " in each.wrong for each in found)


@pytest.mark.parametrize(
    ("kernel", "library", "refused", "agree"),
    [
        ("ok", "ok", "", True),
        ("no kernel", "ok", "", True),
        ("refused", "refused", "bad", True),
        ("no kernel", "refused", "bad", True),
        ("ok", "refused", "bad", False),
        ("refused", "ok", "bad", False),
        ("refused", "refused", "", False),
        ("refused", "ok", "", False),
        ("ok", "refused", "", False),
        ("ok", "wrong", "", False),
        ("wrong", "refused", "bad", False),
    ],
)
def test_verdicts(kernel, library, refused, agree):
    words = {"kernel": "words", "library": "words"}
    assert bool(verdict({"kernel": kernel, "library": library}, words, refused)) != agree


def test_seeds_are_those_of_the_run():
    assert drawn(7, 1) == drawn(7, 1) != drawn(7, 2) and drawn(0, 1)[0] != drawn(1, 1)[0]
    assert np.unique([drawn(number, 3)[1] for number in range(99)]).size == 99
