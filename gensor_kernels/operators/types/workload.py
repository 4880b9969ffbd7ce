"""Workload: an operator with sizes, types, layouts and alignment, the key of every record."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from gensor_database.lazy import cached_property
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators import types
from gensor_kernels.shown import shown

from .dtypes import facts
from .epilogue import MAX_STEPS, OPERATIONS, PROLOGUES

#: Customary order of axis names; other names follow alphabetically, so that equal keys mean equal objects.
CUSTOMARY = ("batch", "m", "n", "k")

#: Arithmetic of products: that of the operands' type ("ieee"), TF32 allowed for float32, three real products ("3m",
#: BLAS's name of Gauss's formula) allowed for complex types, exact products of 8-bit slices (Ozaki's scheme) for matrix
#: products of float64.
MATHS = ("ieee", "tf32", "3m", "ozaki")
#: Suffix of an operand's layout whose elements are conjugated as they are read ("k*").
CONJUGATED = "*"


class View(NamedTuple):
    """An array in memory: ``strides`` in elements, ``alignment`` of element 0's address in bytes."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    alignment: int = 16


def contiguous(shape: Iterable[int], dtype_name: str, alignment: int = 16) -> View:
    """Return the View of a C-contiguous array of ``shape`` whose first byte is aligned to ``alignment``."""
    extents = tuple(shape)
    strides, step = [], 1
    for extent in reversed(extents):
        strides.append(step)
        step *= extent
    return View(extents, tuple(reversed(strides)), dtype_name, alignment)


def normal_axis(axis: int, rank: int) -> int:
    """Return an axis counted from 0; AxisError for one that an array of ``rank`` axes does not have."""
    from numpy.exceptions import AxisError

    if not -rank <= axis < rank:
        raise AxisError(axis, rank)
    return axis + rank if axis < 0 else axis


def unit_axis(view: View, names: tuple[str, ...], preferred: str) -> str:
    """Return the name of the unit-stride axis among the last ``len(names)`` axes of ``view``, or "s" for none.

    An axis of extent 1 has no meaningful stride, so that only longer axes count; without longer axes, or for an empty
    array, the result is ``preferred``.  That keeps every m = 1 row in the class of its long axis, for example.
    """
    rank = len(names)
    long_axes = [
        (name, stride)
        for name, extent, stride in zip(names, view.shape[-rank:], view.strides[-rank:], strict=True)
        if extent > 1 and 0 not in view.shape
    ]
    units = [name for name, stride in long_axes if stride == 1]
    if not long_axes or preferred in units:
        return preferred
    return units[0] if units else "s"


def alignment_class(view: View, unit: int | None) -> int:
    """Return the bytes of one vector access: 16, 8, 4 or the element size.

    The width divides the address, every stride of an axis longer than 1 and the extent of axis ``unit`` (an index into
    the shape, or None if no axis has stride 1, which leaves single elements), so that a vector never crosses the end of
    that axis.
    """
    size = facts(view.dtype).itemsize
    if view.alignment % size:
        raise UnsupportedError(f"{view.dtype} data at an address aligned to {view.alignment} bytes only")
    if unit is None:
        return size
    steps = [view.alignment, view.shape[unit] * size]
    if 0 not in view.shape:
        steps += [
            stride * size
            for axis, (extent, stride) in enumerate(zip(view.shape, view.strides, strict=True))
            if axis != unit % len(view.shape) and extent > 1
        ]
    return next((width for width in (16, 8, 4) if width > size and not any(s % width for s in steps)), size)


