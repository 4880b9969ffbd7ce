"""A loaded model: plans per input signature, and their execution."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from gensor_kernels.dispatch.api import current
from gensor_kernels.dispatch.api.interop import exchanged
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.graph.ir.options import DEFAULT, Options
from gensor_kernels.shown import shown

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    from gensor_kernels.graph.rewrites.state import State

    from .layers import Layers, Reasons
    from .memory import Memory
    from .plan import Plan
    from .prepared import Prepared
    from .session import Session
    from .weights import Weights

Signature = tuple[tuple[tuple[int, ...], str], ...]
#: Signatures whose plans a model keeps; the oldest gives way to a new one.
MOST_PLANS = 64


class Model:
    """A model that `load` returned: call it with arrays.

    Attributes
    ----------
    inputs : dict
        Dtype and shape of each input, by name; sizes that a call chooses are names.
    outputs : list of str
        Names of the results, in order.

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

    def __init__(self, source: Any, name: str, options: Options = DEFAULT):
        from gensor_kernels.graph.lowerings import LOWERINGS

        from .early import refuse_early

        self._source, self._name, self._options = source, name, options
        self.inputs, self.outputs = dict(source.inputs), list(source.outputs)
        #: Names of the files beside the model's that hold its weights.
        self.weight_files: tuple[str, ...] = tuple(source.weight_files)
        self._plans: dict[tuple[Signature, int, tuple[Any, ...]], Plan] = {}
        #: Plans by Runtime and what arrays were given in order: the calls of these need no further check.
        self._known: dict[Any, Plan] = {}
        self._weights: dict[int, Weights] = {}
        for node in source.graph().nodes:
            if node.op not in LOWERINGS:
                raise UnsupportedError(f"node {shown(node.name)}: operator {node.op} is not served")
        refuse_early(source.graph(), options)
        for each, spec in self.inputs.items():
            if spec.dtype == object:
                raise UnsupportedError(f"input {shown(each)} is text or no tensor; a model takes tensors of numbers")

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """Compute the model.

        Parameters
        ----------
        *args, **keywords : array
            Inputs in the order of `inputs`, or by name: CuPy arrays, or NumPy arrays inside
            `emulated`; PyTorch tensors, too, for which the results are tensors.

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
            exchange = exchanged(args, keywords)
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
        """Tell what is fused and what serves each node of a run, or why one node is what it is.

        Parameters
        ----------
        *args, **keywords : array
            Inputs as for a call: the model runs once.
        node : str
            Alone, the name of a node: nothing runs. The node is that of the signature that
            was planned last, or of the sizes that the file declares.

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
        from .layers import explained, reasons

        if len(args) == 1 and not keywords and isinstance(args[0], str):
            prepared = next(reversed(self._plans.values())) if self._plans else self._declared()
            return reasons(prepared.graph, args[0])
        exchange = exchanged(args, keywords)
        if exchange is not None:
            layers: Layers = exchange.call(self.explain, args, keywords)
            return layers
        inputs = self._bound(args, keywords)
        return explained(self._plan(inputs), inputs, current.current_runtime().device.stream())

    def memory(self, *args: Any, **keywords: Any) -> Memory:
        """Tell the memory that the model needs for such inputs, and how its calls run; it runs once if it has not yet.

        Parameters
        ----------
        *args, **keywords : array
            Inputs as for a call.

        Returns
        -------
        Memory
            Bytes of the arena beside the largest live set, and of weights; `print` shows them.
        """
        from .memory import memory_of

        inputs, runtime = self._bound(args, keywords), current.current_runtime()
        plan = self._plan(inputs)
        if plan.layout is None:
            plan(runtime, tuple(inputs.values()))
        return memory_of(plan, runtime.device.stream())

    def profile(self, *args: Any, **keywords: Any) -> Layers:
        """Run the model once, explain every node, and time each by itself on the GPU.

        Parameters
        ----------
        *args, **keywords : array
            Inputs as for a call.

        Returns
        -------
        Layers
            As from `explain`; with `measured_us` on a GPU, and predicted times alone inside
            `emulated`.
        """
        from .layers import explained

        inputs = self._bound(args, keywords)
        return explained(self._plan(inputs), inputs, current.current_runtime().device.stream(), timed=True)

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
        from .session import Session, kept, sized

        found = kept(self._source.graph(), state)
        shapes = sized(self.inputs, found.results, sizes)

        def planned(given: dict[str, Any]) -> tuple[dict[str, Any], Plan]:
            inputs = self._bound((), given)
            inputs = {name: inputs[name] for name in self.inputs}
            return inputs, self._plan(inputs, found)

        return Session(self.inputs, self.outputs, found, shapes, planned)

    def placed(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return NumPy arrays as arrays of the current device: CuPy's, or NumPy's own inside `emulated`."""
        device = current.current_runtime().device
        return {name: array if device.emulated else device.xp.asarray(array) for name, array in inputs.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy what the model was made from; plans are made anew."""
        return Model, (self._source, self._name, self._options)

    def __str__(self) -> str:
        """Return the nodes behind the rewrites, for the sizes that the file declares and the current device, if any."""
        from .layers import outline

        given = ", ".join(f"{name}: {spec}" for name, spec in self.inputs.items())
        return f"{self._name} ({given})\n{outline(self._declared())}"

    def __repr__(self) -> str:
        return f"<gensor_kernels model {self._name}: {', '.join(self.inputs)} -> {', '.join(self.outputs)}>"

    def _declared(self) -> Prepared:
        """Return the graph for the sizes that the file declares."""
        from .prepared import Prepared
        from .weights import Weights

        return Prepared(self._source.graph(), Weights(), self._options)

    def _bound(self, args: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs by name, checked against what the file declares."""
        if len(args) > len(self.inputs):
            raise ValueError(f"{self._name} has {len(self.inputs)} inputs, not {len(args)}")
        given = dict(zip(self.inputs, args, strict=False))
        for name in keywords:
            if name not in self.inputs or name in given:
                reason = "is given twice" if name in given else f"is none of {', '.join(self.inputs)}"
                raise ValueError(f"input {shown(name)} {reason}")
        given |= keywords
        missing = [name for name in self.inputs if name not in given]
        if missing:
            raise ValueError(f"{self._name} needs the inputs {', '.join(missing)}, too")
        sizes: dict[str, int] = {}
        for name, spec in self.inputs.items():
            _check(name, given[name], spec, sizes)
        for name, (least, most) in self._source.bounds.items():
            if not least <= sizes.get(name, least) <= most:
                allowed = f"at least {least:.0f}" if most == float("inf") else f"from {least:.0f} to {most:.0f}"
                raise ValueError(f"size {name} is {sizes[name]}, the model takes {allowed}")
        return given

    def _plan(self, inputs: Mapping[str, Any], state: State | None = None) -> Plan:
        """Return the plan for inputs of this signature; with `state`, one that writes it in place."""
        from .plan import Plan
        from .weights import Weights

        signature = tuple((tuple(array.shape), str(array.dtype)) for array in inputs.values())
        device = current.current_runtime().device
        key = signature, id(device), state.key() if state else ()
        plan = self._plans.get(key)
        if plan is None:
            graph = self._source.graph({name: tuple(array.shape) for name, array in inputs.items()})
            if len(self._plans) == MOST_PLANS:
                del self._plans[next(iter(self._plans))]
                self._known.clear()
            weights = self._weights.setdefault(id(device), Weights())
            plan = self._plans[key] = Plan(graph, weights, self._options, state)
        return plan


def _check(name: str, array: Any, spec: Any, sizes: dict[str, int]) -> None:
    if not hasattr(array, "shape") or not hasattr(array, "dtype"):
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
    path: str | os.PathLike[str],
    *,
    dtype: Literal["float16", "bfloat16"] | None = None,
    weights: Literal["int8", "int4"] | None = None,
) -> Model:
    """Load a model from an ONNX file.

    Batch norms, constants and padding are folded into convolutions; biases, activations
    and residuals are computed by the kernels of products. Nothing is compiled or tuned.

    Parameters
    ----------
    path : path
        ONNX file; its external data, if any, lies beside it.
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
        If the file is no valid model, or packages of the `onnx` extra are missing.
    UnsupportedError
        If an operator is not served; the text names the node.
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

    options = Options(dtype, weights).checked()
    return Model(read(path), os.path.basename(os.fspath(path)), options)
