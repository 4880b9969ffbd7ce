"""Nodes of a file written in other operators: of the standard's newest version, and of the standard alone.

onnx_versions has the steps of old versions, onnx_microsoft, onnx_attention and onnx_quantised those of com.microsoft.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from gensor_database.lazy import cached_property
from gensor_kernels.errors import ModelError, UnsupportedError
from gensor_kernels.shown import shown

if TYPE_CHECKING:
    import onnx
    from numpy.typing import DTypeLike

    from .onnx_nodes import Weights

Proto = TypeVar("Proto", bound="onnx.ModelProto | onnx.NodeProto")


def lift(model: onnx.ModelProto, version: int, weights: Weights) -> None:
    """Rewrite the nodes of an onnx.ModelProto without functions, and of graphs within it, to a version from 18 on.

    Operators of FOREIGN become the standard's. Tensors that replace others are added to `weights`. ModelError for a
    rank that is needed and unknown, UnsupportedError for meanings that are not served.
    """
    own = next((each for each in model.opset_import if each.domain in ("", "ai.onnx")), None)
    if own is None:
        own = model.opset_import.add(domain="", version=version)
    _Lifting(model, own.version, weights).lift(_standard_steps)
    own.version = max(own.version, version)
    while True:  # a rank may follow from nodes that were lifted before
        lifting = _Lifting(model, own.version, weights, keeps=True)
        lifting.lift(_foreign_steps)
        if lifting.unknown is None:
            break
        if not lifting.lifted:
            raise lifting.unknown


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph and all graphs within it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
                yield from _graphs(inner)


class UnknownRankError(ModelError):
    """Raised for a tensor whose number of axes is needed and unknown."""


class _Lifting:
    """State that the steps of one model share: its version, shapes of its tensors, and names that are free."""

    def __init__(self, model: onnx.ModelProto, version: int, weights: Weights, keeps: bool = False):
        self._model, self.version, self.weights = model, version, weights
        #: Whether a node stays where a rank is unknown.
        self.keeps = keeps
        #: The graph whose nodes are lifted, the number of those that were, and the error of one that was not.
        self.graph, self.lifted = model.graph, 0
        self.unknown: UnknownRankError | None = None
        taken = {
            name for graph in _graphs(model.graph) for node in graph.node for name in (*node.input, *node.output)
        } | {each.name for graph in _graphs(model.graph) for each in (*graph.input, *graph.initializer)}
        self._free = (name for name in map("lifted_{}".format, count()) if name not in taken)

    def name(self) -> str:
        """Return a name that no tensor has."""
        return next(self._free)

    @cached_property
    def _shapes(self) -> dict[str, tuple[int | str, ...]]:
        from onnx import shape_inference

        try:
            inferred = shape_inference.infer_shapes(self._model)
        except Exception:  # of C++: ranks stay unknown
            inferred = self._model
        found: dict[str, tuple[int | str, ...]] = {}
        for graph in _graphs(inferred.graph):
            for each in (*graph.value_info, *graph.input, *graph.output):
                if each.type.tensor_type.HasField("shape"):
                    sizes = each.type.tensor_type.shape.dim
                    found[each.name] = tuple(size.dim_value or size.dim_param for size in sizes)
            found |= {each.name: tuple(each.dims) for each in graph.initializer}
        return found

    def shape(self, name: str) -> tuple[int | str, ...] | None:
        """Return the shape of a tensor, with names of sizes, and "" for unknown ones, or None for an unknown rank."""
        return self._shapes.get(name)

    def rank(self, name: str) -> int | None:
        """Return the rank of a tensor, or None."""
        found = self.shape(name)
        return None if found is None else len(found)

    def lift(self, steps_of: Callable[[_Lifting, onnx.NodeProto], Sequence[Callable[[Step], None]]]) -> None:
        """Lift the nodes of all graphs by the steps of each node."""
        changed = []
        for graph in _graphs(self._model.graph):
            self.graph, nodes = graph, list[Any]()
            before = self.lifted
            for node in graph.node:
                if steps := steps_of(self, node):
                    nodes += self._lifted(node, steps)
                else:
                    nodes.append(node)
            if self.lifted > before:
                changed.append((graph, nodes))
        for graph, nodes in reversed(changed):  # graphs within others first, before these are copied
            kept = [_copy(each) for each in nodes]
            del graph.node[:]
            graph.node.extend(kept)

    def _lifted(self, node: onnx.NodeProto, steps: Sequence[Callable[[Step], None]]) -> list[onnx.NodeProto]:
        """Return the nodes that compute a node; itself where a rank is unknown, which is noted."""
        step = Step(self, _copy(node))
        try:
            for each in steps:
                each(step)
        except UnknownRankError as error:
            if not self.keeps:
                raise
            self.unknown = error
            return [node]
        self.lifted += 1
        return [*step.before, step.node, *step.after]


def _standard_steps(lifting: _Lifting, node: onnx.NodeProto) -> list[Callable[[Step], None]]:
    if node.domain not in ("", "ai.onnx"):
        return []
    found = [step for below, step in STEPS.get(node.op_type, ()) if lifting.version < below]
    return [_drop_consumed, *found] if lifting.version < 6 else found


def _foreign_steps(lifting: _Lifting, node: onnx.NodeProto) -> list[Callable[[Step], None]]:
    step = FOREIGN.get((node.domain, node.op_type))
    return [] if step is None else [step]


def _drop_consumed(step: Step) -> None:
    step.pop("consumed_inputs")


def _copy(message: Proto) -> Proto:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def _trimmed(inputs: Sequence[str]) -> list[str]:
    """Return inputs without those at the end that are left out."""
    count = max((place + 1 for place, each in enumerate(inputs) if each), default=0)
    return list(inputs[:count])


class Step:
    """A node that is lifted in place, and the nodes that come before and after it."""

    def __init__(self, lifting: _Lifting, node: onnx.NodeProto):
        self.lifting, self.node = lifting, node
        self.before: list[onnx.NodeProto] = []
        self.after: list[onnx.NodeProto] = []

    def pop(self, name: str, default: Any = None) -> Any:
        """Remove an attribute and return its value; texts as str."""
        from onnx import helper

        for place, each in enumerate(self.node.attribute):
            if each.name == name:
                value = helper.get_attribute_value(each)
                del self.node.attribute[place]
                return value.decode() if isinstance(value, bytes) else value
        return default

    def attributes(self) -> dict[str, Any]:
        """Return the attributes of the node by name."""
        from onnx import helper

        return {each.name: helper.get_attribute_value(each) for each in self.node.attribute}

    def set(self, name: str, value: Any) -> None:
        """Give the node an attribute."""
        from onnx import helper

        self.pop(name)
        self.node.attribute.append(helper.make_attribute(name, value))

    def input(self, place: int, name: str) -> None:
        """Give the node an input; those before it that are missing are left out."""
        self.node.input.extend([""] * (place + 1 - len(self.node.input)))
        self.node.input[place] = name

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Compute a tensor before the node, and return its name."""
        return self.add_several(1, operator, *inputs, **attributes)[0]

    def add_several(self, count: int, operator: str, *inputs: str, **attributes: Any) -> list[str]:
        """Compute several tensors before the node, and return their names."""
        from onnx import helper

        names = [self.lifting.name() for _ in range(count)]
        label = f"{self.node.name or names[0]}_{names[0]}"
        self.before.append(helper.make_node(operator, _trimmed(inputs), names, label, **attributes))
        return names

    def given(self, place: int) -> str:
        """Return the input at a place, "" where it was left out."""
        return self.node.input[place] if place < len(self.node.input) else ""

    def become(self, operator: str, *inputs: str, **attributes: Any) -> None:
        """Let the node be one of the standard, with these inputs and attributes, and its own results."""
        self.node.domain, self.node.op_type = "", operator
        del self.node.input[:], self.node.attribute[:]
        self.node.input.extend(_trimmed(inputs))
        for name, value in attributes.items():
            if value is not None:
                self.set(name, value)

    def make(self, result: str, operator: str, *inputs: str, **attributes: Any) -> None:
        """Compute a tensor of this name before the node."""
        self.add(operator, *inputs, **attributes)
        self.before[-1].output[0] = result

    def follow(self, operator: str, *inputs: str, result: str = "", **attributes: Any) -> str:
        """Compute a tensor after the node, and return its name."""
        self.make(name := result or self.lifting.name(), operator, *inputs, **attributes)
        self.after.append(self.before.pop())
        return name

    def constant(self, values: Any, dtype: DTypeLike = np.int64) -> str:
        """Return the name of a constant before the node."""
        from onnx import numpy_helper

        return self.add("Constant", value=numpy_helper.from_array(np.asarray(values, dtype)))

    def scalar_like(self, value: float, like: str) -> str:
        """Return the name of a scalar of the dtype of a tensor."""
        return self.add("CastLike", self.constant(value, np.float32), like)

    def then(self, operator: str, *inputs: str, output: int = 0) -> None:
        """Compute an output of the node from what the node gives now, the operator's first input."""
        from onnx import helper

        name, wanted = self.lifting.name(), self.node.output[output]
        self.node.output[output] = name
        self.after.append(helper.make_node(operator, [name, *inputs], [wanted], f"{self.node.name or name}_{name}"))

    def constant_of(self, wanted: str, values: np.ndarray) -> str:
        """Return the name of a constant of the graph with many elements."""
        from onnx import helper

        name = f"{wanted}.{self.lifting.name()}"
        kept = self.lifting.graph.initializer.add(name=name, raw_data=b"", dims=values.shape)
        kept.data_type = helper.np_dtype_to_tensor_dtype(values.dtype)
        self.lifting.weights[name] = values
        return name

    def array(self, place: int) -> np.ndarray:
        """Return the elements of an input; UnsupportedError unless it is a constant."""
        from onnx import numpy_helper

        name = self.node.input[place]
        if (found := self.lifting.weights.get(name)) is not None:
            return found
        for each in self.lifting.graph.initializer:
            if each.name == name:
                return numpy_helper.to_array(each)
        for node in self.lifting.graph.node:
            if node.op_type == "Constant" and node.output[0] == name and node.attribute[0].name == "value":
                return numpy_helper.to_array(node.attribute[0].t)
        raise self.refusal(f"{shown(name)} is computed, only constants are served")

    def range(self, count: str) -> str:
        """Return the name of the numbers below a number in a tensor of one element."""
        return self.add("Range", self.constant(0), self.add("Squeeze", count), self.constant(1))

    def wanted(self, place: int) -> str:
        """Return the name of a result, "" where the node has none."""
        return self.node.output[place] if place < len(self.node.output) else ""

    def take(self, place: int) -> str:
        """Return the name of a result that other nodes are to compute, a new name where the node has none."""
        found = self.wanted(place)
        if found:
            self.node.output[place] = ""
        while self.node.output and not self.node.output[-1]:
            del self.node.output[-1]
        return found or self.lifting.name()

    def extent(self, name: str, axis: int) -> int | str | None:
        """Return a size of a tensor: a number, its name, or None where nothing is known."""
        found = self.lifting.shape(name) or ()
        return (found[axis] or None) if axis < len(found) else None

    def rank(self, place: int) -> int:
        """Return the rank of an input; ModelError if it is unknown."""
        return self.rank_of(self.node.input[place])

    def rank_of(self, name: str) -> int:
        """Return the rank of a tensor; ModelError if it is unknown."""
        found = self.lifting.rank(name)
        if found is None:
            raise UnknownRankError(
                f"{self.label}: version {self.lifting.version} of the operator needs the rank of {shown(name)}, "
                "which is not known; export the model with shapes"
            )
        return found

    def attribute_to_input(self, name: str, place: int) -> None:
        """Turn an attribute of integers into an input."""
        values = self.pop(name)
        if values is not None:
            self.input(place, self.constant(values))

    @property
    def label(self) -> str:
        """The node as messages name it."""
        return f"node {shown(self.node.name or ''.join(self.node.output[:1]))} ({self.node.op_type})"

    def refusal(self, reason: str) -> UnsupportedError:
        """Return the error of a meaning that is not served."""
        return UnsupportedError(f"{self.label}: {reason}")


Lift = Callable[[Step], None]
#: Steps by domain and operator, of operators that the standard lacks or has in parts.
FOREIGN: dict[tuple[str, str], Lift] = {}


def foreign(
    *operators: str, domain: str = "com.microsoft"
) -> Callable[[Callable[[Step], None]], Callable[[Step], None]]:
    """Decorate a function that lifts nodes of these operators."""

    def register(function: Lift) -> Lift:
        FOREIGN.update({(domain, each): function for each in operators})
        return function

    return register


#: Steps by operator, each with the first version that no longer needs it, in the order in which they are taken.
STEPS: dict[str, list[tuple[int, Lift]]] = {}


def below(version: int, *operators: str) -> Callable[[Lift], Lift]:
    """Decorate a step of operators of the standard in versions below one."""

    def register(function: Lift) -> Lift:
        for each in operators:
            STEPS.setdefault(each, []).append((version, function))
        return function

    return register
