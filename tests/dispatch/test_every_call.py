"""Every public function, precision, layout and dtype on rehearsed devices: a call is served, or refused in words."""

from contextlib import suppress

import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels.dispatch.api.current import rehearsed
from gensor_kernels.operators.types.dtypes import CALLED, array_dtype
from tests.campaign_size import FULL, SEED

DTYPES = (*CALLED, "uint8", "int16", "uint32", "bool")
LAYOUTS = ("C", "F", "stepped", "negative", "zero")
EXTENTS = (1, 2, 8, 33)
PRODUCT = (None, "ieee", "tf32", "3m", "ozaki")
IMAGE = (None, "ieee", "tf32")


class Drawn:
    """Arrays of drawn dtypes and layouts, most of one dtype."""

    def __init__(self, rng):
        self.rng, self.dtype = rng, DTYPES[rng.integers(len(DTYPES))]
        self.b, self.m, self.n, self.k = (int(each) for each in rng.choice(EXTENTS, 4))

    def one(self, choices):
        return choices[self.rng.integers(len(choices))]

    def array(self, *shape, dtype=None):
        dtype = array_dtype(dtype or (self.dtype if self.rng.random() < 0.8 else self.one(DTYPES)))
        layout = self.one(LAYOUTS)
        if layout == "F":
            return np.ones(shape[::-1], dtype).T
        if layout == "stepped":
            return np.ones((*shape[:-1], 2 * shape[-1]), dtype)[..., ::2]
        if layout == "zero":
            return np.broadcast_to(np.ones((), dtype), shape)
        return np.ones(shape, dtype)[::-1] if layout == "negative" else np.ones(shape, dtype)

    def maybe(self, *shape):
        return self.array(*shape) if self.rng.random() < 0.3 else None


def products(d):
    b, m, n, k = d.b, d.m, d.n, d.k
    how = {"precision": d.one(PRODUCT)}
    yield lambda: gk.matmul(d.array(m, k), d.array(k, n), bias=d.maybe(n), activation=d.one((None, "relu")), **how)
    yield lambda: gk.matmul(d.array(b, m, k), d.array(b, k, n), alpha=d.one((1, 2.5, 1j)), **how)
    yield lambda: gk.linear(d.array(m, k), d.array(n, k), d.maybe(n), d.one((None, "gelu")))
    yield lambda: gk.linear(d.array(m, k), d.array(2 * n, k), None, "swiglu")
    yield lambda: gk.linear(d.array(m, k), d.array(n, k, dtype="int8"), scales=d.array(n))
    yield lambda: gk.grouped_matmul(d.array(m, k), d.array(b, k, n), sizes=[1] + [0] * (b - 1), **how)
    scales = d.array(m, 1, dtype="float32"), d.array(1, 1, dtype="float32")
    yield lambda: gk.scaled_matmul(d.array(m, k), d.array(k, n), *scales)


def contractions(d):
    b, m, n, k = d.b, d.m, d.n, d.k
    yield lambda: gk.einsum("bmk,bkn->bnm", d.array(b, m, k), d.array(b, k, n), conjugate=d.one(((), (0,))))
    yield lambda: gk.einsum("ij,jk,kl", d.array(m, k), d.array(k, n), d.array(n, b))
    yield lambda: gk.tensordot(d.array(m, k), d.array(k, n), 1)
    yield lambda: gk.dot(d.array(m, k), d.array(k, n))
    yield lambda: gk.inner(d.array(m, k), d.array(n, k))
    yield lambda: gk.vdot(d.array(m, k), d.array(m, k))
    yield lambda: gk.outer(d.array(m), d.array(n))
    yield lambda: gk.define("m k, n k -> m n", ["relu"])(d.array(m, k), d.array(n, k))
    yield lambda: gk.prepack(d.array(k, n))


def rows(d):
    x = d.array(d.b, d.m, d.k)
    axis = d.one((None, 0, 1, -1, (0, 2)))
    folds = gk.sum, gk.mean, gk.prod, gk.max, gk.min, gk.argmax, gk.argmin, gk.var, gk.norm, gk.logsumexp
    for fold in folds:
        yield lambda fold=fold: fold(x, axis, keepdims=d.one((False, True)))
    yield lambda: gk.softmax(x, axis)
    yield lambda: gk.log_softmax(x, axis)
    yield lambda: gk.layer_norm(x, d.k, d.maybe(d.k), d.maybe(d.k))
    yield lambda: gk.rms_norm(x, d.k, d.maybe(d.k))


