"""Control flow and sequences, taken out of a model of onnx-ir.

Loop and Scan whose trip count is known are unrolled, sequences become the tensors in them, and of an If that elements
of inputs decide both branches are computed, where their results have the same shapes. onnxscript folds any other If.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gensor_kernels.graph.lowerings import LOWERINGS
from gensor_kernels.graph.lowerings.base import Host

from .onnx_nodes import STANDARD, dtype_of, node_of

if TYPE_CHECKING:
    import onnx_ir as ir

#: Iterations up to which a loop is unrolled, and nodes that a model may have afterwards.
MOST_ITERATIONS = 1024
MOST_UNROLLED = 20_000
#: Elements up to which `_known` computes a value.
MOST_ELEMENTS = 1024


class _Left(Exception):
    """A node stays as it is."""


def take_out(model: ir.Model) -> bool:
    """Replace what can be replaced in a model with folded constants; return whether anything changed.

    Constants are to be folded again afterwards.
    """
    from onnx_ir.passes import common

    operators = {each.op_type for each in model.graph if each.domain in STANDARD}
    if operators.isdisjoint(_Taking.STEPS.keys() - {"Identity"}):
        return False
    taking = _Taking(model.graph)
    changed = taking.all()
    common.RemoveUnusedNodesPass()(model)
    common.NameFixPass()(model)
    return changed


def is_open(node: ir.Node) -> bool:
    """Return whether sizes of a call may decide the condition of an If, or the trip count of a Loop or a Scan."""
    if node.op_type == "Scan":
        return True
    if node.op_type == "If":
        then, other = (node.attributes[name].as_graph().outputs for name in ("then_branch", "else_branch"))
        pairs = zip(then, other, strict=True)
        return not reads_inputs(node.inputs[0]) or all(_is_alike(*pair, is_sized=False) for pair in pairs)
    body = node.attributes["body"].as_graph()
    carried = {body.inputs[0]: [], body.inputs[1]: [node.inputs[1]]} if len(body.inputs) > 1 else {}
    for inner, before, after in zip(body.inputs[2:], node.inputs[2:], body.outputs[1:], strict=False):
        carried[inner] = [before, after]
    return not any(reads_inputs(each, carried) for each in (*node.inputs[:2], *body.outputs[:1]))


def reads_inputs(value: ir.Value | None, carried: Mapping[ir.Value, Sequence[ir.Value | None]] = {}) -> bool:
    """Return whether a value follows from elements of inputs, not from their shapes alone.

    `carried` has the values that an input of a loop's body takes.
    """
    seen, open_ = set["ir.Value"](), [value]
    while open_:
        each = open_.pop()
        if each is None or each in seen or each.const_value is not None:
            continue
        seen.add(each)
        node = each.producer()
        if each in carried:
            open_ += carried[each]
        elif node is None:
            return True
        elif node.op_type not in ("Shape", "Size"):
            open_ += node.inputs
    return False


def _is_alike(a: ir.Value, b: ir.Value, is_sized: bool = True) -> bool:
    """Return whether two values have the same dtype and shape; if not `is_sized`, whether they may have."""
    if a.dtype is None or a.dtype != b.dtype or a.shape is None or b.shape is None:
        return not is_sized and (a.dtype is None or b.dtype is None or a.dtype == b.dtype)
    if is_sized:
        return bool(a.shape.is_static()) and a.shape == b.shape
    pairs = [pair for pair in zip(a.shape, b.shape, strict=False) if all(isinstance(each, int) for each in pair)]
    return len(a.shape) == len(b.shape) and all(x == y for x, y in pairs)


class _Taking:
    """One pass over a graph: `left` nodes may be added, `sequences` has the tensors of sequences."""

    def __init__(self, graph: ir.Graph):
        self.graph = graph
        self.left = MOST_UNROLLED - len(graph)
        self.sequences: dict[ir.Value, list[ir.Value]] = {}
        self._unknown: set[ir.Value] = set()
        self._before: ir.Node

    def all(self) -> bool:
        """Take out what is possible; return whether anything changed."""
        import onnx_ir as ir

        changed = False
        for node in list(self.graph):
            step = self.STEPS.get(node.op_type) if node.domain in STANDARD else None
            if step is None:
                continue
            self._before = node
            try:
                results = step(self, node)
            except _Left:
                continue
            for old, new in zip(node.outputs, results, strict=False):
                if new in self.sequences:
                    self.sequences[old] = self.sequences[new]
                elif old.is_graph_output():  # it keeps its name
                    kept = self.add("Identity", new)
                    kept.name, kept.type = old.name, old.type
                    ir.convenience.replace_all_uses_with(old, kept, replace_graph_outputs=True)
                else:
                    new.type = new.type or old.type
                    ir.convenience.replace_all_uses_with(old, new)
                changed |= new not in self.sequences
        return changed

    # ---- parts of steps

    def add(self, operator: str, *inputs: ir.Value, **attributes: Any) -> ir.Value:
        """Compute a value before the current node."""
        import onnx_ir as ir

        made = ir.node(operator, inputs, attributes, name=f"{self._before.name}.{operator}")
        self.graph.insert_before(self._before, made)
        return made.outputs[0]

    def constant(self, values: Any, dtype: Any = np.int64) -> ir.Value:
        """Return a constant of the graph."""
        import onnx_ir as ir

        array = np.asarray(values, dtype)
        name = f"{self._before.name}.{len(self.graph.initializers)}"
        while name in self.graph.initializers:
            name += "_"
        tensor = ir.Tensor(array, name=name)
        value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor)
        self.graph.register_initializer(value)
        return value

    def inline(self, body: ir.Graph, given: Sequence[ir.Value]) -> list[ir.Value]:
        """Compute a graph of a node before it, and return its results."""
        import onnx_ir as ir

        self._hoist(body)
        copy = body.clone(allow_outer_scope_values=True)
        instead = dict(zip(copy.inputs, given, strict=True))
        results, nodes = [instead.get(each, each) for each in copy.outputs], [*copy]
        self.left -= len(nodes) + 1
        if self.left < 0:
            raise _Left
        copy.outputs.clear()
        for old, new in instead.items():
            ir.convenience.replace_all_uses_with(old, new)
        self._adopt(copy, [*copy.initializers.values()])
        copy.remove(nodes)
        for node in nodes:
            node.name = f"{self._before.name}.{node.name}"
            for value in node.outputs:
                value.shape = None  # it may differ between iterations
        self.graph.insert_before(self._before, nodes)
        return results

    def _hoist(self, body: ir.Graph) -> None:
        """Move the constants of a graph of a node out of it, so that its copies share them."""
        constants = [node for node in body if node.op_type == "Constant" and not body.outputs.count(node.outputs[0])]
        body.remove(constants)
        self.graph.insert_before(self._before, constants)
        self._adopt(body, [value for value in body.initializers.values() if not body.outputs.count(value)])

    def _adopt(self, body: ir.Graph, values: Sequence[ir.Value]) -> None:
        """Make initializers of a graph of a node initializers of the whole graph."""
        for value in values:
            body.initializers.pop(value.name or "")
            value.name = f"{self._before.name}.{value.name}"
            while value.name in self.graph.initializers:
                value.name += "_"
            self.graph.register_initializer(value)

    def known(self, value: ir.Value | None) -> np.ndarray | None:
        """Return the elements of a value that follows from constants and shapes alone, if they are few."""
        import onnx_ir as ir

        if value is None or value in self._unknown:
            return None
        if value.const_value is None and value.producer() is not None:
            found = self._computed(value)
            if found is not None:
                value.const_value = ir.Tensor(found, name=value.name)
        if value.const_value is None or value.const_value.size > MOST_ELEMENTS:
            self._unknown.add(value)
            return None
        array: np.ndarray = value.const_value.numpy()
        return array

    def _computed(self, value: ir.Value) -> np.ndarray | None:
        node = value.producer()
        if node is None or node.op_type not in LOWERINGS or node.domain not in STANDARD or len(node.outputs) > 1:
            return None
        arrays = []
        for each in node.inputs:
            if node.op_type in ("Shape", "Size") and each is not None and each.shape is not None:
                array = np.broadcast_to(np.zeros((), np.bool_), each.shape.numpy()) if each.shape.is_static() else None
            else:
                array = self.known(each)
            if array is None and each is not None:
                return None
            arrays.append(array)
        try:
            return np.asarray(LOWERINGS[node.op_type](Host(), node_of(node, 0), *arrays))
        except Exception:  # it is computed, or refused, like any other node
            return None

    def known_number(self, value: ir.Value | None) -> int:
        """Return the number that a value is."""
        found = self.known(value)
        if found is None or found.size != 1:
            raise _Left
        return int(found.ravel()[0])

    def items(self, value: ir.Value | None) -> list[ir.Value]:
        """Return the tensors of a sequence."""
        if value is None or value not in self.sequences:
            raise _Left
        return self.sequences[value]

    def sequence(self, node: ir.Node, items: Sequence[ir.Value]) -> list[ir.Value]:
        """Note the tensors of the sequence that a node makes."""
        self.sequences[node.outputs[0]] = [*items]
        return [node.outputs[0]]

    def stack(self, rows: Sequence[ir.Value], like: ir.Value, axis: int = 0) -> ir.Value:
        """Return tensors along a new axis; of none, one like a result of the body."""
        if rows:
            axes = self.constant([axis])
            return self.add("Concat", *(self.add("Unsqueeze", each, axes) for each in rows), axis=axis)
        if like.shape is None or not like.shape.is_static():
            raise _Left
        shape = [*like.shape.numpy()]
        shape.insert(axis if axis >= 0 else axis + len(shape) + 1, 0)
        return self.constant(np.zeros(shape), dtype_of(like.dtype))

    # ---- steps

    def loop(self, node: ir.Node) -> list[ir.Value]:
        """Unroll a Loop whose trip count and conditions are known."""
        body, inputs = node.attributes["body"].as_graph(), [*node.inputs, None, None]
        trips = None if inputs[0] is None else self.known_number(inputs[0])
        going, carried = inputs[1] or self.constant(True, np.bool_), [each for each in node.inputs[2:] if each]
        rows: list[list[ir.Value]] = [[] for _ in body.outputs[1 + len(carried) :]]
        done = 0
        while (trips is None or done < trips) and self.known_number(going):
            if done == MOST_ITERATIONS:
                raise _Left
            going, *results = self.inline(body, [self.constant(done), going, *carried])
            carried, done = results[: len(carried)], done + 1
            for row, each in zip(rows, results[len(carried) :], strict=True):
                row.append(each)
        pairs = zip(rows, body.outputs[1 + len(carried) :], strict=True)
        return [*carried, *(self.stack(*pair) for pair in pairs)]

    def scan(self, node: ir.Node) -> list[ir.Value]:
        """Unroll a Scan along axes of known extents."""
        body, count = node.attributes["body"].as_graph(), node.attributes["num_scan_inputs"].as_int()
        given = [each for each in node.inputs if each]
        carried, scanned = given[: len(given) - count], given[len(given) - count :]
        made = len(body.outputs) - len(carried)

        def words(name: str, number: int) -> Sequence[int]:
            return node.attributes.get_ints(name, (0,) * number)

        axes, turned = words("scan_input_axes", count), words("scan_input_directions", count)
        into, back = words("scan_output_axes", made), words("scan_output_directions", made)
        extents = {value.shape[axis] for value, axis in zip(scanned, axes, strict=True) if value.shape is not None}
        numbers = [each for each in extents if isinstance(each, int)]
        if not numbers or numbers[0] > MOST_ITERATIONS:
            raise _Left
        rows: list[list[ir.Value]] = [[] for _ in range(made)]
        for place in range(numbers[0]):
            places = [self.constant(numbers[0] - 1 - place if each else place) for each in turned]
            pieces = [self.add("Gather", *pair, axis=axis) for *pair, axis in zip(scanned, places, axes, strict=True)]
            results = self.inline(body, [*carried, *pieces])
            carried = results[: len(carried)]
            for row, each in zip(rows, results[len(carried) :], strict=True):
                row.append(each)
        ordered = [row[::-1] if each else row for row, each in zip(rows, back, strict=True)]
        likes = body.outputs[len(carried) :]
        return [*carried, *(self.stack(*each) for each in zip(ordered, likes, into, strict=True))]

    def choose(self, node: ir.Node) -> list[ir.Value]:
        """Compute both branches of an If that elements of inputs decide, and select."""
        then, other = (node.attributes[name].as_graph() for name in ("then_branch", "else_branch"))
        condition = node.inputs[0]
        if condition is None or not reads_inputs(condition):
            raise _Left
        if not all(_is_alike(*pair) for pair in zip(then.outputs, other.outputs, strict=True)):
            raise _Left
        pairs = zip(self.inline(then, []), self.inline(other, []), strict=True)
        one = self.add("Reshape", condition, self.constant(np.zeros(0)))
        return [self.add("Where", one, *pair) for pair in pairs]

    def _place(self, node: ir.Node, place: int, count: int, default: int) -> int:
        """Return the place in a sequence that an input of a node is, counted from its end if negative."""
        value = node.inputs[place] if place < len(node.inputs) else None
        found = default if value is None else self.known_number(value)
        found += count if found < 0 else 0
        if not 0 <= found <= count:
            raise _Left
        return found

    def insert(self, node: ir.Node) -> list[ir.Value]:
        """SequenceInsert: put a tensor before a place."""
        items = self.items(node.inputs[0])
        place = self._place(node, 2, len(items), len(items))
        return self.sequence(node, [*items[:place], node.inputs[1], *items[place:]])  # type: ignore[list-item]

    def erase(self, node: ir.Node) -> list[ir.Value]:
        """SequenceErase: drop the tensor at a place."""
        items = self.items(node.inputs[0])
        place = self._place(node, 1, len(items), len(items) - 1)
        return self.sequence(node, items[:place] + items[place + 1 :])

    def at(self, node: ir.Node) -> list[ir.Value]:
        """SequenceAt: the tensor at a place."""
        items = self.items(node.inputs[0])
        place = self._place(node, 1, len(items), 0)
        if place == len(items):
            raise _Left
        return [items[place]]

    def length(self, node: ir.Node) -> list[ir.Value]:
        """SequenceLength: the number of tensors."""
        return [self.constant(len(self.items(node.inputs[0])))]

    def concatenate(self, node: ir.Node) -> list[ir.Value]:
        """ConcatFromSequence: the tensors along an axis, or along a new one."""
        items, axis = self.items(node.inputs[0]), node.attributes["axis"].as_int()
        if not items:
            raise _Left
        if node.attributes.get_int("new_axis", 0):
            return [self.stack(items, items[0], axis)]
        return [self.add("Concat", *items, axis=axis)]

    def same(self, node: ir.Node) -> list[ir.Value]:
        """Identity of a sequence."""
        return self.sequence(node, self.items(node.inputs[0]))

    def each_item(self, node: ir.Node) -> list[ir.Value]:
        """SequenceMap: compute the body of each tensor."""
        body, found = node.attributes["body"].as_graph(), []
        for place in range(len(self.items(node.inputs[0]))):
            given = [self.sequences[each][place] if each in self.sequences else each for each in node.inputs if each]
            found.append(self.inline(body, given))
        for number, value in enumerate(node.outputs):
            self.sequences[value] = [each[number] for each in found]
        return [*node.outputs]

    #: Functions that return what replaces the results of a node, by operator.
    STEPS: ClassVar[dict[str, Callable[[_Taking, ir.Node], list[ir.Value]]]] = {
        "ConcatFromSequence": concatenate,
        "Identity": same,
        "If": choose,
        "Loop": loop,
        "Scan": scan,
        "SequenceAt": at,
        "SequenceConstruct": lambda self, node: self.sequence(node, [each for each in node.inputs if each]),
        "SequenceEmpty": lambda self, node: self.sequence(node, []),
        "SequenceErase": erase,
        "SequenceInsert": insert,
        "SequenceLength": length,
        "SequenceMap": each_item,
    }
