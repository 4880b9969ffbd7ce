"""Reductions, softmax and norms, drawn: against NumPy, SciPy and ONNX in float64."""

import functools
import math
from typing import Any

import numpy as np
import pytest
from scipy import special

import gensor_kernels as gk
from gensor_kernels.operators.tolerance import base as tolerance_base
from gensor_kernels.operators.tolerance import rows as tolerance_rows
from gensor_kernels.operators.types.dtypes import ACCUMULATORS
from gensor_kernels.operators.types.epilogue import Step

from . import onnx_ops
from .counts import CASES
from .drawing import ARRAYS, FLOATS, Cases, Draw
from .references import agree, stepped, wide
from .serving import Served

#: (what is right, the operation whose bound it has); arguments are x in float64, axis and keepdims.
REDUCTIONS: dict[str, tuple[Any, str]] = {
    "sum": (np.sum, "sum"),
    "mean": (np.mean, "mean"),
    "prod": (np.prod, "prod"),
    "max": (np.max, "max"),
    "min": (np.min, "min"),
    "argmax": (np.argmax, "argmax"),
    "argmin": (np.argmin, "argmin"),
    "var": (np.var, "var"),
    "norm": (lambda x, axis, keepdims: np.sqrt(np.sum(x * x, axis=axis, keepdims=keepdims)), "l2_norm"),
    "logsumexp": (lambda x, axis, keepdims: _logsumexp(x, axis, keepdims), "logsumexp"),
}
NEED_ELEMENTS = ("max", "min", "argmax", "argmin", "logsumexp")
INTEGERS = ("sum", "max", "min", "argmax", "argmin")
WITHOUT_OUT = ("norm", "logsumexp")
MAPS = {"softmax": special.softmax, "log_softmax": special.log_softmax}


def _logsumexp(x: np.ndarray, axis: Any, keepdims: bool) -> np.ndarray:
    """SciPy's, which takes no empty arrays."""
    return special.logsumexp(x, axis=axis, keepdims=keepdims) if x.size else np.sum(x, axis=axis, keepdims=keepdims)


def image(draw: Draw, dtype: str, most: int = 40) -> np.ndarray:
    """An array of up to four axes, of two where it is not float32: fewer kernels; now and then with a long one."""
    shape = [
        draw.extent(draw.pick([most, 9, 9]))
        for _ in range(draw.pick([1, 2, 2, 3, 4] if dtype == "float32" else [1, 2]))
    ]
    if draw.often(0.15):
        shape[int(draw.rng.integers(len(shape)))] = int(draw.rng.integers(200, 1500))
    while math.prod(shape) > 20_000:
        shape.remove(max(shape))
    return draw.array(shape, dtype)


