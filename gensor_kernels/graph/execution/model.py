"""A loaded model: plans per input signature, and their execution."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from gensor_kernels import config
from gensor_kernels.dispatch.api import current
from gensor_kernels.dispatch.api.interop import find_exchange
from gensor_kernels.errors import GensorError, UnsupportedError
from gensor_kernels.graph.failures import failing
from gensor_kernels.graph.ir.options import DEFAULT, Options
from gensor_kernels.shown import is_masked, printable, shown

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    import onnx

    from gensor_kernels.dispatch.calls.array import DeviceArray
    from gensor_kernels.graph.ir.graph import Spec
    from gensor_kernels.graph.readers.onnx_file import Source, Values
    from gensor_kernels.graph.rewrites.state import State

    from .bound import Arenas
    from .entries import Entry
    from .layers import Layers, Memory, Reasons
    from .plan import Plan
    from .session import Session
    from .weights import Weights

Signature = tuple[tuple[str, tuple[int, ...], str], ...]
#: Signatures whose plans a model keeps; the oldest is replaced.
MOST_PLANS = 64


class Model:
    """A model that `load` returned: call it with arrays.

    Attributes
    ----------
    inputs : dict
        Dtype and shape of each input, by name; sizes that a call chooses are names.
    outputs : list of str
        Names of the results, in order.
    defaults : dict
        Dtype and shape, by name, of constants that a call may override by keyword: those that
        the file lists among its inputs, from version 4 of the format on.

    Examples
    --------
    >>> import onnx.helper as h
    >>> tensor = lambda name: h.make_tensor_value_info(name, 1, ["n", 4])
    >>> graph = h.make_graph([h.make_node("Relu", ["x"], ["y"])], "g", [tensor("x")], [tensor("y")])
    >>> onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 20)], ir_version=9), "relu.onnx")
    >>> model = gensor_kernels.load("relu.onnx")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     model(np.array([[-1, 0, 1, 2]], "float32"))
    array([[0., 0., 1., 2.]], dtype=float32)
    """

    def __init__(self, source: Source, name: str, options: Options = DEFAULT, entry: Entry | None = None):
        self._source, self._name, self._options, self._entry = source, name, options, entry
        self.inputs, self.outputs = dict(source.inputs), list(source.outputs)
        self.defaults = dict(source.defaults)
        self._specs = self.inputs | self.defaults
        #: Names of files next to the model's that hold its weights.
        self.weight_files: tuple[str, ...] = tuple(source.weight_files)
        self._plans: dict[tuple[Signature, int, bool, tuple[Any, ...]], Plan] = {}
        #: Plans by Runtime and by the types, dtypes and shapes of arguments that were checked.
        self._known: dict[Any, Plan] = {}
        #: What the plans on a device share.
        self._shared: dict[int, tuple[Weights, Arenas]] = {}
        if not source.is_checked:
            from .plan import refuse_early

            with failing("no valid ONNX model"):
                refuse_early(source.graph(), options)  # the graph names operators that are not served
        for each, spec in self.inputs.items():
            if spec.dtype == object:
                raise UnsupportedError(f"input {shown(each)} is text or no tensor; a model takes tensors of numbers")

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """Compute the model.

        Parameters
        ----------
        *args, **keywords : array
            Inputs in the order of `inputs`, or by name, as `defaults` are: CuPy arrays, NumPy
            arrays inside `emulated`, or PyTorch tensors, for which the results are tensors.

        Returns
        -------
        array or tuple of array
            The result; a tuple where the model has several.

        Raises
        ------
        ValueError
            If an input is missing or superfluous, or its shape does not fit.
        TypeError
            If the dtype of an input does not fit.
        UnsupportedError
            If a node cannot be served; the text names it.
        """
        runtime = current.current_runtime()
        try:
            key = (runtime, *[(type(array), array.dtype, array.shape) for array in args]) if not keywords else None
            plan = self._known.get(key)
        except (AttributeError, TypeError):  # no arrays
            plan = key = None
        if plan is None:
            exchange = find_exchange(args, keywords)
            if exchange is not None:
                return exchange.call(self, args, keywords)
            inputs = self._bound(args, keywords)
            plan, args = self._plan(inputs), tuple(inputs.values())
            if key is not None and len(args) == len(key) - 1:
                if len(self._known) >= MOST_PLANS:
                    self._known.clear()
                self._known[key] = plan
        results = plan(runtime, args)
        return results[0] if len(results) == 1 else results

    @overload
    def explain(self, node: str, /) -> Reasons: ...

    @overload
    def explain(self, *args: Any, **keywords: Any) -> Layers: ...

    def explain(self, *args: Any, **keywords: Any) -> Reasons | Layers:
        """Show what is fused and what serves each node of a run, or the rules that made one node.

        Parameters
        ----------
        *args, **keywords : array
            Inputs as for a call: the model runs once.
        node : str
            Alone, the name of a node of the signature that was planned last, or of the sizes
            that the file declares: nothing runs.

        Returns
        -------
        Layers or Reasons
            One row per node; `print` shows them as a table, and `named` returns the row of
            one node. For a name, the rules that made the node, with predicted times.

        Raises
        ------
        KeyError
            If no node has the name.
        """
        from .layers import reasons

        if len(args) == 1 and not keywords and isinstance(args[0], str):
            plan = next(reversed(self._plans.values())) if self._plans else self._prepare()
            return reasons(plan.graph, args[0])
        exchange = find_exchange(args, keywords)
        if exchange is not None:
            layers: Layers = exchange.call(self.explain, args, keywords)
            return layers
        return self._explain(args, keywords)

    def memory(self, *args: Any, **keywords: Any) -> Memory:
        """Return the memory that the model needs for inputs as of a call, and how its calls run.

        The model runs once if it has not yet. `print` shows the bytes of the arena, of the largest live set, and of
        weights.
        """
        from .layers import memory_of

        inputs, runtime = self._bound(args, keywords), current.current_runtime()
        plan = self._plan(inputs)
        if plan.layout is None:
            plan(runtime, tuple(inputs.values()))
        return memory_of(plan, runtime.device.stream())

    def profile(self, *args: Any, **keywords: Any) -> Layers:
        """Run the model once with inputs as of a call, explain every node, and time each by itself on the GPU.

        The result is that of `explain`, with `measured_us` on a GPU, and predicted times alone inside `emulated`.
        """
        return self._explain(args, keywords, timed=True)

    def _explain(self, args: Sequence[DeviceArray], keywords: Mapping[str, DeviceArray], timed: bool = False) -> Layers:
        from .layers import explain_plan

        inputs = self._bound(args, keywords)
        return explain_plan(self._plan(inputs), inputs, current.current_runtime().device.stream(), timed)

    def session(self, state: Mapping[str, str] | None = None, **sizes: int) -> Session:
        """Return the model with state that stays on the device: caches of keys and values, and the like.

        Parameters
        ----------
        state : dict of str to str, optional
            Results by the input that they replace in the next call, of the same shape. By
            default the inputs that a TensorScatter appends to.
        **sizes : int
            Sizes of the state that the file leaves open, such as `batch=1`.

        Returns
        -------
        Session
            Callable with the other inputs; its state begins with zeros.

        Raises
        ------
        ModelError
            If there is no such state, or a size is missing.

        Examples
        --------
        >>> import onnx.helper as h
        >>> tensor = lambda name, kind, *shape: h.make_tensor_value_info(name, kind, shape)
        >>> node = h.make_node("TensorScatter", ["past", "x", "place"], ["rows"], axis=1)
        >>> given = [tensor("past", 1, "n", 4, 2), tensor("x", 1, "n", 1, 2), tensor("place", 7, "n")]
        >>> graph = h.make_graph([node, h.make_node("ReduceSum", ["rows"], ["total"])], "g",
        ...                      given, [tensor("rows", 1, "n", 4, 2), tensor("total", 1, 1, 1, 1)])
        >>> onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 24)], ir_version=11), "sum.onnx")
        >>> with gensor_kernels.emulated("sm_87"):
        ...     session = gensor_kernels.load("sum.onnx").session(n=1)
        ...     [float(session(np.ones((1, 1, 2), "float32"), np.array([place])).item()) for place in range(4)]
        [2.0, 4.0, 6.0, 8.0]
        """
        from .session import Session, state_of

        kept = state_of(self._source.graph(), state)

        def plan_for(given: dict[str, DeviceArray]) -> tuple[dict[str, DeviceArray], Plan]:
            inputs = self._bound((), given)
            return inputs, self._plan(inputs, kept)

        return Session(self.inputs, self.outputs, kept, sizes, plan_for)

    def save(self, path: str | os.PathLike[str], *, external_weights: bool = False) -> None:
        """Write the model into a file that `load` opens without reading or planning it again.

        The file has the weights and the plans of the signatures that were called; on another part, with other sizes,
        and after a change of the package, `load` plans as for an ONNX file. It holds no code.

        Parameters
        ----------
        path : path
            The file, which is replaced at once if it exists.
        external_weights : bool, default False
            Weights stay in the ONNX file, or in the files of its external data, which are
            in the folder of `path` or below. `load` raises ModelError where they have
            changed.

        Raises
        ------
        ValueError
            If `external_weights` of a model that was not loaded from a file, or whose files
            are in another folder.
        UnsupportedError
            If the model has constants that are text.

        Examples
        --------
        >>> import onnx.helper as h
        >>> tensor = lambda name: h.make_tensor_value_info(name, 1, ["n", 4])
        >>> graph = h.make_graph([h.make_node("Relu", ["x"], ["y"])], "g", [tensor("x")], [tensor("y")])
        >>> model = gensor_kernels.load(h.make_model(graph, opset_imports=[h.make_opsetid("", 20)], ir_version=9))
        >>> with gensor_kernels.emulated("sm_87"):
        ...     y = model(np.ones((1, 4), "float32"))
        >>> model.save("relu.gensor")
        >>> gensor_kernels.load("relu.gensor")
        <gensor_kernels model model: x -> y>
        """
        from .saved import save

        stateless = {
            (signature, plan.part, fixed): (plan.graph, plan.layouts)
            for (signature, _, fixed, state), plan in self._plans.items()
            if not state and plan.part
        }
        save(self._source, self._name, self._options, stateless, path, external_weights)

    def placed(self, inputs: Mapping[str, DeviceArray]) -> dict[str, DeviceArray]:
        """Return NumPy arrays as arrays of the current device: CuPy's, or NumPy's own inside `emulated`."""
        device = current.current_runtime().device
        return {name: array if device.emulated else device.xp.asarray(array) for name, array in inputs.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy the source of the model; plans are made again."""
        return Model, (self._source, self._name, self._options)

    def __str__(self) -> str:
        """Return the nodes after the rewrites, for the sizes that the file declares and the current device, if any."""
        from .layers import outline

        given = ", ".join(f"{name}: {spec}" for name, spec in self.inputs.items())
        return f"{printable(f'{self._name} ({given})')}\n{outline(self._prepare())}"

    def __repr__(self) -> str:
        return printable(f"<gensor_kernels model {self._name}: {', '.join(self.inputs)} -> {', '.join(self.outputs)}>")

    def infers(self, shapes: Mapping[str, Sequence[int]]) -> bool:
        """Return whether every node has results of known shapes, with elements, for inputs of these shapes."""
        try:
            graph = self._prepare(shapes).graph
        except GensorError:
            return False
        found = [graph.shape(name) for node in graph.nodes for name in node.outputs if name]
        return all(shape is not None and all(isinstance(each, int) and each > 0 for each in shape) for shape in found)

    def _prepare(self, shapes: Mapping[str, Sequence[int]] | None = None) -> Plan:
        """Return a plan for the sizes that the file declares, or for others."""
        from .plan import Plan
        from .weights import Weights

        with failing(f"{self._name} cannot be prepared"):
            return Plan(self._source.graph(shapes), Weights(), self._options)

    def _bound(self, args: Sequence[DeviceArray], keywords: Mapping[str, DeviceArray]) -> dict[str, DeviceArray]:
        """Return the inputs by name, checked against what the file declares."""
        if len(args) > len(self.inputs):
            raise ValueError(f"{self._name} has {len(self.inputs)} inputs, not {len(args)}")
        given = dict(zip(self.inputs, args, strict=False))
        specs = self._specs
        for name in keywords:
            if name not in specs or name in given:
                reason = "is given twice" if name in given else f"is none of {', '.join(specs)}"
                raise ValueError(printable(f"input {shown(name)} {reason}"))
        given |= keywords
        missing = [name for name in self.inputs if name not in given]
        if missing:
            raise ValueError(printable(f"{self._name} needs the inputs {', '.join(missing)}"))
        sizes: dict[str, int] = {}
        given = {name: given[name] for name in specs if name in given}  # the order of plans
        for name, array in given.items():
            _check(name, array, specs[name], sizes)
        for name, (least, most) in self._source.bounds.items():
            if not least <= sizes.get(name, least) <= most:
                allowed = f"at least {least:.0f}" if most == float("inf") else f"from {least:.0f} to {most:.0f}"
                raise ValueError(f"size {name} is {sizes[name]}, the model takes {allowed}")
        return given

    def _plan(self, inputs: Mapping[str, DeviceArray], state: State | None = None) -> Plan:
        """Return the plan for inputs of this signature; with `state`, one that writes it in place."""
        from .bound import Arenas
        from .plan import Plan, part
        from .weights import Weights

        signature = tuple((name, tuple(array.shape), str(array.dtype)) for name, array in inputs.items())
        device = current.current_runtime().device
        # In deterministic mode times do not decide on layouts.
        key = signature, id(device), config.deterministic(), state.key() if state else ()
        plan = self._plans.get(key)
        if plan is None:
            weights, arenas = self._shared.setdefault(id(device), (Weights(), Arenas()))
            with failing(f"{self._name} cannot be prepared for these inputs"):
                where = self._entry.conditions() if self._entry else part()
                place = signature, where, config.deterministic()
                stored = None if state else self._source.plan(place)
                if stored is not None:
                    plan = Plan(stored[0], weights, self._options, None, arenas, stored[1] or True)
                else:
                    graph = self._source.graph({name: tuple(array.shape) for name, array in inputs.items()})
                    plan = Plan(graph, weights, self._options, state, arenas)
                    if self._entry and not state and where == self._entry.conditions():
                        self._entry.keep(self._source, self._name, self._options, place, plan)
            if len(self._plans) == MOST_PLANS:
                del self._plans[next(iter(self._plans))]
                self._known.clear()
            self._plans[key] = plan
        return plan


