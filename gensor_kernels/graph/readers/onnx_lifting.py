"""Operators of old versions of the ONNX standard, written in the operators of a newer one.

onnx's own converter changes results (a Resize of version 10 loses its coordinates, a Hardmax of version 12 its two
dimensions), so that every step is a function here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from gensor_database.lazy import cached_property
from gensor_kernels.errors import ModelError, UnsupportedError
from gensor_kernels.graph.lowerings.resize import FLOOR_OR_CEIL
from gensor_kernels.shown import shown

if TYPE_CHECKING:
    import onnx
    from numpy.typing import DTypeLike

Proto = TypeVar("Proto", bound="onnx.ModelProto | onnx.NodeProto")


def lift(model: onnx.ModelProto, version: int) -> None:
    """Rewrite the nodes of an onnx.ModelProto without functions, and of graphs within it, to a version from 18 on.

    ModelError for a rank that is needed and unknown, UnsupportedError for meanings that are not served.
    """
    own = [each for each in model.opset_import if each.domain in ("", "ai.onnx")]
    if not own or own[0].version >= version:
        return
    lifting = _Lifting(model, own[0].version)
    for graph in _graphs(model.graph):
        lifting.lift(graph)
    own[0].version = version


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph and all graphs within it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
                yield from _graphs(inner)


class _Lifting:
    """State that the steps of one model share: its version, ranks of its tensors, and names that are free."""

    def __init__(self, model: onnx.ModelProto, version: int):
        self._model, self.version = _copy(model), version
        taken = {
            name for graph in _graphs(model.graph) for node in graph.node for name in (*node.input, *node.output)
        } | {each.name for graph in _graphs(model.graph) for each in (*graph.input, *graph.initializer)}
        self._free = (name for name in map("lifted_{}".format, count()) if name not in taken)

    def name(self) -> str:
        """Return a name that no tensor has."""
        return next(self._free)

    @cached_property
    def _ranks(self) -> dict[str, int]:
        from onnx import shape_inference

        try:
            inferred = shape_inference.infer_shapes(self._model)
        except Exception:  # of C++: ranks stay unknown
            inferred = self._model
        found = {}
        for graph in _graphs(inferred.graph):
            for each in (*graph.value_info, *graph.input, *graph.output):
                if each.type.tensor_type.HasField("shape"):
                    found[each.name] = len(each.type.tensor_type.shape.dim)
            found |= {each.name: len(each.dims) for each in graph.initializer}
        return found

    def rank(self, name: str) -> int | None:
        """Return the rank of a tensor, or None."""
        return self._ranks.get(name)

    def lift(self, graph: onnx.GraphProto) -> None:
        """Lift the nodes of one graph."""
        nodes = []
        for node in graph.node:
            steps = [step for below, step in STEPS.get(node.op_type, ()) if self.version < below]
            step = Step(self, node)
            if node.domain in ("", "ai.onnx"):
                if self.version < 6:
                    step.pop("consumed_inputs")
                for each in steps:
                    each(step)
            nodes += [*step.before, node, *step.after]
        if len(nodes) > len(graph.node):
            kept = [_copy(each) for each in nodes]
            del graph.node[:]
            graph.node.extend(kept)


def _copy(message: Proto) -> Proto:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


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
        from onnx import helper

        name = self.lifting.name()
        self.before.append(helper.make_node(operator, inputs, [name], f"{self.node.name or name}_{name}", **attributes))
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

    def rank(self, place: int) -> int:
        """Return the rank of an input; ModelError if it is unknown."""
        found = self.lifting.rank(self.node.input[place])
        if found is None:
            raise ModelError(
                f"{self.label}: version {self.lifting.version} of the operator needs the rank of "
                f"{shown(self.node.input[place])}, which is not known; export the model with shapes"
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


#: Steps by operator, each with the first version that no longer needs it, in the order in which they are taken.
STEPS: dict[str, list[tuple[int, Callable[[Step], None]]]] = {}


def _below(version: int, *operators: str) -> Callable[[Callable[[Step], None]], Callable[[Step], None]]:
    def register(function: Callable[[Step], None]) -> Callable[[Step], None]:
        for each in operators:
            STEPS.setdefault(each, []).append((version, function))
        return function

    return register


@_below(7, *["Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less"])
def _broadcast(step: Step) -> None:
    """Align the second operand with an axis of the first."""
    axis = step.pop("axis")
    if step.pop("broadcast", 0) and axis is not None:
        rank, own = step.rank(0), step.rank(1)
        trailing = rank - axis % rank - own
        if trailing > 0:
            axes = step.constant(range(own, own + trailing))
            step.input(1, step.add("Unsqueeze", step.node.input[1], axes))


@_below(7, "PRelu")
def _channels(step: Step) -> None:
    """Align a vector of slopes with the channels."""
    if step.rank(1) == 1 and step.rank(0) > 2:
        axes = step.constant(range(1, step.rank(0) - 1))
        step.input(1, step.add("Unsqueeze", step.node.input[1], axes))


@_below(7, "Gemm")
def _gemm(step: Step) -> None:
    step.pop("broadcast")


@_below(20, "DFT")
def _dft(step: Step) -> None:
    step.input(2, step.constant(step.pop("axis", 1)))


@_below(20, "GridSample")
def _grid_sample(step: Step) -> None:
    mode = step.pop("mode", "bilinear")
    step.set("mode", {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode))


@_below(16, "RoiAlign")
def _roi_align(step: Step) -> None:
    step.set("coordinate_transformation_mode", "output_half_pixel")


@_below(14, "BatchNormalization")
def _batch_norm(step: Step) -> None:
    training = any(step.node.output[1:]) or (step.lifting.version < 7 and not step.pop("is_test", 0))
    if training:
        raise step.refusal("models are run for inference; export the model in evaluation mode")
    if not step.pop("spatial", 1):
        raise step.refusal("statistics of every element (spatial=0) are not served, only of channels")
    del step.node.output[1:]


@_below(12, "Dropout")
def _dropout(step: Step) -> None:
    step.pop("ratio")
    if step.lifting.version < 7 and not step.pop("is_test", 0):
        raise step.refusal("models are run for inference; export the model in evaluation mode")
    if step.lifting.version < 10 and any(step.node.output[1:]):  # its mask has the dtype of the data
        step.then("CastLike", step.node.input[0], output=1)


@_below(6, "Cast")
def _cast(step: Step) -> None:
    from onnx import TensorProto

    step.set("to", TensorProto.DataType.Value(step.pop("to")))


@_below(11, "Clip")
def _clip(step: Step) -> None:
    for place, name in ((1, "min"), (2, "max")):
        bound = step.pop(name)
        if bound is not None:
            step.input(place, step.scalar_like(bound, step.node.input[0]))


@_below(4, "Concat")
def _concat(step: Step) -> None:
    step.set("axis", step.pop("axis", 1))


@_below(13, "Softmax", "LogSoftmax", "Hardmax")
def _two_dimensions(step: Step) -> None:
    """Take the axis and all after it as one."""
    axis, x = step.pop("axis", 1), step.node.input[0]
    step.set("axis", -1)
    rank = step.lifting.rank(x)
    if axis != -1 and (rank is None or axis != rank - 1):
        step.input(0, step.add("Flatten", x, axis=axis))
        step.then("Reshape", step.add("Shape", x))


@_below(11, "Pad")
def _pad(step: Step) -> None:
    step.input(1, step.constant(step.pop("paddings" if step.lifting.version < 2 else "pads")))
    if (value := step.pop("value", 0.0)) != 0:
        step.input(2, step.scalar_like(value, step.node.input[0]))


@_below(13, "ReduceSum", "Squeeze", "Unsqueeze")
@_below(
    18, *(f"Reduce{each}" for each in ["L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare"])
)
def _axes(step: Step) -> None:
    step.attribute_to_input("axes", 1)


@_below(5, "Reshape")
def _reshape(step: Step) -> None:
    step.attribute_to_input("shape", 1)


@_below(10, "Upsample")
def _upsample(step: Step) -> None:
    if step.lifting.version < 7:
        scales = [1, 1, step.pop("height_scale"), step.pop("width_scale")]
    else:
        scales = step.pop("scales")
    name = step.constant(scales, np.float32) if step.lifting.version < 9 else step.node.input[1]
    _to_resize(step, name, "floor")


@_below(11, "Resize")
def _resize(step: Step) -> None:
    _to_resize(step, step.node.input[1], FLOOR_OR_CEIL)


@_below(13, "Resize")
def _resize_to_sizes(step: Step) -> None:
    if len(step.node.input) > 3 and step.node.input[3]:
        step.input(2, "")  # scales were no option: they had no elements


def _to_resize(step: Step, scales: str, rounding: str) -> None:
    step.node.op_type = "Resize"
    mode = step.pop("mode", "nearest")
    step.set("mode", {"bilinear": "linear"}.get(mode, mode))
    step.set("coordinate_transformation_mode", "asymmetric")
    step.set("nearest_mode", rounding)
    step.input(1, "")
    step.input(2, scales)


@_below(9, "Scan")
def _scan(step: Step) -> None:
    raise step.refusal("Scan of version 8 is not served; export the model with a newer version of the operators")


@_below(11, "Scatter")
def _scatter(step: Step) -> None:
    step.node.op_type = "ScatterElements"


@_below(6, "Selu")
def _selu(step: Step) -> None:
    step.set("alpha", step.pop("alpha", 1.6732))
    step.set("gamma", step.pop("gamma", 1.0507))


@_below(10, "Slice")
def _slice(step: Step) -> None:
    for place, name in ((1, "starts"), (2, "ends"), (3, "axes")):
        step.attribute_to_input(name, place)


@_below(18, "Split")
def _split(step: Step) -> None:
    if step.lifting.version < 13:
        step.attribute_to_input("split", 1)
    if not any(step.node.input[1:]):
        step.set("num_outputs", len(step.node.output))


@_below(6, "Tile")
def _tile(step: Step) -> None:
    raise step.refusal("Tile of version 1 is not served; export the model with a newer version of the operators")


@_below(10, "TopK")
def _top_k(step: Step) -> None:
    step.input(1, step.constant([step.pop("k")]))
