"""Sessions: a model with tensors that it keeps from call to call, such as caches of keys and values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.arrays import Namespace
from gensor_kernels.dispatch.api.current import current_runtime
from gensor_kernels.errors import ModelError
from gensor_kernels.graph.rewrites.state import State
from gensor_kernels.shown import shown

if TYPE_CHECKING:
    from gensor_kernels.dispatch.calls.array import DeviceArray
    from gensor_kernels.graph.ir.graph import Graph, Node, Spec

    from .layers import Layers
    from .plan import Plan

#: Plans that a session keeps; the oldest is replaced.
MOST_PLANS = 64


class Session:
    """A model with state on the device; `Model.session` makes it.

    A call takes the inputs that are no state, and returns the results that are none. Sessions
    of a model share its weights and plans; each has its own state.

    Attributes
    ----------
    inputs, outputs : list of str
        Names of what a call takes and returns.
    state : dict of str to array
        Kept tensors by the name of their input. They are written in place.
    """

    def __init__(
        self,
        specs: Mapping[str, Spec],
        results: Sequence[str],
        kept: State,
        sizes: Mapping[str, int],
        plan_for: Callable[[dict[str, DeviceArray]], tuple[dict[str, DeviceArray], Plan]],
    ):
        self._kept, self._shared = kept, plan_for
        #: The session's plans with the limits of places, by the model's plans.
        self._plans: dict[Plan, tuple[Plan, dict[str, tuple[int, int]]]] = {}
        self.inputs = [name for name in specs if name not in kept.results]
        self.outputs = [name for name in results if name not in kept.results.values()]
        shapes, xp = state_shapes(specs, kept.results, sizes), current_runtime().device.xp
        self.state: dict[str, DeviceArray] = _rows(xp, specs, shapes, kept.pairs)
        for name in kept.results:
            if name not in self.state:
                self.state[name] = xp.zeros(shapes[name], specs[name].dtype)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """Compute the model, keep its new state, and return the other results, as a call of the model does.

        Inputs are in the order of `inputs`, or by name. Places at which a TensorScatter appends may be NumPy arrays;
        places on the device are not checked.
        """
        plan, inputs = self._plan_for(args, keywords)
        results = plan(current_runtime(), tuple(inputs.values()))
        found = dict(zip(plan.graph.outputs, results, strict=True))
        for name, result in self._kept.results.items():
            if result in found:
                if found[result].shape != self.state[name].shape:
                    raise ModelError(
                        f"state {shown(name)} has the shape {self.state[name].shape}, its result {shown(result)} "
                        f"{found[result].shape}: state keeps its shape; export the model with caches of a fixed size"
                    )
                self.state[name][...] = found[result]
        wanted = tuple(found[name] for name in self.outputs)
        return wanted[0] if len(wanted) == 1 else wanted

    def explain(self, *args: Any, **keywords: Any) -> Layers:
        """Run the model once, and show what serves each node, as `Model.explain` does."""
        from .layers import explain_plan

        return explain_plan(*self._plan_for(args, keywords), current_runtime().device.stream())

    def reset(self) -> None:
        """Set the state to zero."""
        for array in self.state.values():
            array[...] = 0

    def _plan_for(
        self, args: Sequence[DeviceArray], keywords: Mapping[str, DeviceArray]
    ) -> tuple[Plan, dict[str, DeviceArray]]:
        """Return the session's plan for inputs of this signature, and the inputs."""
        if len(args) > len(self.inputs):
            raise ValueError(f"the session takes the inputs {', '.join(self.inputs)}, not {len(args)}")
        for name in keywords:
            if name in self.state:
                raise ValueError(f"input {shown(name)} is state that the session keeps")
        given = dict(zip(self.inputs, args, strict=False))
        if twice := given.keys() & keywords.keys():
            raise ValueError(f"input {shown(min(twice))} is given twice")
        inputs, shared = self._shared({**given, **keywords, **self.state})
        if shared not in self._plans:
            if len(self._plans) == MOST_PLANS:
                del self._plans[next(iter(self._plans))]
            self._plans[shared] = shared.of(self.state), limits(shared.graph)
        plan, places = self._plans[shared]
        for name, (capacity, new) in places.items():
            given = inputs[name]
            if isinstance(given, np.ndarray) and given.size and not 0 <= given.min() <= given.max() <= capacity - new:
                most = int(given.max())
                raise ValueError(f"input {shown(name)}: {new} rows at {most} do not fit: the caches hold {capacity}")
        return plan, {name: inputs[name] for name in plan.graph.inputs}


