"""Stand-ins for arrays while a function is traced: what is computed of them becomes steps of a program.

NumPy's and CuPy's universal functions, operators and a few methods are understood, with NumPy's own rules of dtypes.
Everything else raises NotTracedError, and the function is called as it is written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.expression.program import (
    ARITY,
    CODES,
    FLOATS,
    MAX_STEPS,
    NUMPY,
    PREDICATES,
    TYPES,
    Program,
    Step,
    bits_of,
    check,
    make,
)
from gensor_kernels.operators.types.dtypes import array_dtype

#: Steps by the names of universal functions, where they differ.
STEPS = {
    **{function: step for step, function in NUMPY.items()},
    **{"true_divide": "div", "fabs": "abs", "logical_and": "and", "logical_or": "or", "logical_xor": "xor"},
    "logical_not": "not",
}
#: Universal functions of arrays as they are, of integers.
IDENTITIES = ("positive", "conjugate", "floor", "ceil", "trunc", "rint")
#: Powers by a number that are products or roots.
POWERS: dict[float, Callable[[Any], Any]] = {
    1.0: lambda x: x,
    2.0: lambda x: x * x,
    3.0: lambda x: x * x * x,
    4.0: lambda x: (x * x) * (x * x),
    0.5: lambda x: x.apply("sqrt", (x,), {}),
    -1.0: lambda x: x.apply("reciprocal", (x,), {}),
}
#: CuPy's functions begin with this; those of cupyx.scipy.special that have steps.
_PREFIXES = ("cupy_", "cupyx_scipy_special_")
_SPECIAL = {"expit": "sigmoid", "erf": "erf"}


class NotTracedError(Exception):
    """An operation of a function is no step of a program."""


class Tracing:
    """The program that a function is being traced to."""

    def __init__(self, inputs: Sequence[Any]):
        self.inputs = [_code(each.dtype) for each in inputs]
        self.shape = np.broadcast_shapes(*(tuple(each.shape) for each in inputs))
        self.steps: list[Step] = []
        #: the reason why the function was not traced, whatever the function made of the error
        self.failed = ""
        self.arrays = [Traced(self, place, each.dtype, tuple(each.shape)) for place, each in enumerate(inputs)]

    def fail(self, reason: str) -> NotTracedError:
        """Return the error for something that is no step."""
        self.failed = self.failed or reason
        return NotTracedError(reason)

    def add(self, name: str, code: str, arguments: tuple[int, ...]) -> int:
        """Return the number of a new value."""
        step = Step(name, code, arguments)
        types = [*self.inputs, *(each.result for each in self.steps)]
        try:
            check(step, types)
        except UnsupportedError as error:
            raise self.fail(str(error)) from None
        self.steps.append(step)
        if len(self.steps) > 4 * MAX_STEPS:
            raise self.fail("more operations than a kernel has")
        return len(types)

    def program(self, result: object) -> Program:
        """Return the program of a function that returned `result`, an array or a tuple of several."""
        results = result if type(result) is tuple and len(result) > 1 else (result,)
        places = []
        for each in results:
            if self.failed or not isinstance(each, Traced) or each.tracing is not self:
                raise NotTracedError(self.failed or "a result that is no array, or not of the function's arrays")
            if each.place < len(self.inputs):
                raise NotTracedError("an argument itself is returned")
            if each.shape != self.shape:
                raise NotTracedError("a result that has not the shape to which all arguments broadcast")
            places.append(each.place)
        if len({id(each) for each in results}) < len(results):
            raise NotTracedError("an array that is returned twice")
        try:
            return make(self.inputs, self.steps, *places)
        except UnsupportedError as error:
            raise NotTracedError(str(error)) from None


class Traced:
    """An array's dtype and shape, and the number of its value in a program."""

    __array_priority__ = 1e9
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, tracing: Tracing, place: int, dtype: np.dtype[Any], shape: tuple[int, ...]):
        self.tracing, self.place, self.dtype, self.shape = tracing, place, np.dtype(dtype), shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    # ---- what makes steps

    def __array_ufunc__(self, ufunc: Any, method: str, *given: Any, **options: Any) -> Traced:
        if method != "__call__":
            raise self.tracing.fail(f"{ufunc.__name__}.{method}")
        return self.apply(ufunc.__name__, given, options)

    def __cupy_override_elementwise_kernel__(self, kernel: Any, *given: Any, **options: Any) -> Traced:
        name = str(getattr(kernel, "name", ""))
        prefix = next((each for each in _PREFIXES if name.startswith(each)), None)
        if prefix is None or not hasattr(kernel, "nin"):
            raise self.tracing.fail(f"the kernel {name}")
        name = name.removeprefix(prefix)
        return self.apply(_SPECIAL.get(name, name), given, options)

    def __cupy_override_reduction_kernel__(self, kernel: Any, *given: Any, **options: Any) -> Traced:
        raise self.tracing.fail("a reduction")

    def __array_function__(self, function: Any, types: Any, given: Any, options: Any) -> Traced:
        name = function.__name__
        if name in ("where", "clip") and not options and len(given) == 3:
            return self.apply(name, given, {})
        if name in ("zeros_like", "ones_like") and not options and len(given) == 1:
            return constant(self.tracing, int(name == "ones_like"), self.dtype, self.shape)
        if name in ("round", "around") and not options and len(given) == 1:
            return self.apply("rint", given, {})
        raise self.tracing.fail(f"numpy.{name}")

    def apply(self, name: str, given: Sequence[Any], options: Any) -> Traced:
        """Return what a function makes of arrays and numbers."""
        if options:
            raise self.tracing.fail(f"{name} with {', '.join(options)}")
        if name == "where":
            return _where(self.tracing, *given)
        if name == "clip":
            found, low, high = given
            found = found if low is None else _ufunc(self.tracing, "maximum", (found, low))
            return found if high is None else _ufunc(self.tracing, "minimum", (found, high))
        return _ufunc(self.tracing, name, given)

    def astype(self, dtype: Any, *, copy: bool = True) -> Any:
        """Return the values in another dtype."""
        return _cast(self, np.dtype(dtype))

    def clip(self, min: Any = None, max: Any = None, out: None = None) -> Traced:
        """Return the values between two bounds."""
        return self.apply("clip", (self, min, max), {} if out is None else {"out": out})

    def copy(self) -> Traced:
        """Return the values in another array."""
        return Traced(self.tracing, self.place, self.dtype, self.shape)

    def conj(self) -> Traced:
        """Return the values, which are real."""
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self.tracing.fail(f"the attribute {name}")

    def _refuse(self, *given: Any) -> Any:
        raise self.tracing.fail("a value, an element or an axis of an array")

    __bool__ = __int__ = __float__ = __index__ = __iter__ = __len__ = _refuse
    __getitem__ = __setitem__ = __delitem__ = __contains__ = __matmul__ = __rmatmul__ = __array__ = _refuse

    def _become(self, other: Traced) -> Traced:
        """Take another array's values, as an operation in place does."""
        if self.place < len(self.tracing.inputs) or other.shape != self.shape:
            raise self.tracing.fail("an argument that is changed, or a result of another shape")
        if not np.can_cast(other.dtype, self.dtype, "same_kind"):
            raise self.tracing.fail(f"{other.dtype} in the place of {self.dtype}")
        self.place = _cast(other, self.dtype).place
        return self


