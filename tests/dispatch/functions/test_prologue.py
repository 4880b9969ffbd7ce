"""Prologues, operations on an operand as kernels read it: tolerance, the space, refusals.

tests/public_cases draws calls.
"""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.families.registry import program_from_json
from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators import operator
from gensor_kernels.operators.products import matmul, matmul_prologue
from gensor_kernels.operators.types.dtypes import round_to
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.operators.windows import conv, conv_prologue, depthwise
from gensor_tuner.search.actions import moves
from gensor_tuner.shapes.reader import read_shapes
from tests.campaign_size import sample
from tests.dispatch.functions.verdicts import sum_in, verdicts
from tests.families.verified import SMALL, small_is_right
from tests.public_cases.references import ACTIVATIONS

NORM = ("mul", "bias", "relu")


def product(names, m=64, n=64, k=256, vectors=None, **more):
    return matmul_prologue.workload(names, matmul.workload(m, n, k, **more), vectors)


def image(names, vectors=None, **more):
    return conv_prologue.workload(names, conv.workload(n=2, h=9, w=8, c=16, k_out=16, r=3, s=3, **more), vectors)


def prepare(x, steps, dtype="float64"):
    """`x` after a prologue in float64, rounded once to `dtype`; `steps` are (name, value or None)."""
    v = np.asarray(x, np.float64)
    for name, value in steps:
        if value is None:
            v = ACTIVATIONS[name](v)
        else:
            v = v + value if name == "bias" else v * np.asarray(value, np.float64)
    return round_to(np.dtype(dtype).name, v)


# ---- what it means


def test_the_tolerance_refuses_another_rounding_and_a_narrow_sum():
    def results(a, b, d):
        a, b = a[0], b[0]
        right = np.tanh(a * d).astype(np.float16).astype(np.float32)
        return {
            "rounded once": right @ b,
            "not rounded": np.tanh(a * d) @ b,
            "rounded twice": np.tanh((a * d).astype(np.float16).astype(np.float32)).astype(np.float16) @ b,
            "without the vector": np.tanh(a).astype(np.float16).astype(np.float32) @ b,
            "summed in float16": sum_in(np.float16, right, b),
        }

    found = verdicts(product(("mul", "tanh"), 64, 96, 512, dtype="float16", out="float32"), results)
    assert found == {name: name == "rounded once" for name in found}


def test_keys():
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

INLINE, BEFORE = {"materialised": 0}, {"materialised": 1}
REGISTERS = {"copy": 0, "stages": 2}
# (workload, family, coordinates)
KERNELS = [
    (product(NORM, dtype="float32"), "contraction_simt", INLINE),
    (product(("bias", "gelu"), dtype="float64", trans_a=True), "contraction_simt", BEFORE | {"split_k": 2}),
    (product(("mul", "scale", "silu"), vectors="float32"), "contraction_mma", INLINE | REGISTERS),
    (product(("bias", "mul", "tanh"), dtype="bfloat16", trans_a=True), "contraction_mma", BEFORE | {"split_k": 2}),
    (image(("bias", "sigmoid"), dtype="float32", layout="nchw"), "contraction_simt", INLINE),
    (image((*NORM, "gelu_tanh"), groups=2, dtype="float16", vectors="float32"), "contraction_mma", INLINE | REGISTERS),
    (product(("mul", "silu"), 3, trans_b=True, vectors="float32"), "gemv", {"split_k": 2}),
]


@pytest.mark.parametrize(("w", "family", "values"), sample(KERNELS, 3))
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


