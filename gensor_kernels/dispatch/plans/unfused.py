"""How long the array library takes for a call: a prediction, of each of its operations by machine/library_times.py.

The library's way is run as it is written (`fallback.evaluate`, `Function.library`), on arrays that have no memory and
count operations. A kernel without a timing serves a call of several operations only where it is predicted to take no
longer (selection/tiers.py), by the low end of what the library is expected to take.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from gensor_kernels import config
from gensor_kernels.dispatch.calls.arguments import Operands, Operation
from gensor_kernels.dispatch.functions.vendor_call import function_of, library_call
from gensor_kernels.machine import library_times
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.library_times import Estimate
from gensor_kernels.operators import operator
from gensor_kernels.operators.types.dtypes import EIGHT_BIT_FLOATS, INTERNAL, array_dtype
from gensor_kernels.operators.types.epilogue import OPERATIONS
from gensor_kernels.operators.types.workload import Workload

if TYPE_CHECKING:
    from gensor_kernels.dispatch.calls.array import DeviceArray

    from .plan import Call

#: Reductions whose result has the dtype of the array, and reductions to positions.
_REDUCTIONS = frozenset("max mean min nanmax nanmean nanmin nansum prod sum".split())  # noqa: SIM905
_POSITIONS = frozenset({"argmax", "argmin"})
#: Scans, of which the library makes a copy in the dtype of the result first.
_SCANS = frozenset({"cumsum", "cumprod"})


def predict(call: Call, operands: Operands) -> Estimate | None:
    """Return the predicted time of tier 4 for a call, or None where none can be predicted."""
    arch, function = call.device.arch, call.function
    if arch is None or function.waits:
        return None
    library = _Library(arch)
    given = library.operands(operands)
    return library.count(lambda: function.count_passes(library, given, call.parameters, call.result, call.math))


@cache
def predict_workload(workload: Workload, arch: Arch) -> Estimate | None:
    """Return the predicted time of the library's calls that compute a Workload, or None where none can be predicted.

    Examples
    --------
    >>> from gensor_kernels.machine.arch import lookup
    >>> from gensor_kernels.operators.products.matmul import workload
    >>> found = predict_workload(workload(4096, 4096, 4096, dtype="float16"), lookup("h100-sxm"))
    >>> 120 < found.low < 150 < found.us < 220
    True
    """
    function = function_of(workload)
    if function is not None and function.waits:
        return None
    library, declared = _Library(arch), operator(workload.operator)
    *inputs, output = declared.operands(workload)

    def new(shape: Sequence[int], name: str, boolean: bool = False) -> _Counted:
        dtype = workload.dtype[name]
        bits = dtype in INTERNAL or dtype in EIGHT_BIT_FLOATS  # the library has no such types
        return library.new(shape, np.int8 if boolean else np.uint8 if bits else array_dtype(dtype))

    def step(name: str) -> Operation:
        operation = OPERATIONS[name]
        if not operation.takes_operand:
            return Operation(name)
        shape = declared.vector_shape(output.shape) if operation.operand == "n" else output.shape
        return Operation(name, new(shape, output.name, name == "mask"))

    def compute() -> None:
        arrays = {each.name: new(each.shape, each.name, each.boolean) for each in (*inputs, output)}
        call = library_call(library, workload, arrays, [step(name) for name in workload.epilogue])
        library.time = Estimate(0.0, 0.0, 0.0)  # arguments are made before
        if call is None:
            raise _UnknownError
        call()

    return library.count(compute)


def predict_substitute(call: Call, operands: Operands) -> float | None:
    """Return the least expected microseconds of tier 4 for a call, or None if the library's calls are no substitute."""
    found = predict(call, operands) if call.function.is_substitute(call.result) else None
    return None if found is None else found.low


class _UnknownError(Exception):
    """The library has no call, or no product of this dtype that is worth a comparison."""


