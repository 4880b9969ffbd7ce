"""Element-wise nodes as one program: their own lowerings, traced.

A lowering that computes with the array library's element-wise functions alone runs here on stand-ins for arrays, which
record what it does (dispatch/fusion/traced.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.dispatch.fusion.traced import POWERS, NotTracedError, Traced, Tracing
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.expression.program import CODES, Program

from . import arrays, elementwise, quantised
from .base import Run, Tensor

if TYPE_CHECKING:
    from gensor_kernels.graph.ir.graph import Graph, Node, Spec

#: Operators whose lowerings are traced, those of pairs of tensors, functions, comparisons and choices.
OPERATORS = {op: made for op, made in elementwise.LOWERINGS.items() if op not in ("Identity", "Dropout", "Pointwise")}
OPERATORS["Cast"] = arrays.LOWERINGS["Cast"]
OPERATORS |= {op: quantised.LOWERINGS[op] for op in ("DequantizeLinear", "QuantizeLinear")}
#: Errors of lowerings on stand-ins: they expect arrays.
REFUSED = (NotTracedError, UnsupportedError, ValueError, TypeError, AttributeError)
#: Operations of an epilogue, of a tensor and its operand or number.
STEPS: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: x + y,
    "bias": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "scale": lambda x, y: x * float(y),
    "mask": lambda x, y, fill: _numpy.where(y == 0, x.dtype.type(fill), x),
    "relu": lambda x: _numpy.maximum(x, 0),
    "relu6": lambda x: x.clip(0, 6),
    "sigmoid": lambda x: x.apply("sigmoid", (x,), {}),
    "silu": lambda x: x * x.apply("sigmoid", (x,), {}),
    "tanh": lambda x: _numpy.tanh(x),
}


class _Namespace:
    """NumPy, as another library than NumPy itself: lowerings compute some functions of NumPy's arrays elsewhere."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


_numpy: Any = _Namespace()


class _TracingRun(Run):
    """A run on stand-ins."""

    def __init__(self) -> None:
        self.xp, self.explained, self.values = _numpy, None, {}

    def together(self, *values: Tensor) -> tuple[Tensor, ...]:
        """Return NumPy and the stand-ins."""
        return self.xp, *values

    def device(self, value: Tensor) -> Tensor:
        """Return a stand-in."""
        return value

    def host(self, value: Tensor) -> np.ndarray:
        """Refuse to read elements."""
        raise NotTracedError("elements that are read")

    def erf(self, x: Tensor) -> Tensor:
        """Return the error function."""
        return x.apply("erf", (x,), {})

    def call(self, function: Callable[..., Any], *args: Tensor, **keywords: Tensor) -> Tensor:
        """Apply the operations of `elementwise`."""
        if function is not elementwise.elementwise or keywords:
            raise NotTracedError("a call of a kernel")
        x, steps = args
        for step in steps:
            name, *given = (step,) if isinstance(step, str) else step
            gelu = name in ("gelu", "gelu_tanh")
            x = elementwise.gelu(self, self.xp, x, name != "gelu") if gelu else STEPS[name](x, *given)
        return x


def trace(
    graph: Graph, nodes: Sequence[Node], results: Sequence[str] | None = None
) -> tuple[Program, tuple[str, ...]] | None:
    """Return the program of nodes with these results, by default that of the last one, and the tensors that it reads.

    None where there is no program. Constants of one element are numbers of it.
    """
    made = {name for node in nodes for name in node.outputs}
    read = dict.fromkeys(name for node in nodes for name in node.reads() if name not in made)
    ones = {name: each for name in read if (each := graph.constants.get(name)) is not None and each.size == 1}
    # A number adds no axes to the result.
    rank = max((len(graph.shape(name) or ()) for name in read if name not in ones), default=0)
    numbers = {
        name: each.reshape(-1)[0] for name, each in ones.items() if each.ndim <= rank and each.dtype.name in CODES
    }
    inputs = [name for name in read if name not in numbers]
    specs = [graph.spec(name) for name in inputs]
    if not inputs or any(spec is None or spec.shape is None or spec.dtype.name not in CODES for spec in specs):
        return None
    try:
        tracing = Tracing([spec._replace(shape=_extents(spec)) for spec in specs if spec is not None])
        run = _TracingRun()
        run.values = {**numbers, **dict(zip(inputs, tracing.arrays, strict=True))}
        for node in nodes:
            run.values[node.outputs[0]] = _result(run, node, graph)
        found = tuple(run.values[name] for name in results or nodes[-1].outputs)
        return tracing.program(found if len(found) > 1 else found[0]), tuple(inputs)
    except REFUSED:
        return None


def _extents(spec: Spec) -> tuple[int, ...]:
    """Return 1 for each axis of one element, and 2 for all others: programs are the same for all of them."""
    return tuple(1 if extent == 1 else 2 for extent in spec.shape or ())


def _result(run: _TracingRun, node: Node, graph: Graph) -> Traced:
    given: list[Any] = [run.values[each] if each else None for each in node.inputs]
    if node.op == "Pow" and isinstance(given[1], np.generic) and float(given[1]) in POWERS:
        found = POWERS[float(given[1])](given[0])
    elif node.op == "Swish":  # by a step of its own, not by exp
        alpha = float(node.attribute("alpha"))
        found = given[0] * STEPS["sigmoid"](given[0] if alpha == 1 else given[0] * alpha)
    else:
        found = OPERATORS[node.op](run, node, *given)
    spec = graph.spec(node.outputs[0])
    if not isinstance(found, Traced) or spec is None or spec.dtype != found.dtype:
        raise NotTracedError(f"a result of {getattr(found, 'dtype', None)}")
    return found
