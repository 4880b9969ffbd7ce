"""Element-wise operators: one kernel for a chain of operations, the array library for single ones that kernels lack."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext, suppress
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.dispatch.api.norms import elementwise
from gensor_kernels.dispatch.functions.pointwise import on_host
from gensor_kernels.dispatch.fusion.fused import compute_program
from gensor_kernels.errors import UnsupportedError

from .base import Lowering, Run, Tensor, channels_first, channels_last, is_served, last_step, name_of, refusal

if TYPE_CHECKING:
    from gensor_kernels.graph.ir.graph import Node

_erf = np.frompyfunc(math.erf, 1, 1)
SQRT_2_OVER_PI = math.sqrt(2 / math.pi)


def erf(run: Run, xp: ModuleType, x: Tensor) -> Tensor:
    """Return the error function of each element."""
    if xp is np:
        return np.asarray(_erf(x.astype(np.float64)), np.float64).astype(x.dtype)
    return run.erf(x)


def wide(xp: ModuleType, x: Tensor) -> Tensor:
    """Return 16-bit floats as float32, other tensors as they are."""
    return x.astype(np.float32) if name_of(x) in ("float16", "bfloat16") else x


def _sigmoid(xp: ModuleType, x: Tensor) -> Tensor:
    return 1 / (1 + xp.exp(-x))


def _softplus(xp: ModuleType, x: Tensor) -> Tensor:
    return xp.maximum(x, 0) + xp.log1p(xp.exp(-xp.abs(x)))


def _elu(xp: ModuleType, x: Tensor, alpha: float = 1.0) -> Tensor:
    return xp.where(x > 0, x, alpha * xp.expm1(xp.minimum(x, 0)))


def gelu(run: Run, xp: ModuleType, x: Tensor, tanh: bool) -> Tensor:
    """Return GELU by the error function or, approximated, by tanh."""
    if tanh:
        return 0.5 * x * (1 + xp.tanh(SQRT_2_OVER_PI * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + erf(run, xp, x * math.sqrt(0.5)))


#: Functions (xp, x, attributes by name) -> y of floating-point tensors, computed in at least float32.
MAPS: dict[str, tuple[Callable[..., Any], dict[str, float]]] = {
    "Celu": (lambda xp, x, alpha: xp.maximum(x, 0) + xp.minimum(0, alpha * xp.expm1(x / alpha)), {"alpha": 1.0}),
    "Elu": (_elu, {"alpha": 1.0}),
    "Exp": (lambda xp, x: xp.exp(x), {}),
    "HardSigmoid": (lambda xp, x, alpha, beta: xp.clip(alpha * x + beta, 0, 1), {"alpha": 0.2, "beta": 0.5}),
    "HardSwish": (lambda xp, x: x * xp.clip(x / 6 + 0.5, 0, 1), {}),
    "LeakyRelu": (lambda xp, x, alpha: xp.where(x < 0, alpha * x, x), {"alpha": 0.01}),
    "Log": (lambda xp, x: xp.log(x), {}),
    "Mish": (lambda xp, x: x * xp.tanh(_softplus(xp, x)), {}),
    "Reciprocal": (lambda xp, x: 1 / x, {}),
    "Selu": (
        lambda xp, x, alpha, gamma: gamma * _elu(xp, x, alpha),
        {"alpha": 1.6732631921768188, "gamma": 1.0507010221481323},
    ),
    "Shrink": (
        lambda xp, x, lambd, bias: xp.where(x < -lambd, x + bias, xp.where(x > lambd, x - bias, 0)),
        {"lambd": 0.5, "bias": 0.0},
    ),
    "Sigmoid": (_sigmoid, {}),
    "Softplus": (_softplus, {}),
    "Softsign": (lambda xp, x: x / (1 + xp.abs(x)), {}),
    "Sqrt": (lambda xp, x: xp.sqrt(x), {}),
    "Swish": (lambda xp, x, alpha: x * _sigmoid(xp, alpha * x), {"alpha": 1.0}),
    "Tanh": (lambda xp, x: xp.tanh(x), {}),
    "ThresholdedRelu": (lambda xp, x, alpha: xp.where(x > alpha, x, 0), {"alpha": 1.0}),
}
#: Equal functions of the array library.
_UNARY = {
    **{"Abs": "absolute", "Acos": "arccos", "Acosh": "arccosh", "Asin": "arcsin", "Asinh": "arcsinh"},
    **{"Atan": "arctan", "Atanh": "arctanh", "BitwiseNot": "invert", "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh"},
    **{"Floor": "floor", "IsNaN": "isnan", "Neg": "negative", "Not": "logical_not", "Round": "rint", "Sign": "sign"},
    **{"Sin": "sin", "Sinh": "sinh", "Tan": "tan"},
}
_BINARY = {
    **{"Add": "add", "Sub": "subtract", "Mul": "multiply", "And": "logical_and", "Or": "logical_or"},
    **{"Xor": "logical_xor", "Equal": "equal", "Greater": "greater", "GreaterOrEqual": "greater_equal"},
    **{"Less": "less", "LessOrEqual": "less_equal", "BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or"},
    **{"BitwiseXor": "bitwise_xor"},
}
_FOLDS = {"Max": "maximum", "Min": "minimum", "Sum": "add", "Mean": "add"}

#: Operations of an epilogue, by operator without further arguments.
STEPS = {"Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh"}


def _map(op: str) -> Lowering:
    function, defaults = MAPS[op]

    def lowering(run: Run, node: Node, x: Tensor) -> Tensor:
        if op in STEPS and is_served(x):
            return run.call(elementwise, x, [STEPS[op]])
        xp, x = run.together(x)
        keywords = {name: float(node.attributes.get(name, value)) for name, value in defaults.items()}
        with np.errstate(all="ignore"):
            return function(xp, wide(xp, x), **keywords).astype(x.dtype)

    return lowering


def _unary(op: str) -> Lowering:
    def lowering(run: Run, node: Node, x: Tensor) -> Tensor:
        xp, x = run.together(x)
        with np.errstate(all="ignore"):
            y = getattr(xp, _UNARY[op])(x)
        return y if op in ("IsNaN", "Not") else y.astype(x.dtype, copy=False)

    return lowering


def _binary(op: str) -> Lowering:
    def lowering(run: Run, node: Node, a: Tensor, b: Tensor) -> Tensor:
        xp, a, b = run.together(a, b)
        with np.errstate(all="ignore"):
            return getattr(xp, _BINARY[op])(a, b)

    return lowering


def _fold(op: str) -> Lowering:
    def lowering(run: Run, node: Node, *values: Tensor) -> Tensor:
        xp, *values = run.together(*values)  # type: ignore[assignment]
        found = values[0]
        for each in values[1:]:
            found = getattr(xp, _FOLDS[op])(found, each)
        return (found / len(values)).astype(found.dtype) if op == "Mean" else found

    return lowering


def _chain(run: Run, node: Node, x: Tensor) -> Tensor:
    steps = run.epilogue(node)
    if node.layout == "last":
        return channels_first(run.call(elementwise, channels_last(x), [last_step(each) for each in steps]))
    return run.call(elementwise, x, steps)


def _program(run: Run, node: Node, *inputs: Tensor) -> Tensor:
    text, emulated = node.attributes["program"], run.runtime.device.emulated
    xp, *inputs = run.together(*inputs)  # type: ignore[assignment]
    if xp is not np or emulated:
        with suppress(UnsupportedError) if emulated else nullcontext():
            found = run.call(compute_program, text, *inputs)
            return found if len(node.outputs) == 1 else tuple(found)
    return on_host(text, inputs)


def _relu(run: Run, node: Node, x: Tensor) -> Tensor:
    if is_served(x):
        return run.call(elementwise, x, ["relu"])
    xp, x = run.together(x)
    return xp.maximum(x, x.dtype.type(0))


def _gelu_node(run: Run, node: Node, x: Tensor) -> Tensor:
    tanh = node.attribute("approximate") == "tanh"
    if is_served(x):
        return run.call(elementwise, x, ["gelu_tanh" if tanh else "gelu"])
    xp, x = run.together(x)
    return gelu(run, xp, wide(xp, x), tanh).astype(x.dtype)


def _erf_node(run: Run, node: Node, x: Tensor) -> Tensor:
    xp, x = run.together(x)
    return erf(run, xp, wide(xp, x)).astype(x.dtype)


def _div(run: Run, node: Node, a: Tensor, b: Tensor) -> Tensor:
    xp, a, b = run.together(a, b)
    with np.errstate(all="ignore"):
        if a.dtype.kind not in "iu":
            return xp.divide(a, b)
        whole = xp.floor_divide(a, b)  # ONNX rounds towards zero
        return whole + ((a % b != 0) & ((a < 0) != (b < 0))).astype(whole.dtype)


def _pow(run: Run, node: Node, a: Tensor, b: Tensor) -> Tensor:
    xp, a, b = run.together(a, b)
    with np.errstate(all="ignore"):
        return xp.power(a, b).astype(a.dtype)


def _mod(run: Run, node: Node, a: Tensor, b: Tensor) -> Tensor:
    xp, a, b = run.together(a, b)
    return (xp.fmod if node.attribute("fmod") else xp.mod)(a, b)


def _prelu(run: Run, node: Node, x: Tensor, slope: Tensor) -> Tensor:
    xp, x, slope = run.together(x, slope)
    return xp.where(x < 0, x * slope, x).astype(x.dtype)


def _clip(run: Run, node: Node, x: Tensor, low: Tensor = None, high: Tensor = None) -> Tensor:
    xp, x, low, high = run.together(x, low, high)
    if low is not None:
        x = xp.maximum(x, low)
    return x if high is None else xp.minimum(x, high)


def _where(run: Run, node: Node, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    xp, condition, x, y = run.together(condition, x, y)
    return xp.where(condition, x, y)


def _is_inf(run: Run, node: Node, x: Tensor) -> Tensor:
    xp, x = run.together(x)
    negative, positive = node.attribute("detect_negative"), node.attribute("detect_positive")
    return xp.isinf(x) & ((x > 0) & bool(positive) | (x < 0) & bool(negative))


def _bit_shift(run: Run, node: Node, x: Tensor, y: Tensor) -> Tensor:
    xp, x, y = run.together(x, y)
    return (xp.left_shift if node.attribute("direction") == "LEFT" else xp.right_shift)(x, y)


def _same(run: Run, node: Node, x: Tensor, *_: Tensor) -> Tensor:
    if len(node.outputs) > 1:  # Dropout's mask
        return x, np.ones(x.shape, np.bool_)
    return x


def _dropout(run: Run, node: Node, x: Tensor, ratio: Tensor = None, training: Tensor = None) -> Tensor:
    if training is not None and bool(run.host(training)):
        raise refusal(node, "models are run for inference; export the model in evaluation mode")
    return _same(run, node, x)


LOWERINGS: dict[str, Lowering] = {
    **{op: _map(op) for op in MAPS},
    **{op: _unary(op) for op in _UNARY},
    **{op: _binary(op) for op in _BINARY},
    **{op: _fold(op) for op in _FOLDS},
    "BitShift": _bit_shift,
    "Clip": _clip,
    "Div": _div,
    "Dropout": _dropout,
    "Elementwise": _chain,
    "Erf": _erf_node,
    "Gelu": _gelu_node,
    "Identity": _same,
    "IsInf": _is_inf,
    "Mod": _mod,
    "PRelu": _prelu,
    "Pointwise": _program,
    "Pow": _pow,
    "Relu": _relu,
    "Where": _where,
}
