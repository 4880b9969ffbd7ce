"""The functions of CuPy that `accelerate` replaces, and for each of them which calls mean the same to ours.

A Route's `serve` takes the arguments of a call as CuPy's caller wrote them, and returns None for a call that CuPy must
serve: of other arrays, with other arguments, or of dtypes of which no kernel exists.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from gensor_kernels.arrays import DeviceArray, Dtype
from gensor_kernels.devices import cuda
from gensor_kernels.dispatch.api import current, linalg
from gensor_kernels.dispatch.api.linalg import tensordot_form
from gensor_kernels.dispatch.api.matmul import matmul as product
from gensor_kernels.dispatch.api.rows import rows_parameters
from gensor_kernels.dispatch.contractions.spec import Form
from gensor_kernels.dispatch.functions.rows import Parameters, Replaced
from gensor_kernels.dispatch.functions.window import ReplacedConvolution
from gensor_kernels.dispatch.key import short

Serve = Callable[[tuple[Any, ...], dict[str, Any]], Any]

#: Where the functions of SciPy's names are. These modules take most of a second to import, so that their functions are
#: replaced once a program has imported them.
SPECIAL, SIGNAL = "cupyx.scipy.special", "cupyx.scipy.signal"
PRODUCTS = ("matmul", "dot", "einsum", "tensordot", "inner", "vdot")
REDUCTIONS = (
    *("sum", "mean", "prod", "max", "min", "argmax", "argmin", "var", "std", "norm"),
    *("nansum", "nanmean", "nanmax", "nanmin"),
)
SCANS = ("cumsum", "cumprod")
ROWS = ("softmax", "logsumexp")
CONVOLUTIONS = ("fftconvolve", "oaconvolve")
#: Names of several functions.
GROUPS = {"products": PRODUCTS, "reductions": REDUCTIONS, "scans": SCANS, "special": ROWS, "signal": CONVOLUTIONS}
NAMES = (*PRODUCTS, *REDUCTIONS, *SCANS, *ROWS, *CONVOLUTIONS)
#: Other names of the same functions.
SYNONYMS = {"amax": "max", "amin": "min", "at": "matmul"}
#: Functions that stay CuPy's, and why.
LEFT = {
    "log_softmax": "where a row has an infinity, the results of our kernels are not those of cupyx.scipy.special",
    "convolve": "where a weight is 0, CuPy leaves out infinities and NaN of the image, which our kernels do not",
}
LEFT |= dict.fromkeys(("correlate", "convolve2d", "correlate2d", "convolve1d", "correlate1d"), LEFT["convolve"])
#: Elements of a filter, beyond which an FFT is faster.
LARGEST_FILTER = 1024

#: Dtypes of an operand of a product that kernels take; "E" is bfloat16.
PRODUCT_TYPES = frozenset("efdFDbE")
_FLOATS, _INTEGERS = frozenset("efd"), frozenset("bi")
#: Dtypes whose sums are int64 and that running sums take.
_SUMMED = frozenset("?bilq")
#: The types in which CuPy's sums of squares and `nanmean` have the precision of ours: it adds float16 up in float16.
_WIDE = frozenset("fd")
#: Positional arguments after the array, as the functions of CuPy have them.
_AXIS_DTYPE = ("axis", "dtype", "out", "keepdims")
_AXIS = ("axis", "out", "keepdims")
_AXIS_OUT = ("axis", "out", "dtype", "keepdims")
_SCAN = ("axis", "dtype", "out")
_VARIANCE = ("axis", "dtype", "out", "ddof", "keepdims")


class Route(NamedTuple):
    """A function of CuPy that is replaced.

    `group` is the name it is selected by, `quick` the function that serves two arrays without any further argument.
    """

    owner: Any
    name: str
    group: str
    serve: Serve
    quick: Callable[[Any, Any], Any] | None = None


def find_routes(cupy: ModuleType) -> list[Route]:
    """Return the Routes of `cupy`, of its arrays and of `cupy.linalg`.

    That `cupy.ndarray` is a Python class, whose methods can be replaced, is not documented: it was read in CuPy 13.3.0,
    13.6.0, 14.0.0 and 14.2.0 (cupy/_core/core.pyx).
    """
    array = cupy.ndarray
    routes = [*_products(cupy)]
    for name, positional, of_method, operator, dtypes in (
        ("sum", _AXIS_DTYPE, _AXIS_DTYPE, "reduce_sum", _FLOATS | _INTEGERS),
        ("mean", _AXIS_DTYPE, _AXIS_DTYPE, "reduce_mean", _FLOATS),
        ("prod", _AXIS_DTYPE, _AXIS_DTYPE, "reduce_prod", _FLOATS),
        ("max", _AXIS, _AXIS, "reduce_max", _FLOATS | _INTEGERS),
        ("min", _AXIS, _AXIS, "reduce_min", _FLOATS | _INTEGERS),
        ("argmax", _AXIS_DTYPE, _AXIS_OUT, "argmax", _FLOATS | _INTEGERS),
        ("argmin", _AXIS_DTYPE, _AXIS_OUT, "argmin", _FLOATS | _INTEGERS),
        ("nansum", _AXIS_DTYPE, None, "nansum", _FLOATS),
        ("nanmean", _AXIS_DTYPE, None, "nanmean", _WIDE),
        ("nanmax", _AXIS, None, "nanmax", _FLOATS),
        ("nanmin", _AXIS, None, "nanmin", _FLOATS),
    ):
        function = _reduction(array, positional, operator, dtypes)
        routes.append(Route(cupy, name, name, function))
        if of_method is not None:
            routes.append(Route(array, name, name, _reduction(array, of_method, operator, dtypes)))
        if name in ("max", "min"):
            routes.append(Route(cupy, f"a{name}", name, function))
    for name in ("var", "std"):
        serve = _variance(array, name == "std")
        routes += [Route(cupy, name, name, serve), Route(array, name, name, serve)]
    for name in SCANS:
        scan = _scan(array, name, _FLOATS | _SUMMED if name == "cumsum" else _FLOATS)
        routes += [Route(cupy, name, name, scan), Route(array, name, name, scan)]
    return [*routes, Route(cupy.linalg, "norm", "norm", _norm(array))]


def find_signal_routes(cupy: ModuleType, signal: ModuleType) -> list[Route]:
    """Return the Routes of `cupyx.scipy.signal`."""
    return [Route(signal, name, name, _convolution(cupy.ndarray, name)) for name in CONVOLUTIONS]


def find_special_routes(cupy: ModuleType, special: ModuleType) -> list[Route]:
    """Return the Routes of `cupyx.scipy.special`."""
    array = cupy.ndarray
    return [
        Route(special, "softmax", "softmax", _map(array, "softmax", ("axis",), SOFTMAX)),
        Route(special, "logsumexp", "logsumexp", _map(array, "logsumexp", ("axis", "b", "keepdims"), LOGSUMEXP)),
    ]


# ---- products


def _products(cupy: ModuleType) -> list[Route]:
    array = cupy.ndarray

    def has_kernels(a: DeviceArray, b: DeviceArray) -> bool:
        return (
            type(a) is array and type(b) is array and (a.dtype.char in PRODUCT_TYPES or b.dtype.char in PRODUCT_TYPES)
        )

    def pair(function: Callable[..., Any]) -> Serve:
        def serve(args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
            if len(args) == 3 and not keywords:
                a, b, out = args
            elif len(args) == 2 and (not keywords or (len(keywords) == 1 and "out" in keywords)):
                (a, b), out = args, keywords.get("out")
            else:
                return None
            if type(out) is not array or type(a) is not array or type(b) is not array:
                return function(a, b) if out is None and has_kernels(a, b) else None
            type_a, type_b = a.dtype, b.dtype
            if type_a.char not in PRODUCT_TYPES and type_b.char not in PRODUCT_TYPES:
                return None
            wanted = type_a if type_a is type_b else _promoted(type_a, type_b)
            if out.dtype is not wanted and out.dtype != wanted:
                return None  # into another dtype, ours would add up in that
            return function(a, b, out)

        return serve

    def contraction(args: tuple[Any, ...], keywords: dict[str, Any]) -> DeviceArray:
        if len(args) == 3 and not keywords:
            text, a, b = args
            return _contract(text, a, b) if type(text) is str and type(a) is array and type(b) is array else None
        if len(args) < 3 or type(args[0]) is not str or (keywords and keywords.keys() != {"optimize"}):
            return None  # CuPy serves what is no product
        for each in args[1:]:
            if type(each) is not array:
                return None
        return linalg.einsum(*args, **keywords)

    def summed(args: tuple[Any, ...], keywords: dict[str, Any]) -> DeviceArray:
        if len(args) == 3 and not keywords:
            a, b, axes = args
        elif len(args) == 2 and (not keywords or (len(keywords) == 1 and "axes" in keywords)):
            (a, b), axes = args, keywords.get("axes", 2)
        else:
            return None
        return _contract(tensordot_form(axes), a, b) if has_kernels(a, b) else None

    def two(function: Callable[..., Any]) -> Serve:
        def serve(args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
            return function(*args) if len(args) == 2 and not keywords and has_kernels(*args) else None

        return serve

    def vdot(a: DeviceArray, b: DeviceArray) -> DeviceArray:
        return _contract(("vdot",), a, b) if a.shape == b.shape else linalg.vdot(a, b)

    dot, inner, tensordot = (partial(_contract, form) for form in (("dot",), ("inner",), tensordot_form(2)))
    matmul = short(current, product.__wrapped__, leaves=True)  # type: ignore[attr-defined]
    return [
        Route(cupy, "matmul", "matmul", pair(matmul), matmul),
        Route(array, "__matmul__", "matmul", two(matmul), matmul),
        Route(cupy, "dot", "dot", pair(dot), dot),
        Route(array, "dot", "dot", pair(dot), dot),
        Route(cupy, "einsum", "einsum", contraction),
        Route(cupy, "tensordot", "tensordot", summed, tensordot),
        Route(cupy, "inner", "inner", two(inner), inner),
        Route(cupy, "vdot", "vdot", two(vdot), vdot),
    ]


def _contract(form: Form, a: DeviceArray, b: DeviceArray, out: DeviceArray = None) -> DeviceArray:
    """Serve a contraction, or return None."""
    runtime = current.only or current.inside.get() or current.lookup()
    device = runtime.device
    if not device.capturing():
        return runtime.contract(form, a, b, out, None, (), None, True)
    with device.lasting():
        return runtime.contract(form, a, b, out)


@lru_cache
def _promoted(a: Dtype, b: Dtype) -> Dtype:
    """Return the dtype of a product; cached, because `cupy.result_type` takes microseconds."""
    return np.promote_types(a, b)


# ---- convolutions


def _convolution(array: DeviceArray, name: str) -> Serve:
    """Return the `serve` of a convolution by FFT, for two images of one dtype: kernels convolve them directly."""
    order = ("in2", "mode", "axes")
    names = frozenset(order)
    functions = {mode: _replaced_convolution(name, mode) for mode in ("full", "same", "valid")}

    def serve(args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        given = _named(args, keywords, order, names) if args else None
        if given is None or given.get("axes") is not None:
            return None
        x, mode = args[0], given.get("mode", "full")
        w: Any = given.get("in2")
        if type(x) is not array or type(w) is not array or x.dtype.char not in _WIDE or x.dtype != w.dtype:
            return None
        if x.ndim != 2 or w.ndim != 2 or type(mode) is not str or mode not in functions:
            return None
        (height, width), (r, s) = x.shape, w.shape
        if not (2 <= r <= height and 2 <= s <= width and r * s <= LARGEST_FILTER):
            return None
        runtime = current.only or current.inside.get() or current.lookup()
        device, function = runtime.device, functions[mode]
        if not device.is_array(x):  # inside `emulated`
            return None
        call = function, (x[None, None], w[None, None, ::-1, ::-1]), function.parameters((r, s)), None, (), "ieee"
        if not device.capturing():
            found = runtime.serve(*call, True)
            return None if found is None else found[0, 0]
        with device.lasting():
            return runtime.serve(*call)[0, 0]

    return serve


def _replaced_convolution(name: str, mode: str) -> ReplacedConvolution:
    def compute(x: DeviceArray, w: DeviceArray, mode: str) -> DeviceArray:
        return getattr(import_module(SIGNAL), name)(x, w, mode)

    return ReplacedConvolution(f"cupyx {name}", mode, compute)


# ---- reductions


def _reduction(array: DeviceArray, order: Sequence[str], operator: str, dtypes: frozenset[str]) -> Serve:
    """Return the `serve` of a reduction that CuPy computes by one kernel."""
    names, positions = frozenset(order), operator.startswith("arg")

    def serve(args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if not args or type(a := args[0]) is not array or a.dtype.char not in dtypes:
            return None
        given = _named(args, keywords, order, names)
        if given is None:
            return None
        axis, out = given.get("axis"), given.get("out")
        if positions and type(axis) is tuple:
            return None  # NumPy has no positions over several axes whose order CuPy's could follow
        types = _types(operator, a.dtype.char, given.get("dtype"))
        if types is None or (out is not None and (type(out) is not array or out.dtype != types[0])):
            return None
        return _rows(operator, a, axis, given.get("keepdims", False), out, types[1])

    return serve


def _scan(array: DeviceArray, operator: str, dtypes: frozenset[str]) -> Serve:
    """Return the `serve` of a running sum or product; an array of several axes without `axis` is flattened."""
    names = frozenset(_SCAN)

    def serve(args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if not args or type(a := args[0]) is not array or a.dtype.char not in dtypes:
            return None
        given = _named(args, keywords, _SCAN, names)
        if given is None:
            return None
        axis, out = given.get("axis"), given.get("out")
        types = _types(operator, a.dtype.char, given.get("dtype"))
        if types is None or (axis is not None and type(axis) is not int):
            return None
        shape = a.shape if axis is not None else (a.size,)
        if out is not None and (type(out) is not array or out.dtype != types[0] or out.shape != shape):
            return None
        if axis is None:
            a, axis = (a if a.ndim == 1 else a.reshape(-1)), 0
        return _rows(operator, a, axis, False, out, types[1])

    return serve


def _variance(array: DeviceArray, root: bool) -> Serve:
    """Return the `serve` of `var`, or of `std`: the root of what `var` gives."""
    names = frozenset(_VARIANCE)

    def serve(args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if not args or type(a := args[0]) is not array or a.dtype.char not in _WIDE:
            return None
        given = _named(args, keywords, _VARIANCE, names)
        if given is None or given.get("dtype") is not None or given.get("out") is not None:
            return None
        axis, ddof = given.get("axis"), given.get("ddof", 0)
        if type(ddof) is not int or not 0 <= ddof < max(_count(a, axis), 1):
            return None
        found = _rows("reduce_var", a, axis, given.get("keepdims", False), None, None, ddof, VAR)
        return current.current_runtime().device.xp.sqrt(found, found) if root and found is not None else found

    return serve


def _norm(array: DeviceArray) -> Serve:
    """Return the `serve` of `cupy.linalg.norm`, for the norms that are the root of a sum of squares."""
    order = ("ord", "axis", "keepdims")
    names = frozenset(order)

    def serve(args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if not args or type(a := args[0]) is not array or a.dtype.char not in _WIDE:
            return None
        given = _named(args, keywords, order, names)
        if given is None:
            return None
        axis, kind = given.get("axis"), given.get("ord")
        axes = a.ndim if axis is None else 1 if type(axis) is int else len(axis)
        if kind is None:
            fits = axis is None or axes in (1, 2)
        else:
            fits = (axes == 1 and type(kind) is int and kind == 2) or (axes == 2 and kind in ("fro", "f"))
        return _rows("l2_norm", a, axis, given.get("keepdims", False), None, None, 0, NORM) if fits else None

    return serve


def _map(array: DeviceArray, operator: str, order: Sequence[str], function: Replaced) -> Serve:
    """Return the `serve` of a function of `cupyx.scipy.special`; CuPy's results have the order of their input."""
    names = frozenset(order)

    def serve(args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if not args or type(a := args[0]) is not array or a.dtype.char not in _FLOATS or not a.flags.c_contiguous:
            return None
        given = _named(args, keywords, order, names)
        if given is None or given.get("b") is not None:
            return None
        return _rows(operator, a, given.get("axis"), given.get("keepdims", False), None, None, 0, function)

    return serve


def _named(
    args: tuple[Any, ...], keywords: dict[str, Any], order: Sequence[str], names: frozenset[str]
) -> dict[str, Any] | None:
    """Return the arguments after the first one by name, or None if CuPy's function has to look at them."""
    given = keywords
    if len(args) > 1:
        given = dict(zip(order, args[1:], strict=False))
        if len(args) > len(order) + 1 or given.keys() & keywords.keys():
            return None
        given |= keywords
    return given if given.keys() <= names else None


@lru_cache(maxsize=512)
def _types(operator: str, char: str, dtype: Any) -> tuple[Dtype, str | None] | None:
    """Return the dtype of CuPy's result, and the name that ours takes for it; None where the two would differ."""
    own = np.dtype(char)
    if operator.startswith("arg"):
        return (np.dtype(np.int64), None) if dtype is None else None
    if dtype is not None:
        wide = np.dtype(dtype)
        same = char in _FLOATS and (wide == own or (char == "e" and wide.char == "f"))
        return (wide, wide.name) if same else None
    if operator in ("reduce_sum", "cumsum") and char in _INTEGERS | _SUMMED:  # CuPy adds them up in C's long
        return (np.dtype(np.int64), None) if np.dtype("l").itemsize == 8 else None
    return own, None


def _count(a: DeviceArray, axis: Any) -> int:
    """Return how many elements are reduced to one."""
    if axis is None:
        return int(a.size)
    return math.prod(a.shape[each] for each in (axis if type(axis) is tuple else (axis,)))


def _rows(
    operator: str,
    a: DeviceArray,
    axis: Any,
    keepdims: Any,
    out: DeviceArray,
    dtype: str | None,
    ddof: int = 0,
    replaced: Replaced | None = None,
) -> DeviceArray:
    """Serve a call of an operator on rows, or return None; AxisError for an axis that does not exist."""
    if not a.size or not a.ndim or type(keepdims) is not bool:
        return None
    several = axis is not None and type(axis) is not int
    if several and (type(axis) is not tuple or not axis or not all(type(each) is int for each in axis)):
        return None
    runtime = current.only or current.inside.get() or current.lookup()
    device = runtime.device
    if not device.is_array(a):  # inside `emulated`
        return None
    function, parameters = rows_parameters(operator, axis, a.ndim, keepdims, dtype, None, ddof)
    if not device.capturing():
        return runtime.serve(replaced or function, (a,), parameters, out, (), None, True)
    with device.lasting():
        return runtime.serve(replaced or function, (a,), parameters, out)


# ---- CuPy's own functions of several kernels, called where no function is replaced (devices/originals.py)


def _their_axis(x: DeviceArray, p: Parameters) -> DeviceArray:
    return p.axes[0] if len(p.axes) == 1 else None if len(p.axes) == x.ndim else p.axes


def _their_var(x: DeviceArray, p: Parameters) -> DeviceArray:
    return cuda.import_cupy().var(x, axis=_their_axis(x, p), ddof=p.ddof, keepdims=p.keepdims)


def _their_norm(x: DeviceArray, p: Parameters) -> DeviceArray:
    return cuda.import_cupy().linalg.norm(x, axis=_their_axis(x, p), keepdims=p.keepdims)


def _their_softmax(x: DeviceArray, p: Parameters) -> DeviceArray:
    return import_module(SPECIAL).softmax(x, axis=_their_axis(x, p))


def _their_logsumexp(x: DeviceArray, p: Parameters) -> DeviceArray:
    return import_module(SPECIAL).logsumexp(x, axis=_their_axis(x, p), keepdims=p.keepdims)


VAR, NORM = Replaced("cupy.var", True, _their_var), Replaced("cupy.linalg.norm", True, _their_norm)
SOFTMAX = Replaced("cupyx softmax", False, _their_softmax)
LOGSUMEXP = Replaced("cupyx logsumexp", False, _their_logsumexp)
