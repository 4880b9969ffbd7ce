"""Convolutions: the declaration, what kernels are told of it, and the kernels executed."""

import numpy as np
import pytest

from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators import operator
from gensor_kernels.operators.expression.contraction import contraction
from gensor_kernels.operators.expression.evaluate import evaluate
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.operators.windows import conv
from gensor_kernels.operators.windows.conv_product import patches
from gensor_kernels.programs.registry import FAMILIES
from gensor_kernels.programs.space import Space
from tests.programs.verified import is_right

SIZES = dict(n=2, h=9, w=11, c=6, k_out=4, r=3, s=2)
PARAMETERS = dict(stride_h=2, stride_w=1, pad_top=1, pad_bottom=0, pad_left=2, pad_right=1, dilation_w=2, groups=2)
LAYOUTS = [("nhwc", "krsc"), ("nhwc", "rsck"), ("nchw", "kcrs")]


def arrays_of(workload: Workload, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    *inputs, _ = operator(workload.operator).operands(workload)
    return {each.name: rng.standard_normal(each.shape) for each in inputs}


@pytest.mark.parametrize("transposed", [False, True])
def test_the_reference_is_the_declaration(transposed):
    more = dict(output_padding_h=1) if transposed else {}
    w = conv.workload(**SIZES, **PARAMETERS, **more, dtype="float64", transposed=transposed)
    declared, arrays = operator(w.operator), arrays_of(w)
    expected = declared.expect(w, arrays)
    by_declaration = evaluate(declared.stages(w.size), arrays, sizes=w.size)
    np.testing.assert_allclose(expected.values, by_declaration, rtol=1e-12, atol=1e-12)
    assert expected.values.shape == declared.operands(w)[-1].shape
    multiplied = declared.operands(w)[0] if transposed else declared.operands(w)[-1]
    others = 2 if transposed else 3  # filters of a group that a pixel meets, or channels that an output sums
    assert w.flops() == 2 * np.prod(multiplied.shape) * others * 3 * 2


@pytest.mark.parametrize("transposed", [False, True])
def test_it_agrees_with_pytorch(transposed):
    functional = pytest.importorskip("torch.nn.functional")
    from torch import from_numpy

    rng = np.random.default_rng(1)
    x, bias = rng.standard_normal((2, 6, 9, 11)), rng.standard_normal(4)
    w = conv.workload(**SIZES, stride_h=2, pad_top=1, pad_bottom=1, groups=2, dtype="float64", transposed=transposed)
    if transposed:
        weights = rng.standard_normal((6, 2, 3, 2))
        wanted = functional.conv_transpose2d(
            *map(from_numpy, (x, weights, bias)), stride=(2, 1), padding=(1, 0), groups=2
        )
        own = weights.reshape(2, 3, 2, 3, 2).transpose(0, 2, 3, 4, 1)
    else:
        weights = rng.standard_normal((4, 3, 3, 2))
        wanted = functional.conv2d(*map(from_numpy, (x, weights, bias)), stride=(2, 1), padding=(1, 0), groups=2)
        own = weights.reshape(2, 2, 3, 3, 2).transpose(0, 1, 3, 4, 2)
    image = x.reshape(2, 2, 3, 9, 11).transpose(0, 3, 4, 1, 2)
    found = operator(w.operator).expect(w, {"x": image, "w": own}).values + bias.reshape(2, 2)
    found = found.reshape(*found.shape[:3], 4).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("layout", "weights"), LAYOUTS)