def _check(name: str, array: DeviceArray, spec: Spec, sizes: dict[str, int]) -> None:
    if not hasattr(array, "shape") or not hasattr(array, "dtype") or is_masked(array):
        raise TypeError(f"input {shown(name)} must be an array, not {shown(array)}")
    if np.dtype(array.dtype) != spec.dtype:
        raise TypeError(f"input {shown(name)} has dtype {array.dtype}, the model takes {spec.dtype.name}")
    if spec.shape is None:
        return
    fits = len(spec.shape) == len(array.shape)
    for declared, extent in zip(spec.shape, array.shape, strict=False):
        if isinstance(declared, str):
            fits &= sizes.setdefault(declared, extent) == extent
        elif declared is not None:
            fits &= declared == extent
    if not fits:
        known = f" with {', '.join(f'{k} = {v}' for k, v in sizes.items())}" if sizes else ""
        raise ValueError(f"input {shown(name)} has shape {tuple(array.shape)}, the model takes {spec}{known}")


def load(
    path: str | os.PathLike[str] | bytes | onnx.ModelProto,
    *,
    inputs: Values | None = None,
    dtype: Literal["float16", "bfloat16"] | None = None,
    weights: Literal["int8", "int4"] | None = None,
) -> Model:
    """Load an ONNX model.

    Batch norms, constants and padding are folded into convolutions; biases, activations
    and residuals are computed by the kernels of products. Nothing is compiled or tuned.

    Parameters
    ----------
    path : path, bytes or onnx.ModelProto
        An ONNX file, whose external data, if any, is in its folder; the
        content of such a file, as bytes or as onnx reads it, without external data;
        or a file that `Model.save` has written, with its options and inputs.
    inputs : dict of str to number or array, optional
        Inputs that never change, by name: they become constants, which may decide
        branches and loops of the file, and calls take the others alone.
    dtype : {None, "float16", "bfloat16"}, optional
        Compute float32 tensors in 16 bits; weights are cast once. Inputs and results keep
        the dtypes of the file.
    weights : {None, "int8", "int4"}, optional
        Store constant weights of products in 8 or 4 bits, with scales from the largest
        magnitude of each output channel, or of 32 to 128 of its weights for 4 bits.
        Products are in 16 bits: those of the file, or of `dtype`.

    Returns
    -------
    Model
        Callable with arrays; `print` shows its nodes, and `explain` which kernels serve
        them.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ModelError
        If it is not a valid model, a value does not fit its input, or packages of the
        `onnx` extra are missing.
    UnsupportedError
        If operators are not served; the text names all of them.
    ValueError
        If `dtype` or `weights` is another word.

    References
    ----------
    .. [1] ONNX operators, https://onnx.ai/onnx/operators/

    Examples
    --------
    >>> gensor_kernels.load("absent.onnx")
    Traceback (most recent call last):
        ...
    FileNotFoundError: absent.onnx: no ONNX file is there
    """
    from gensor_kernels.graph.readers.onnx_file import read

    from . import entries
    from .saved import read as read_saved

    options = Options(dtype, weights).validate()
    if not isinstance(path, (str, os.PathLike)):
        return Model(read(path, inputs), "model", options)
    if (saved := read_saved(Path(path))) is None:
        entry = entries.find(Path(path), options, inputs)
        source: Source | None = entry.read() if entry else None
        if source is None:
            source = read(path, inputs)
            entry = entry if entry and entry.is_of_file() else None
        return Model(source, os.path.basename(os.fspath(path)), options, entry)
    if inputs or options not in (DEFAULT, saved[2]):
        raise ValueError(f"{path} was saved with {saved[2]}; load the ONNX file for other options, or for inputs")
    return Model(*saved)
