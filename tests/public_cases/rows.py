"""Reductions, softmax and norms, drawn: against NumPy, SciPy and ONNX in float64."""

import functools
import math
import warnings
from typing import Any

import numpy as np
import pytest
from scipy import special

import gensor_kernels as gk
from gensor_kernels.operators.tolerance import rows as tolerance_rows
from gensor_kernels.operators.types.dtypes import ACCUMULATORS, facts
from gensor_kernels.operators.types.epilogue import Step

from . import onnx_ops
from .drawing import FLOATS, Draw
from .references import ACTIVATIONS, OPERATIONS, agree, apply_steps, wide
from .serving import Served

#: References of x in float64, axis and keepdims.
REDUCTIONS: dict[str, Any] = {
    **{name: getattr(np, name) for name in ("sum", "mean", "prod", "max", "min", "argmax", "argmin", "var", "std")},
    **{name: getattr(np, name) for name in ("nansum", "nanmean", "nanmax", "nanmin")},
    "norm": lambda x, axis, keepdims: np.sqrt(np.sum(x * x, axis=axis, keepdims=keepdims)),
    "logsumexp": lambda x, axis, keepdims: _logsumexp(x, axis, keepdims),
}
NEED_ELEMENTS = ("max", "min", "argmax", "argmin", "logsumexp", "nanmax", "nanmin")
#: Dtypes that kernels of reductions do not take.
OTHERS = ("complex64", "complex128", "bool", "uint8", "int16", "int64", "uint64")
INTEGERS = ("sum", "nansum", "max", "min", "argmax", "argmin", "nanmax", "nanmin")
#: Bounds of other reductions, by the reduction whose result they are made of.
BOUNDED = {"norm": "l2_norm", "std": "var", "nansum": "sum", "nanmean": "sum", "nanmax": "max", "nanmin": "min"}
MAPS = {"softmax": special.softmax, "log_softmax": special.log_softmax}


def _logsumexp(x: np.ndarray, axis: Any, keepdims: bool) -> np.ndarray:
    """SciPy's, which takes no empty arrays."""
    summed = np.sum(x, axis=axis, keepdims=keepdims)
    return special.logsumexp(x, axis=axis, keepdims=keepdims).reshape(summed.shape) if x.size else summed


def image(draw: Draw, dtype: str, most: int = 40) -> np.ndarray:
    """An array of up to four axes, of two where it is not float32: fewer kernels; now and then with a long one."""
    rank = draw.pick([1, 2, 2, 3, 4] if dtype == "float32" else [1, 2])
    shape = [draw.extent(draw.pick([most, 9, 9])) for _ in range(rank)]
    if draw.often(0.15):
        shape[int(draw.rng.integers(len(shape)))] = int(draw.rng.integers(200, 1500))
    while math.prod(shape) > 20_000:
        shape.remove(max(shape))
    return draw.array(shape, dtype)


