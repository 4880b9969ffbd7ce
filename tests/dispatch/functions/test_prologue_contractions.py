"""Prologues of einsum, tensordot and operators of the user's own, against PyTorch."""

import numpy as np
import pytest

import gensor_kernels as gk

from .test_prologue import theirs

torch = pytest.importorskip("torch")

NORM = [("mul", (16,)), ("relu", None)]
# (subscripts, shapes of a and b, prologue with shapes of its arrays, whether kernels take it)
EINSUMS = [
    ("bshd,hde->bse", (2, 9, 4, 8), (4, 8, 24), [("mul", (4, 8)), ("bias", (8,)), ("gelu", None)], True),
    ("mk,kn->nm", (17, 16), (16, 24), NORM, True),
    ("bik,bkj->bji", (2, 9, 16), (2, 16, 8), NORM, True),
    ("iik,kj->ij", (5, 5, 16), (16, 8), NORM, True),
    ("kl,lkn->n", (6, 8), (8, 6, 16), [("bias", (6, 1)), ("tanh", None)], False),  # k in two orders: copied
    ("ik,jk->ij", (9, 16), (8, 16), [("bias", (9, 1)), ("silu", None)], False),
    ("ikl,jk->ij", (9, 16, 3), (8, 16), [("relu", None)], False),  # summed alone, behind the prologue
    ("bik,bkj->bij", (2, 9, 16), (2, 16, 8), [("mul", (2, 1, 16))], False),
    ("je,jb->je", (3, 8), (3, 4), [("mul", (1,)), ("bias", (1,))], False),  # an axis of b alone is summed
]


@pytest.mark.parametrize(("text", "first", "second", "listed", "is_kernels"), EINSUMS)
def test_einsum_agrees_with_pytorch(text, first, second, listed, is_kernels):
    rng, dtype = np.random.default_rng(0), "float16" if listed is NORM else "float32"
    a, b = rng.standard_normal(first).astype(dtype), rng.standard_normal(second).astype(dtype)
    steps = [(n, None if shape is None else rng.standard_normal(shape).astype(np.float32)) for n, shape in listed]
    asked = [n if value is None else (n, value) for n, value in steps]
    with gk.emulated("sm_87"):
        found = gk.einsum(text, a, b, prologue=asked)
        why = gk.explain(gk.einsum, text, a, b, prologue=asked)
    prepared = torch.from_numpy(theirs(a, steps, dtype))
    wanted = torch.einsum(text, prepared, torch.from_numpy(b.astype(np.float64))).numpy()
    assert found.dtype == dtype and ('"prologue"' in (why.workload or "")) == is_kernels
    error = 1e-2 if dtype == "float16" else 1e-5
    np.testing.assert_allclose(found, wanted, rtol=error, atol=error * 8)


def test_a_scale_is_no_part_of_a_binary_and_types_may_differ():
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((9, 16)).astype(np.float32), rng.standard_normal((16, 8))
    with gk.emulated("sm_87"):
        first, second = (gk.einsum("ik,kj->ij", a, b, prologue=[("scale", each)]) for each in (0.5, 3.0))
        narrow = gk.einsum("ik,kj->ij", a, b.astype(np.float32), prologue=["relu"], dtype=np.float32)
    np.testing.assert_allclose(first, 0.5 * a @ b, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(second, 3 * a @ b, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(narrow, np.maximum(a, 0) @ b, rtol=1e-5, atol=1e-5)


def test_what_else_einsum_takes():
    rng = np.random.default_rng(2)
    a, b, c = (rng.standard_normal(shape).astype(np.float32) for shape in ((9, 16), (16, 8), (8, 5)))
    with gk.emulated("sm_87"):
        chain = gk.einsum("ik,kl,lj->ij", a, b, c, prologue=["relu"])
        one = gk.einsum("ij->ji", a, prologue=["relu"])
        lists = gk.einsum(a, [0, 1], b, [1, 2], [0, 2], prologue=["relu"])
        complexes = gk.einsum("ik,kj->ij", a.astype(np.complex64), b, prologue=[("scale", 1j)])
        empty = gk.einsum("ik,kj->ij", a[:0], b, prologue=["relu"])
        assert "2 contractions" in gk.explain(gk.einsum, "ik,kl,lj->ij", a, b, c, prologue=["relu"]).reason
        with pytest.raises(ValueError, match="prologue operation 'swish'"):
            gk.explain(gk.einsum, "ik,kl,lj->ij", a, b, c, prologue=["swish"])
        with pytest.raises(ValueError, match="does not broadcast"):
            gk.einsum("ik,kj->ij", a, b, prologue=[("mul", c)])
    positive = np.maximum(a, 0)
    np.testing.assert_allclose(chain, positive @ b @ c, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(one, positive.T)
    np.testing.assert_allclose(lists, positive @ b, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(complexes, 1j * a @ b, rtol=1e-5, atol=1e-5)
    assert empty.shape == (0, 8)


def test_tensordot():
    rng = np.random.default_rng(3)
    a, b, beta = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 4, 5), (5, 4, 6), (4, 1)))
    with gk.emulated("sm_87"):
        found = gk.tensordot(a, b, ([1, 2], [1, 0]), prologue=[("bias", beta), "relu"])
        plain = gk.tensordot(a, b.transpose(1, 0, 2).copy(), prologue=["relu"])
        why = gk.explain(gk.tensordot, a, b.transpose(1, 0, 2).copy(), prologue=["relu"])
    wanted = np.tensordot(np.maximum(a + beta, 0), b, ([1, 2], [1, 0]))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(plain, np.einsum("ijk,kjl->il", np.maximum(a, 0), b), rtol=1e-5, atol=1e-5)
    assert '"prologue"' in why.workload


def test_operators_of_the_users_own():
    rng = np.random.default_rng(4)
    shapes = ((2, 9, 4, 8), (6, 4, 8), (8,), (4, 8), (6,))
    a, b, gamma, beta, bias = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    steps = [("mul", "d"), "relu", ("bias", "h d")]
    projected = gk.define("b s h d, e h d -> b e s", prologue=steps, epilogue=[("bias", "e"), "tanh"])
    diagonal = gk.define("i i, i j -> j", prologue=[("mul", "i"), "relu"])
    by_row = gk.define("i k, k j -> i j", prologue=[("mul", "i")])
    square, other = rng.standard_normal((2, 9, 9)).astype(np.float32)
    with gk.emulated("sm_87"):
        found = projected(a, b, gamma, beta, bias)
        assert '"prologue"' in gk.explain(projected, a, b, gamma, beta, bias).workload
        single, rows = diagonal(square, other, other[0]), by_row(square, other, other[0])
        with pytest.raises(TypeError, match="takes 2 \\+ 3 arrays"):
            projected(a, b, gamma)
        with pytest.raises(ValueError, match="where 1 axes are named"):
            projected(a, b, beta, beta, bias)
    wanted = np.einsum("bshd,ehd->bes", np.maximum(a * gamma, 0) + beta, b) + bias[:, None]
    np.testing.assert_allclose(found, np.tanh(wanted), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(single, np.maximum(np.diag(square) * other[0], 0) @ other, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(rows, (square * other[0][:, None]) @ other, rtol=1e-4, atol=1e-4)
    for wrong, words in ((("mask", "k", 0.0), "is not one of scale"), (("mul", "j"), "some of the first operand's")):
        with pytest.raises(ValueError, match=words):
            gk.define("i k, k j -> i j", prologue=[wrong])
