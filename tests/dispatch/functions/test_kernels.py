"""Kernels of gates, norms, prologues, groups and quantised weights: tolerance, verification, space, shapes files."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gensor_kernels.dispatch.selection.load import class_workload
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.families.core.params import ragged_tiles
from gensor_kernels.families.registry import FAMILIES, program_from_json
from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators import operator
from gensor_kernels.operators.products import gated, matmul, matmul_prologue, normed, quantised, ragged
from gensor_kernels.operators.rows.norms import VERIFIED_EPS
from gensor_kernels.operators.tolerance import base as tolerance_base
from gensor_kernels.operators.types.dtypes import decode, encode
from gensor_kernels.operators.types.workload import View, Workload, contiguous
from gensor_kernels.operators.windows import conv, conv_prologue, depthwise
from gensor_tuner.build.pool import candidate
from gensor_tuner.search.actions import moves
from gensor_tuner.shapes.reader import read_shapes
from tests.campaign_size import sample
from tests.families.verified import SMALL, small_is_right
from tests.public_cases.references import ACTIVATIONS

MMA, SIMT = "contraction_mma", "contraction_simt"
AFFINE = ("mul", "bias", "relu")


def norm(name, m, n, k, before=2, **more):
    more.setdefault("epilogue", ("bias", "add", "mul", "bias"))
    return normed.with_norm(name, matmul.workload(m, n, k, **more), before)


def prologue(names, m=64, n=64, k=256, vectors=None, **more):
    return matmul_prologue.workload(names, matmul.workload(m, n, k, **more), vectors)


def image(names, vectors=None, **more):
    return conv_prologue.workload(names, conv.workload(n=2, h=9, w=8, c=16, k_out=16, r=3, s=3, **more), vectors)


def spatial(**more):
    return depthwise.workload(n=2, h=9, w=8, c=6, r=3, s=3, pad_top=1, pad_left=2, **more)


def groups(*, along_m=False, **more):
    """Groups of contiguous operands, or of an x with unit stride along m."""
    w = ragged.workload(8, 512, 96, 64, **more)
    if not along_m:
        return w
    b, c, d = (contiguous(shape, w.dtype[name]) for name, shape in (("b", (8, 64, 96)), ("c", (512, 96)), ("d", (8,))))
    return ragged.workload_from_operands(View((512, 64), (1, 512), w.dtype["a"]), b, c, d, epilogue=w.epilogue)


# ---- the tolerance


def verdicts(workload, results):
    """Whether each of the results, by name, agrees; `results` makes them of normal operands, rounded to float16."""
    rng, declared = np.random.default_rng(1), operator(workload.operator)
    names = declared.operands(workload)[:-1]
    arrays = {each.name: encode("float16", rng.standard_normal(each.shape)) for each in names}
    expected = declared.expect(workload, arrays)
    found = results(**{name: np.float32(decode("float16", array)) for name, array in arrays.items()})
    return {
        name: tolerance_base.check(np.float32(value).reshape(expected.values.shape), expected).ok
        for name, value in found.items()
    }


def sum_in(dtype, a, b):
    """a @ b, one product after the other, as a kernel sums."""
    total = np.zeros((len(a), b.shape[1]), dtype)
    for column, row in zip(a.T.astype(dtype), b.astype(dtype), strict=True):
        total += column[:, None] * row
    return total


def normalised(name, x):
    mean = x.mean(-1, keepdims=True) if name == "layernorm" else 0.0
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + VERIFIED_EPS)


@pytest.mark.parametrize("name", ["swiglu", "layernorm", "rmsnorm"])
def test_the_tolerance_admits_float32_sums_and_refuses_float16_ones(name):
    def results(a, b):
        found = {}
        for dtype in ("float32", "float16"):
            total = sum_in(dtype, a.reshape(64, 512), b.reshape(512, -1)).astype(np.float64)
            first, second = np.split(total, 2, -1)
            found[dtype] = ACTIVATIONS["silu"](first) * second if name == "swiglu" else normalised(name, total)
        return found

    types = {"dtype": "float16", "out": "float32"}
    gate = gated.workload("swiglu", 64, 64, 512, **types)
    w = gate if name == "swiglu" else norm(name, 64, 96, 512, epilogue=(), before=0, **types)
    assert verdicts(w, results) == {"float32": True, "float16": False}


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

    found = verdicts(prologue(("mul", "tanh"), 64, 96, 512, dtype="float16", out="float32"), results)
    assert found == {name: name == "rounded once" for name in found}


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


# ---- verification

INLINE, BEFORE = {"materialised": 0, "split_k": 1}, {"materialised": 1, "split_k": 2}
REGISTERS = INLINE | {"copy": 0, "stages": 2}
#: (workload, family, coordinates, branches of the kernel that run): every copy path, epilogue and layout of B.
KERNELS = [
    *((gated.workload(name, 64, 96, 256, **more), family, values, {"gate"}) for name, more, family, values in (
        ("swiglu", {"dtype": "bfloat16", "trans_b": True}, MMA, {"warp_n": 24, "block_n": 48, "stages": 2}),
        ("bias_geglu", {"dtype": "float16", "epilogue": "add"}, MMA,
         {"epilogue_staged": 0, "copy": 0, "stages": 2, "epilogue_fixed": 1}),
        ("bias_reglu", {"dtype": "float16", "trans_a": True}, MMA, {"split_k": 3}),
        ("geglu_tanh", {"dtype": "float32", "math": "tf32"}, MMA, {}),
        ("bias_swiglu", {"dtype": "float64", "trans_b": True}, SIMT, {"stages": 1}),
        ("reglu", {"dtype": "float32"}, SIMT, {"epilogue_staged": 1, "raster": 2}),
        ("bias_geglu_tanh", {"dtype": "float16", "trans_b": True}, SIMT, {"split_k": 2}),
    )),
    *((norm(name, 64, 24, 256, **more), family, {"split_k": 1} | values, {"norm"}) for name, more, family, values in (
        ("layernorm", {"dtype": "bfloat16", "trans_b": True}, MMA, {"epilogue_staged": 2}),
        ("rmsnorm", {"dtype": "float16"}, MMA, {"epilogue_staged": 1, "split_k": 2}),
        ("rmsnorm", {"dtype": "float32", "math": "tf32"}, MMA, {"epilogue_staged": 0}),
        ("rmsnorm", {"dtype": "float64"}, SIMT, {"epilogue_staged": 2}),
        ("layernorm", {"dtype": "float32"}, SIMT, {"epilogue_staged": 1}),
    )),
    *((groups(**more), family, values, {"rest", "spare"}) for more, family, values in (
        ({"dtype": "bfloat16", "trans_b": True}, MMA, {"raster": 2}),
        ({"dtype": "int8", "epilogue": "bias_relu"}, MMA, {"epilogue_staged": 0, "epilogue_fixed": 1}),
        ({"dtype": "float64"}, SIMT, {"stages": 1}),
        ({"dtype": "float16", "out": "float32"}, SIMT, {"epilogue_staged": 1}),
        ({"dtype": "float16", "along_m": True}, MMA, {"copy": 0}),
        ({"dtype": "float32", "along_m": True}, SIMT, {}),
    )),
    *((w, family, values, {"prologue", *more}) for w, family, values, more in (
        (prologue(AFFINE, dtype="float32"), SIMT, INLINE, ()),
        (prologue(("bias", "gelu"), dtype="float64", trans_a=True), SIMT, BEFORE, ["materialise"]),
        (prologue(("mul", "scale", "silu"), vectors="float32"), MMA, REGISTERS, ()),
        (prologue(("bias", "mul", "tanh"), dtype="bfloat16", trans_a=True), MMA, BEFORE, ["materialise"]),
        (image(("bias", "sigmoid"), dtype="float32", layout="nchw"), SIMT, INLINE, ["prologue_outside"]),
        (image((*AFFINE, "gelu_tanh"), groups=2, dtype="float16", vectors="float32"), MMA, REGISTERS,
         ["prologue_outside"]),
        (prologue(("mul", "silu"), 3, trans_b=True, vectors="float32"), "gemv", {"split_k": 2}, ()),
    )),
]  # fmt: skip
BRANCHES = {name for *_, names in KERNELS for name in names}


@pytest.mark.parametrize(("w", "family", "values", "branches"), sample(KERNELS, 9))
def test_kernels_pass_the_verifier(w, family, values, branches):
    verdict = small_is_right(w, family, values)
    assert {name for name in BRANCHES if verdict.branches.get(name)} == branches


# ---- the space


@pytest.mark.parametrize("family", [MMA, SIMT])
def test_rows_are_normalised_in_the_kernel_or_after_it(family):
    arch = lookup("sm_87")
    small = norm("layernorm", 512, 96, 256)
    for w, whole in ((small, True), (norm("layernorm", 512, 304, 256), False)):
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


@pytest.mark.parametrize("family", [MMA, SIMT])
def test_inline_or_materialised_is_a_choice(family):
    arch, w = lookup("sm_87"), prologue(("gelu",), 512, 512, 512)
    space = Space(w, arch).family(family)
    assert {"materialised+", "materialised-"} <= {move.token for move in moves(space.coordinates)}
    own = {"copy": 0, "stages": 2} if family == MMA else {}
    base = space.family.starters(w, arch)[0].replace(split_k=1, **SMALL[family], **own)
    inline, front = (base.replace(materialised=each) for each in (0, 1))
    assert space.legal(np.stack([space.point(inline), space.point(front)])).all()
    assert [x.entry for x in space.family.launches(inline, w)] == [family]
    assert [x.entry for x in space.family.launches(front, w)] == ["contraction_prepare", family]
    assert space.family.workspace(inline, w)[0] == 0 and space.family.workspace(front, w)[0] == 512 * 512 * 2
    apart, before = (space.explain(space.point(each)) for each in (inline, front))
    assert apart["issue"] > before["issue"] and before["after"] > apart["after"] == 0
    if family == MMA:  # what passes through registers is not copied asynchronously
        assert not space.legal(space.point(inline.replace(copy=1, stages=3))[None])[0]
        assert space.legal(space.point(front.replace(copy=1, stages=3))[None])[0]
    assert program_from_json(front.to_json()) == front


@given(st.lists(st.integers(0, 70), min_size=1, max_size=40), st.integers(0, 40), st.sampled_from([1, 16, 48]))
def test_the_tiles_suffice_for_any_sizes(sizes, rest, tile):
    rows = sum(sizes) + rest
    needed = sum(-(-size // tile) for size in (*sizes, rest))
    assert needed <= ragged_tiles(rows, len(sizes), tile) <= rows // tile + len(sizes) + 1


def test_k_is_not_split():
    w, arch = ragged.workload(8, 64, 96, 8192, dtype="float16"), lookup("sm_90")
    for family in Space(w, arch).families:
        assert next(c for c in family.coordinates if c.name == "split_k").values == (1,)
        assert all(program["split_k"] == 1 for program in family.family.starters(w, arch))


def test_a_class_has_the_group_of_its_kernels():
    """A kernel whose rows cannot be read is built again from its Program and its class."""
    family = FAMILIES[MMA]
    for group in quantised.GROUPS:
        w = quantised.workload(16, 64, 256, bits=4, group=group)
        program = family.starters(w, lookup("sm_87"))[0]
        constants = candidate(family, program, class_workload(w.class_key())).constants
        assert constants == candidate(family, program, w).constants


# ---- keys and shapes files


def test_keys():
    w = prologue(AFFINE, epilogue=("bias",))
    assert Workload.from_json(w.key()) == w and '"prologue":["mul","bias","relu"]' in w.class_key()
    plain = matmul.workload(8, 8, 8)
    assert "prologue" not in plain.key() and Workload.from_json(plain.key()) == plain
    for wrong in (("mask",), ("add",)):
        with pytest.raises(UnsupportedError, match="prologue operation"):
            prologue(wrong)
    with pytest.raises(UnsupportedError, match="kernels take 6, 2 and 1"):
        prologue(("mul", "mul", "bias"))
    with pytest.raises(ValueError, match="with the prologue"):
        replace(plain, prologue=("relu",))
    with pytest.raises(UnsupportedError, match="of real numbers"):
        prologue(("scale",), dtype="complex64")
    with pytest.raises(UnsupportedError, match="of real numbers"):
        conv_prologue.workload(("relu",), spatial(dtype="int8"))
    with pytest.raises(ValueError, match="with the prologue"):
        operator("depthwise_conv2d_prologue").operands(conv_prologue.workload(AFFINE, spatial()))


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
    assert first.workload == prologue(AFFINE, 64, 32, 48, epilogue=("bias",))
    window = conv.workload(n=1, h=8, w=8, c=16, k_out=16, r=3, s=3)
    assert second.workload == conv_prologue.workload(("gelu",), window) and plain.workload == window
    assert "column 'prologue': 'mask'" in wrong.error
    assert "3 vectors" in unsupported[0].unsupported
    names = [row.workload.operator for row in (transposed, depthwise_)]
    assert names == ["conv2d_transpose_prologue", "depthwise_conv2d_prologue2"]
    assert len(unsupported) == 2 and all("a prologue" in row.unsupported for row in unsupported)


def test_files_of_shapes_have_quantised_weights(tmp_path):
    path = tmp_path / "shapes.csv"
    path.write_text(
        "op,m,n,k,dtype,dtype_b,group,zeros,trans_b\n"
        "matmul,1,64,128,fp16,int4,32,1,1\nmatmul,1,64,128,bf16,int8,0,,1\nmatmul,1,64,128,fp16,int4,48,,1\n"
        "matmul,1,64,128,fp16,int4,64,,0\nmatmul,1,64,128,fp32,int4,64,,1\n"
        "matmul,1,64,128,bf16,nvfp4,,,1\nmatmul,1,64,128,fp32,mxfp8,,,1\n"
    )
    four, eight, group, turned, wide, blocks, single = list(read_shapes(path))
    assert blocks.workload == quantised.formatted(1, 64, 128, "nvfp4", dtype="bfloat16")
    assert "float32" in single.unsupported
    assert four.workload == quantised.workload(1, 64, 128, bits=4, group=32, zeros=True)
    assert eight.workload == quantised.workload(1, 64, 128, bits=8, group=0, dtype="bfloat16")
    assert "'48' is not one of 0, 32, 64, 128" in str(group.error)
    assert "column 'trans_b'" in str(turned.error) and "float32" in wide.unsupported
