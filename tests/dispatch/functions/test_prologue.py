"""Operations on an operand as kernels read it: declaration, tolerance, both ways in the space, public calls."""

import math
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gensor_kernels as gk
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators import operator
from gensor_kernels.operators.declaration import prologue
from gensor_kernels.operators.products import matmul, matmul_prologue
from gensor_kernels.operators.tolerance import base as tolerance_base
from gensor_kernels.operators.types.dtypes import decode, encode, round_to
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.operators.windows import conv, conv_prologue
from gensor_kernels.programs.registry import program_from_json
from gensor_kernels.programs.space import Space
from gensor_tuner.search.actions import moves
from gensor_tuner.shapes.reader import read_shapes
from tests.programs.verified import SMALL, small_is_right

torch = pytest.importorskip("torch")
F = torch.nn.functional
CURVES = {
    "relu": F.relu, "relu6": F.relu6, "gelu": F.gelu, "silu": F.silu, "tanh": torch.tanh, "sigmoid": torch.sigmoid,
    "gelu_tanh": lambda v: F.gelu(v, approximate="tanh"),
}  # fmt: skip
NORM = ("mul", "bias", "relu")


def product(names, m=64, n=64, k=256, vectors=None, **more):
    return matmul_prologue.workload(names, matmul.workload(m, n, k, **more), vectors)


def image(names, vectors=None, **more):
    return conv_prologue.workload(names, conv.workload(n=2, h=9, w=8, c=16, k_out=16, r=3, s=3, **more), vectors)


def theirs(x, steps, dtype):
    """A prologue by PyTorch in float64, rounded once to `dtype`; `steps` are (name, value or None)."""
    v = torch.from_numpy(np.asarray(x, np.float64))
    for name, value in steps:
        value = None if value is None else torch.as_tensor(np.asarray(value, np.float64))
        v = CURVES[name](v) if value is None else v + value if name == "bias" else v * value
    return round_to(np.dtype(dtype).name, v.numpy())


# ---- what it means


@pytest.mark.parametrize("names", [("gelu",), NORM, ("scale", "bias", "silu", "mul"), ("relu6", "tanh", "sigmoid")])
def test_the_reference_agrees_with_pytorch(names):
    w = product(names, 5, 6, 7, batch=2, dtype="float64")
    rng, declared = np.random.default_rng(0), operator(w.operator)
    arrays = {each.name: rng.standard_normal(each.shape) for each in declared.operands(w)[:-1]}
    vectors = iter(arrays[name] for name in prologue.VECTORS if name in arrays)
    steps = [(x, next(vectors) if x in ("mul", "bias") else prologue.VERIFIED_SCALE if x == "scale" else None)
             for x in names]  # fmt: skip
    expected = declared.expect(w, arrays)
    np.testing.assert_allclose(expected.values, theirs(arrays["a"], steps, "float64") @ arrays["b"], rtol=1e-12)
    assert (expected.bound > 0).all() and expected.bound.max() < 1e-12
    assert declared.bytes_moved(w) == 8 * (2 * (5 * 7 + 7 * 6 + 5 * 6) + 7 * (len(arrays) - 2))


def test_the_tolerance_refuses_another_rounding_and_a_narrow_sum():
    w = product(("mul", "tanh"), 64, 96, 512, dtype="float16", out="float32")
    rng, declared = np.random.default_rng(1), operator(w.operator)
    arrays = {each.name: encode("float16", rng.standard_normal(each.shape)) for each in declared.operands(w)[:-1]}
    expected = declared.expect(w, arrays)
    a, b, d = (np.float32(decode("float16", arrays[name])) for name in "abd")
    right = np.tanh(a * d).astype(np.float16).astype(np.float32)
    found = {
        "rounded once": right @ b,
        "not rounded": np.tanh(a * d) @ b,
        "rounded twice": np.tanh((a * d).astype(np.float16).astype(np.float32)).astype(np.float16) @ b,
        "without the vector": np.tanh(a).astype(np.float16).astype(np.float32) @ b,
        "summed in float16": (torch.from_numpy(right).half() @ torch.from_numpy(b).half()).float().numpy(),
    }
    verdicts = {name: tolerance_base.check(np.float32(value), expected).ok for name, value in found.items()}
    assert verdicts == {name: name == "rounded once" for name in found}


