"""define: sums of products with an epilogue of the user's; tests/public_cases draws calls."""

import numpy as np
import pytest

import gensor_kernels


def test_scores_of_attention():
    rng = np.random.default_rng(0)
    q, k = (rng.standard_normal((2, 3, 5, 8)).astype(np.float32) for _ in range(2))
    keep = rng.integers(0, 2, (5, 5)).astype(bool)
    scores = gensor_kernels.define("b h i d, b h j d -> b h i j", epilogue=[("scale", 0.5), ("mask", "i j", -9.0)])
    with gensor_kernels.emulated("sm_87"):
        found = scores(q, k, keep)
    wanted = np.where(keep, 0.5 * np.einsum("bhid,bhjd->bhij", q, k), -9.0)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("ij,jk",), "axes of the result"),
        (("ij,jk->il",), "the result's axes"),
        (("ij,jk->ik", ["swish"]), "'swish' is not one of"),
        (("ij,jk->ik", ["bias"]), "needs the axes"),
        (("ij,jk->ik", [("bias", "j")]), "some of the result's"),
        (("ij,jk->ik", ["scale"]), "takes a number"),
        (("ij,jk->ik", ["relu"] * 7), "at most 6"),
    ],
)
def test_what_says_nothing(arguments, words):
    with pytest.raises(ValueError, match=words):
        gensor_kernels.define(*arguments)


def test_arrays_that_do_not_fit():
    function = gensor_kernels.define("ij,jk->ik", epilogue=[("bias", "k")])
    a, b = np.zeros((2, 3)), np.zeros((3, 4))
    with gensor_kernels.emulated("sm_87"):
        with pytest.raises(TypeError, match="takes 2 \\+ 1 arrays, 2 are given"):
            function(a, b)
        with pytest.raises(ValueError):
            function(a, b, np.zeros(5))
        assert function(a[:0], b, np.zeros(4)).shape == (0, 4)