def images(d):
    n, c, k, size = d.b, d.one((2, 8)), d.one((2, 16)), d.one((5, 8))
    x, how = d.array(n, c, size, size), {"precision": d.one(IMAGE)}
    yield lambda: gk.conv2d(x, d.array(k, c, 3, 3), d.maybe(k), padding=1, **how)
    yield lambda: gk.conv2d(x, d.array(c, 1, 3, 3), groups=c, **how)
    yield lambda: gk.conv1d(d.array(n, c, size), d.array(k, c, 3), **how)
    yield lambda: gk.conv_transpose2d(x, d.array(c, k, 2, 2), d.maybe(k), stride=2, **how)
    yield lambda: gk.max_pool2d(x, 2)
    yield lambda: gk.avg_pool2d(x, 3, padding=1)
    yield lambda: gk.global_avg_pool2d(x)


def attentions(d):
    queries, keys, head = d.one((1, 5)), d.one((1, 9)), d.one((8, 64))
    q, how = d.array(1, 4, queries, head), {"precision": d.one((None, "ieee", "tf32"))}
    k, v = d.array(1, 2, keys, head), d.array(1, 2, keys, head)
    how |= {"causal": d.one((False, True)), "window": d.one((None, (2, 0))), "softcap": d.one((None, 30.0))}
    yield lambda: gk.attention(q, k, v, d.maybe(queries, keys), **how)
    yield lambda: gk.attention(q, k, v, sizes=[queries], key_sizes=[keys], **how)
    pages = d.array(3, 2, 8, head), d.array(3, 2, 8, head)
    yield lambda: gk.attention(q, *pages, key_sizes=[keys], block_table=[[2, 0]], **how)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("calls", [products, contractions, rows, images, attentions])
def test_a_call_is_served_or_refused_in_words(calls, no_databases):
    rng = np.random.default_rng(SEED)
    for _ in range(400 if FULL else 6):
        drawn = Drawn(rng)
        with rehearsed(str(rng.choice(["sm_87", "h200", "sm_120"]))):
            for call in calls(drawn):
                try:
                    call()
                except gk.GensorError:
                    pass
                except (TypeError, ValueError) as error:  # one of ours names the dtype that it refuses
                    assert any(word in str(error) for word in DTYPES) or "complex" in str(error), error


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("arch", ["sm_87", "h200", "sm_120"])
def test_a_family_may_have_no_starters(arch, dtype, no_databases):
    a = np.ones((8, 8), dtype)
    with rehearsed(arch):
        for x, y in ((a, a), (a, a.T), (a.T, a), (a.T, a.T)):
            assert gk.matmul(x, y, precision="3m").shape == (8, 8)


def test_rms_norm_of_integers_is_that_of_float64():
    from gensor_kernels.dispatch.api.norms import _spacing

    assert [_spacing(np.dtype(name)) for name in ("float16", "float32", "complex128", "int8")] == [
        *(float(np.finfo(name).eps) for name in ("float16", "float32", "float64", "float64"))
    ]


IMAGE_OF_ONES, TAPS, HEADS = (
    np.ones((1, 2, 5, 5), "f4"),
    np.ones((2, 2, 3, 3), "f4"),
    [np.ones((1, 1, 4, 16), "f2")] * 3,
)


@pytest.mark.parametrize("huge", [2**31, 2**40, 2**70])
def test_huge_whole_numbers_are_served_or_refused_in_words(huge, no_databases):
    with rehearsed("sm_87"):
        for name in ("stride", "padding", "dilation"):
            for call in (
                lambda more: gk.conv2d(IMAGE_OF_ONES, TAPS, **more),
                lambda more: gk.conv2d(IMAGE_OF_ONES, TAPS[:, :1], groups=2, **more),
                lambda more: gk.conv_transpose2d(IMAGE_OF_ONES, TAPS, **more),
                lambda more: gk.max_pool2d(IMAGE_OF_ONES, 2, **more),
            ):
                with suppress(gk.UnsupportedError, ValueError):
                    call({name: huge})
        assert gk.attention(*HEADS, window=(huge, huge)).shape == HEADS[0].shape
        assert gk.var(IMAGE_OF_ONES, ddof=huge).shape == ()


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("alpha", lambda huge: gk.matmul(TAPS[0, 0], TAPS[0, 0], alpha=huge)),
        ("scale", lambda huge: gk.elementwise(TAPS, [("scale", huge)])),
        ("scale", lambda huge: gk.attention(*HEADS, scale=huge)),
        ("softcap", lambda huge: gk.attention(*HEADS, softcap=huge)),
        ("eps", lambda huge: gk.rms_norm(TAPS, 3, eps=huge)),
    ],
)
def test_numbers_beyond_floats(name, call, no_databases):
    with rehearsed("sm_87"), pytest.raises(ValueError, match=f"{name} is beyond the range of float64"):
        call(10**400)
