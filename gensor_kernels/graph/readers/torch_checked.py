"""Check of PyTorch's ONNX exporter: each operator of a program against PyTorch itself, on drawn operands.

Distinct calls of operators (by operator, attributes, dtypes and small extents) are exported once in a process, all new
ones of a program together, and evaluated by the reference evaluator of onnx. The exporter silently loses attributes,
changes dtypes and rounds scalars.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.graph.failures import first_line
from gensor_kernels.graph.lowerings import lower
from gensor_kernels.graph.lowerings.base import Host
from gensor_kernels.shown import shown

from .onnx_file import Source

if TYPE_CHECKING:
    import onnx
    import torch

    #: PyTorch's exporter.
    Export = Callable[[torch.export.ExportedProgram], torch.onnx.ONNXProgram]

#: Elements up to which a call is checked with its own extents, and the extent above which others are reduced.
FEW, SMALL = 1 << 14, 8
#: Elements of the operands and results that are evaluated together.
TOGETHER = 1 << 24
#: Relative differences that are roundings: sums in another order, in the dtype of the result.
TOLERANCES = {
    "float64": 1e-8,
    "float32": 1e-4,
    "float16": 1e-2,
    "bfloat16": 6e-2,
    "complex64": 1e-4,
    "complex128": 1e-8,
}
#: An extent that no example has fixed.
OPEN = 3

#: Keys of drawn calls by those of the program's, and what is wrong with the translation of drawn calls, or None.
_drawn_keys: dict[Hashable, Hashable] = {}
_verdicts: dict[Hashable, str | None] = {}


class Call:
    """A call of an operator with drawn `operands`, and PyTorch's `results`."""

    def __init__(self, node: torch.fx.Node):
        import torch

        self.target, self.where = node.target, path_of(node)
        flat, self._tree = torch.utils._pytree.tree_flatten((node.args, node.kwargs))
        self._flat = [_plain(each) for each in flat]
        self._places = [place for place, each in enumerate(self._flat) if isinstance(each, torch.Tensor)]
        fakes = [self._flat[place] for place in self._places]
        self.dtypes = [each.dtype for each in fakes]
        self.shapes = [tuple(map(_extent, each.shape)) for each in fakes]
        made = node.meta["val"]
        self._single = isinstance(made, torch.Tensor)
        reads = {user.args[1] for user in node.users if _is_item(user) and user.users}
        #: Positions of the results that the program reads.
        self.used = [0] if self._single else [place for place, each in enumerate(made) if place in reads]
        self._result_elements = sum(
            math.prod(map(_extent, each.shape)) for each in ([made] if self._single else made) if each is not None
        )
        #: Operator, arguments, and dtypes and extents of the operands; after drawing, those of the drawn operands.
        self.key = self._key(self.shapes)

    def _key(self, shapes: Sequence[tuple[int, ...]]) -> Hashable:
        others = [None if place in self._places else each for place, each in enumerate(self._flat)]
        return self.target, self._tree, repr(others), tuple(self.dtypes), tuple(shapes), tuple(self.used)

    def draw(self) -> None:
        """Draw operands that the operator takes; RuntimeError where none are found."""
        reason: Exception | None = None
        for shapes, arguments in self._sizes():
            for drawn in _draws(self.dtypes, shapes):
                try:
                    self._flat = arguments
                    self.operands, self.results = drawn, [each.clone() for each in self(drawn)]
                except Exception as error:  # of the operator, for operands that it does not take
                    reason = error
                    continue
                if any(each.numel() for each in self.results) or not self._result_elements:
                    self.key = self._key(shapes)
                    return
        raise RuntimeError(f"no operands were found that it takes ({first_line(reason or RuntimeError())})")

    def _sizes(self) -> Iterator[tuple[list[tuple[int, ...]], list[Any]]]:
        """Yield extents of the operands with the other arguments: small ones first, which the operator may refuse."""
        flat = self._flat
        if sum(map(math.prod, self.shapes)) + self._result_elements > FEW:
            large = sorted({extent for shape in self.shapes for extent in shape if extent > SMALL})
            smaller = {extent: SMALL + 1 + place for place, extent in enumerate(large)}
            shapes = [tuple(smaller.get(extent, extent) for extent in shape) for shape in self.shapes]
            yield shapes, flat
            mapped = [smaller.get(each, each) if type(each) is int else each for each in flat]
            yield shapes, mapped
        yield self.shapes, flat

    def elements(self) -> int:
        """Return the number of elements of operands and results."""
        return sum(each.numel() for each in (*self.operands, *self.results))

    def __call__(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Call the operator with other operands; return those results that the program reads."""
        import torch

        flat = list(self._flat)
        changes = self.target._schema.is_mutable
        for place, tensor in zip(self._places, tensors, strict=True):
            flat[place] = tensor.clone() if changes else tensor
        args, keywords = torch.utils._pytree.tree_unflatten(flat, self._tree)
        found = self.target(*args, **keywords)
        return [found] if self._single else [found[place] for place in self.used]


def check(program: torch.export.ExportedProgram, export: Export) -> None:
    """Raise UnsupportedError if the exporter (`export`) translates an operator of a torch.export program wrongly."""
    with _nothing_around():
        new: dict[Hashable, Call] = {}
        calls = [Call(node) for node in _nodes(program)]
        for call in calls:
            given = call.key
            if given not in _drawn_keys:
                try:
                    call.draw()
                    if call.key not in _verdicts:
                        new.setdefault(call.key, call)
                except Exception as error:
                    _verdicts[given] = f"cannot be checked: {first_line(error)}"
                _drawn_keys[given] = call.key
            call.key = _drawn_keys[given]
        for group in _groups(list(new.values())):
            _verdicts.update({call.key: verdict for call, verdict in _judge(group, export)})
    for call in calls:
        if (wrong := _verdicts[call.key]) is not None:
            raise UnsupportedError(f"operator {call.target} of PyTorch{call.where}: its translation to ONNX {wrong}")


def path_of(node: torch.fx.Node) -> str:
    """Return the module of a node of a program as words, or "" for the outermost module."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return f" (module {shown(stack[-1][0])})" if stack and stack[-1][0] else ""


def _nodes(program: torch.export.ExportedProgram) -> Iterator[torch.fx.Node]:
    """Yield the calls of operators that make tensors, those in graphs within the graph as well."""
    import torch

    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace == "gensor":
                continue
            made = node.meta.get("val")
            results = made if isinstance(made, (list, tuple)) else [made]
            if any(isinstance(each, torch.Tensor) for each in results) and node.users:
                yield node


def _is_item(node: torch.fx.Node) -> bool:
    return getattr(node.target, "__name__", "") == "getitem"


def _plain(value: Any) -> Any:
    """Return an argument without symbols: a number, a tensor of the trace, or what it is; on the host."""
    import torch

    if isinstance(value, torch.fx.Node):
        value = value.meta.get("val")
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return _extent(value)
    return torch.device("cpu") if isinstance(value, torch.device) else value


def _extent(value: Any) -> Any:
    """Return a number for a symbolic one: the example's, if it has one."""
    symbolic = getattr(value, "node", None)
    if symbolic is None:
        return value
    kind = symbolic.pytype
    if symbolic.has_hint():
        return kind(symbolic.hint)
    return kind(symbolic.expr.subs(dict.fromkeys(symbolic.expr.free_symbols, OPEN)))


def _draws(dtypes: Sequence[torch.dtype], shapes: Sequence[tuple[int, ...]]) -> Iterator[list[torch.Tensor]]:
    """Yield operands: integers of both signs, then without 0, then indices of small extents."""
    import torch

    whole = any(not dtype.is_floating_point and not dtype.is_complex and dtype != torch.bool for dtype in dtypes)
    extents = sorted({extent for shape in shapes for extent in shape if extent > 0} | {1, 2}, reverse=True)
    for below in (None, 0, *extents) if whole else (None,):
        generator = torch.Generator().manual_seed(0)
        yield [_draw(dtype, shape, below, generator) for dtype, shape in zip(dtypes, shapes, strict=True)]


def _draw(dtype: torch.dtype, shape: tuple[int, ...], below: int | None, generator: torch.Generator) -> torch.Tensor:
    """Return a tensor: floats of two magnitudes; integers at random, or indices that differ along every axis."""
    import torch

    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if dtype.is_floating_point or dtype.is_complex:
        wide = torch.complex128 if dtype.is_complex else torch.float64
        values = torch.randn(shape, dtype=wide, generator=generator)
        return (values * torch.where(torch.randint(0, 2, shape, generator=generator) > 0, 1.0, 0.01)).to(dtype)
    if not below:
        low, high = (0, 200) if not dtype.is_signed else (-100, 100)
        values = torch.randint(low, high, shape, generator=generator)
        return (values if below is None else values + (values == 0)).to(dtype)
    places = torch.zeros(shape, dtype=torch.int64)
    for axis, extent in enumerate(shape):
        places = places + torch.arange(extent).view(-1, *[1] * (len(shape) - axis - 1))
    return (places % below).to(dtype)


@contextlib.contextmanager
def _nothing_around() -> Iterator[None]:
    """Call operators without the caller's autocast, which tracing has applied, and keep the state of random numbers."""
    import torch

    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=[]))
        for kind in ("cpu", "cuda"):
            stack.enter_context(torch.autocast(kind, enabled=False))
        yield