def state_of(graph: Graph, results: Mapping[str, str] | None) -> State:
    """Return the state of a session of this graph.

    Without `results`, these are the inputs that a TensorScatter appends to, where the appended tensor is a result.
    ModelError for names that are no input, or no result, or where there is nothing to keep.
    """
    scatters = {node.outputs[0]: node for node in graph.nodes if node.op == "TensorScatter"}
    if results is None:
        results = {
            node.inputs[0]: name
            for name, node in scatters.items()
            if node.inputs[0] in graph.inputs and name in graph.outputs
        }
    for name, result in results.items():
        if name not in graph.inputs or result not in graph.outputs:
            missing, kind = (name, "input") if name not in graph.inputs else (result, "result")
            raise ModelError(f"state {shown(name)}: the model has no {kind} {shown(missing)}")
    if not results:
        raise ModelError("the model has no TensorScatter from an input to a result: name its state, input by result")
    pairs: dict[str, str] = {}
    for node in graph.nodes:
        stores = [scatters.get(each) for each in node.inputs[1:3]] if node.op == "Attention" else []
        if len(stores) == 2 and stores[0] is not None and stores[1] is not None:
            keys, values = (each.inputs[0] for each in stores if each is not None)
            own = keys in results and values in results and keys != values
            if own and not {keys, values} & {*pairs, *pairs.values()} and _in_rows(graph, *stores):
                pairs[keys] = values
    return State(dict(results), pairs)


def limits(graph: Graph) -> dict[str, tuple[int, int]]:
    """Return the rows of the caches, and the rows that are appended, by the inputs that say where."""
    found: dict[str, tuple[int, int]] = {}
    for node in graph.nodes:
        place = {"TensorScatter": 2, "MatMulAppend": 4}.get(node.op, 0)
        name = node.input(place)
        if not place or name not in graph.inputs or node.attribute("mode") == "circular":
            continue
        cache, update = (2, 0) if place == 4 else (0, 1)
        axis = 1 if place == 4 else node.attribute("axis")
        capacity, new = ((graph.shape(node.inputs[each]) or (None,) * 4)[axis] for each in (cache, update))
        if isinstance(capacity, int) and isinstance(new, int):
            before = found.get(name, (capacity, new))
            found[name] = min(before[0], capacity), max(before[1], new)
    return found


def _in_rows(graph: Graph, *stores: Node | None) -> bool:
    """Return whether caches have the axes (batch, capacity, columns), with equal numbers of rows and dtypes."""
    specs = [graph.inputs[each.inputs[0]] for each in stores if each is not None]
    rows = {spec.shape[:2] if spec.shape is not None and len(spec.shape) == 3 else None for spec in specs}
    axes = {each.attribute("axis") for each in stores if each is not None}
    return len(rows) == 1 and None not in rows and axes <= {1, -2} and len({spec.dtype for spec in specs}) == 1


def _rows(
    xp: Namespace, specs: Mapping[str, Spec], shapes: Mapping[str, tuple[int, ...]], pairs: Mapping[str, str]
) -> dict[str, DeviceArray]:
    """Return caches whose rows hold keys and values next to each other, those of equal layers in one piece of memory.

    Before each cache come a row for the queries and a row for the keys and values of the newest token. The rows of a
    batch entry are a multiple of those of a page (lowerings/caches.py).
    """
    groups: dict[tuple[Any, ...], list[tuple[str, str]]] = {}
    for keys, values in pairs.items():
        groups.setdefault((shapes[keys], shapes[values], specs[keys].dtype), []).append((keys, values))
    found = {}
    for ((batch, capacity, columns), of_values, dtype), names in groups.items():
        page = capacity & -capacity
        rows = capacity + (2 if page == capacity else -(-2 // page) * page)
        memory = xp.zeros((len(names), batch, rows, columns + of_values[2]), dtype)
        for own, (keys, values) in zip(memory, names, strict=True):
            found[keys] = own[:, 2 : 2 + capacity, :columns]
            found[values] = own[:, 2 : 2 + capacity, columns:]
    return found


def state_shapes(
    specs: Mapping[str, Spec], names: Mapping[str, str], sizes: Mapping[str, int]
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the state; ModelError for a size that is missing in the file and in `sizes`."""
    found = {}
    for name in names:
        extents = specs[name].shape
        extents = (None,) if extents is None else extents
        bound = [sizes.get(each, each) if isinstance(each, str) else each for each in extents]
        shape = tuple(each for each in bound if isinstance(each, int))
        if len(shape) < len(bound):
            unknown = ", ".join(str(each) for each in bound if not isinstance(each, int))
            raise ModelError(f"state {shown(name)} has the shape {specs[name]}: give the sizes {unknown}")
        found[name] = shape
    return found
