"""LSTM, GRU and RNN."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.dispatch.api import reductions
from gensor_kernels.dispatch.functions.recurrent import DEFAULTS, FUSED, ONNX, Activation, Cell
from gensor_kernels.dispatch.fusion.fused import fuse
from gensor_kernels.dispatch.recurrent.layers import ByKernels, Caller, Network, walk
from gensor_kernels.operators.recurrent.recurrent import GATES
from gensor_kernels.operators.types import in_bytes

from .base import Lowering, Run, Tensor, refusal
from .elementwise import MAPS

if TYPE_CHECKING:
    from gensor_kernels.arrays import Namespace
    from gensor_kernels.graph.ir.graph import Node

#: Attribute of a layer whose inputs and states are rounded to 8 bits before each product.
QUANTISED = "quantised"
#: Activations that no operator has, with their default alpha and beta, None without a default.
_OWN: dict[str, tuple[Callable[..., Any], Mapping[str, float | None]]] = {
    "Affine": (lambda xp, x, alpha, beta: alpha * x + beta, {"alpha": None, "beta": 0.0}),
    "ScaledTanh": (lambda xp, x, alpha, beta: alpha * xp.tanh(beta * x), {"alpha": None, "beta": None}),
}
_OPERATORS = ("Elu", "HardSigmoid", "LeakyRelu", "Softplus", "Softsign", "ThresholdedRelu")
#: Activations with their defaults, by their names in small letters.
_ACTIVATIONS = {name.lower(): each for name, each in {**_OWN, **{op: MAPS[op] for op in _OPERATORS}}.items()}


class Quantising(ByKernels):
    """Operations that round states to 8 bits between their least and their largest element, as onnxruntime does."""

    quantised = True

    def product(self, h: Tensor, r: Tensor, add: Tensor = None) -> Tensor:
        """See functions/recurrent.py: Operations."""
        return super().product(rounded(self.call, h), r, add)


def rounded(call: Caller, x: Tensor) -> Tensor:
    """Return the floats that stand for x in 8 bits: two reductions, and one launch."""
    return call(_between, x, call(reductions.min, x), call(reductions.max, x)) if x.size else x


@fuse
def _between(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    return in_bytes.rounded(np, x, low, high)


def _network(run: Run, node: Node, x: Tensor, w: Tensor, r: Tensor, b: Tensor = None, *more: Tensor) -> Any:
    lengths, h, c, peepholes = (*more, None, None, None, None)[:4]
    kind, batch_first = node.op.lower(), bool(node.attribute("layout"))
    directions = ("forward", "reverse") if (way := node.attribute("direction")) == "bidirectional" else (way,)
    if r.shape[0] != len(directions):
        raise ValueError(f"R has weights of {r.shape[0]} directions, and direction is {way}")
    x, w, r, b, lengths, h, c, peepholes = map(run.device, (x, w, r, b, lengths, h, c, peepholes))
    if batch_first:  # the standard's states begin with the batch, too
        h, c = (None if each is None else each.swapaxes(0, 1) for each in (h, c))
    half = len(GATES[kind][0]) * r.shape[2]
    biases = (None, None) if b is None else (b[:, :half], b[:, half:])
    if peepholes is not None:  # of the gates i, o and f
        i, o, f = (peepholes[:, place * r.shape[2] : (place + 1) * r.shape[2]] for place in range(3))
        peepholes = run.xp.concatenate((i, f, o), axis=1)
    functions, count = _activations(node, kind, len(directions)), len(DEFAULTS[kind])
    after, coupled = bool(node.attribute("linear_before_reset")), bool(node.attribute("input_forget"))
    cells = [
        Cell(
            kind,
            ONNX,
            functions[place * count : (place + 1) * count],
            each == "reverse",
            node.attribute("clip"),
            after,
            coupled,
        )
        for place, each in enumerate(directions)
    ]
    network = Network(w, r, biases[0], biases[1], h, c, peepholes, lengths)
    by = Quantising if node.attribute(QUANTISED) else ByKernels
    if by is Quantising:  # in the range of the steps that any sequence has
        steps = run.xp.arange(len(x))[:, None, None]
        x = rounded(run.call, x if lengths is None else run.xp.where(steps < lengths.max(), x, x.dtype.type(0)))
    found = walk(run.runtime, run.call, x, network, cells, batch_first, by=by)
    y = found.y.swapaxes(0, 1) if batch_first else found.y.swapaxes(1, 2)
    states = [each.swapaxes(0, 1) if batch_first else each for each in (found.h, found.c) if each is not None]
    return (y, *states)[: len(node.outputs)]


def _activations(node: Node, kind: str, directions: int) -> tuple[Activation, ...]:
    """Return the activations of all directions, which take alphas and betas in turn."""
    names = node.attributes.get("activations")  # the default of RNN is for two directions
    if not names:
        return DEFAULTS[kind] * directions
    if len(names) != len(DEFAULTS[kind]) * directions:
        raise refusal(node, f"{len(DEFAULTS[kind]) * directions} activations are expected, not {len(names)}")
    given = {name: list(node.attribute(f"activation_{name}") or ()) for name in ("alpha", "beta")}
    found: list[Activation] = []
    for name in (each.lower() for each in names):
        if name in FUSED:
            found.append(name)
            continue
        if name not in _ACTIVATIONS:
            raise refusal(node, f"the activation {name} is unknown")
        function, defaults = _ACTIVATIONS[name]
        values = {each: given[each].pop(0) if given[each] else value for each, value in defaults.items()}
        if None in values.values():
            raise refusal(node, f"the activation {name} is without an alpha or a beta, and the standard has no default")
        found.append(partial(_activate, function, values))
    return tuple(found)


def _activate(function: Callable[..., Any], values: Mapping[str, Any], xp: Namespace, x: Tensor) -> Tensor:
    return function(xp, x, **values).astype(x.dtype, copy=False)


LOWERINGS: dict[str, Lowering] = dict.fromkeys(("GRU", "LSTM", "RNN"), _network)