def _groups(calls: Sequence[Call]) -> Iterator[list[Call]]:
    """Yield calls that are exported together."""
    group: list[Call] = []
    for call in calls:
        if group and sum(each.elements() for each in group) + call.elements() > TOGETHER:
            yield group
            group = []
        group.append(call)
    if group:
        yield group


def _judge(calls: list[Call], export: Export) -> Iterator[tuple[Call, str | None]]:
    """Yield each call with what is wrong with its translation."""
    try:
        model = _model(calls, export)
        inputs, outputs = ([each.name for each in side] for side in (model.graph.input, model.graph.output))
        if len(inputs) != sum(len(call.operands) for call in calls):
            raise RuntimeError("operands were dropped")
    except Exception as error:
        if len(calls) == 1:
            yield calls[0], f"cannot be checked: {first_line(error)}"
            return
        yield from _judge(calls[: len(calls) // 2], export)
        yield from _judge(calls[len(calls) // 2 :], export)
        return
    for call in calls:
        given, inputs = inputs[: len(call.operands)], inputs[len(call.operands) :]
        wanted, outputs = outputs[: len(call.results)], outputs[len(call.results) :]
        try:
            found = _evaluate(model, dict(zip(given, call.operands, strict=True)), wanted)
        except Exception as error:
            yield call, f"cannot be evaluated: {first_line(error)}"
            continue
        wrongs = (_difference(each, true) for each, true in zip(found, call.results, strict=True))
        yield call, next(filter(None, wrongs), None)


def _model(calls: Sequence[Call], export: Export) -> onnx.ModelProto:
    """Return one model of ONNX, as a protobuf, with all calls: inputs and outputs in the order of calls."""
    import torch

    class Calls(torch.nn.Module):
        def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            found, rest = [], iter(tensors)
            for call in calls:
                found += call([next(rest) for _ in call.operands])
            return tuple(found)

    operands = tuple(each for call in calls for each in call.operands)
    return export(torch.export.export(Calls().train(False), operands, strict=False)).model_proto


def _evaluate(model: onnx.ModelProto, operands: Mapping[str, torch.Tensor], wanted: list[str]) -> list[np.ndarray]:
    """Return results of a part of a model by onnx's reference evaluator."""
    from onnx.reference import ReferenceEvaluator
    from onnx.utils import Extractor

    part = Extractor(model).extract_model(list(operands), wanted)
    arrays = {name: _array(each) for name, each in operands.items()}
    try:
        found: Any = ReferenceEvaluator(part).run(None, arrays)
    except Exception:  # it lacks negative pads, and indices of some shapes
        found = _evaluate_on_host(part, arrays)
    return list(found)


def _evaluate_on_host(model: onnx.ModelProto, arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Return results of a model by our own lowerings on the host."""
    graph = Source(model).graph({name: each.shape for name, each in arrays.items()})
    run = Host()
    run.values = {**graph.constants, **arrays}
    for node in graph.nodes:
        run.values.update(zip(node.outputs, lower(run, node), strict=False))
    return [run.values[name] for name in graph.outputs]


def _array(tensor: torch.Tensor) -> np.ndarray:
    """Return a tensor as an array of the same dtype."""
    import ml_dtypes

    name = str(tensor.dtype).removeprefix("torch.")
    if not hasattr(ml_dtypes, name):
        return np.asarray(tensor.numpy())
    return np.asarray(tensor.float().numpy()).astype(getattr(ml_dtypes, name))


def _difference(given: np.ndarray, expected: torch.Tensor) -> str | None:
    """Return how a result differs from PyTorch's, or None."""
    found, true = np.asarray(given), _array(expected)
    if found.dtype != true.dtype:
        return f"gives {found.dtype.name} in place of {true.dtype.name}"
    if found.shape != true.shape:
        return f"gives the shape {found.shape} in place of {true.shape}"
    tolerance = TOLERANCES.get(true.dtype.name, 0.0)
    if not tolerance:
        return None if np.array_equal(found, true) else "gives other values"
    wide = np.complex128 if true.dtype.kind == "c" else np.float64
    found, true = found.astype(wide), true.astype(wide)
    finite = np.isfinite(true)
    typical = float(np.sqrt(np.mean(np.abs(true[finite]) ** 2))) if finite.any() else 0.0
    near = np.isclose(found, true, rtol=tolerance, atol=tolerance * min(typical, 1.0), equal_nan=True)
    return None if near.all() else "gives other values"
