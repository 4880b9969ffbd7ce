"""Products whose rows are normalised: declaration, both ways in the space, public calls, against PyTorch in float64."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gensor_kernels
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators import operator
from gensor_kernels.operators.products import matmul, normed
from gensor_kernels.operators.rows.norms import VERIFIED_EPS
from gensor_kernels.operators.tolerance import base as tolerance_base
from gensor_kernels.operators.types.dtypes import decode, encode
from gensor_kernels.operators.types.epilogue import Step
from gensor_kernels.programs.space import Space
from tests.programs.verified import small_is_right

torch = pytest.importorskip("torch")
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FUNCTIONS = {"layernorm": torch.nn.functional.layer_norm, "rmsnorm": torch.nn.functional.rms_norm}


def workload(norm, m, n, k, before=2, **more):
    more.setdefault("epilogue", ("bias", "add", "mul", "bias"))
    return normed.normed(norm, matmul.workload(m, n, k, **more), before)


def reference(norm, a, b, bias, residual, weight, eps):
    """norm(a b + bias + residual) * weight in float64."""
    x = np.asarray(a, np.float64) @ np.asarray(b, np.float64) + np.asarray(bias, np.float64) + residual
    rows = torch.from_numpy(np.asarray(x, np.float64))
    return FUNCTIONS[norm](rows, rows.shape[-1:], torch.from_numpy(np.asarray(weight, np.float64)), eps=eps).numpy()


@pytest.mark.parametrize("norm", FUNCTIONS)
def test_declaration_and_reference_agree_with_pytorch(norm):
    w = workload(norm, 5, 6, 7, batch=2, dtype="float64", epilogue=("bias", "add", "mul"))
    rng, declared = np.random.default_rng(0), operator(w.operator)
    arrays = {each.name: rng.standard_normal(each.shape) for each in declared.operands(w)[:-1]}
    bias, residual, weight = rng.standard_normal(6), rng.standard_normal((2, 5, 6)), rng.standard_normal(6)
    steps = [Step("bias", bias), Step("add", residual), Step("mul", weight)]
    expected = declared.expect(w, arrays, steps)
    theirs = reference(norm, arrays["a"], arrays["b"], bias, residual, weight, VERIFIED_EPS)
    np.testing.assert_allclose(expected.values, theirs, rtol=1e-12, atol=1e-13)
    assert (expected.bound > 0).all() and expected.bound.max() < 1e-12
    plain = reference(norm, arrays["a"], arrays["b"], 0.0, 0.0, np.ones(6), VERIFIED_EPS)
    np.testing.assert_allclose(declared.reference(arrays, w.size), plain, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("norm", FUNCTIONS)
def test_the_tolerance_admits_float32_sums_and_refuses_float16_ones(norm):
    w = workload(norm, 64, 96, 512, dtype="float16", out="float32", epilogue=(), before=0)
    rng, declared = np.random.default_rng(1), operator(w.operator)
    arrays = {each.name: encode("float16", rng.standard_normal(each.shape)) for each in declared.operands(w)[:-1]}
    expected = declared.expect(w, arrays)
    a, b = (torch.from_numpy(decode("float16", arrays[x])) for x in "ab")
    for dtype, right in ((torch.float32, True), (torch.float16, False)):
        x = (a.to(dtype) @ b.to(dtype)).float()
        found = FUNCTIONS[norm](x, x.shape[-1:], eps=VERIFIED_EPS).numpy()
        assert tolerance_base.check(found, expected).ok == right


# (norm, arguments, family, coordinates): whole rows in a block, and through the workspace, split or not
KERNELS = [
    ("layernorm", {"dtype": "bfloat16", "trans_b": True}, "contraction_mma", {"epilogue_staged": 2}),
    ("rmsnorm", {"dtype": "float16"}, "contraction_mma", {"epilogue_staged": 1, "split_k": 2}),
    ("rmsnorm", {"dtype": "float32", "math": "tf32"}, "contraction_mma", {"epilogue_staged": 0}),
    ("rmsnorm", {"dtype": "float64"}, "contraction_simt", {"epilogue_staged": 2}),
    ("layernorm", {"dtype": "float32"}, "contraction_simt", {"epilogue_staged": 1}),
]


@pytest.mark.parametrize(("norm", "more", "family", "values"), KERNELS)
def test_kernels_pass_the_verifier(norm, more, family, values):
    w = workload(norm, 64, 24, 256, **more)
    assert small_is_right(w, family, {"split_k": 1} | values).branches["norm"]


@pytest.mark.parametrize("family", ["contraction_mma", "contraction_simt"])
def test_where_rows_are_normalised_is_a_choice(family):
    arch, small, wide = lookup("sm_87"), workload("layernorm", 512, 96, 256), workload("layernorm", 512, 304, 256)
    for w, whole in ((small, True), (wide, False)):
        space = Space(w, arch).family(family)
        ways = next(c for c in space.coordinates if c.name == "epilogue_staged").values
        assert ways == (0, 1, 2)
        program = space.family.starters(small, arch)[0].replace(split_k=1)
        legal = {way: space.legal(space.point(program.replace(epilogue_staged=way))[None])[0] for way in ways}
        assert legal[2] == whole and legal[1]
        entries = [x.entry for x in space.family.launches(program.replace(epilogue_staged=1), w)]
        assert entries == [family, "contraction_normalise"]
        main = space.family.launches(program.replace(epilogue_staged=2), w)
        assert [x.entry for x in main] == [family]
        terms = space.explain(space.point(program.replace(epilogue_staged=2)))
        assert terms["shared_bytes"] == main[0].shared_bytes and terms["after"] == 0


@st.composite
def calls(draw):
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    m, n = draw(st.integers(1, 20)), draw(st.sampled_from([24, 520]))
    lead = draw(st.sampled_from([(), (3,)]))
    dtype = draw(st.sampled_from([np.dtype("float16"), np.dtype("float32")]))
    shapes = {"a": (*lead, m, 40), "b": (40, n), "bias": (n,), "residual": (*lead, m, n), "weight": (n,)}
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes.values()]


@settings(max_examples=12, deadline=None)
@given(calls())
def test_any_call_agrees_with_pytorch(call):
    a, b, bias, residual, weight = call
    norm = "layernorm" if a.dtype == np.float16 else "rmsnorm"
    epilogue = [("bias", bias), ("add", residual), (norm, 0.01), ("mul", weight)]
    with gensor_kernels.emulated("sm_87"):
        found = gensor_kernels.matmul(a, b, epilogue=epilogue)
        why = gensor_kernels.explain(gensor_kernels.matmul, a, b, epilogue=epilogue)
    assert found.dtype == a.dtype and why.family.startswith("contraction")
    error = 2e-2 if a.dtype == np.float16 else 1e-4
    np.testing.assert_allclose(found, reference(norm, a, b, bias, residual, weight, 0.01), rtol=error, atol=error)


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"epilogue": ["layernorm", "rmsnorm"]}, "one gate or norm"),
        ({"epilogue": ["layernorm", "swiglu"]}, "one gate or norm"),
        ({"epilogue": [("layernorm", 0.0)]}, "eps above 0"),
        ({"epilogue": ["layernorm"], "activation": "relu"}, "whole order"),
        ({"activation": "layernorm"}, "activation must be"),
    ],
)
def test_what_does_not_fit(keywords, words):
    a, b = np.zeros((2, 4), np.float32), np.zeros((4, 6), np.float32)
    with gensor_kernels.emulated("sm_87"), pytest.raises(ValueError, match=words):
        gensor_kernels.matmul(a, b, **keywords)
