"""The graph of a model: operators as nodes, tensors by name as edges, and arrays made of its constants."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary, ref

import numpy as np

from gensor_kernels.arrays import Dtype

Found = TypeVar("Found")


class Derived:
    """Arrays by the constants that they were made of, and how, as long as anything uses them.

    Constants are known by identity; results of other arrays are not kept.
    """

    def __init__(self) -> None:
        #: Arrays that own memory, and their names, by identity.
        self._owners: dict[int, tuple[Callable[[], np.ndarray | None], Hashable]] = {}
        self._made: WeakValueDictionary[Hashable, np.ndarray] = WeakValueDictionary()
        self._facts: dict[Hashable, Any] = {}

    def __reduce__(self) -> tuple[type[Derived], tuple[()]]:
        """Pickle and copy no arrays: they are derived again."""
        return Derived, ()

    def note(self, constants: Iterable[np.ndarray]) -> None:
        """Add constants of a file, which are kept from now on."""
        for each in constants:
            owner = owner_of(each)
            if id(owner) not in self._owners:
                self._owners[id(owner)] = (lambda owner=owner: owner), len(self._owners)  # type: ignore[misc]

    def array(self, how: Hashable, sources: Sequence[np.ndarray], make: Callable[[], np.ndarray]) -> np.ndarray:
        """Return the array that was made of `sources` before under an equal key `how`, or the result of `make`."""
        key = self._key(how, sources)
        found = None if key is None else self._made.get(key)
        if found is None:
            found = make()
            if key is not None:
                self._made[key] = found
                self._name(owner_of(found), key)
        return found

    def fact(self, what: Hashable, source: np.ndarray, ask: Callable[[], Found]) -> Found:
        """Return a fact about an array that is known under this key, or the result of `ask`."""
        key = self._key(what, [source])
        if key is None:
            return ask()
        if key not in self._facts:
            self._facts[key] = ask()
        found: Found = self._facts[key]
        return found

    def _key(self, how: Hashable, sources: Sequence[np.ndarray]) -> Hashable | None:
        key: list[Hashable] = [how]
        for each in sources:
            owner = owner_of(each)
            own, name = self._owners.get(id(owner), (None, None))
            if own is None or own() is not owner:
                return None
            offset = each.ctypes.data - owner.ctypes.data
            key.append((name, offset, each.shape, each.strides, each.dtype.name))
        return tuple(key)

    def _name(self, owner: np.ndarray, key: Hashable) -> None:
        place, owners = id(owner), self._owners
        if place not in owners:
            owners[place] = ref(owner, lambda _: owners.pop(place, None)), key


def owner_of(array: np.ndarray) -> np.ndarray:
    """Return the array that owns the memory of a view."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def memory_of(arrays: Iterable[np.ndarray]) -> int:
    """Return the bytes of arrays of numbers: a region of a file counts once."""
    ends = dict[int, int]()
    for array in arrays:
        if array.dtype != object:
            owner = owner_of(array)
            end = array.ctypes.data - owner.ctypes.data + array.nbytes
            ends[id(owner)] = max(ends.get(id(owner), 0), end)
    return sum(ends.values())


#: Version of the ONNX standard's operators that nodes have.
OPSET = 24
#: Extents of a tensor: a number, the name of a symbolic size, or None where nothing is known.
Extents = tuple[int | str | None, ...]


class Spec(NamedTuple):
    """Dtype and shape of a tensor; a shape of None has an unknown number of axes."""

    dtype: Dtype
    shape: Extents | None

    def __str__(self) -> str:
        shape = "..." if self.shape is None else ", ".join("?" if each is None else str(each) for each in self.shape)
        return f"{self.dtype.name} ({shape})"


class Step(NamedTuple):
    """An operation in the epilogue of a node: its name, and the tensor or the number that it takes."""

    name: str
    operand: str = ""
    scalar: float | None = None


@dataclass(frozen=True)
class Node:
    """One call of an operator."""

    #: Operator of the ONNX standard (its newest version), or "Elementwise": a chain of operations on one tensor,
    #: "Pointwise": a program of several.
    op: str
    #: Tensors by name; "" is an input that was left out.
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    #: Attributes by name, as Python values and NumPy arrays.
    attributes: dict[str, Any] = field(default_factory=dict)
    #: Name in the model; nodes that were joined have the name of the first.
    name: str = ""
    #: Operations that the kernel applies to its result.
    epilogue: tuple[Step, ...] = ()
    #: Operators of other nodes that this node computes.
    joined: tuple[str, ...] = ()
    #: Order in memory of the images that the node reads and writes, whose axes are (n, c, h, w) in any case: "last" for
    #: channels innermost, "first" for columns innermost, "" where nothing was chosen.
    layout: str = ""

    def attribute(self, name: str) -> Any:
        """Return an attribute, by default the standard's value; None where there is neither."""
        return self.attributes[name] if name in self.attributes else _defaults(self.op).get(name)

    def input(self, place: int) -> str:
        """Return the tensor at a place of the inputs; "" where it was left out."""
        return self.inputs[place] if place < len(self.inputs) else ""

    def reads(self) -> tuple[str, ...]:
        """Return the tensors that this node reads, those of its epilogue included."""
        return tuple(each for each in (*self.inputs, *(step.operand for step in self.epilogue)) if each)

    def reading(self, names: Mapping[str, str]) -> Node:
        """Return this node with other tensors in place of some that it reads."""
        inputs = tuple(names.get(each, each) for each in self.inputs)
        steps = tuple(step._replace(operand=names.get(step.operand, step.operand)) for step in self.epilogue)
        return replace(self, inputs=inputs, epilogue=steps)

    def __str__(self) -> str:
        return " + ".join(self.joined if self.op in ("Elementwise", "Pointwise") else (self.op, *self.joined))


