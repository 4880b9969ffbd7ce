"""CuPy's arrays and functions without a GPU: each operation says which addresses it touches, and computes nothing."""

from types import SimpleNamespace

import cupy
import numpy as np


def made(name, *inputs, dtype=None, shape=None):
    """A new array that an operation of the library's computes of its inputs."""
    arrays = [each for each in inputs if isinstance(each, cupy.ndarray)]
    if shape is None:
        shape = np.broadcast_shapes(*(each.shape for each in arrays))
    result = Array(shape, arrays[0].dtype if dtype is None else dtype)
    Array.did(name, [each.data.ptr for each in (result, *arrays) if each.size])
    return result


def as_strided(array, shape, strides):
    return Array(shape, array.dtype, array.data, strides)


class Array(cupy.ndarray):
    """An array whose operations touch memory, and nothing else."""

    did = None  # what an operation tells its name and addresses

    def astype(self, dtype, copy=True):
        return self if self.dtype == dtype and not copy else made("astype", self, dtype=dtype)

    def conj(self):
        return made("conj", self)

    def reshape(self, *shape):
        try:
            return super().reshape(*shape)
        except Exception:  # what CuPy would copy, for which there is no GPU
            given = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
            known = int(np.prod([each for each in given if each >= 0]))
            return made("reshape", self, shape=[each if each >= 0 else self.size // known for each in given])

    def __setitem__(self, where, value):
        arrays = [each.data.ptr for each in (self, value) if isinstance(each, cupy.ndarray)]
        Array.did("assignment", arrays)

    def _reduced(self, axis=None, keepdims=False, dtype=None, out=None):
        axes = range(self.ndim) if axis is None else [each % self.ndim for each in np.atleast_1d(axis)]
        kept = [1 if place in axes else n for place, n in enumerate(self.shape) if keepdims or place not in axes]
        if out is not None:
            Array.did("reduction", [self.data.ptr, out.data.ptr])
            return out
        return made("reduction", self, shape=kept, dtype=dtype)

    sum = max = mean = _reduced

    def _pointwise(self, *others):
        return made("pointwise", self, *others)

    def _compared(self, other):
        return made("comparison", self, other, dtype=bool)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _pointwise
    __neg__ = __abs__ = _pointwise
    __lt__ = __eq__ = _compared
    __hash__ = None


def contracted(name, given, keywords):
    """One of NumPy's contractions, of which only the shape is computed."""
    zeros = [np.zeros(each.shape, bool) if isinstance(each, cupy.ndarray) else each for each in given]
    shape = np.shape(getattr(np, name)(*zeros))
    return made(name, *given, shape=shape, dtype=keywords.get("dtype"))


class Library:
    """CuPy's functions, of which those that would need a GPU only touch memory."""

    def __init__(self, **own):
        vars(self).update(own)
        self.lib = SimpleNamespace(stride_tricks=SimpleNamespace(as_strided=as_strided))

    def __getattr__(self, name):
        if name in ("exp", "log", "tanh", "sqrt", "trunc", "maximum", "minimum", "where"):
            return lambda *arrays: made(name, *reversed(arrays))
        if name == "isfinite":
            return lambda array: made(name, array, dtype=bool)
        if name in ("einsum", "tensordot", "dot", "inner", "vdot"):
            return lambda *given, **keywords: contracted(name, given, keywords)
        return getattr(cupy, name)

    def matmul(self, a, b, out=None):
        if out is None:
            return contracted("matmul", (a, b), {})
        Array.did("matmul", [each.data.ptr for each in (a, b, out)])
        return out

    def erfc(self, x):
        return made("erfc", x)

    def empty(self, shape, dtype=float):
        return Array(shape, dtype)

    def zeros(self, shape, dtype=float):
        return made("zeros", shape=shape, dtype=dtype)

    def full(self, shape, value, dtype):
        return made("full", shape=shape, dtype=dtype)

    def arange(self, count):
        return made("arange", shape=(count,), dtype=np.int64)

    def cumsum(self, array, dtype):
        return made("cumsum", array, dtype=dtype)

    def sum(self, array, axis=None, **keywords):
        return array._reduced(axis, **keywords)

    def array(self, array, dtype=None, order=None, copy=True):
        return made("array", array, dtype=dtype)

    def ascontiguousarray(self, array):
        return array if array.flags.c_contiguous else made("ascontiguousarray", array)