def test_keys_have_it_and_older_keys_stay_as_they_are():
    w = product(NORM, epilogue=("bias",))
    assert Workload.from_json(w.key()) == w and '"prologue":["mul","bias","relu"]' in w.class_key()
    plain = matmul.workload(8, 8, 8)
    assert "prologue" not in plain.key() and Workload.from_json(plain.key()) == plain
    for wrong in (("mask",), ("add",)):
        with pytest.raises(UnsupportedError, match="prologue operation"):
            product(wrong)
    with pytest.raises(UnsupportedError, match="kernels take 6, 2 and 1"):
        product(("mul", "mul", "bias"))
    with pytest.raises(ValueError, match="with the prologue"):
        replace(plain, prologue=("relu",))
    with pytest.raises(UnsupportedError, match="of real numbers"):
        product(("scale",), dtype="complex64")


# ---- the space

INLINE, IN_FRONT = {"materialised": 0}, {"materialised": 1}
REGISTERS = {"copy": 0, "stages": 2}
# (workload, family, coordinates)
KERNELS = [
    (product(NORM, dtype="float32"), "contraction_simt", INLINE),
    (product(("bias", "gelu"), dtype="float64", trans_a=True), "contraction_simt", IN_FRONT | {"split_k": 2}),
    (product(("mul", "scale", "silu"), vectors="float32"), "contraction_mma", INLINE | REGISTERS),
    (product(("bias", "mul", "tanh"), dtype="bfloat16", trans_a=True), "contraction_mma", IN_FRONT | {"split_k": 2}),
    (image(("bias", "sigmoid"), dtype="float32", layout="nchw"), "contraction_simt", INLINE),
    (image((*NORM, "gelu_tanh"), groups=2, dtype="float16", vectors="float32"), "contraction_mma", INLINE | REGISTERS),
    (product(("mul", "silu"), 3, trans_b=True, vectors="float32"), "gemv", {"split_k": 2}),
]


@pytest.mark.parametrize(("w", "family", "values"), KERNELS)
def test_kernels_pass_the_verifier(w, family, values):
    verdict = small_is_right(w, family, {"split_k": 1} | values)
    assert verdict.branches["prologue"]
    assert bool(verdict.branches.get("materialise")) == (values.get("materialised") == 1)
    assert bool(verdict.branches.get("prologue_outside")) == (w.operator.startswith("conv2d"))


@pytest.mark.parametrize("family", ["contraction_mma", "contraction_simt"])
def test_inline_or_materialised_is_a_choice(family):
    arch, w = lookup("sm_87"), product(("gelu",), 512, 512, 512)
    space = Space(w, arch).family(family)
    assert {"materialised+", "materialised-"} <= {move.token for move in moves(space.coordinates)}
    own = REGISTERS if family == "contraction_mma" else {}
    base = space.family.starters(w, arch)[0].replace(split_k=1, **SMALL[family], **own)
    inline, front = (base.replace(materialised=each) for each in (0, 1))
    assert space.legal(np.stack([space.point(inline), space.point(front)])).all()
    assert [x.entry for x in space.family.launches(inline, w)] == [family]
    assert [x.entry for x in space.family.launches(front, w)] == ["contraction_prepare", family]
    assert space.family.workspace(inline, w)[0] == 0 and space.family.workspace(front, w)[0] == 512 * 512 * 2
    apart, before = (space.explain(space.point(each)) for each in (inline, front))
    assert apart["issue"] > before["issue"] and before["after"] > apart["after"] == 0
    if family == "contraction_mma":  # what passes through registers is not copied asynchronously
        assert not space.legal(space.point(inline.replace(copy=1, stages=3))[None])[0]
        assert space.legal(space.point(front.replace(copy=1, stages=3))[None])[0]
    assert program_from_json(front.to_json()) == front


def test_gemv_streams_the_weights_of_few_rows_behind_a_prologue():
    arch = lookup("sm_87")
    few, many = Space(product(("gelu",), 4, 4096, 4096, trans_b=True), arch), product(("gelu",), 4096, 4, 4096)
    assert "gemv" in few.names and "gemv" not in Space(many, arch).names
    (choice,) = (c for c in few.family("gemv").coordinates if c.name == "x_shared")
    assert choice.values == (1,)


