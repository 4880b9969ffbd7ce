"""How long the array library takes for a call that it computes by several: a prediction.

A kernel without a timing serves such a call only where it is predicted to take no longer (selection/tiers.py). The
library's way is run as it is written (`fallback.evaluate`, `Function.library`), on arrays that have no memory and count
operations: a product takes its bound on the part over VENDOR_SHARE, any other operation as long as its arrays take to
be read and written, and each of them at least a launch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels import config
from gensor_kernels.dispatch.calls.arguments import Operands
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import DRAM_EFFICIENCY

from .plan import Call

if TYPE_CHECKING:
    from gensor_kernels.dispatch.calls.array import DeviceArray

#: The share of its bound (the best rate of its dtype, or bytes) that a product of the array library is taken to reach.
#: cuBLAS multiplies random bfloat16 matrices of 8192 rows at 769 to 798 of an H200's 989 TFLOP/s. Smaller products
#: reach less, so that the assumption errs on the side of the library, which is what callers had before.
VENDOR_SHARE = 0.8

#: Functions of NumPy that are also one pass over their arrays in the library.
_PASSES = frozenset({"abs", "exp", "isfinite", "log", "maximum", "minimum", "sqrt", "tanh", "trunc", "where"})


def microseconds(call: Call, operands: Operands) -> float | None:
    """Return the predicted microseconds of tier 4 for a call, or None if the library's calls are no substitute."""
    arch, function = call.device.arch, call.function
    if arch is None or not function.is_substitute(call.result):
        return None
    library = _Library(arch)
    try:
        function.count_passes(library, library.operands(operands), call.parameters, call.result, call.math)
    except _NoSubstituteError:
        return None
    except Exception as error:  # a call is served all the same
        config.logger().warning("the library's time could not be predicted: %s", error, exc_info=True)
        return None
    return library.us


class _NoSubstituteError(Exception):
    """The library has no product of this dtype that is worth a comparison."""


class _Library:
    """Takes the place of a device in the library's implementations."""

    emulated = False

    def __init__(self, arch: Arch):
        self.arch, self.us = arch, 0.0
        self.xp: Any = _Namespace(self)

    def array(self, given: Any) -> Any:
        """Return an array of a call as one that counts."""
        return None if given is None else self._new(given.shape, given.dtype)

    def operands(self, given: Operands) -> Operands:
        """Return stand-ins for the operands of a call, which makes a new result."""
        steps = tuple(step._replace(operand=self.array(step.operand)) for step in given.steps)
        return Operands([self.array(x) for x in given.inputs], None, steps)  # the last operation writes to `out`

    def touch(self, *arrays: Any) -> None:
        """Count one operation that reads or writes each of these arrays once."""
        self._add(sum(math.prod(x.shape) * x.dtype.itemsize for x in arrays) / (self.arch.dram_gb_s * DRAM_EFFICIENCY))

    def _add(self, nanoseconds: float) -> None:
        self.us += max(nanoseconds * 1e-3, self.arch.launch_us)

    def make(self, shape: Sequence[int], dtype: Any, *read: Any) -> _Counted:
        """Return a new array, computed from others in one pass."""
        found = self._new(shape, dtype)
        self.touch(found, *read)
        return found

    def _new(self, shape: Sequence[int], dtype: Any) -> _Counted:
        found = np.broadcast_to(np.zeros((), dtype), tuple(shape)).view(_Counted)
        found.library = self
        return found

    def product(self, a: _Counted, b: _Counted, precision: str | None = None, out: DeviceArray = None) -> _Counted:
        """Return a matrix product."""
        dtype = np.promote_types(a.dtype, b.dtype)
        if dtype.kind in "iub":  # not by cuBLAS, but by a plain kernel of the library, far from any bound
            raise _NoSubstituteError
        a, b = a.astype(dtype, copy=False), b.astype(dtype, copy=False)
        if dtype == np.float16 and max(a.ndim, b.ndim) > 2:  # CuPy multiplies these in float32
            return self.product(a.astype(np.float32), b.astype(np.float32), precision).astype(dtype)
        m, n, k = (1 if a.ndim == 1 else a.shape[-2]), (1 if b.ndim == 1 else b.shape[-1]), a.shape[-1]
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        shape = (*batch, *(() if a.ndim == 1 else (m,)), *(() if b.ndim == 1 else (n,)))
        found = self._new(shape, dtype)
        peak = self.arch.peak(dtype.name, "tf32" if precision == "tf32" else "ieee")
        flops = (8 if dtype.kind == "c" else 2) * math.prod(batch) * m * n * k
        bytes_moved = a.nbytes + b.nbytes + found.nbytes
        self._add(max(flops / peak * 1e9, bytes_moved / self.arch.dram_gb_s) / VENDOR_SHARE)
        return found

    def erfc(self, x: _Counted) -> _Counted:
        """Element by element."""
        return self.make(x.shape, x.dtype, x)

    def each(self, function: Callable[..., Any], *given: Any) -> _Counted:
        """NumPy's function of the elements of arrays and numbers."""
        arrays = [x for x in given if isinstance(x, _Counted)]
        with np.errstate(all="ignore"):
            dtype = function(*(np.ones(1, x.dtype) if isinstance(x, _Counted) else x for x in given)).dtype
        return self.make(np.broadcast_shapes(*(np.shape(x) for x in given)), dtype, *arrays)


class _Namespace:
    """The functions of the array library that its ways of computing use."""

    def __init__(self, library: _Library):
        self._library = library

    def __getattr__(self, name: str) -> Any:
        if name not in _PASSES:
            raise AttributeError(f"the library's {name} is not counted")
        return partial(self._library.each, getattr(np, name))

    def zeros(self, shape: Sequence[int], dtype: Any) -> _Counted:
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
            return self.library.make((*lead, *keys[-1].shape, *self.shape[len(keys) :]), self.dtype, keys[-1])
        return super().__getitem__(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        if not value.in_place:
            self.library.touch(self[key], value)

    def __iadd__(self, other: Any) -> _Counted:  # type: ignore[misc]
        self.library.touch(self, self, other)
        found = self.view()
        found.in_place = True
        return found

    def astype(self, dtype: Any, copy: bool = True) -> _Counted:  # type: ignore[override]
        same = np.dtype(dtype) == self.dtype
        return self if same and not copy else self.library.make(self.shape, dtype, self)

    def conj(self) -> _Counted:
        return self.library.make(self.shape, self.dtype, self)

    def _reduce(self, axis: int, keepdims: bool = False) -> _Counted:
        place = axis % self.ndim
        kept = (*self.shape[:place], *((1,) if keepdims else ()), *self.shape[place + 1 :])
        return self.library.make(kept, self.dtype, self)

    sum = mean = max = _reduce  # type: ignore[assignment]
