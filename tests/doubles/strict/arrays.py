"""CuPy's arrays and functions without a GPU: NumPy computes each of them on device memory, as an operation of a stream.

Arrays are real `cupy.ndarray`s; only what CuPy would launch a kernel for is replaced.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import cupy
import numpy as np

from gensor_kernels.devices.device import reach

from .pool import enqueue
from .stream_objects import current_stream
from .surface import Surface
from .system import System

BINARY = ("add", "sub", "mul", "truediv")
CONTRACTIONS = ("einsum", "tensordot", "dot", "inner", "vdot", "matmul")
POINTWISE = (
    *("exp", "log", "tanh", "sqrt", "trunc", "maximum", "minimum", "where", "isfinite"),
    *("add", "subtract", "multiply", "divide"),
)


def host(array: Any) -> np.ndarray:
    if array.size == 0:
        return np.empty(array.shape, array.dtype)
    before, size = reach(array.shape, array.strides, array.itemsize)
    memory = (ctypes.c_char * size).from_address(array.data.ptr - before)
    return np.ndarray(array.shape, array.dtype, memory, before, array.strides)


def compute(name: str, function: Callable[..., Any], *inputs: Any, dtype: Any = None, out: Any = None) -> Any:
    """Return the array that a function of NumPy's makes of its inputs, once its stream has got so far."""

    def of(arguments: list[Any]) -> np.ndarray:
        wide = [_wide(each) if isinstance(each, np.ndarray) else each for each in arguments]
        with np.errstate(all="ignore"):
            return np.asarray(function(*wide))

    arrays = [each for each in inputs if isinstance(each, cupy.ndarray)]
    if out is None:
        made = of([np.ones(each.shape, each.dtype) if isinstance(each, cupy.ndarray) else each for each in inputs])
        if made.dtype == np.float32 and arrays and all(each.dtype == np.float16 for each in arrays):
            dtype = dtype or np.float16
        out = Array(made.shape, made.dtype if dtype is None else dtype)

    # Views of memory: an operation keeps no array alive.
    result, given = host(out), [host(each) if isinstance(each, cupy.ndarray) else each for each in inputs]

    def work() -> None:
        with np.errstate(all="ignore"):
            result[...] = of(given)

    enqueue(Array.system, name, [each.data.ptr for each in (out, *arrays) if each.size], work)
    return out


def _wide(values: np.ndarray) -> np.ndarray:
    """Return float16 numbers as float32: NumPy multiplies them a hundred times faster."""
    return values.astype(np.float32) if values.dtype == np.float16 else values


class _AnyArray(type):
    """Every array of CuPy's counts as one of the machine's."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, cupy.ndarray)


class Array(cupy.ndarray, metaclass=_AnyArray):
    system: System

    def get(self) -> np.ndarray:
        """Return a copy in host memory, once the current stream has got so far."""
        current_stream(Array.system).synchronize()
        return host(self).copy()

    def set(self, values: Any) -> Array:
        values = np.array(values, self.dtype)
        self._write(slice(None), values)
        return self

    def fill(self, value: Any) -> None:
        self._write(slice(None), value)

    def __setitem__(self, where: Any, value: Any) -> None:
        self._write(where, value)

    def _write(self, where: Any, value: Any) -> None:
        arrays = [each for each in (self, value) if isinstance(each, cupy.ndarray) and each.size]

        result, given = host(self), host(value) if isinstance(value, cupy.ndarray) else value

        def work() -> None:
            result[where] = given

        enqueue(Array.system, "assignment", [each.data.ptr for each in arrays], work)

    def astype(self, dtype: Any, copy: bool = True) -> Array:
        if self.dtype == dtype and not copy:
            return self
        return compute("astype", np.copy, self, dtype=dtype)

    def conj(self) -> Array:
        return compute("conj", np.conj, self)

    def reshape(self, *shape: Any) -> Array:
        """See cupy.ndarray.reshape: a copy where a view is impossible."""
        try:
            return super().reshape(*shape)
        except Exception:  # what CuPy would copy, for which there is no GPU
            return compute("reshape", lambda values: values.reshape(*shape), self)

    def _reduce(self, name: str, axis: Any = None, keepdims: bool = False, dtype: Any = None, out: Any = None) -> Any:
        chosen = {} if dtype is None else {"dtype": dtype}
        function = partial(getattr(np, name), axis=axis, keepdims=keepdims, **chosen)
        return compute(name, function, self, dtype=dtype, out=out)

    def sum(self, *arguments: Any, **keywords: Any) -> Any:
        return self._reduce("sum", *arguments, **keywords)

    def max(self, *arguments: Any, **keywords: Any) -> Any:
        return self._reduce("max", *arguments, **keywords)

    def mean(self, *arguments: Any, **keywords: Any) -> Any:
        return self._reduce("mean", *arguments, **keywords)

    __hash__ = None  # type: ignore[assignment]


def _operators() -> None:
    def method(function: Callable[..., Any], turned: bool = False) -> Callable[..., Any]:
        def called(self: Array, *others: Any) -> Any:
            return compute(function.__name__, function, *((*others, self) if turned else (self, *others)))

        return called

    for name in BINARY:
        setattr(Array, f"__{name}__", method(getattr(operator, name)))
        setattr(Array, f"__r{name}__", method(getattr(operator, name), True))
    for name in ("neg", "abs", "lt", "gt", "eq"):
        setattr(Array, f"__{name}__", method(getattr(operator, name)))


_operators()


class Library(Surface):
    def __init__(self, system: System):
        super().__init__(system)
        Array.system, self.ndarray = system, Array
        for name in CONTRACTIONS + POINTWISE:
            setattr(self, name, partial(_call, name))
        self.lib = SimpleNamespace(
            stride_tricks=SimpleNamespace(
                as_strided=lambda array, shape, strides: Array(shape, array.dtype, array.data, strides)
            )
        )

    def empty(self, shape: Any, dtype: Any = float) -> Array:
        return Array(shape, dtype)

    def asarray(self, values: Any) -> Array:
        values = np.asarray(values)
        return Array(values.shape, values.dtype).set(values)

    def zeros(self, shape: Any, dtype: Any = float) -> Array:
        return self.full(shape, 0, dtype)

    def full(self, shape: Any, value: Any, dtype: Any) -> Array:
        return compute("full", lambda: np.full(shape, value, dtype))

    def arange(self, count: int) -> Array:
        return compute("arange", lambda: np.arange(count))

    def cumsum(self, array: Array, axis: Any = None, dtype: Any = None, out: Any = None) -> Array:
        return compute("cumsum", partial(np.cumsum, axis=axis, dtype=dtype), array, dtype=dtype, out=out)

    def sum(self, array: Array, axis: Any = None, **keywords: Any) -> Array:
        return array.sum(axis, **keywords)

    def array(self, array: Array, dtype: Any = None, order: Any = None, copy: bool = True) -> Array:
        return compute("array", np.copy, array, dtype=dtype or array.dtype)

    def ascontiguousarray(self, array: Array) -> Array:
        return array if array.flags.c_contiguous else compute("ascontiguousarray", np.copy, array)


def _call(name: str, *given: Any, out: Any = None, dtype: Any = None, **keywords: Any) -> Any:
    if name == "einsum":
        keywords = {"optimize": True}
    return compute(name, partial(getattr(np, name), **keywords), *given, out=out, dtype=dtype)