def test_prologues_that_kernels_do_not_take_are_computed_before_them():
    rng = np.random.default_rng(4)
    x, b = rng.standard_normal((12, 32)).astype(np.float32), rng.standard_normal((32, 16)).astype(np.float32)
    rows, shift = rng.standard_normal((12, 1)).astype(np.float32), rng.standard_normal(32).astype(np.float32)
    positive, single = np.maximum(x, 0), x.astype(np.complex64)
    both = positive @ b
    with gk.emulated("sm_87"):
        for result, wanted in (
            (gk.matmul(x, b, prologue=[("mul", rows)]), (x * rows) @ b),
            (gk.matmul(x, b, prologue=[("mul", x), "silu"]), prepare(x, [("mul", x), ("silu", None)]) @ b),
            (
                gk.matmul(x, b, prologue=[("mul", shift), ("bias", shift), ("mul", shift)]),
                (x * shift + shift) * shift @ b,
            ),
            (gk.matmul(x, b, activation="swiglu", prologue=["relu"]), ACTIVATIONS["silu"](both[:, :8]) * both[:, 8:]),
            (gk.matmul(x, b[:, 0], prologue=["relu"]), positive @ b[:, 0]),
            (gk.matmul(x, b, prologue=[]), x @ b),
            (gk.matmul(single, b, prologue=[("scale", 1j)]), (1j * x) @ b),
            (gk.einsum("ik,kj->ij", single, b, prologue=[("scale", 1j)]), (1j * x) @ b),
            (gk.einsum("ik,kl,jl->ij", x, b, b, prologue=["relu"]), both @ b.T),
            (gk.einsum("ij->ji", x, prologue=["relu"]), positive.T),
            (gk.einsum(x, [0, 1], b, [1, 2], [0, 2], prologue=["relu"]), both),
            (gk.einsum("ik,kj->ij", x[:0], b, prologue=["relu"]), both[:0]),
        ):
            np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-4)
        assert "2 contractions" in gk.explain(gk.einsum, "ik,kl,jl->ij", x, b, b, prologue=["relu"]).reason


#: (subscripts, shapes of a and b, prologue with shapes of its arrays, whether kernels take it)
EINSUMS = [
    ("bshd,hde->bse", (2, 9, 4, 8), (4, 8, 24), [("mul", (4, 8)), ("bias", (8,)), ("gelu", None)], True),
    ("mk,kn->nm", (17, 16), (16, 24), [("mul", (16,)), ("relu", None)], True),
    ("bik,bkj->bji", (2, 9, 16), (2, 16, 8), [("mul", (16,)), ("relu", None)], True),
    ("iik,kj->ij", (5, 5, 16), (16, 8), [("mul", (16,)), ("relu", None)], True),
    ("kl,lkn->n", (6, 8), (8, 6, 16), [("bias", (6, 1)), ("tanh", None)], False),  # k in two orders: copied
    ("ik,jk->ij", (9, 16), (8, 16), [("bias", (9, 1)), ("silu", None)], False),
    ("ikl,jk->ij", (9, 16, 3), (8, 16), [("relu", None)], False),  # summed alone, after the prologue
    ("bik,bkj->bij", (2, 9, 16), (2, 16, 8), [("mul", (2, 1, 16))], False),
    ("je,jb->je", (3, 8), (3, 4), [("mul", (1,)), ("bias", (1,))], False),  # an axis of b alone is summed
]


@pytest.mark.parametrize(("text", "first", "second", "listed", "is_kernels"), sample(EINSUMS, 4))
def test_prologues_of_einsum(text, first, second, listed, is_kernels):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in (first, second))
    steps = [(n, None if shape is None else rng.standard_normal(shape).astype(np.float32)) for n, shape in listed]
    items = [n if value is None else (n, value) for n, value in steps]
    with gk.emulated("sm_87"):
        result, why = gk.einsum(text, a, b, prologue=items), gk.explain(gk.einsum, text, a, b, prologue=items)
    assert ('"prologue"' in (why.workload or "")) == is_kernels
    np.testing.assert_allclose(result, np.einsum(text, prepare(a, steps), b), rtol=1e-5, atol=1e-4)


REFUSED = [
    ([("add", np.ones(4))], ValueError, "prologue operation 'add'"),
    (["swish"], ValueError, "prologue operation 'swish'"),
    (["swiglu"], ValueError, "prologue operation"),
    ("relu", TypeError, "prologue must be a list"),
    ([("mul", np.ones(5))], ValueError, r"mul of shape \(5,\) does not broadcast"),
    ([("mul", [1.0])], TypeError, "mul must be a numpy array"),
    ([("bias",)], ValueError, "takes 1 value"),
]


