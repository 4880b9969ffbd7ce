"""Workload: an operator with sizes, types, layouts and alignment, which is the key of every record."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from gensor_database.lazy import cached_property
from gensor_kernels.errors import UnsupportedError

from .dtypes import facts
from .epilogue import MAX_STEPS, OPERATIONS, PROLOGUES

#: Axis names are kept in this customary order, any others follow alphabetically: equal keys, equal objects.
CUSTOMARY = ("batch", "m", "n", "k")

#: How products are formed: as the operands' type says, TF32 allowed for float32, three real products ("3m", BLAS's word
#: for Gauss's formula) allowed for complex types, Winograd's algorithm allowed for convolutions of float32, exact
#: products of 8-bit slices (Ozaki's scheme) for matrix products of float64.
MATHS = ("ieee", "tf32", "3m", "winograd", "ozaki")
#: Behind an operand's layout: its elements are conjugated as they are read ("k*").
CONJUGATED = "*"


class View(NamedTuple):
    """An array in memory: ``strides`` in elements, ``alignment`` in bytes (of element 0's address)."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    alignment: int = 16


def contiguous(shape: Iterable[int], dtype_name: str, alignment: int = 16) -> View:
    """The View of a C-contiguous array of ``shape`` whose first byte is aligned to ``alignment``."""
    extents = tuple(shape)
    strides, step = [], 1
    for extent in reversed(extents):
        strides.append(step)
        step *= extent
    return View(extents, tuple(reversed(strides)), dtype_name, alignment)


def unit_axis(view: View, names: tuple[str, ...], preferred: str) -> str:
    """Name of the unit-stride axis among the last ``len(names)`` axes of ``view``, or "s" when none is.

    An axis of extent 1 has no stride worth the name, so only longer axes count; when there is none at all,
    or the array is empty, ``preferred`` is returned.  That keeps, say, every m = 1 row in the class of its
    long axis.
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
    """Bytes one vector access may have: 16, 8, 4 or the element size.

    It divides the address, every stride of an axis longer than 1 and the extent of axis ``unit`` (an index
    into the shape; None when no axis has stride 1, which leaves single elements), so that a vector never
    straddles the end of that axis.
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
    order = {name: rank for rank, name in enumerate(CUSTOMARY)}
    return tuple(sorted(dict(items).items(), key=lambda pair: (order.get(pair[0], len(order)), pair[0])))


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True)
class Workload:
    """What is computed, on which types and layouts, at which sizes.

    ``sizes`` are extents by axis name, ``dtypes`` NumPy names by operand, ``layout`` the unit-stride axis by
    operand ("s": none; with :data:`CONJUGATED` behind it for an operand of a complex type that is read conjugated),
    ``alignment`` bytes by operand (16, 8, 4 or the element size), ``epilogue`` operation
    names in the order they apply, ``prologue`` those applied to the first operand as it is read, of an operator that
    has one (declaration/prologue.py).  Mappings and pairs in any order are accepted and put in one order.
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

    def __post_init__(self) -> None:
        for field in ("sizes", "dtypes", "layout", "alignment"):
            object.__setattr__(self, field, _pairs(getattr(self, field)))
        object.__setattr__(self, "epilogue", tuple(self.epilogue))
        object.__setattr__(self, "prologue", tuple(self.prologue))
        self._check()

    def _check(self) -> None:
        for axis, extent in self.sizes:
            if not isinstance(extent, int) or extent < 0:
                raise ValueError(f"size {axis} is {extent!r}: expected an integer of 0 or more")
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

    def _check_complex(self) -> None:
        complexes = {facts(name).is_complex for name in (self.accumulator, *self.dtype.values())}
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
        return hash((self.operator, self.sizes, self.dtypes, self.math, self.layout, self.alignment, self.epilogue))

    def __hash__(self) -> int:
        return self._hash  # one prediction looks dozens of things up by Workload

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
    def kind(self) -> str:
        """Element type of the first operand with its math mode, as reports name a class: "float32", "tf32"."""
        first = next(iter(self.dtype.values()))
        return {"ieee": first, "tf32": "tf32"}.get(self.math, f"{first} {self.math}")

    def __reduce__(self) -> tuple[type[Workload], tuple[Any, ...]]:
        # Cached mapping proxies can't be pickled, and worker processes rebuild them anyway.
        return Workload, tuple(getattr(self, field) for field in self.__dataclass_fields__)

    def with_sizes(self, **sizes: int) -> Workload:
        """The same class and epilogue at other sizes: ``workload.with_sizes(m=64, k=4096)``."""
        unknown = set(sizes) - set(self.size)
        if unknown:
            raise ValueError(f"{self.operator} has axes {', '.join(self.size)}, not {', '.join(sorted(unknown))}")
        return replace(self, sizes=tuple({**self.size, **sizes}.items()))

    def with_epilogue(self, epilogue: Iterable[str]) -> Workload:
        """The same sizes and class behind another list of epilogue operations."""
        return replace(self, epilogue=tuple(epilogue))

    def _class(self) -> dict[str, object]:
        # Most Workloads have no prologue, and keys older than prologues name none.
        return ({"prologue": list(self.prologue)} if self.prologue else {}) | {
            "operator": self.operator,
            "dtypes": dict(self.dtypes),
            "accumulator": self.accumulator,
            "math": self.math,
            "layout": dict(self.layout),
            "alignment": dict(self.alignment),
        }

    def key(self) -> str:
        """Canonical JSON of everything: sorted keys, no spaces."""
        return _canonical(self._class() | {"sizes": dict(self.sizes), "epilogue": list(self.epilogue)})

    def class_key(self) -> str:
        """Canonical JSON without sizes and epilogue: what one binary can serve."""
        return _canonical(self._class())

    @classmethod
    def from_json(cls, text: str) -> Workload:
        """The Workload whose :meth:`key` is ``text``; ValueError names a missing or unknown field."""
        fields = json.loads(text)
        if not isinstance(fields, dict) or set(fields) | {"prologue"} != set(cls.__dataclass_fields__):
            raise ValueError(f"a workload has the fields {', '.join(cls.__dataclass_fields__)}: {text[:200]}")
        return cls(**fields)

    def flops(self) -> int:
        """Return the operator's arithmetic operations: 2 per multiply-add, 8 per complex one, as BLAS counts."""
        return _declared(self.operator).flops(self)

    def bytes_moved(self) -> int:
        """Return the least traffic in bytes: inputs and epilogue operands read once, the output written once."""
        return _declared(self.operator).bytes_moved(self)


class Declared(Protocol):
    """The part of an Operator that a Workload asks for its work."""

    def flops(self, workload: Workload) -> int:
        """See Operator.flops."""

    def bytes_moved(self, workload: Workload) -> int:
        """See Operator.bytes_moved."""


def look_operators_up_by(find: Callable[[str], Declared]) -> None:
    """Set the function that finds a Workload's operator by name: operators/__init__.py, which is above this file."""
    global _declared
    _declared = find


_declared: Callable[[str], Declared]
