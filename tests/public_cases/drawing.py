"""Arrays of every kind that a call takes, drawn from one random number, and their classes."""

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import ml_dtypes
import numpy as np

T = TypeVar("T")

#: Layouts of an array in memory.
FORMS = ("contiguous", "non-contiguous", "odd strides", "negative strides", "unaligned", "broadcast")
#: Classes of arrays, each drawn for every function.
ARRAYS = (*FORMS, "zero-size", "size one")
#: Forms of `out`.
OUTS = ("new", "contiguous", "non-contiguous", "odd strides", "negative strides")
FLOATS = ("float64", "float32", "float16", "bfloat16")


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


class Draw:
    """One case: random choices of one seed, and the classes it belongs to."""

    def __init__(self, seed: int, extreme: bool = False):
        self.seed, self.rng = seed, np.random.default_rng(seed)
        #: whether to draw arguments that few callers pass, and the reason why every way has to refuse the call
        self.extreme, self.refused = extreme, ""
        self.traits: set[str] = set()
        #: values of the operands of this case, so that one class occurs in several of them
        self.special = self.pick(["", "", "", "nan", "inf"])
        #: real values from 1/2 to 2 and their negatives in place of normal ones
        self.near_one = False
        #: the `out` of the call
        self.result: np.ndarray | None = None

    def pick(self, choices: Sequence[T]) -> T:
        """One of `choices`, uniformly."""
        return choices[int(self.rng.integers(len(choices)))]

    def often(self, share: float) -> bool:
        """True in that share of all cases."""
        return bool(self.rng.random() < share)

    def refuses(self, share: float, why: str) -> bool:
        """True in that share of the extreme cases: every way has to refuse the call that is drawn then."""
        drawn = self.extreme and self.often(share)
        self.refused = why if drawn else self.refused
        return drawn

    def extent(self, most: int = 40, zero: float = 0.02) -> int:
        """An extent: of any size, of a block and its neighbours, one, and now and then none."""
        drawn = self.pick([int(self.rng.integers(1, most + 1)), self.pick([1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33])])
        return 0 if self.often(zero) else min(drawn, most)

    def values(self, shape: Sequence[int], dtype: str, special: bool = True) -> np.ndarray:
        """Normal numbers, all of int8 and some of int32; where the case is a special one, a few NaN or infinities."""
        kind = dtype_of(dtype)
        if kind.kind in "iub":
            return self.rng.integers(0 if kind.kind == "b" else -128, 128, shape).astype(kind)
        array = self.rng.standard_normal(shape)
        if self.near_one:
            array = np.copysign(np.exp2(self.rng.uniform(-1, 1, shape)), array)
        if kind.kind == "c":
            array = array + 1j * self.rng.standard_normal(shape)
            array = array / np.abs(array) if self.near_one else array
        array = array.astype(kind)
        if special and self.special and array.size:
            odd = [np.nan] if self.special == "nan" else [np.inf, -np.inf]
            flat = array.reshape(-1).view(array.real.dtype)
            for place in self.rng.integers(0, flat.size, 2):
                flat[place] = self.pick(odd)
            self.traits.add(self.special)
        return array

    def array(
        self, shape: Sequence[int], dtype: str, *, special: bool = True, forms: Sequence[str] = FORMS
    ) -> np.ndarray:
        """An array of this shape in any form, some of its values NaN or infinite in special cases."""
        array = self.lay_out(self.values(shape, dtype, special), self.pick([*forms, "contiguous"]))
        self.traits.add(dtype)
        if 0 in array.shape:
            self.traits.add("zero-size")
        if 1 in array.shape:
            self.traits.add("size one")
        return array

    def out(self, shape: Sequence[int], dtype: str) -> np.ndarray | None:
        """An array for the result, or None for a new array."""
        form = self.pick(["new", *OUTS])
        if form == "new":
            return None
        self.traits.add("out")
        before, kept = set(self.traits), self.special
        array = self.result = self.lay_out(np.zeros(shape, dtype_of(dtype)), form)
        self.traits, self.special = before, kept
        return array

    def lay_out(self, values: np.ndarray, form: str) -> np.ndarray:
        """`values` (but where a broadcast array repeats itself) in memory as `form` says."""
        self.traits.add(form)
        if not values.ndim or not values.size or form == "contiguous":
            return align(values)
        if form == "broadcast":
            axis = int(self.rng.integers(values.ndim))
            return np.broadcast_to(np.take(values, [0], axis), values.shape)
        if form == "unaligned":
            return misalign(values)
        if form == "non-contiguous":
            order = self.rng.permutation(values.ndim) if values.ndim > 1 else [0]
            wide = np.zeros([values.shape[axis] + 1 for axis in order], values.dtype)
            cut = wide[tuple(slice(values.shape[axis]) for axis in order)].transpose(np.argsort(order))
        else:
            axis = int(self.rng.integers(values.ndim))
            step = -1 if form == "negative strides" else self.pick([2, 3])
            shape = [extent * (abs(step) if at == axis else 1) for at, extent in enumerate(values.shape)]
            cut = np.zeros(shape, values.dtype)[tuple(slice(None, None, step if at == axis else 1)
                                                      for at in range(values.ndim))]  # fmt: skip
        cut[...] = values
        return cut


def align(values: np.ndarray) -> np.ndarray:
    """A contiguous copy at an address that is a multiple of 16."""
    return _place(values, 0)


def misalign(values: np.ndarray) -> np.ndarray:
    """A contiguous copy one element past such an address."""
    return _place(values, values.dtype.itemsize)


def _place(values: np.ndarray, offset: int) -> np.ndarray:
    size = math.prod(values.shape) * values.dtype.itemsize
    raw = np.zeros(size + 48, np.uint8)
    start = -raw.ctypes.data % 16 + offset
    array = raw[start : start + size].view(values.dtype).reshape(values.shape)
    array[...] = values
    return array