def _binary(name: str) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    def own(self: Traced, other: Any) -> Any:
        return self.apply(name, (self, other), {})

    def reflected(self: Traced, other: Any) -> Any:
        return self.apply(name, (other, self), {})

    def in_place(self: Traced, other: Any) -> Any:
        return self._become(own(self, other))

    return own, reflected, in_place


for _operator, _name in {
    **{"add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide"},
    **{"mod": "remainder", "pow": "power", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor"},
    **{"lshift": "left_shift", "rshift": "right_shift"},
}.items():
    for _prefix, _function in zip(("", "r", "i"), _binary(_name), strict=True):
        setattr(Traced, f"__{_prefix}{_operator}__", _function)
for _operator, _name in {
    **{"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal"},
}.items():
    setattr(Traced, f"__{_operator}__", _binary(_name)[0])
for _operator, _name in {"neg": "negative", "abs": "absolute", "invert": "invert", "pos": "positive"}.items():
    setattr(Traced, f"__{_operator}__", lambda self, name=_name: self.apply(name, (self,), {}))


def _code(dtype: Any) -> str:
    """Return the type code of a dtype."""
    if dtype.name not in CODES or not dtype.isnative:
        raise NotTracedError(f"an array of {dtype}")
    return CODES[dtype.name]


def constant(tracing: Tracing, value: Any, dtype: np.dtype[Any], shape: tuple[int, ...] = ()) -> Traced:
    """Return a number as an array of a dtype."""
    code = _code(dtype)
    with np.errstate(over="ignore"):
        number = dtype.type(value)
    kept = float(number) if code in FLOATS else int(number)
    return Traced(tracing, tracing.add("const", code, (bits_of(kept, code),)), dtype, shape)


def _cast(x: Traced, dtype: np.dtype[Any]) -> Traced:
    if x.dtype == dtype:
        return x.copy()
    return Traced(x.tracing, x.tracing.add("cast", _code(dtype), (x.place,)), dtype, x.shape)


def _operand(tracing: Tracing, value: Any, dtype: np.dtype[Any]) -> Traced:
    """Return an argument of a step in the dtype that it is computed in."""
    return _cast(value, dtype) if isinstance(value, Traced) else constant(tracing, value, dtype)


def _kinds(tracing: Tracing, given: Sequence[Any]) -> list[Any]:
    """Return the dtypes of arrays and of NumPy's numbers, and the types of Python's, whose dtypes are weak."""
    found: list[Any] = []
    for each in given:
        if isinstance(each, Traced) and each.tracing is tracing:
            found.append(each.dtype)
        elif type(each) in (bool, int, float):
            found.append(np.dtype(bool) if type(each) is bool else type(each))
        elif isinstance(each, (np.generic, np.ndarray)) and not each.shape and each.dtype.name in CODES:
            found.append(each.dtype)
        else:
            raise tracing.fail(f"an argument of type {type(each).__name__}")
    return found


def _shape(given: Sequence[Any]) -> tuple[int, ...]:
    return np.broadcast_shapes(*(each.shape for each in given if isinstance(each, Traced)))


def _where(tracing: Tracing, condition: Any, a: Any, b: Any) -> Traced:
    _kinds(tracing, (condition, a, b))
    if not isinstance(a, Traced) and not isinstance(b, Traced):
        dtype = np.result_type(a, b)
    else:
        dtype = np.result_type(*(x.dtype if isinstance(x, Traced) else x for x in (a, b)))
    places = tuple(
        _operand(tracing, value, kind).place
        for value, kind in zip((condition, a, b), (np.dtype(bool), dtype, dtype), strict=True)
    )
    return Traced(tracing, tracing.add("where", _code(dtype), places), dtype, _shape((condition, a, b)))


def _ufunc(tracing: Tracing, name: str, given: Sequence[Any]) -> Traced:
    """Return a universal function of arrays and numbers, in the dtypes in which NumPy computes it."""
    kinds = _kinds(tracing, given)
    if name == "power" and (power := _product_of(given)) is not None:
        return _cast(power(given[0]), _resolved(tracing, np.power, kinds)[-1])
    if name == "square":
        return _ufunc(tracing, "multiply", (given[0], given[0]))
    if name in ("sigmoid", "erf"):  # which NumPy lacks
        kind = kinds[0] if kinds[0].kind == "f" else np.dtype(np.float64)
        loop = [kind, kind]
    else:
        function = getattr(np, name, None)
        if not isinstance(function, np.ufunc) or function.nout != 1:
            raise tracing.fail(f"the function {name}")
        loop = _resolved(tracing, function, kinds)
    *wanted, result = loop
    step = STEPS.get(name, name)
    if name in IDENTITIES and wanted[0].kind != "f":
        return _cast(given[0], result)
    if name.startswith("logical_"):
        wanted = [np.dtype(bool)] * len(wanted)
    elif wanted[0].kind == "b":
        step = {"add": "or", "mul": "and"}.get(step, step)
    if step not in ARITY or (step not in PREDICATES and result != wanted[0]):
        raise tracing.fail(f"the function {name} of {wanted[0]}")
    places = tuple(_operand(tracing, value, kind).place for value, kind in zip(given, wanted, strict=True))
    return Traced(tracing, tracing.add(step, _code(wanted[0]), places), result, _shape(given))


def _product_of(given: Sequence[Any]) -> Callable[[Traced], Any] | None:
    """Return the products or roots that a power is, or None."""
    base, power = given
    if not isinstance(base, Traced) or type(power) not in (int, float) or base.dtype.kind == "b":
        return None
    return POWERS.get(float(power)) if base.dtype.kind == "f" or (type(power) is int and power > 0) else None


def _resolved(tracing: Tracing, function: np.ufunc, kinds: Sequence[Any]) -> list[np.dtype[Any]]:
    """Return the dtypes of a universal function's arguments, as it computes them, and of its result."""
    if all(isinstance(kind, type) for kind in kinds):
        raise tracing.fail("an operation on numbers alone")
    try:
        return list(function.resolve_dtypes((*kinds, None)))
    except TypeError as error:
        raise tracing.fail(str(error)) from None


def result_dtype(program: Program) -> np.dtype[Any]:
    """Return the dtype of a program's results."""
    return array_dtype(TYPES[program.result])