@cache
def _defaults(op: str) -> dict[str, Any]:
    """Return default values of an operator's attributes by the ONNX standard."""
    from onnx import defs, helper

    found: dict[str, Any] = {}
    if not defs.has(op):
        return found
    try:
        schema = defs.get_schema(op, OPSET)
    except defs.SchemaError:  # an operator of a later version
        schema = defs.get_schema(op)
    for name, each in schema.attributes.items():
        value = helper.get_attribute_value(each.default_value) if each.default_value.type else None
        # The standard's numbers are decimal, and stored in 32 bits.
        found[name] = float(str(np.float32(value))) if isinstance(value, float) else _plain(value)
    return found


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else tuple(value) if isinstance(value, list) else value


class Decision(NamedTuple):
    """A rule that was applied, or was not because another way is predicted faster."""

    #: Name of the rule.
    rule: str
    #: Names of the nodes that it took out and put in.
    before: tuple[str, ...]
    after: tuple[str, ...]
    #: Reason in words, "" where the rule itself is the reason.
    why: str = ""
    #: Predicted times of both ways, in microseconds, where they were compared.
    before_us: float | None = None
    after_us: float | None = None
    #: Whether the rule was applied; otherwise the nodes in `before` stayed.
    applied: bool = True

    def __str__(self) -> str:
        before, after = (", ".join(dict.fromkeys(names)) for names in (self.before, self.after))
        done = f" -> {after}" if after else " removed" if self.applied else " left as they are"
        text = f"{self.rule}: {before}{done}"
        text += f" ({self.why})" if self.why else ""
        if self.before_us is None or self.after_us is None:
            return text
        return f"{text}: {self.before_us:.1f} µs before, {self.after_us:.1f} µs after (predicted)"


@dataclass
class Graph:
    """Nodes in an order in which each tensor is computed before it is read."""

    nodes: list[Node]
    #: Inputs in order.
    inputs: dict[str, Spec]
    #: Results in order.
    outputs: list[str]
    #: Weights and other constants.
    constants: dict[str, np.ndarray]
    #: Inferred dtype and shape of tensors.
    specs: dict[str, Spec]
    #: Rules that were applied, in order, and alternatives that were not taken.
    decisions: list[Decision] = field(default_factory=list)
    #: Arrays made of constants; graphs of one model share it.
    derived: Derived = field(default_factory=Derived)
    #: Bytes of the constants that the file has, among others that were computed.
    weight_bytes: int = 0

    def bound(self, shapes: Mapping[str, Sequence[int]]) -> Graph:
        """Return a copy, which may be changed, with other shapes of inputs."""
        inputs = {**self.inputs}
        inputs |= {name: inputs[name]._replace(shape=tuple(shape)) for name, shape in shapes.items() if name in inputs}
        return Graph(
            [*self.nodes], inputs, [*self.outputs], {**self.constants}, {**self.specs}, weight_bytes=self.weight_bytes
        )

    def reasons(self, name: str) -> list[Decision]:
        """Return the decisions that led to the node of this name, or that took it out."""
        wanted, found = {name}, []
        for each in reversed(self.decisions):
            if wanted & {*each.before, *each.after}:
                wanted |= set(each.before) if wanted & set(each.after) else set()
                found.append(each)
        return found[::-1]

    def spec(self, name: str) -> Spec | None:
        """Return what is known of a tensor."""
        if name in self.constants:
            constant = self.constants[name]
            return Spec(constant.dtype, constant.shape)
        return self.inputs.get(name) or self.specs.get(name)

    def shape(self, name: str) -> Extents | None:
        """Return the shape of a tensor, None where it is unknown."""
        found = self.spec(name)
        return found.shape if found else None

    def static(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of a tensor whose extents are all known."""
        shape = self.shape(name)
        if shape is None or not all(isinstance(each, int) for each in shape):
            return None
        return tuple(each for each in shape if isinstance(each, int))

    def add(self, wanted: str, value: np.ndarray) -> str:
        """Store a constant and return its name, which begins with `wanted`."""
        name, number = wanted, 0
        while name in self.constants or name in self.specs:
            name, number = f"{wanted}.{number}", number + 1
        self.constants[name] = np.asarray(value)  # NumPy makes scalars of arrays without axes
        return name

    def change(self, position: int, **changes: Any) -> None:
        """Change fields of one node."""
        self.nodes[position] = replace(self.nodes[position], **changes)

    def tidy(self) -> None:
        """Drop nodes and constants that are not read."""
        wanted, kept = set(self.outputs), []
        for node in reversed(self.nodes):
            if wanted & set(node.outputs):
                kept.append(node)
                wanted |= set(node.reads())
        self.nodes = kept[::-1]
        self.constants = {name: value for name, value in self.constants.items() if name in wanted}

    def last_reads(self) -> Iterator[tuple[str, ...]]:
        """Yield for each node the tensors that are unused after it."""
        later, found = set(self.outputs), []
        for node in reversed(self.nodes):
            names = {name for name in (*node.reads(), *node.outputs) if name and name not in later}
            found.append(tuple(sorted(names - set(self.constants))))
            later |= names
        yield from reversed(found)
