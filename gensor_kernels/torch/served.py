"""A graph of Dynamo that kernels serve: exported at its first call, with the module's parameters as constants.

Results are as PyTorch's own operators would return them: in the same layout, and in separate memory.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from gensor_kernels import forking
from gensor_kernels.dispatch.api import current
from gensor_kernels.errors import GensorError
from gensor_kernels.graph.execution.model import Model
from gensor_kernels.graph.ir.options import DEFAULT, Options
from gensor_kernels.graph.readers import torch_module
from gensor_kernels.graph.readers.onnx_file import first_line
from gensor_kernels.graph.readers.torch_module import placeholders, value_of

from .tracing import frozen, is_tensor, open_axes, results, size_of

if TYPE_CHECKING:
    import torch

_said: set[str] = set()
_lock = forking.lock(sys.modules[__name__], "_lock", threading.Lock)


def say_eager(reason: str) -> None:
    """Warn that a graph runs eagerly, unless this reason was given before."""
    say(f"a graph of torch.compile runs eagerly: {reason}")


def say(text: str) -> None:
    """Warn, unless this text was said before."""
    with _lock:
        if text in _said:
            return
        _said.add(text)
    warnings.warn(text, UserWarning, stacklevel=3)


def forget() -> None:
    """Say everything again."""
    with _lock:
        _said.clear()


class Layout:
    """The order of axes in memory that a result of a graph has.

    Parameters
    ----------
    fake : torch.Tensor
        The traced result. A result that is not dense, such as a broadcast, is laid out
        with its last axis innermost.
    """

    def __init__(self, fake: torch.Tensor):
        shape, strides = [int(each) for each in fake.shape], [int(each) for each in fake.stride()]
        axes = sorted(range(len(shape)), key=lambda axis: (-strides[axis], -shape[axis]))
        dense = _strides(shape, axes)
        own = all(a == b or extent == 1 for a, b, extent in zip(strides, dense, shape, strict=True))
        self.axes = axes if own else list(range(len(shape)))

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor with this layout: itself, or a copy."""
        import torch

        dense = _strides(tensor.shape, self.axes)
        if all(a == b or extent == 1 for a, b, extent in zip(tensor.stride(), dense, tensor.shape, strict=True)):
            return tensor
        empty = torch.empty_permuted(tensor.shape, self.axes, dtype=tensor.dtype, device=tensor.device)
        return empty.copy_(tensor)


def _strides(shape: Sequence[int], axes: Sequence[int]) -> list[int]:
    """Return the strides of a dense tensor whose axes are in this order, the outermost first."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(axes):
        strides[axis] = step
        step *= max(shape[axis], 1)
    return strides


def apart(results: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return results that share no memory with inputs and each other: themselves, or copies."""
    taken = [_span(each) for each in inputs]
    found = []
    for each in results:
        first, last = _span(each)
        if any(begin < last and first < end for begin, end in taken):
            each = each.clone()
        taken.append(_span(each))
        found.append(each)
    return found


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the first address of a tensor's elements and the address after the last one."""
    if tensor.numel() == 0:
        return 0, 0
    reach = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (reach + 1) * tensor.element_size()


#: How often parameters may change before they become inputs, which no kernel folds or prepacks.
MOST_CHANGES = 8


class Served:
    """A callable with the inputs and results of a graph.

    Parameters
    ----------
    gm : torch.fx.GraphModule
        Graph that changes no input and whose results share no memory.
    options : Options
        Precision, and how weights are stored.
    nested : bool
        Whether AOTAutograd calls it.
    """

    def __init__(self, gm: torch.fx.GraphModule, options: Options = DEFAULT, nested: bool = False):
        self.gm, self.options, self.nested = gm, options, nested
        self._frozen: Frozen | None = None
        self._reason: str | None = None
        self._changing: set[int] = set()
        self._changes = 0
        self._lock = forking.lock(self, "_lock", threading.RLock)

    def __call__(self, *args: Any) -> Any:
        """Compute the graph by kernels, or eagerly where they cannot."""
        reason, failed = self._reason or _elsewhere(args), False
        if reason is None:
            try:
                return self._current(args)(args)
            except Exception as error:  # whatever it is: PyTorch may compute it
                named = isinstance(error, (GensorError, LookupError))
                reason, failed = str(error) if named else f"{type(error).__name__}: {first_line(error)}", True
        found = self.gm(*args)  # an exception of the module itself is raised here
        if failed:
            self._reason = reason
        say_eager(reason)
        return found

    def _current(self, args: Sequence[Any]) -> Frozen:
        """Return the exported graph for the parameters as they are now."""
        found = self._frozen
        if found is not None and found.holds(args):
            return found
        with self._lock:
            found = self._frozen
            if found is not None and not found.holds(args):
                self._changes += 1
                if self._changes > MOST_CHANGES:
                    self._changing |= set(found.constants)
                # A buffer that changes between calls, such as a cache, is an input.
                self._changing |= {each for each in found.changed(args) if not _is_parameter(args[each])}
                found = None
            if found is None:
                found = self._frozen = Frozen(self.gm, args, self._changing, self.options, self.nested)
            return found