def rows(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """x in float64, its reduced axes merged into a last one."""
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    k = math.prod(x.shape[axis] for axis in axes)
    return wide(x).transpose(*kept, *axes).reshape(*(x.shape[axis] for axis in kept), k)


def reduction(name: str, draw: Draw, served: Served) -> None:
    if name in VARIANTS and draw.often(0.3):
        return VARIANTS[name](draw, served)
    reference = REDUCTIONS[name]
    dtypes = (*FLOATS, "float32", "float32", *(("int8", "int32") if name in INTEGERS else ()))
    dtype = draw.pick((*dtypes, *OTHERS) if draw.extreme else dtypes)
    draw.near_one = name == "prod"  # partial products that leave the range differ with the order
    x = image(draw, dtype)
    if draw.extreme and x.size and draw.often(0.05):
        x = x.reshape(-1)[:1].reshape(())
    axis: Any = draw.pick([None, int(draw.rng.integers(-x.ndim, x.ndim))]) if x.ndim else None
    if axis is None and dtype != "float32" and x.ndim:
        axis = 0
    if x.ndim > 1 and dtype == "float32" and draw.often(0.4) and not name.startswith("arg"):
        axis = tuple(int(each) for each in draw.rng.permutation(x.ndim)[: draw.pick([1, 2])])
        draw.traits.add("several axes")
    keepdims, keywords = draw.often(0.5), dict[str, Any]()
    if draw.extreme:
        axis = extreme_axis(draw, x.ndim, axis, single=name.startswith("arg"))
        if draw.refused:
            served.call(getattr(gk, name), x, axis=axis, keepdims=keepdims)
    given, axes = axis, tuple(range(x.ndim))
    if axis is not None:
        axes = np.lib.array_utils.normalize_axis_tuple(axis, x.ndim)
        axis = axes if len(axes) != 1 else axes[0]
    k = math.prod(x.shape[each] for each in axes)
    if k == 0 and name in NEED_ELEMENTS and draw.extreme:
        draw.refused = "rows without elements"
        served.call(getattr(gk, name), x, axis=given)
    if k == 0 and name in NEED_ELEMENTS:
        with pytest.raises(ValueError, match="without elements"):
            getattr(gk, name)(x, axis=axis)
        return
    if name in ("var", "std"):
        keywords["ddof"] = draw.pick([0, 0, 1]) if k > 1 else 0
        if draw.extreme:
            near = [k - 1, k, k + 1, k + 0.5, 2 * k + 7]
            keywords["ddof"] = draw.pick([0, 1, 0.5, -1, *near, 10**6, np.float32(1.5), True])
    if dtype in OTHERS:
        return other_reduction(name, draw, served, x, (axis, given), keepdims, keywords)
    result = "int64" if name.startswith("arg") or (dtype.startswith("int") and name in ("sum", "nansum")) else dtype
    if name in ("sum", "nansum", "mean", "nanmean", "prod", "var", "std") and dtype in FLOATS and draw.often(0.25):
        widest = dtype == "float64" or name in ("mean", "nanmean")
        result = keywords["dtype"] = "float64" if widest else draw.pick(["float32", "float64"])
        draw.traits.add("dtype=")
    more = {"ddof": keywords["ddof"]} if name in ("var", "std") else {}
    values = np.asarray(reference(wide(x), axis=axis, keepdims=keepdims, **more))
    keywords["out"] = draw.out(values.shape, result)
    found = served.call(getattr(gk, name), x, axis=given, keepdims=keepdims, nothing=k == 0, **keywords)
    if result == "int64" or dtype.startswith("int"):
        assert found.dtype == result
        exact = values if name.startswith("arg") else reference(x, axis=axis, keepdims=keepdims)
        np.testing.assert_array_equal(found, exact)
        return
    accumulator = ACCUMULATORS[result if result == "float64" else dtype]
    operation, flat, ddof = BOUNDED.get(name, name), rows(x, axes), keywords.get("ddof", 0)
    count = np.maximum((~np.isnan(flat)).sum(-1), 1) if name == "nanmean" else np.ones(())
    if name.startswith("nan"):
        flat = np.where(np.isnan(flat), {"nanmax": -np.inf, "nanmin": np.inf}.get(name, 0.0), flat)
    shaped = (values * values if name == "std" else values).reshape(flat.shape[:-1]) * count
    bound = tolerance_rows.bound(operation, flat, shaped, accumulator, structured=True, value=ddof) / count
    # 0 / 0 where a row has equal elements, or something small over 0
    lost = "3m" if name in ("var", "std") and ddof >= k else "ieee"
    bound = bound.reshape(values.shape)
    bound = _bound_of_root(values, bound, accumulator) if name == "std" else bound
    agree(found, values, bound, result, accumulator, math=lost)


def _bound_of_root(values: np.ndarray, bound: np.ndarray, accumulator: str) -> np.ndarray:
    """The bound of a square root, by the bound of what it is of."""
    square = values * values
    below, above = np.sqrt(np.maximum(square - bound, 0.0)), np.sqrt(square + bound)
    error = np.maximum(above - values, values - below) + 2 * np.finfo(accumulator).eps * values
    return np.where(np.isfinite(values), error, 0.0)


def norm_of_order(draw: Draw, served: Served) -> None:
    """Norms of vectors and matrices, in an array with a further axis."""
    dtype = draw.pick(FLOATS)
    x = draw.array([draw.extent(12, zero=0) for _ in range(3)], dtype, special=False)
    axis: Any = draw.pick([0, 1, -1])
    order = draw.pick([1, 2, 3, 0.5, 0, -1, np.inf, -np.inf])
    draw.traits.add("order")
    if draw.often(0.4):
        axis, order = draw.pick([(0, 1), (2, 0), (-1, 1)]), draw.pick([1, -1, np.inf, -np.inf, "fro"])
        draw.traits.add("matrix")
    keepdims = draw.often(0.5)
    with np.errstate(all="ignore"):
        values = np.linalg.norm(wide(x), order, axis, keepdims)
    found = served.call(gk.norm, x, order, axis, keepdims, out=draw.out(values.shape, dtype))
    assert found.dtype == x.dtype and found.shape == values.shape
    eps = 2 * facts(dtype).unit_roundoff * (1 if dtype in ("float32", "float64") else 2)
    near(wide(found), values, (x.size + 16) * eps * np.abs(values))


def weighted_logsumexp(draw: Draw, served: Served) -> None:
    """Factors of any sign, which broadcast, and the sign of the sum."""
    dtype = draw.pick(FLOATS)
    x = draw.array([draw.extent(20, zero=0) for _ in range(2)], dtype, special=False)
    axis, keepdims, sign = draw.pick([None, 0, 1]), draw.often(0.5), draw.often(0.5)
    b = None if sign and draw.often(0.3) else draw.array(x.shape[draw.pick([0, 1]) :], dtype, special=False)
    draw.traits |= {"weights"} if b is not None else set()
    draw.traits |= {"sign"} if sign else set()
    factors = np.ones(()) if b is None else wide(b)
    terms = factors * np.exp(wide(x))
    total, size = (np.sum(each, axis=axis, keepdims=keepdims) for each in (terms, np.abs(terms)))
    with np.errstate(all="ignore"):
        values = np.log(np.abs(total) if sign else total)
    signs = []

    @functools.wraps(gk.logsumexp)
    def logarithms(*arguments: Any, **keywords: Any) -> Any:
        result = gk.logsumexp(*arguments, **keywords)
        signs.extend(result[1:] if sign else [])
        return result[0] if sign else result

    found = served.call(logarithms, x, axis, b, keepdims, sign, out=draw.out(values.shape, dtype))
    assert found.dtype == x.dtype and found.shape == values.shape
    error = (x.size + 16) * 8 * facts("float64" if dtype == "float64" else "float32").unit_roundoff
    error = error * (8 + np.abs(values)) * size / np.maximum(np.abs(total), 1e-300)
    clear = error < 0.1  # the sign of a sum that cancels is any
    error = error + 2 * facts(dtype).unit_roundoff * np.abs(values)
    near(wide(found)[clear], np.asarray(values)[clear], np.asarray(error)[clear])
    if sign:
        np.testing.assert_array_equal(wide(signs[0])[clear], np.sign(total)[clear])


def near(found: np.ndarray, values: np.ndarray, error: np.ndarray) -> None:
    """Agreement of finite results, and of NaN and infinities."""
    assert np.all((np.abs(found - values) <= error) | (found == values) | (np.isnan(found) & np.isnan(values)))


VARIANTS = {"norm": norm_of_order, "logsumexp": weighted_logsumexp}


def extreme_axis(draw: Draw, rank: int, axis: Any, single: bool) -> Any:
    """Another way to write the axes, or axes that every way refuses."""
    form = draw.pick(["same", "same", "list", "tuple", "integers", "all", "none", "wrong"])
    if form == "wrong":
        draw.refused = "axes that do not exist"
        double = [(0, 0), (0, -rank)] if rank else []
        return draw.pick([rank, -rank - 1, 2**40, -(2**40), 2**70, (0, rank), 0.5, "x", (None,), 2**31, *double])
    if form == "none":
        return axis if single else ()
    if form == "all":
        return tuple(int(each) for each in draw.rng.permutation(rank)) if not single else axis
    if axis is None or form == "same":
        return axis
    axes = axis if isinstance(axis, tuple) else (axis,)
    if form == "integers":
        return tuple(np.int64(each) for each in axes) if len(axes) > 1 else np.int32(axes[0])
    return list(axes) if form == "list" else tuple(axes)


def other_reduction(
    name: str, draw: Draw, served: Served, x: np.ndarray, axes: tuple[Any, Any], keepdims: bool,
    keywords: dict[str, Any],
) -> None:  # fmt: skip
    """Dtypes that kernels do not take; `axes` as NumPy takes them and as they are given."""
    reference, (axis, given) = REDUCTIONS[name], axes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name == "norm":
            values = np.asarray(np.sqrt(np.sum(np.abs(wide(x)) ** 2, axis=axis, keepdims=keepdims)))
        elif name == "logsumexp" or (x.dtype.kind == "c" and name not in ("max", "min")):
            values = np.asarray(reference(wide(x), axis=axis, keepdims=keepdims, **keywords))
        else:
            values = np.asarray(reference(x, axis=axis, keepdims=keepdims, **keywords))
    result = values.dtype.name
    if x.dtype == np.complex64:
        result = {"complex128": "complex64", "float64": "float32"}.get(result, result)
    keywords["out"] = draw.out(values.shape, result)
    found = served.call(getattr(gk, name), x, axis=given, nothing=x.size == 0, keepdims=keepdims, **keywords)
    assert found.dtype == result and found.shape == values.shape, (found.dtype, found.shape, result, values.shape)
    if values.dtype.kind in "iub" or name in ("max", "min"):
        np.testing.assert_array_equal(found, values)
    else:
        if name == "std":  # whose error is bounded by that of its square
            name, found, values = "var", found * found, values * values
        most = np.nanmax(np.abs(wide(x)), initial=1.0, where=np.isfinite(x))
        scale = np.abs(values) + (0 if name in ("norm", "prod") else most ** (2 if name == "var" else 1))
        close(found, values, (x.size // max(values.size, 1) + 16) * 8 * np.finfo(result).eps * scale)


def close(found: np.ndarray, values: np.ndarray, error: np.ndarray) -> None:
    """Agreement without a derived bound, for dtypes that only the library takes."""
    with np.errstate(all="ignore"):
        near = (np.abs(found - values) <= error) | ~np.isfinite(values)
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(values))
    assert near.all(), (found, values)


def mapping(name: str, draw: Draw, served: Served) -> None:
    dtype = draw.pick((*FLOATS, *FLOATS, "int32", "uint8", "bool", "complex64") if draw.extreme else FLOATS)
    draw.special = "" if dtype == "complex64" else draw.special
    x = image(draw, dtype)
    axis = int(draw.rng.integers(-x.ndim, x.ndim))
    given = axis
    if draw.extreme:
        given = extreme_axis(draw, x.ndim, axis, single=True)
        if draw.refused:
            served.call(getattr(gk, name), x, given)
        if dtype == "complex64":
            found = np.moveaxis(served.call(getattr(gk, name), x, given), axis, -1)
            values = special.softmax(np.moveaxis(wide(x), axis, -1), -1) if x.size else found
            found = np.exp(found) if name == "log_softmax" else found  # whose imaginary parts have many branches
            return close(found, values, 1e-5 * (x.shape[axis] + 16) * (1 + np.abs(wide(x)).max(initial=1)))
        dtype = "float64" if dtype in ("int32", "uint8", "bool") else dtype
    moved = np.moveaxis(wide(x), axis, -1)
    values = moved
    if x.size:  # where the largest is infinite, x - max is not a number
        values = np.where(np.isinf(moved.max(-1, keepdims=True)), np.nan, MAPS[name](moved, -1))
    out = draw.out(x.shape, dtype)
    found = served.call(getattr(gk, name), x, given, out)
    accumulator = ACCUMULATORS[dtype]
    bound = tolerance_rows.bound(name, moved, values, accumulator, structured=True)
    agree(np.moveaxis(found, axis, -1), values, bound, dtype, accumulator)


def scan(name: str, draw: Draw, served: Served) -> None:
    whole = ("bool", "int8", "int32", "int64") if name == "cumsum" else ()
    dtype = draw.pick((*FLOATS, "float32", "float32", *whole))
    draw.near_one = name == "cumprod"  # partial products that leave the range differ with the order
    x = image(draw, dtype)
    axis = draw.pick([None, int(draw.rng.integers(-x.ndim, x.ndim))])
    if draw.refuses(0.1, "axes that do not exist"):
        served.call(getattr(gk, name), x, draw.pick([x.ndim, -x.ndim - 1, 2**70, 0.5, "x", (0, 0)]))
    result, keywords = dtype, dict[str, Any]()
    if dtype in FLOATS and draw.often(0.25):
        result = keywords["dtype"] = draw.pick(["float32", "float64"]) if dtype != "float64" else dtype
    elif dtype in whole:
        result = "int64"
    flat, place = (x.reshape(-1), 0) if axis is None else (x, axis)
    keywords["out"] = draw.out(flat.shape, result)
    found = served.call(getattr(gk, name), x, np.int64(axis) if axis and draw.extreme else axis, **keywords)
    assert found.dtype == result
    if result == "int64":
        return np.testing.assert_array_equal(found, np.cumsum(flat, place))
    moved = np.moveaxis(wide(flat), place, -1)
    values = getattr(np, name)(moved, axis=-1, dtype=np.longdouble).astype(np.float64)
    accumulator = ACCUMULATORS[result if result == "float64" else dtype]
    bound = tolerance_rows.bound(name, moved, values, accumulator, structured=True)
    agree(np.moveaxis(found, place, -1), values, bound, result, accumulator)


def normalisation(name: str, draw: Draw, served: Served) -> None:
    dtype = draw.pick(FLOATS)
    x = image(draw, dtype)
    first = int(draw.rng.integers(x.ndim))
    shape, eps = x.shape[first:], draw.pick([2.0**-17, 2.0**-10])  # ONNX's attribute is a float32
    if draw.extreme:
        spread = wide(x).var(tuple(range(first, x.ndim))).min(initial=np.inf)
        eps = draw.pick([eps, 1.0, 2.0**40, *([0.0, 2.0**-60] if spread > 1e-3 else [])])
    weight = draw.array(shape, dtype, special=False) if draw.often(0.6) else None
    bias = draw.array(shape, dtype, special=False) if draw.often(0.5) and name == "layer_norm" else None
    out = draw.out(x.shape, dtype)
    operands = (weight, bias) if name == "layer_norm" else (weight,)
    given = shape[0] if len(shape) == 1 and draw.often(0.5) else shape
    found = served.call(getattr(gk, name), x, given, *operands, eps, out=out)
    flat = wide(x).reshape(*x.shape[:first], math.prod(shape))
    ones = np.ones(flat.shape[-1])
    op = "LayerNormalization" if name == "layer_norm" else "RMSNormalization"
    values = onnx_ops.run(op, flat, ones, axis=-1, epsilon=eps) if flat.size else flat
    accumulator = ACCUMULATORS[dtype]
    operation = name.replace("_", "")
    bound = tolerance_rows.bound(operation, flat, values, accumulator, structured=True, value=eps)
    pairs = (("mul", weight), ("bias", bias))
    steps = [Step(step, wide(each).reshape(-1)) for step, each in pairs if each is not None]
    values, bound = apply_steps(values, bound, steps, dtype)
    agree(found.reshape(flat.shape), values, bound, dtype, accumulator)


def elementwise(draw: Draw, served: Served) -> None:
    dtype = draw.pick((*FLOATS, *FLOATS, "complex64", "complex128", "int8", "int32") if draw.extreme else FLOATS)
    x = image(draw, dtype)
    names, few = ["scale", "relu", "add", "mul", "bias"], draw.pick([1, 2, 3])
    if draw.extreme:
        names, few = [*names, "mask", *ACTIVATIONS], draw.pick([0, 1, 2, 3, 5, 8])
    if dtype not in FLOATS:  # operations that complex numbers have, and that are exact modulo a power of two
        names = ["scale", "add", "mul", "bias"]
    steps = []
    for name in draw.rng.permutation(names)[:few]:
        name, factor = str(name), 0.5
        shape = x.shape[-1:] if name == "bias" else x.shape
        if draw.extreme and name in ("add", "mul", "mask"):
            shape = shape[int(draw.rng.integers(len(shape) + 1)) :]
        operand = draw.array(shape, dtype, special=False) if name in ("add", "mul", "bias", "mask") else None
        if draw.extreme and name in ("scale", "mask"):
            factor = draw.pick([0.5, 0.0, -1.0, np.inf, np.nan]) if dtype in FLOATS else draw.pick([0.0, 3.0])
        if name == "mask":
            operand = np.asarray(operand.astype(np.float32) > 0)
        steps.append(Step(name, operand, factor))
    items = []
    for step in steps:
        values = [step.operand] * (step.operand is not None) + [step.scalar] * (step.name in ("scale", "mask"))
        items.append((step.name, *values) if values else step.name)
    if draw.refuses(0.05, "an operation that does not fit"):
        wide_bias = "bias", np.zeros((x.shape[-1] + 2,), x.dtype)
        items.append(draw.pick(["swiglu", "layernorm", "none", ("add",), wide_bias, 3]))
    out = draw.out(x.shape, dtype)
    found = served.call(gk.elementwise, x, items, out)
    if dtype.startswith("int"):
        values = x.astype(np.int64)
        for step in steps:
            values = OPERATIONS[step.name](values, step._replace(scalar=int(step.scalar)))
        assert found.dtype == dtype
        return np.testing.assert_array_equal(found, values.astype(dtype))
    accumulator = ACCUMULATORS[dtype]
    if dtype.startswith("complex"):
        return agree(found, wide(x), np.zeros(x.shape), dtype, accumulator, steps, "3m")
    values, bound = apply_steps(wide(x), np.zeros(x.shape), steps, dtype)
    agree(found, values, bound, dtype, accumulator)


CASES = {
    **{name: functools.partial(reduction, name) for name in REDUCTIONS},
    **{name: functools.partial(mapping, name) for name in MAPS},
    **{name: functools.partial(scan, name) for name in ("cumsum", "cumprod")},
    **{name: functools.partial(normalisation, name) for name in ("layer_norm", "rms_norm")},
    "elementwise": elementwise,
}