def test_programs_without_a_prologue_have_no_such_coordinate():
    arch, w = lookup("sm_87"), matmul.workload(512, 512, 512)
    for space in Space(w, arch).families:
        assert "materialised" not in space.names
        program = space.family.starters(w, arch)[0]
        assert program_from_json(program.to_json()) == program


def test_files_of_shapes_have_the_column(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(
        "op,m,n,k,dtype,prologue,epilogue,h,w,c,k_out,r,s\n"
        "matmul,64,32,48,fp16,mul_bias_relu,bias,,,,,,\n"
        "conv2d,,,,fp32,gelu,none,8,8,16,16,3,3\n"
        "matmul,64,32,48,fp16,mask,none,,,,,,\n"
        "matmul,64,32,48,fp16,mul_mul_mul,none,,,,,,\n"
        "matmul,64,32,48,fp16,relu,swiglu,,,,,,\n"
        "conv2d_transpose,,,,fp32,gelu,none,8,8,16,16,3,3\n"
        "depthwise_conv2d,,,,fp32,mul_bias,none,8,8,16,16,3,3\n"
        "conv2d,,,,fp32,none,none,8,8,16,16,3,3\n"
    )
    first, second, wrong, *unsupported, transposed, depthwise_, plain = read_shapes(path)
    assert first.workload == product(NORM, 64, 32, 48, epilogue=("bias",))
    window = conv.workload(n=1, h=8, w=8, c=16, k_out=16, r=3, s=3)
    assert second.workload == conv_prologue.workload(("gelu",), window) and plain.workload == window
    assert "column 'prologue': 'mask'" in wrong.error
    assert "3 vectors" in unsupported[0].unsupported
    names = [row.workload.operator for row in (transposed, depthwise_)]
    assert names == ["conv2d_transpose_prologue", "depthwise_conv2d_prologue2"]
    assert len(unsupported) == 2 and all("a prologue" in row.unsupported for row in unsupported)


# ---- public calls


@st.composite
def calls(draw):
    """(x, b, prologue as written, the same as (name, value))."""
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    dtype = np.dtype(draw(st.sampled_from(["float16", "float32"])))
    k, lead = draw(st.sampled_from([33, 40])), draw(st.sampled_from([(), (3,)]))
    x = rng.standard_normal((*lead, draw(st.integers(1, 20)), k)).astype(dtype)
    b = rng.standard_normal((k, draw(st.sampled_from([24, 40])))).astype(dtype)
    named = draw(st.sampled_from([("gelu",), NORM]))
    wide = np.float32 if draw(st.booleans()) else dtype
    steps = [(name, rng.standard_normal(k).astype(wide) if name in ("mul", "bias") else None) for name in named]
    return x, b, [name if value is None else (name, value) for name, value in steps], steps


@settings(max_examples=16, deadline=None)
@given(calls(), st.booleans())
def test_any_product_agrees_with_pytorch(call, transposed):
    x, b, written, steps = call
    with gk.emulated("sm_87"):
        if transposed:
            found = gk.linear(x, np.ascontiguousarray(b.T), activation="relu", prologue=written)
            why = gk.explain(gk.linear, x, np.ascontiguousarray(b.T), activation="relu", prologue=written)
        else:
            found = gk.matmul(x, b, activation="relu", prologue=written)
            why = gk.explain(gk.matmul, x, b, activation="relu", prologue=written)
    assert found.dtype == x.dtype and why.family is not None and '"prologue"' in why.workload
    wanted = np.maximum(theirs(x, steps, x.dtype) @ b.astype(np.float64), 0)
    error = 1e-2 if x.dtype == np.float16 else 1e-5
    np.testing.assert_allclose(found, wanted, rtol=error, atol=error * math.sqrt(b.shape[0]))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(("dtype", "groups"), [("float32", 1), ("float16", 2)])
def test_padding_of_a_convolution_is_zero_behind_the_prologue(layout, dtype, groups):
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((2, 8, 6, 7)).astype(dtype), rng.standard_normal((4, 8 // groups, 3, 3)).astype(dtype)
    gamma, beta = rng.standard_normal((2, 8)).astype(np.float32)
    steps = [("mul", gamma[:, None, None]), ("bias", 3.0 + beta[:, None, None]), ("sigmoid", None)]
    prepared = torch.from_numpy(theirs(x, steps, dtype))
    wanted = F.conv2d(prepared, torch.from_numpy(w.astype(np.float64)), padding=(1, 2), groups=groups).numpy()
    asked = [("mul", gamma), ("bias", 3.0 + beta), "sigmoid"]
    with gk.emulated("sm_87"):
        if layout == "NHWC":
            last, filters = (np.ascontiguousarray(v.transpose(0, 2, 3, 1)) for v in (x, w))
            found = gk.conv2d(last, filters, padding=(1, 2), groups=groups, layout=layout, prologue=asked)
            found = found.transpose(0, 3, 1, 2)
        else:
            found = gk.conv2d(x, w, padding=(1, 2), groups=groups, prologue=asked)
    error = 2e-3 if dtype == "float16" else 1e-5
    np.testing.assert_allclose(found, wanted, rtol=error, atol=10 * error)


def test_what_kernels_do_not_take_is_computed_in_front():
    rng = np.random.default_rng(4)
    x, b = rng.standard_normal((12, 32)).astype(np.float32), rng.standard_normal((32, 16)).astype(np.float32)
    rows, shift = rng.standard_normal((12, 1)).astype(np.float32), rng.standard_normal(32).astype(np.float32)
    normed = rng.standard_normal((12, 32)).astype(np.float32)
    with gk.emulated("sm_87"):
        by_row = gk.matmul(x, b, prologue=[("mul", rows)])
        full = gk.matmul(x, b, prologue=[("mul", normed), "silu"])
        three = gk.matmul(x, b, prologue=[("mul", shift), ("bias", shift), ("mul", shift)])
        gated = gk.matmul(x, b, activation="swiglu", prologue=["relu"])
        vector = gk.matmul(x, b[:, 0], prologue=["relu"])
        nothing = gk.matmul(x, b, prologue=[])
        scaled = gk.matmul(x, b, prologue=[("scale", 0.5), ("bias", shift)], out=np.empty((12, 16), np.float32))
        complexes = gk.matmul(x.astype(np.complex64), b, prologue=[("scale", 1j)])
    close = dict(rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(by_row, (x * rows) @ b, **close)
    np.testing.assert_allclose(full, theirs(x, [("mul", normed), ("silu", None)], "float32") @ b, **close)
    np.testing.assert_allclose(three, ((x * shift + shift) * shift) @ b, **close)
    both = np.maximum(x, 0) @ b
    np.testing.assert_allclose(gated, both[:, :8] / (1 + np.exp(-both[:, :8])) * both[:, 8:], **close)
    np.testing.assert_allclose(vector, np.maximum(x, 0) @ b[:, 0], **close)
    np.testing.assert_allclose(nothing, x @ b, **close)
    np.testing.assert_allclose(scaled, (0.5 * x + shift) @ b, **close)
    np.testing.assert_allclose(complexes, (1j * x) @ b, **close)


@pytest.mark.parametrize(
    ("prologue_", "error", "words"),
    [
        ([("add", np.ones(4))], ValueError, "prologue operation 'add'"),
        (["swish"], ValueError, "prologue operation 'swish'"),
        (["swiglu"], ValueError, "prologue operation"),
        ("relu", TypeError, "prologue must be a list"),
        ([("mul", np.ones(5))], ValueError, r"mul of shape \(5,\) does not broadcast"),
        ([("mul", [1.0])], TypeError, "mul must be a numpy array"),
        ([("bias",)], ValueError, "takes 1 value"),
    ],
)
def test_what_does_not_fit_says_so(prologue_, error, words):
    with gk.emulated("sm_87"), pytest.raises(error, match=words):
        gk.matmul(np.ones((3, 4)), np.ones((4, 2)), prologue=prologue_)


def test_types_without_such_functions():
    with gk.emulated("sm_87"):
        with pytest.raises(TypeError, match="floating-point"):
            gk.matmul(np.ones((3, 4), np.int8), np.ones((4, 2), np.int8), prologue=["relu"])
        with pytest.raises(UnsupportedError, match="complex"):
            gk.matmul(np.ones((3, 4), np.complex64), np.ones((4, 2), np.complex64), prologue=["relu"])
        brain = np.ones((3, 4), ml_dtypes.bfloat16)
        assert (gk.matmul(brain, brain.T, prologue=["relu"]) == 4).all()