class Frozen:
    """A graph with some inputs as constants, and its models: one serves all sizes, as far as they are symbols."""

    def __init__(
        self, gm: torch.fx.GraphModule, args: Sequence[Any], changing: set[int], options: Options, nested: bool
    ):
        self.constants = {
            place: value for place, value in enumerate(args) if place not in changing and _is_static(value)
        }
        self._states = [(place, value, *_state(value)) for place, value in self.constants.items()]
        self.module, self.kept = frozen(gm, dict(self.constants))
        if not self.kept:
            raise LookupError("it has no tensor as an input")
        nodes = placeholders(gm)
        self._open = [{axis: _auto() for axis in open_axes(nodes[place])} for place in self.kept]
        self._results = [_Result(each, nodes) for each in results(gm)]
        self._layouts = [Layout(value_of(each)) for each in results(gm) if is_tensor(each)]
        self._models: list[Model] = []
        self._options, self._nested = options, nested
        self._lock = forking.lock(self, "_lock", threading.Lock)

    def holds(self, args: Sequence[Any]) -> bool:
        """Return whether the constants are still what these arguments are."""
        return next(self.changed(args), None) is None

    def changed(self, args: Sequence[Any]) -> Iterator[int]:
        """Yield the positions of constants that are not what these arguments are."""
        for place, value, *state in self._states:
            if args[place] is not value or _state(value) != state:
                yield place

    def __call__(self, args: Sequence[Any]) -> Any:
        """Compute the graph."""
        tensors = [args[place].detach() for place in self.kept]
        found = self._model(tensors)(*tensors)
        raw = list(found) if isinstance(found, tuple) else [found]
        laid = [layout(each) for layout, each in zip(self._layouts, raw, strict=True)]
        own = iter(apart(laid, tensors))
        return tuple(each.of(args, own) for each in self._results)

    def _model(self, tensors: Sequence[torch.Tensor]) -> Model:
        """Return a model that takes these sizes; exported where there is none yet."""
        for model in self._models:
            if _fits(model, tensors):
                return model
        with self._lock:
            for model in self._models:
                if _fits(model, tensors):
                    return model
            if self._nested:  # AOTAutograd has set up its thread for calls, where tracing is impossible
                with ThreadPoolExecutor(1) as pool:
                    model = pool.submit(self._exported, tensors).result()
            else:
                model = self._exported(tensors)
            self._models.append(model)
            return model

    def _exported(self, tensors: Sequence[torch.Tensor]) -> Model:
        """Return a new model for these sizes, and others as far as they are symbols."""
        program = torch_module.export(self.module, tensors, {}, tuple(self._open))
        model = Model(torch_module.translate(program), "graph of torch.compile", self._options)
        if len(model.inputs) != len(tensors):
            raise LookupError("the exporter has dropped an input")
        return model


class _Result:
    """Where a result of a graph comes from: the model, an argument, or the graph itself."""

    def __init__(self, result: Any, nodes: Sequence[torch.fx.Node]):
        import torch

        self.tensor, self.place, self.axis, self.value = is_tensor(result), -1, -1, result
        if self.tensor or not isinstance(result, torch.fx.Node):
            return
        if result in nodes:
            self.place = nodes.index(result)
        else:
            tensors = [place for place, node in enumerate(nodes) if is_tensor(node)]
            self.place, self.axis = size_of(value_of(result), nodes, tensors)

    def of(self, args: Sequence[Any], tensors: Iterator[torch.Tensor]) -> Any:
        """Return the result of a call."""
        if self.tensor:
            return next(tensors)
        if self.place < 0:
            return self.value
        return args[self.place] if self.axis < 0 else args[self.place].shape[self.axis]


def _elsewhere(args: Sequence[Any]) -> str | None:
    """Return the reason why kernels cannot serve a call now, or None."""
    import torch

    kinds = {each.device.type for each in args if isinstance(each, torch.Tensor)}
    wanted = "cpu" if current.inside.get() is not None else "cuda"
    if kinds <= {wanted}:
        return None
    where = ", ".join(sorted(kinds - {wanted}))
    if wanted == "cpu":
        return f"tensors lie in the memory of {where}, where the emulator cannot reach them"
    return (
        f"tensors lie in the memory of {where}; kernels run with tensors on a GPU, and with those in the host's memory "
        'inside gensor_kernels.emulated("sm_87")'
    )


def _is_static(value: Any) -> bool:
    """Return whether an argument is a parameter or a buffer whose changes can be seen."""
    import torch

    if not isinstance(value, torch.Tensor) or value.is_inference():
        return False
    return _is_parameter(value) or getattr(value, "_dynamo_static_input_type", None) is not None


def _is_parameter(value: Any) -> bool:
    import torch

    return isinstance(value, torch.nn.Parameter)


def _state(tensor: torch.Tensor) -> list[int]:
    return [tensor.data_ptr(), tensor._version]


def _auto() -> Any:
    from torch.export import Dim

    return Dim.AUTO


def _fits(model: Model, tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether a model takes tensors of these shapes."""
    sizes: dict[str, int] = {}
    for spec, tensor in zip(model.inputs.values(), tensors, strict=True):
        for declared, extent in zip(spec.shape, tensor.shape, strict=True):
            wanted = sizes.setdefault(declared, extent) if isinstance(declared, str) else declared
            if wanted != extent:
                return False
    return True