class _Library:
    """Takes the place of a device in the library's implementations."""

    emulated = False

    def __init__(self, arch: Arch):
        self.arch, self.time = arch, Estimate(0.0, 0.0, 0.0)
        self.xp: Any = _Namespace(self)

    def count(self, compute: Callable[[], Any]) -> Estimate | None:
        """Return the time of what `compute` does with the library, or None where that cannot be predicted."""
        try:
            compute()
        except _UnknownError:
            return None
        except Exception as error:  # a call is served all the same
            config.logger().warning("the library's time could not be predicted: %s", error, exc_info=True)
            return None
        return self.time

    def in_turn(self, places: Sequence[int]) -> Iterator[int]:
        """Yield the first of places at which the same is done, which counts for the others."""
        before = self.time
        yield from places[:1]
        pairs = zip(self.time, before, strict=True)
        self.time = Estimate(*[now + (len(places) - 1) * (now - then) for now, then in pairs])

    def array(self, given: Any) -> Any:
        """Return an array of a call as one that counts."""
        return None if given is None else self.new(given.shape, given.dtype)

    def operands(self, given: Operands) -> Operands:
        """Return stand-ins for the operands of a call, which makes a new result."""
        steps = tuple(step._replace(operand=self.array(step.operand)) for step in given.steps)
        return Operands([self.array(x) for x in given.inputs], None, steps)  # the last operation writes to `out`

    def touch(self, *arrays: Any, kind: str = "elements", rows: int = 0) -> None:
        """Count one operation that reads or writes each of these arrays once; see `library_times.pass_time`."""
        self.time += library_times.pass_time(sum([x.nbytes for x in arrays]), self.arch, kind, rows)

    def make(self, shape: Sequence[int], dtype: DTypeLike, *read: Any, kind: str = "elements") -> _Counted:
        """Return a new array, computed from others in one pass."""
        found = self.new(shape, dtype)
        once = {id(x): x for x in read}.values()  # x * x reads x once
        self.touch(found, *once, kind=kind, rows=found.size if kind == "reductions" else 0)
        return found

    def new(self, shape: Sequence[int], dtype: DTypeLike) -> _Counted:
        """Return an array that has been there before."""
        found = _Counted(tuple(shape), dtype, np.zeros((), dtype), 0, (0,) * len(shape))
        found.library = self
        return found

    def product(self, a: _Counted, b: _Counted, precision: str | None = None, out: DeviceArray = None) -> _Counted:
        """Return a matrix product."""
        dtype = np.promote_types(a.dtype, b.dtype)
        if dtype.kind in "iub":  # not by cuBLAS, but by a plain kernel of the library, far from any bound
            raise _UnknownError
        a, b = a.astype(dtype, copy=False), b.astype(dtype, copy=False)
        if dtype == np.float16 and max(a.ndim, b.ndim) > 2:  # CuPy multiplies these in float32
            return self.product(a.astype(np.float32), b.astype(np.float32), precision).astype(dtype)
        m, n, k = (1 if a.ndim == 1 else a.shape[-2]), (1 if b.ndim == 1 else b.shape[-1]), a.shape[-1]
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        shape = (*batch, *(() if a.ndim == 1 else (m,)), *(() if b.ndim == 1 else (n,)))
        found, mode = self.new(shape, dtype), "tf32" if precision == "tf32" else "ieee"
        given = dtype.name, mode, math.prod(batch), m, n, k, a.nbytes + b.nbytes + found.nbytes
        self.time += library_times.product_time(*given, self.arch)
        return found

    def erfc(self, x: _Counted) -> _Counted:
        """Element by element."""
        return self.make(x.shape, x.dtype, x)

    def each(self, function: Callable[..., Any], *given: Any, out: Any = None) -> _Counted:
        """NumPy's function of the elements of arrays and numbers."""
        arrays = [x for x in given if isinstance(x, _Counted)]
        if out is not None:
            self.touch(out, *arrays)
            return out
        if len(arrays) == len(given):
            dtype = _result_dtype(function, *[x.dtype for x in arrays])
        else:
            dtype = _computed_dtype(function, [np.ones(1, x.dtype) if isinstance(x, _Counted) else x for x in given])
        return self.make(np.broadcast_shapes(*[np.shape(x) for x in given]), dtype, *arrays)

    def reduce(self, name: str, x: _Counted, axis: Any = None, keepdims: bool = False, **given: Any) -> _Counted:
        """NumPy's reduction of an array along an axis, several, or all."""
        axes = range(x.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
        reduced = {each % x.ndim for each in axes}
        shape = [1 if place in reduced else n for place, n in enumerate(x.shape) if keepdims or place not in reduced]
        dtype = np.int64 if name in _POSITIONS else given.get("dtype") or x.dtype
        found = self.make(shape, dtype, x, kind="reductions")
        return found if given.get("out") is None else given["out"]

    def scan(self, x: _Counted, axis: int | None = None, dtype: Any = None, out: Any = None) -> _Counted:
        """NumPy's scan of an array along an axis."""
        wide = {"b": np.int64, "i": np.int64, "u": np.uint64}.get(x.dtype.kind, x.dtype)
        found = self.new(x.shape, wide if dtype is None else dtype) if out is None else out
        self.touch(found, x)
        self.touch(found, found)
        return found


@cache
def _result_dtype(function: Callable[..., Any], *dtypes: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of what a function of NumPy makes of arrays."""
    return _computed_dtype(function, [np.ones(1, dtype) for dtype in dtypes])


def _computed_dtype(function: Callable[..., Any], given: Sequence[Any]) -> np.dtype[Any]:
    with np.errstate(all="ignore"):
        found: np.dtype[Any] = function(*given).dtype
    return found


class _Namespace:
    """The functions of the array library that its ways of computing use."""

    def __init__(self, library: _Library):
        self._library = library

    def __getattr__(self, name: str) -> Any:
        if name in _REDUCTIONS or name in _POSITIONS:
            return partial(self._library.reduce, name)
        if name in _SCANS:
            return self._library.scan
        function = getattr(np, name)
        if name != "where" and not isinstance(function, np.ufunc):
            raise AttributeError(f"the library's {name} is not counted")
        return partial(self._library.each, function)  # one pass over its arrays, in the library too

    def zeros(self, shape: Sequence[int], dtype: DTypeLike) -> _Counted:
        return self._library.make(shape, dtype)

    def arange(self, stop: int) -> _Counted:
        return self._library.make((stop,), np.int64)

    def asarray(self, given: np.ndarray[Any, Any]) -> _Counted:
        return self._library.make(given.shape, given.dtype)

    def broadcast_to(self, x: _Counted, shape: Sequence[int]) -> _Counted:
        return np.broadcast_to(x, shape, subok=True)  # type: ignore[return-value]

    def ascontiguousarray(self, x: _Counted) -> _Counted:
        return self._library.make(x.shape, x.dtype, x)

    def stack(self, arrays: Sequence[_Counted], axis: int) -> _Counted:
        assert axis == -1
        return self._library.make((*arrays[0].shape, len(arrays)), arrays[0].dtype, *arrays)


class _Counted(np.ndarray):
    """An array of one element in memory, all strides 0: views are NumPy's own, and what is computed is counted."""

    library: _Library
    #: computed where it was read from
    in_place = False

    def __array_finalize__(self, base: Any) -> None:
        self.library = getattr(base, "library", None)  # type: ignore[assignment]

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *given: Any, **options: Any) -> _Counted:
        return self.library.each(ufunc, *given)

    def __getitem__(self, key: Any) -> Any:
        keys = key if isinstance(key, tuple) else (key,)
        if isinstance(keys[-1], _Counted):  # a look-up: elements are copied
            lead = super().__getitem__(keys[:-1]).shape[: len(keys) - 1]
            shape = (*lead, *keys[-1].shape, *self.shape[len(keys) :])
            return self.library.make(shape, self.dtype, keys[-1], kind="lookups")
        return super().__getitem__(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        if not isinstance(value, _Counted):
            self.library.touch(self[key])
        elif not value.in_place:
            self.library.touch(self[key], value)

    def __iadd__(self, other: Any) -> _Counted:  # type: ignore[misc]
        self.library.touch(self, self, other)
        found = self.view()
        found.in_place = True
        return found

    def astype(self, dtype: DTypeLike, copy: bool = True) -> _Counted:  # type: ignore[override]
        same = np.dtype(dtype) == self.dtype
        return self if same and not copy else self.library.make(self.shape, dtype, self)

    def conj(self) -> _Counted:
        return self.library.make(self.shape, self.dtype, self)

    def sum(self, **given: Any) -> _Counted:  # type: ignore[override]
        return self.library.reduce("sum", self, **given)

    max = mean = sum  # type: ignore[assignment]
