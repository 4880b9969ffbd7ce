"""Gated products (swiglu and its like): declaration, tolerance, kernels, public calls, against PyTorch in float64."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gensor_kernels
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators import operator
from gensor_kernels.operators.products import gated
from gensor_kernels.operators.tolerance import base as tolerance_base
from gensor_kernels.operators.types.dtypes import decode, encode
from gensor_kernels.programs.space import Space
from tests.programs.verified import small_is_right

torch = pytest.importorskip("torch")
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FUNCTIONS = {
    "swiglu": torch.nn.functional.silu,
    "geglu": torch.nn.functional.gelu,
    "geglu_tanh": lambda v: torch.nn.functional.gelu(v, approximate="tanh"),
    "reglu": torch.relu,
}


def reference(name, x, w, bias=None):
    """f(x g^T + ..) * (x u^T + ..) in float64; w (2 n, k) is the gate above the other matrix."""
    x, w = (torch.from_numpy(np.array(each, np.float64)) for each in (x, w))
    both = torch.nn.functional.linear(x, w, None if bias is None else torch.from_numpy(np.array(bias, np.float64)))
    gate, other = both.chunk(2, dim=-1)
    return (FUNCTIONS[name](gate) * other).numpy()


@pytest.mark.parametrize("prefix", ["", gated.BIASED])
@pytest.mark.parametrize("name", gated.GATES)
def test_declaration_and_reference_agree_with_pytorch(name, prefix):
    w = gated.workload(prefix + name, 5, 6, 7, batch=2, dtype="float64")
    rng, declared = np.random.default_rng(0), operator(w.operator)
    arrays = {each.name: rng.standard_normal(each.shape) for each in declared.operands(w)[:-1]}
    both = arrays["b"].reshape(2, 7, 12).transpose(0, 2, 1)
    bias = arrays["d"].ravel() if prefix else None
    theirs = np.stack([reference(name, a, b, bias) for a, b in zip(arrays["a"], both, strict=True)])
    np.testing.assert_allclose(declared.reference(arrays, w.size), theirs, rtol=1e-12, atol=1e-13)
    expected = declared.expect(w, arrays)
    np.testing.assert_allclose(expected.values, theirs, rtol=1e-12, atol=1e-13)
    assert (expected.bound > 0).all() and expected.bound.max() < 1e-12
    assert w.flops() >= 2 * 2 * 2 * 5 * 6 * 7
    assert w.bytes_moved() == 8 * (2 * 5 * 7 + 2 * 7 * 12 + 2 * 5 * 6 + (12 if prefix else 0))


def rounded(w, arrays, accumulator):
    """What a kernel that sums in `accumulator` stores."""
    a, b = (torch.from_numpy(decode(w.dtype[x], arrays[x])) for x in "ab")
    both = torch.einsum("bmk,bkhn->bmhn", a.to(accumulator), b.to(accumulator)).float()
    return (torch.nn.functional.silu(both[:, :, 0]) * both[:, :, 1]).numpy()


def test_the_tolerance_admits_float32_sums_and_refuses_float16_ones():
    w = gated.workload("swiglu", 64, 64, 512, dtype="float16", out="float32")
    rng, declared = np.random.default_rng(1), operator("swiglu")
    arrays = {each.name: encode("float16", rng.standard_normal(each.shape)) for each in declared.operands(w)[:-1]}
    expected = declared.expect(w, arrays)
    assert tolerance_base.check(rounded(w, arrays, torch.float32), expected).ok
    assert not tolerance_base.check(rounded(w, arrays, torch.float16), expected).ok


# (operator, arguments of the Workload, coordinates): both families, both copy paths, every way out, every layout of B
KERNELS = [
    ("swiglu", {"dtype": "bfloat16", "trans_b": True}, "contraction_mma", {"warp_n": 24, "block_n": 48, "stages": 2}),
    ("bias_geglu", {"dtype": "float16", "epilogue": "add"}, "contraction_mma", {"epilogue_staged": 0, "copy": 0,
                                                                              "stages": 2, "epilogue_fixed": 1}),
    ("bias_reglu", {"dtype": "float16", "trans_a": True}, "contraction_mma", {"split_k": 3}),
    ("geglu_tanh", {"dtype": "float32", "math": "tf32"}, "contraction_mma", {}),
    ("bias_swiglu", {"dtype": "float64", "trans_b": True}, "contraction_simt", {"stages": 1}),
    ("reglu", {"dtype": "float32"}, "contraction_simt", {"epilogue_staged": 1, "raster": 2}),
    ("bias_geglu_tanh", {"dtype": "float16", "trans_b": True}, "contraction_simt", {"split_k": 2}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "more", "family", "values"), KERNELS)
def test_kernels_pass_the_verifier(name, more, family, values):
    assert small_is_right(gated.workload(name, 64, 96, 256, **more), family, values).branches["gate"]


def test_a_gate_counts_as_two_products():
    one, arch = gated.workload("swiglu", 512, 2048, 1024, trans_b=True), lookup("sm_87")
    space = Space(one, arch).family("contraction_mma")
    point = space.point(space.family.starters(one, arch)[1])
    terms = space.explain(point)
    program = space.program(point)
    launch = space.family.launches(program, one)[0]
    assert launch.shared_bytes == terms["shared_bytes"]
    both = program["stages"] * program["block_k"] * (program["block_m"] + 2 * program["block_n"]) * 2
    assert launch.shared_bytes == max(both, terms["warps"] * program["warp_n"] * 64)
    assert space.family.constants(program, one)["GATE"] == 9


#: One gate for each dtype: every class costs a compilation.
KINDS = {"swiglu": np.dtype("float16"), "geglu": BFLOAT16, "reglu": np.dtype("float32")}


@st.composite
def calls(draw):
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    m, (n, k) = draw(st.integers(1, 40)), draw(st.sampled_from([(5, 33), (24, 64)]))
    lead = draw(st.sampled_from([(), (m,), (3, m), (2, 1, m)]))
    name = draw(st.sampled_from(sorted(KINDS)))
    dtype = KINDS[name]
    x, w = (rng.standard_normal(shape).astype(dtype) for shape in ((*lead, k), (2 * n, k)))
    bias = rng.standard_normal(2 * n).astype(dtype) if draw(st.booleans()) else None
    step = draw(st.sampled_from([1, 2]))
    x = np.repeat(x, step, axis=-1)[..., ::step]  # equal elements, another stride
    return x, w, bias, name


def error(dtype):
    return {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-5}[dtype.name]


@settings(max_examples=12, deadline=None)
@given(calls(), st.booleans())
def test_any_call_of_linear_agrees_with_pytorch(call, transposed):
    x, w, bias, name = call
    w = np.ascontiguousarray(w.T).T if transposed else w
    with gensor_kernels.emulated("sm_87"):
        found = gensor_kernels.linear(x, w, bias, activation=name)
        why = gensor_kernels.explain(gensor_kernels.linear, x, w, bias, activation=name)
    assert found.dtype == x.dtype and why.family.startswith("contraction")
    wanted = reference(name, x, w, bias)
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=error(x.dtype), atol=8 * error(x.dtype))


def test_matmul_with_a_gate_a_batch_and_operations_behind_it():
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 9, 20), (3, 20, 16)))
    bias, residual = rng.standard_normal(16).astype(np.float32), rng.standard_normal((9, 8)).astype(np.float32)
    out = np.empty((3, 9, 8), np.float32)
    with gensor_kernels.emulated("sm_87"):
        gensor_kernels.matmul(a, b, out, epilogue=[("bias", bias), "geglu", ("add", residual), ("scale", 0.5)])
        plain = gensor_kernels.matmul(a.astype(np.float16), b.astype(np.float16), activation="swiglu", dtype=np.float32)
    wanted = np.stack([reference("geglu", x, y.T, bias) for x, y in zip(a, b, strict=True)])
    np.testing.assert_allclose(out, (wanted + residual) * 0.5, rtol=1e-4, atol=1e-5)
    wanted = np.stack([reference("swiglu", x, y.T) for x, y in zip(a, b, strict=True)])
    assert plain.dtype == np.float32
    np.testing.assert_allclose(plain, wanted, rtol=1e-2, atol=2e-2)


def test_nan_and_infinity_go_through_a_gate():
    x, w = np.array([[np.nan, 1.0], [np.inf, 1.0]], np.float32), np.ones((2, 2), np.float32)
    with gensor_kernels.emulated("sm_87"):
        found = gensor_kernels.linear(x, w, activation="reglu")
    np.testing.assert_array_equal(found, [[np.nan], [np.inf]])


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"activation": "swiglu", "alpha": 2.0}, "only one bias"),
        ({"epilogue": ["relu", "swiglu"]}, "only one bias"),
        ({"epilogue": ["swiglu", "reglu"]}, "one gate"),
        ({"activation": "swiglu", "bias": np.zeros(3, np.float32)}, "a bias has the shape"),
    ],
)
def test_what_does_not_fit(keywords, words):
    a, b = np.zeros((2, 4), np.float32), np.zeros((4, 6), np.float32)
    with gensor_kernels.emulated("sm_87"), pytest.raises(ValueError, match=words):
        gensor_kernels.matmul(a, b, **keywords)


def test_odd_columns_and_integers_are_refused():
    with gensor_kernels.emulated("sm_87"):
        with pytest.raises(ValueError, match="side by side"):
            gensor_kernels.matmul(np.zeros((2, 4), np.float32), np.zeros((4, 5), np.float32), activation="swiglu")
        with pytest.raises(TypeError, match="real floating-point"):
            gensor_kernels.linear(np.zeros((2, 4), np.int8), np.zeros((6, 4), np.int8), activation="swiglu")