@pytest.mark.parametrize("transposed", [False, True])
def test_the_window_reads_what_the_declaration_reads(layout, weights, transposed):
    """Every address and guard of the implicit matrix, by the formula kernels use, against gathered patches."""
    w = conv.workload(**SIZES, **PARAMETERS, layout=layout, weights=weights, dtype="float64", transposed=transposed)
    declared = operator(w.operator)
    x, _, _ = declared.operands(w)
    geometry = declared.geometry(w, {each.name: each.strides(1, 1) for each in declared.operands(w)})
    window = declared._window(w, x.strides(1, 1))
    memory = np.full(sum(e * s for e, s in zip(x.shape, x.strides(1, 1), strict=True)) + 1, np.nan)
    image = np.lib.stride_tricks.as_strided(memory, x.shape, [8 * s for s in x.strides(1, 1)])
    image[...] = np.random.default_rng(0).standard_normal(x.shape)
    wanted = patches(image, w.size, transposed)  # (g, pixels, r s c)
    batch = geometry.a.batch if layout == "nhwc" else geometry.b.batch
    r, s, c = w.size["r"], w.size["s"], w.size["c"] // w.size["groups"]
    for g in range(wanted.shape[0]):
        for pixel in range(0, wanted.shape[1], 5):
            outer, rest = divmod(pixel, window.rows[0] * window.rows[1])
            middle, inner = divmod(rest, window.rows[1])
            base = (
                g * batch[2] - window.shift + (outer * batch[1] if layout == "nchw" else outer * window.row_strides[0])
            )
            for tap in np.ndindex(r, s, c):
                digits = tap if layout == "nhwc" else (tap[2], *tap[:2])
                y = middle * window.step[0] + tap[0] * window.dilation[0] - window.pad[0]
                z = inner * window.step[1] + tap[1] * window.dilation[1] - window.pad[1]
                (row, gap), (column, other) = divmod(y, window.divisor[0]), divmod(z, window.divisor[1])
                inside = 0 <= row < window.extent[0] and 0 <= column < window.extent[1] and not gap and not other
                at = base + sum(d * stride for d, stride in zip(digits, window.k_strides, strict=True))
                place = (row, column) if transposed else (middle, inner)
                at += place[0] * window.row_strides[1] + place[1] * window.row_strides[2]
                value = memory[at] if inside else 0.0
                assert value == wanted[g, pixel, (tap[0] * s + tap[1]) * c + tap[2]]


def test_the_product_is_what_the_expression_layer_sees():
    w = conv.workload(**SIZES, pad_top=1, dtype="float32")
    declared = operator("conv2d")
    view, product = contraction(declared.stages(w.size)[0]), declared.product(w)
    extents = view.extents(w.size)
    assert (extents["m"], extents["n"], extents["k"]) == (product.m, product.n, product.k)
    assert product.batch == extents["batch"] == 1 and product.window == "a"


def test_a_convolution_of_one_by_one_is_a_matrix_product():
    sizes = dict(n=8, h=14, w=14, c=64, k_out=32, r=1, s=1)
    last, first = conv.workload(**sizes, dtype="float16"), conv.workload(**sizes, layout="nchw", dtype="float16")
    assert (last.operator, last.size["m"], last.size["n"], last.size["k"]) == ("matmul", 8 * 196, 32, 64)
    assert (first.operator, first.size["batch"], first.size["m"], first.size["n"]) == ("matmul", 8, 32, 196)
    assert conv.workload(**sizes, stride_h=2, dtype="float16").operator == "conv2d"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (dict(r=12), "does not fit the padded image along h"),
        (dict(groups=5), "c = 6 is no multiple of groups = 5"),
        (dict(stride_w=0), "stride_w is 0"),
        (dict(depth=1), "no size depth"),
    ],
)
def test_sizes_that_are_no_convolution(change, words):
    with pytest.raises(ValueError, match=words):
        conv.workload(**SIZES | change)


@pytest.mark.parametrize(("layout", "weights"), LAYOUTS)
@pytest.mark.parametrize(
    ("family", "dtype", "arch"),
    [
        ("contraction_mma", "float16", "sm_87"),
        ("contraction_mma", "bfloat16", "sm_80"),
        ("contraction_mma", "int8", "sm_75"),
        ("contraction_simt", "float32", "sm_87"),
        ("contraction_simt", "float64", "sm_90"),
    ],
)
def test_kernels_are_right_with_every_branch_taken(family, dtype, arch, layout, weights):
    for transposed in (False, True):
        w = conv.workload(
            n=4, h=14, w=14, c=64, k_out=64, r=3, s=3, layout=layout, weights=weights, dtype=dtype,
            transposed=transposed, epilogue="bias_relu",
        )  # fmt: skip
        space = Space(w, lookup(arch)).family(family)
        starters = FAMILIES[family].starters(w, lookup(arch))
        program = min(starters, key=lambda each: each["block_m"] * each["block_n"])
        for split in (1, 2):
            each = program.replace(split_k=split)
            if space.legal(space.point(each)[None])[0]:
                is_right(FAMILIES[family], each, w)