def _pairs(items: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> tuple[tuple[str, Any], ...]:
    """``items`` as name-value pairs in the customary order."""
    found = dict(items)
    return (*[(name, found.pop(name)) for name in CUSTOMARY if name in found], *sorted(found.items()))


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True)
class Workload:
    """An operator on given types and layouts, at given sizes: the key of every record.

    Mappings and pairs in any order are accepted and put in one order.

    Parameters
    ----------
    operator : str
        Name in gensor_kernels.operators.MODULES.
    sizes : Mapping[str, int]
        Extents by axis name.
    dtypes : Mapping[str, str]
        NumPy names by operand.
    accumulator : str
        Type of the sums.
    math : str
        One of MATHS.
    layout : Mapping[str, str]
        Unit-stride axis by operand, "s" for none; with :data:`CONJUGATED` appended, elements are read conjugated.
    alignment : Mapping[str, int]
        Bytes of a vector access by operand: 16, 8, 4 or the element size.
    epilogue : tuple[str, ...]
        Operation names in the order of their application.
    prologue : tuple[str, ...]
        Operation names applied to the first operand as it is read (declaration/prologue.py).
    program : str
        What an element-wise operator computes (expression/program.py), empty for all others.

    Raises
    ------
    ValueError
        For sizes, widths or names that do not fit together.
    UnsupportedError
        For math modes and operations that are not served.

    Examples
    --------
    >>> from gensor_kernels.operators.products.matmul import workload
    >>> small = workload(64, 32, 16, dtype="float32")
    >>> small.size["k"], small.accumulator, small.with_sizes(m=128).size["m"]
    (16, 'float32', 128)
    >>> Workload.from_json(small.key()) == small
    True
    """

    operator: str
    sizes: tuple[tuple[str, int], ...]
    dtypes: tuple[tuple[str, str], ...]
    accumulator: str
    math: str
    layout: tuple[tuple[str, str], ...]
    alignment: tuple[tuple[str, int], ...]
    epilogue: tuple[str, ...] = ()
    prologue: tuple[str, ...] = ()
    program: str = ""

    def __post_init__(self) -> None:
        for field in ("sizes", "dtypes", "layout", "alignment"):
            object.__setattr__(self, field, _pairs(getattr(self, field)))
        object.__setattr__(self, "epilogue", tuple(self.epilogue))
        object.__setattr__(self, "prologue", tuple(self.prologue))
        self._check()

    def _check(self) -> None:
        for axis, extent in self.sizes:
            if not isinstance(extent, int) or extent < 0:
                raise ValueError(f"size {axis} is {shown(extent)}: expected an integer of 0 or more")
        for operand, width in self.alignment:
            size = facts(self.dtype[operand]).itemsize
            if width not in (16, 8, 4, 2, 1) or width < size:
                raise ValueError(f"alignment of {operand} is {width}: expected 16, 8, 4 or {size} bytes")
        if {name for name, _ in self.layout} != set(self.dtype) or set(self.align) != set(self.dtype):
            raise ValueError(f"dtypes, layout and alignment name different operands: {self}")
        if self.math not in MATHS:
            raise UnsupportedError(f"math {self.math!r} is not one of {', '.join(MATHS)}")
        self._check_complex()
        unknown = [name for name in self.epilogue if name not in OPERATIONS]
        if unknown:
            raise UnsupportedError(f"epilogue operation {unknown[0]!r} is not one of {', '.join(OPERATIONS)}")
        if len(self.epilogue) > MAX_STEPS:
            raise UnsupportedError(f"{len(self.epilogue)} epilogue operations, at most {MAX_STEPS} are served")
        foreign = [name for name in self.prologue if name not in PROLOGUES]
        if foreign:
            raise UnsupportedError(f"prologue operation {foreign[0]!r} is not one of {', '.join(PROLOGUES)}")
        if bool(self.prologue) != ("_prologue" in self.operator):
            raise ValueError(f"{self.operator} with the prologue {self.prologue}")
        if bool(self.program) != self.operator.startswith("pointwise"):
            raise ValueError(f"{self.operator} with the program {self.program[:80]!r}")
        if self.program and self.epilogue:
            raise UnsupportedError("an element-wise program has no epilogue: operations are steps of it")

    def _check_complex(self) -> None:
        complexes = {facts(name).is_complex for name in {self.accumulator, *self.dtype.values()}}
        if len(complexes) > 1:
            named = ", ".join(dict.fromkeys((*self.dtype.values(), self.accumulator)))
            raise UnsupportedError(f"complex and real types together: {named}")
        if complexes == {False} and (self.math == "3m" or any(self.conjugated.values())):
            raise UnsupportedError("three-product math and conjugated operands are for complex types")
        real = [name for name in self.epilogue if name in OPERATIONS and not OPERATIONS[name].of_complex]
        if complexes == {True} and real:
            raise UnsupportedError(f"epilogue operation {real[0]!r} is not defined for complex numbers")

    @cached_property
    def _hash(self) -> int:
        rest = (self.layout, self.alignment, self.epilogue, self.program)
        return hash((self.operator, self.sizes, self.dtypes, self.math, *rest))

    def __hash__(self) -> int:
        return self._hash  # one prediction makes dozens of look-ups by Workload

    @cached_property
    def size(self) -> Mapping[str, int]:
        """Extent of each axis by name."""
        return MappingProxyType(dict(self.sizes))

    @cached_property
    def dtype(self) -> Mapping[str, str]:
        """Element type of each operand by name."""
        return MappingProxyType(dict(self.dtypes))

    @cached_property
    def layouts(self) -> Mapping[str, str]:
        """Unit-stride axis of each operand by name, "s" for none."""
        return MappingProxyType({name: layout.removesuffix(CONJUGATED) for name, layout in self.layout})

    @cached_property
    def conjugated(self) -> Mapping[str, bool]:
        """Whether each operand is read conjugated, by name."""
        return MappingProxyType({name: layout.endswith(CONJUGATED) for name, layout in self.layout})

    @cached_property
    def align(self) -> Mapping[str, int]:
        """Alignment class of each operand in bytes, by name."""
        return MappingProxyType(dict(self.alignment))

    @property
    def is_complex(self) -> bool:
        """Whether its numbers are complex."""
        return facts(self.accumulator).is_complex

    @property
    def is_real(self) -> bool:
        """Whether its numbers are real, and no integers."""
        kind = facts(self.accumulator)
        return not (kind.is_integer or kind.is_complex)

    @property
    def kind(self) -> str:
        """Name of the class in reports: the first operand's type with the math mode, "float32" or "tf32"."""
        first = next(iter(self.dtype.values()))
        return {"ieee": first, "tf32": "tf32"}.get(self.math, f"{first} {self.math}")

    def __reduce__(self) -> tuple[type[Workload], tuple[Any, ...]]:
        # Cached mapping proxies can't be pickled, and worker processes rebuild them anyway.
        return Workload, tuple(getattr(self, field) for field in self.__dataclass_fields__)

    def stored_as(self, other: Workload) -> Workload:
        """Return the same with the layout and the alignment of a Workload of operands of the same types."""
        if (self.layout, self.alignment) == (other.layout, other.alignment):
            return self
        made = object.__new__(Workload)  # both were checked
        made.__dict__.update({name: getattr(self, name) for name in self.__dataclass_fields__})
        made.__dict__.update(layout=other.layout, alignment=other.alignment)
        return made

    def with_sizes(self, **sizes: int) -> Workload:
        """Return the same class and epilogue at other sizes: ``workload.with_sizes(m=64, k=4096)``."""
        unknown = set(sizes) - set(self.size)
        if unknown:
            raise ValueError(f"{self.operator} has axes {', '.join(self.size)}, not {', '.join(sorted(unknown))}")
        return replace(self, sizes=tuple({**self.size, **sizes}.items()))

    def with_epilogue(self, epilogue: Iterable[str]) -> Workload:
        """Return the same sizes and class with another list of epilogue operations."""
        return replace(self, epilogue=tuple(epilogue))

    def _class(self) -> dict[str, object]:
        # Keys that are older than prologues, or programs, lack the field.
        more: dict[str, object] = {"prologue": list(self.prologue)} if self.prologue else {}
        return (
            more
            | ({"program": self.program} if self.program else {})
            | {
                "operator": self.operator,
                "dtypes": dict(self.dtypes),
                "accumulator": self.accumulator,
                "math": self.math,
                "layout": dict(self.layout),
                "alignment": dict(self.alignment),
            }
        )

    def key(self) -> str:
        """Return canonical JSON of all fields: sorted keys, no spaces."""
        return _canonical(self._class() | {"sizes": dict(self.sizes), "epilogue": list(self.epilogue)})

    def class_key(self) -> str:
        """Return canonical JSON without sizes and epilogue: the key of all Workloads that one binary can serve."""
        return _canonical(self._class())

    def type_texts(self) -> list[str]:
        """Return the parts of :meth:`key` and :meth:`class_key` that all Workloads of these types have in common."""
        return [_canonical({name: self._class()[name]})[1:-1] for name in ("operator", "dtypes", "accumulator", "math")]

    @classmethod
    def from_json(cls, text: str) -> Workload:
        """Return the Workload whose :meth:`key` is ``text``; ValueError names a missing or unknown field."""
        fields = json.loads(text)
        if not isinstance(fields, dict) or set(fields) | {"prologue", "program"} != set(cls.__dataclass_fields__):
            raise ValueError(f"a workload has the fields {', '.join(cls.__dataclass_fields__)}: {text[:200]}")
        return cls(**fields)

    def flops(self) -> int:
        """Return the operator's arithmetic operations: 2 per multiply-add, 8 per complex one, as BLAS counts."""
        return types.find_operator(self.operator).flops(self)

    def bytes_moved(self) -> int:
        """Return the least traffic in bytes: inputs and epilogue operands read once, the output written once."""
        return types.find_operator(self.operator).bytes_moved(self)
