"""What einsum takes, and what it says about arguments that do not fit."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings

from gensor_kernels import einsum, explain
from gensor_kernels.operators.expression.subscripts import parse
from tests.dispatch.einsum_cases import agrees, written_calls

pytestmark = pytest.mark.usefixtures("emulated")


def operands(shapes, dtype=np.float32):
    rng = np.random.default_rng(3)
    return [np.asarray(rng.standard_normal(shape), dtype) for shape in shapes]


def test_sublists_and_lists():
    a, b = operands([(2, 3, 4), (4, 3, 5)], np.float64)
    for arguments in [(a, [0, 1, 2], b, [2, 1, 3]), (a, [0, 1, 2], b, [2, 1, 3], [3, 0])]:
        np.testing.assert_array_equal(einsum(*arguments).shape, np.einsum(*arguments).shape)
    assert agrees(einsum(a, [..., 0], b, [0, 1, 2], [..., 2, 1]), "abc,cde->abed", (a, b)).ok
    np.testing.assert_array_equal(einsum("ij,j", [[1.0, 2.0]], [1.0, 3.0]), [7.0])
    np.testing.assert_array_equal(einsum(np.eye(3), [0, 0]), 3.0)


WRONG = {
    "fewer operands": ("ij,jk", [(2, 3)], "fewer operands"),
    "more operands": ("ij", [(2, 3), (3, 4)], "more operands"),
    "too few letters": ("i,i", [(2, 3), (3,)], "has more dimensions than subscripts"),
    "too many letters": ("ijk,i", [(2, 3), (3,)], "too many subscripts for operand 0"),
    "extents": ("ij,jk", [(2, 3), (4, 5)], "could not be broadcast together"),
    "a diagonal": ("ii,i", [(2, 3), (2,)], "collapsing index 'i'"),
    "a diagonal of one element": ("ii,i", [(1, 3), (3,)], "collapsing index 'i'"),
    "an unknown output": ("ij,jk->z", [(2, 3), (3, 4)], "never appeared in an input"),
    "an output twice": ("ij,jk->ii", [(2, 3), (3, 4)], "multiple times"),
    "a digit": ("i1,jk", [(2, 3), (3, 4)], "invalid subscript '1'"),
    "a dot": ("i.j,jk", [(2, 3), (3, 4)], "not part of an ellipsis"),
    "two ellipses": ("......,jk", [(2, 3), (3, 4)], "not part of an ellipsis"),
    "half an arrow": ("ij,jk-ik", [(2, 3), (3, 4)], "does not contain proper '->'"),
    "two arrows": ("ij,jk->i->k", [(2, 3), (3, 4)], "does not contain proper '->'"),
    "an ellipsis the output lacks": ("...ij,jk->ik", [(2, 2, 3), (3, 4)], "output has more dimensions"),
    "three operands": ("ij,jk,kl", [(2, 3), (3, 4), (5, 6)], "could not be broadcast together"),
    "one operand": ("ij->k", [(2, 3)], "never appeared in an input"),
}


@pytest.mark.parametrize(("text", "shapes", "words"), WRONG.values(), ids=WRONG)
def test_what_does_not_fit_raises_what_numpy_raises(text, shapes, words):
    arrays = operands(shapes)
    with pytest.raises(ValueError, match=r".") as by_numpy:
        np.einsum(text, *arrays)
    for call in (einsum, lambda *each: explain(einsum, *each)):
        with pytest.raises(ValueError, match=words):
            call(text, *arrays)
    assert by_numpy.type is ValueError


def test_other_wrong_arguments():
    a = np.eye(3)
    for optimize in ("best", ["greedy", "x"], 1, None, []):
        with pytest.raises(TypeError, match="Did not understand the path"):
            einsum("ij,jk,kl", a, a, a, optimize=optimize)
        with pytest.raises(TypeError, match="Did not understand the path"):
            einsum("ij,jk", a, a, optimize=optimize)
    with pytest.raises(ValueError, match="the path takes operands"):
        einsum("ij,jk,kl", a, a, a, optimize=["einsum_path", (0, 7)])
    with pytest.raises(ValueError, match="must specify the einstein sum"):
        einsum()
    with pytest.raises(ValueError, match="valid range"):
        einsum(a, [0, 52])
    with pytest.raises(TypeError, match="either an integer or an ellipsis"):
        einsum(a, [0, "j"])
    with pytest.raises(TypeError, match="out"):
        einsum("ij,jk", a, a, out=a)


def test_explicit_paths():
    arrays = operands([(3, 4), (4, 5), (5, 6), (6, 2)], np.float64)
    text = "ij,jk,kl,lm->mi"
    for path in ([(0, 1), (0, 1), (0, 1)], [(1, 2, 3), (0, 1)], [(0, 3)], [(0,), (1, 2)]):
        assert agrees(einsum(text, *arrays, optimize=["einsum_path", *path]), text, arrays).ok
    path = np.einsum_path(text, *arrays, optimize="optimal")[0]
    assert agrees(einsum(text, *arrays, optimize=path), text, arrays).ok
    why = explain(einsum, text, *arrays, optimize=path)
    assert len(why.steps) == 3 and all(step.tier == 3 for step in why.steps) and "step 3" in why.details


def test_parsing_is_cached_by_text_and_axes():
    assert parse("...i,i", (3, 1)) is parse("...i,i", (3, 1))
    assert parse("...i,i", (3, 1)).operands[0] == (-2, -1, ord("i"))


def test_whatever_is_written_means_what_it_means_to_numpy():
    """Of any number of operands: NumPy's result, or a ValueError where NumPy raises one."""
    seen = Counter()

    @settings(max_examples=max(150, settings.default.max_examples))
    @given(written_calls())
    def agree(call):
        text, arrays = call
        try:
            shape = np.einsum(text, *arrays).shape
        except ValueError:
            for function in (einsum, lambda *each: explain(einsum, *each)):
                with pytest.raises(ValueError, match=r"einstein sum|could not be broadcast|collapsing index"):
                    function(text, *arrays)
            seen["mistake"] += 1
            return
        for optimize in (False, "greedy"):
            found = np.asarray(einsum(text, *arrays, optimize=optimize))
            assert found.shape == shape
            verdict = agrees(found, text, arrays)
            assert verdict.ok, f"{text}: {verdict.message}"
        seen[len(arrays)] += 1
        seen["ellipsis"] += "..." in text

    agree()
    assert all(seen[name] >= 5 for name in ("mistake", "ellipsis", 1, 2, 3, 4)), seen
