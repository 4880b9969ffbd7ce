"""Operators of quantised tensors, lifted: DequantizeLinear, the operator of floats, and QuantizeLinear.

Rules make products and convolutions between these one kernel of int8 (rewrites/integers.py), so that operators of
onnxruntime's two formats, QDQ and QOperator, become the same nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.graph.lowerings.recurrent import QUANTISED

from .onnx_lifting import Step, foreign

if TYPE_CHECKING:
    from collections.abc import Sequence

FLOAT32 = 1
#: Places of the scale and the zero point of an input or a result.
Places = tuple[int, int]


def dequantised(step: Step, place: int, of: Places, **attributes: Any) -> str:
    """Return the float32 tensor that an input stands for."""
    inputs = [step.given(each) for each in (place, *of)]
    return step.add("DequantizeLinear", *inputs, output_dtype=FLOAT32, **attributes)


def become_quantised(step: Step, value: str, of: Places, like: int, **attributes: Any) -> None:
    """Let the node quantise a tensor; without a zero point it gives the dtype of the input at `like`."""
    scale, zero = (step.given(each) for each in of)
    step.become("QuantizeLinear", value, scale, zero or step.scalar_like(0, step.given(like)), **attributes)


@foreign("QLinearConv", domain="")
def _convolution(step: Step) -> None:
    x, w = dequantised(step, 0, (1, 2)), dequantised(step, 3, (4, 5), axis=0)
    inputs = [x, w]
    if step.given(8):
        scale = step.add("Mul", step.node.input[1], step.node.input[4])
        inputs.append(step.add("DequantizeLinear", step.node.input[8], scale, axis=0))
    become_quantised(step, step.add("Conv", *inputs, **step.attributes()), (6, 7), 0)


@foreign("QLinearMatMul", domain="")
def _product(step: Step) -> None:
    # A vector of scales has one for each row of the first operand and of the result, and each column of the second.
    a, b = dequantised(step, 0, (1, 2), axis=-2), dequantised(step, 3, (4, 5), axis=-1)
    become_quantised(step, step.add("MatMul", a, b), (6, 7), 0, axis=-2)


@foreign("QGemm")
def _gemm(step: Step) -> None:
    transposed = step.attributes().get("transB", 0)
    a, b = dequantised(step, 0, (1, 2)), dequantised(step, 3, (4, 5), axis=0 if transposed else 1)
    inputs = [a, b]
    if step.given(6):
        scale = step.add("Mul", step.node.input[1], step.node.input[4])
        inputs.append(step.add("DequantizeLinear", step.node.input[6], scale, axis=-1))
    found = step.add("Gemm", *inputs, **step.attributes())
    if step.given(7):
        become_quantised(step, found, (7, 8), 0)
    else:
        step.become("Identity", found)


#: Operators of one quantised tensor, and those of the standard, with attributes that these lack.
ONE: dict[str, tuple[str, Sequence[str]]] = {
    "QLinearAveragePool": ("AveragePool", ["channels_last"]),
    "QLinearGlobalAveragePool": ("GlobalAveragePool", ["channels_last"]),
    "QLinearLeakyRelu": ("LeakyRelu", []),
    "QLinearSigmoid": ("Sigmoid", []),
    "QLinearSoftmax": ("Softmax", ["opset"]),
}
#: Operators of two quantised tensors.
TWO = {"QLinearAdd": "Add", "QLinearMul": "Mul"}


@foreign(*ONE)
def _one(step: Step) -> None:
    operator, own = ONE[step.node.op_type]
    attributes = step.attributes()
    if attributes.get("channels_last"):
        raise step.refusal("channels_last is not served; quantise the model before onnxruntime optimises it")
    if operator == "Softmax" and attributes.get("opset", 1) < 13 and step.rank(0) > 2:
        raise step.refusal("a softmax of a version below 13 is not served; export the model with opset 13 or newer")
    attributes = {name: value for name, value in attributes.items() if name not in own}
    found = step.add(operator, dequantised(step, 0, (1, 2)), **attributes)
    become_quantised(step, found, (3, 4), 0)


@foreign(*TWO)
def _two(step: Step) -> None:
    operands = dequantised(step, 0, (1, 2)), dequantised(step, 3, (4, 5))
    become_quantised(step, step.add(TWO[step.node.op_type], *operands), (6, 7), 0)


@foreign("QLinearConcat")
def _concat(step: Step) -> None:
    parts = [dequantised(step, place, (place + 1, place + 2)) for place in range(2, len(step.node.input), 3)]
    become_quantised(step, step.add("Concat", *parts, **step.attributes()), (0, 1), 2)


@foreign("QuantizeLinear", "DequantizeLinear")
def _same(step: Step) -> None:
    step.node.domain = ""


@foreign("MatMulIntegerToFloat")
def _product_to_float(step: Step) -> None:
    a, b, *more, bias = (step.given(place) for place in range(7))
    step.become("Identity", product_of(step, a, b, more[:2], more[2:], bias))


@foreign("DynamicQuantizeMatMul")
def _dynamic_product(step: Step) -> None:
    x, b, other, zeros, bias = (step.given(place) for place in range(5))
    a, scale, zero = step.add_several(3, "DynamicQuantizeLinear", x)
    step.become("Identity", product_of(step, a, b, (scale, other), (zero, zeros), bias))


def product_of(step: Step, a: str, b: str, scales: Sequence[str], zeros: Sequence[str], bias: str) -> str:
    """Return the product of two quantised tensors in float32, with a bias."""
    given = [a, b, *zeros]
    while not given[-1]:
        del given[-1]
    wide = step.add("Cast", step.add("MatMulInteger", *given), to=FLOAT32)
    found = step.add("Mul", wide, step.add("Mul", *scales))
    return step.add("Add", found, bias) if bias else found


@foreign("DynamicQuantizeLSTM")
def _lstm(step: Step) -> None:
    """Let the node be an LSTM of float weights that rounds inputs and states to 8 bits, as products of integers do."""
    states, attributes = (step.given(place) for place in range(3, 8)), step.attributes()
    weights = [_turned(step, place, of) for place, of in ((1, (8, 9)), (2, (10, 11)))]
    step.become("LSTM", step.given(0), *weights, *states, **attributes, **{QUANTISED: 1})


def _turned(step: Step, place: int, of: Places) -> str:
    """Return weights (directions, k, n) as floats (directions, n, k); scales are of directions, or also of columns."""
    scale, zero = (step.array(each) for each in of)
    scale, zero = (each.reshape(len(each), 1, -1).astype(np.float32) for each in (scale, zero))
    numbers = (step.array(place).astype(np.float32) - zero) * scale
    return step.constant_of(step.node.input[place], np.ascontiguousarray(numbers.swapaxes(1, 2)))