def rows(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """x in float64 with the reduced axes as one behind all others."""
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    k = math.prod(x.shape[axis] for axis in axes)
    return wide(x).transpose(*kept, *axes).reshape(*(x.shape[axis] for axis in kept), k)


def reduction(name: str, draw: Draw, served: Served) -> None:
    reference, operation = REDUCTIONS[name]
    dtypes = (*FLOATS, "float32", "float32", *(("int8", "int32") if name in INTEGERS else ()))
    dtype = draw.pick(dtypes)
    draw.near_one = name == "prod"  # partial products that leave the range differ with the order
    x = image(draw, dtype)
    axis: Any = draw.pick([None, int(draw.rng.integers(-x.ndim, x.ndim))])
    if axis is None and dtype != "float32":
        axis = 0
    if x.ndim > 1 and dtype == "float32" and draw.often(0.4) and not name.startswith("arg"):
        axis = tuple(int(each) for each in draw.rng.permutation(x.ndim)[: draw.pick([1, 2])])
        draw.traits.add("several axes")
    keepdims, keywords = draw.often(0.5), dict[str, Any]()
    axes = tuple(range(x.ndim)) if axis is None else np.lib.array_utils.normalize_axis_tuple(axis, x.ndim)
    k = math.prod(x.shape[each] for each in axes)
    if k == 0 and name in NEED_ELEMENTS:
        with pytest.raises(ValueError, match="without elements"):
            getattr(gk, name)(x, axis)
        return
    if name == "var":
        keywords["ddof"] = draw.pick([0, 0, 1]) if k > 1 else 0
    result = "int64" if name.startswith("arg") or (dtype.startswith("int") and name == "sum") else dtype
    if name in ("sum", "mean", "prod", "var") and dtype in FLOATS and draw.often(0.25):
        result = keywords["dtype"] = (
            "float64" if dtype == "float64" or name == "mean" else draw.pick(["float32", "float64"])
        )
        draw.traits.add("dtype=")
    more = {"ddof": keywords["ddof"]} if name == "var" else {}
    values = np.asarray(reference(wide(x), axis=axis, keepdims=keepdims, **more))
    if name not in WITHOUT_OUT:
        keywords["out"] = draw.out(values.shape, result)
    found = served.call(getattr(gk, name), x, axis, keepdims=keepdims, nothing=k == 0, **keywords)
    assert keywords.get("out") is None or found is keywords["out"]
    if result == "int64" or dtype.startswith("int"):
        assert found.dtype == result
        exact = values if name.startswith("arg") else reference(x, axis=axis, keepdims=keepdims)
        np.testing.assert_array_equal(found, exact)
        return
    accumulator = ACCUMULATORS[result if result == "float64" else dtype]
    bound = tolerance_rows.bound(
        operation, rows(x, axes), values.reshape(rows(x, axes).shape[:-1]), accumulator, structured=True,
        value=keywords.get("ddof", 0),
    )  # fmt: skip
    agree(found, tolerance_base.expect(values, bound.reshape(values.shape), accumulator=accumulator, output=result))


def mapping(name: str, draw: Draw, served: Served) -> None:
    dtype = draw.pick(FLOATS)
    x = image(draw, dtype)
    axis = int(draw.rng.integers(-x.ndim, x.ndim))
    moved = np.moveaxis(wide(x), axis, -1)
    values = moved
    if x.size:  # where the largest is infinite, x - max is not a number
        values = np.where(np.isinf(moved.max(-1, keepdims=True)), np.nan, MAPS[name](moved, -1))
    out = draw.out(x.shape, dtype)
    found = served.call(getattr(gk, name), x, axis, out)
    assert out is None or found is out
    accumulator = ACCUMULATORS[dtype]
    bound = tolerance_rows.bound(name, moved, values, accumulator, structured=True)
    agree(np.moveaxis(found, axis, -1), tolerance_base.expect(values, bound, accumulator=accumulator, output=dtype))


def normed(name: str, draw: Draw, served: Served) -> None:
    dtype = draw.pick(FLOATS)
    x = image(draw, dtype)
    first = int(draw.rng.integers(x.ndim))
    shape, eps = x.shape[first:], draw.pick([2.0**-17, 2.0**-10])  # ONNX's attribute is a float32
    weight = draw.array(shape, dtype, special=False) if draw.often(0.6) else None
    bias = draw.array(shape, dtype, special=False) if draw.often(0.5) and name == "layer_norm" else None
    out = draw.out(x.shape, dtype)
    operands = (weight, bias) if name == "layer_norm" else (weight,)
    given = shape[0] if len(shape) == 1 and draw.often(0.5) else shape
    found = served.call(getattr(gk, name), x, given, *operands, eps, out=out)
    assert out is None or found is out
    flat = wide(x).reshape(*x.shape[:first], math.prod(shape))
    ones = np.ones(flat.shape[-1])
    op = "LayerNormalization" if name == "layer_norm" else "RMSNormalization"
    values = onnx_ops.run(op, flat, ones, axis=-1, epsilon=eps) if flat.size else flat
    accumulator = ACCUMULATORS[dtype]
    operation = name.replace("_", "")
    bound = tolerance_rows.bound(operation, flat, values, accumulator, structured=True, value=eps)
    pairs = (("mul", weight), ("bias", bias))
    steps = [Step(step, wide(each).reshape(-1)) for step, each in pairs if each is not None]
    values, bound = stepped(values, bound, steps, dtype)
    agree(found.reshape(flat.shape), tolerance_base.expect(values, bound, accumulator=accumulator, output=dtype))


def applied(draw: Draw, served: Served) -> None:
    dtype = draw.pick(FLOATS)
    x = image(draw, dtype)
    steps = []
    for name in draw.rng.permutation(["scale", "relu", "add", "mul", "bias"])[: draw.pick([1, 2, 3])]:
        shape = x.shape[-1:] if name == "bias" else x.shape
        operand = draw.array(shape, dtype, special=False) if name in ("add", "mul", "bias") else None
        steps.append(Step(str(name), operand, 0.5))
    items = [
        step.name if step.name == "relu" else (step.name, 0.5 if step.operand is None else step.operand)
        for step in steps
    ]
    out = draw.out(x.shape, dtype)
    found = served.call(gk.elementwise, x, items, out)
    assert out is None or found is out
    values, bound = stepped(wide(x), np.zeros(x.shape), steps, dtype)
    accumulator = ACCUMULATORS[dtype]
    agree(found, tolerance_base.expect(values, bound, accumulator=accumulator, output=dtype))


GENERIC = lambda name, *a: (reduction if name in REDUCTIONS else mapping if name in MAPS else normed)(name, *a)  # noqa


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name, served):
    cases = Cases(name, CASES[name])
    cases.run(functools.partial(_with, served, functools.partial(reduction, name)))
    more = ["out"] * (name not in WITHOUT_OUT) + ["several axes"] * (not name.startswith("arg"))
    more += ["int8", "int32"] if name in INTEGERS else []
    cases.require(*ARRAYS, *FLOATS, "nan", "inf", *more)


@pytest.mark.parametrize("name", [*MAPS, "layer_norm", "rms_norm"])
def test_maps(name, served):
    cases = Cases(name, CASES[name])
    cases.run(functools.partial(_with, served, functools.partial(mapping if name in MAPS else normed, name)))
    cases.require(*ARRAYS, *FLOATS, "nan", "inf", "out")


def test_elementwise(served):
    cases = Cases("elementwise", CASES["elementwise"])
    cases.run(functools.partial(_with, served, applied))
    cases.require(*ARRAYS, *FLOATS, "nan", "inf", "out")


def _with(served, case, draw):
    case(draw, served)
