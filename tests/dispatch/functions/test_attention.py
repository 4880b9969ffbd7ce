"""attention: what does not fit; test_library.py and tests/public_cases draw calls."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gensor_kernels
from gensor_kernels.dispatch.functions import attention
from gensor_kernels.operators.attention.attention import workload
from gensor_kernels.operators.attention.forms import VERIFIED_SOFTCAP
from tests.programs.attention_cases import exact, operands

NUMPY = SimpleNamespace(xp=np, product=lambda a, b, math: a @ b)


@pytest.mark.parametrize(
    ("shapes", "more", "words"),
    [
        (((1, 2, 4, 16), (1, 2, 5, 16), (1, 2, 6, 16)), {}, "k and v have the shapes"),
        (((1, 3, 4, 16), (1, 2, 5, 16), (1, 2, 5, 16)), {}, "no multiple of the 2"),
        (((2, 4, 16), (2, 5, 16), (2, 5, 16)), {}, r"q, k and v have the axes \(batch, heads, rows, head\)"),
        (((1, 2, 4, 32), (1, 2, 5, 16), (1, 2, 5, 16)), {}, "batch and head must be equal"),
        (((1, 2, 4, 16), (1, 2, 5, 16), (1, 2, 5, 16)), {"causal": "left"}, "causal is False, True"),
        (((1, 2, 4, 16), (1, 2, 5, 16), (1, 2, 5, 16)), {"mask": np.ones((3, 5), bool)}, "does not broadcast"),
        (((1, 2, 4, 16), (1, 2, 5, 16), (1, 2, 5, 16)), {"window": (1,)}, r"window is a pair \(left, right\)"),
        (((1, 2, 4, 16), (1, 2, 5, 16), (1, 2, 5, 16)), {"window": 4}, r"window is a pair \(left, right\)"),
        (((1, 2, 4, 16), (1, 2, 5, 16), (1, 2, 5, 16)), {"window": (-2, 0)}, "a side of window must be -1 or more"),
        (((1, 2, 4, 16), (1, 2, 5, 16), (1, 2, 5, 16)), {"softcap": -1.0}, "softcap is a number above 0"),
        (((1, 2, 4, 16), (1, 2, 5, 16), (1, 2, 5, 16)), {"softcap": np.inf}, "softcap is a number above 0"),
    ],
)
def test_what_does_not_fit(shapes, more, words):
    arrays = [np.zeros(shape, np.float16) for shape in shapes]
    with gensor_kernels.emulated("sm_87"), pytest.raises(ValueError, match=words):
        gensor_kernels.attention(*arrays, **more)


@st.composite
def problems(draw):
    window = draw(st.sampled_from([(None, None), (0, 0), (2, None), (None, 1), (3, 2)]))
    mask = draw(st.sampled_from(["", "bool", "float32"]))
    return workload(
        draw(st.integers(1, 9)), draw(st.integers(1, 12)), heads=4, kv_heads=draw(st.sampled_from([1, 2, 4])), head=8,
        causal=draw(st.sampled_from([False, True, "upper_left"])), mask=mask, window=window,
        softcap=draw(st.booleans()),
    )  # fmt: skip


@settings(deadline=None, max_examples=80)
@given(problems())
def test_the_library_computes_every_form(w):
    arrays = operands(w, seed=len(w.key()))
    called = attention.ATTENTION.called(w, {name: x.astype(x.dtype) for name, x in arrays.items()})
    found = attention.ATTENTION.library(NUMPY, called.inputs, called.parameters, None)
    np.testing.assert_allclose(found, exact(w, arrays), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("softcap", [None, VERIFIED_SOFTCAP, 40.0])
@pytest.mark.parametrize("window", [None, (20, 0), (-1, 7)])
def test_kernels_agree_with_the_library(window, softcap):
    rng = np.random.default_rng(0)
    q, k, v = (
        rng.standard_normal((1, heads, rows, 32)).astype(np.float16) for heads, rows in ((4, 40), (2, 70), (2, 70))
    )
    with gensor_kernels.emulated("sm_87"):
        found = gensor_kernels.attention(q, k, v, scale=1.5, window=window, softcap=softcap)
        why = gensor_kernels.explain(gensor_kernels.attention, q, k, v, scale=1.5, window=window, softcap=softcap)
    parameters = attention.Parameters(False, 1.5, tuple(window or (None, None)), softcap)
    wanted = attention.composed(NUMPY, (q, k, v, None), parameters, None)
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=2e-2, atol=2e-2)
    assert why.family == "attention"


def test_soft_caps_that_no_kernel_takes_go_to_the_library():
    q = np.zeros((1, 1, 4, 16), np.float16)
    with gensor_kernels.emulated("sm_87"), pytest.raises(gensor_kernels.UnsupportedError, match="soft cap of 1000"):
        gensor_kernels.attention(q, q, q, softcap=1000)
