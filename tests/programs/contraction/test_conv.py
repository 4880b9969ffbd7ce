"""Convolutions: the declaration, and the product that kernels compute."""

import numpy as np
import pytest

from gensor_kernels.operators import operator
from gensor_kernels.operators.expression.contraction import contraction
from gensor_kernels.operators.expression.evaluate import evaluate
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.operators.windows import conv

SIZES = dict(n=2, h=9, w=11, c=6, k_out=4, r=3, s=2)
PARAMETERS = dict(stride_h=2, stride_w=1, pad_top=1, pad_bottom=0, pad_left=2, pad_right=1, dilation_w=2, groups=2)


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