def test_arguments_that_do_not_fit():
    a, b = np.ones((3, 4)), np.ones((4, 2))
    with gk.emulated("sm_87"):
        for items, error, words in REFUSED:
            with pytest.raises(error, match=words):
                gk.matmul(a, b, prologue=items)
        with pytest.raises(ValueError, match="prologue operation 'swish'"):
            gk.explain(gk.einsum, "ik,kl,lj->ij", a, b, b.T, prologue=["swish"])
        with pytest.raises(ValueError, match="does not broadcast"):
            gk.einsum("ik,kj->ij", a, b, prologue=[("mul", np.ones((8, 5)))])
        with pytest.raises(TypeError, match="floating-point"):
            gk.matmul(a.astype(np.int8), b.astype(np.int8), prologue=["relu"])
        with pytest.raises(UnsupportedError, match="complex"):
            gk.matmul(a.astype(np.complex64), b.astype(np.complex64), prologue=["relu"])
        brain = a.astype(ml_dtypes.bfloat16)
        assert (gk.matmul(brain, brain.T, prologue=["relu"]) == 4).all()


# ---- depthwise, transposed and 1-D convolutions


def spatial(**more):
    return depthwise.workload(n=2, h=9, w=8, c=6, r=3, s=3, pad_top=1, pad_left=2, **more)


def convolve(image, filters):
    return sum(image[:, r : r + 8, s : s + 8] * filters[r, s] for r in range(3) for s in range(3))


INNER = ((0, 0), (1, 0), (2, 0), (0, 0))


def test_the_tolerance_refuses_padding_that_is_not_zero():
    def results(x, w, d):
        once = np.tanh(x + d).astype(np.float16).astype(np.float32)
        outside = np.tanh(d).astype(np.float16).astype(np.float32) * np.ones_like(np.pad(once, INNER))
        outside[:, 1:, 2:] = once
        return {
            "rounded once": convolve(np.pad(once, INNER), w),
            "not rounded": convolve(np.pad(np.tanh(x + d), INNER), w),
            "padding prepared": convolve(outside, w),
        }

    w = conv_prologue.workload(("bias", "tanh"), spatial(dtype="float16", out="float32"))
    found = verdicts(w, results)
    assert found == {name: name == "rounded once" for name in found}


def test_types_without_prologues_of_depthwise_convolutions():
    with pytest.raises(UnsupportedError, match="of real numbers"):
        conv_prologue.workload(("relu",), spatial(dtype="int8"))
    with pytest.raises(ValueError, match="with the prologue"):
        operator("depthwise_conv2d_prologue").operands(conv_prologue.workload(NORM, spatial()))


def test_depthwise_and_one_dimensional_calls():
    rng = np.random.default_rng(5)
    x, w = rng.standard_normal((2, 6, 15)).astype(np.float32), rng.standard_normal((6, 1, 3)).astype(np.float32)
    by_column = rng.standard_normal((6, 15)).astype(np.float32)
    padded = np.pad(x * by_column, ((0, 0), (0, 0), (1, 1)))
    with gk.emulated("sm_87"):
        result = gk.conv1d(x, w, padding=1, groups=6, prologue=[("mul", by_column)])
        image, filters = x.reshape(2, 6, 3, 5), w.reshape(6, 1, 3, 1)
        why = gk.explain(gk.conv2d, image, filters, groups=6, prologue=[("mul", x[0, :, 0]), "relu"])
        with pytest.raises(TypeError, match="prologue must be a list"):
            gk.conv1d(x, w, groups=6, prologue="relu")
    assert why.family == "window" and '"depthwise_conv2d_prologue' in why.workload
    np.testing.assert_allclose(
        result, sum(padded[:, :, s : s + 15] * w[:, 0, s, None] for s in range(3)), rtol=1e-4, atol=1e-5
    )
