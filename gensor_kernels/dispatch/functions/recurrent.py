"""Recurrences: their lowering, and the same step by step, by kernels or by the array library.

The cells are those of operators/recurrent/recurrent.py, with further forms that are computed step by step alone. Gates
and states are computed in at least float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from gensor_kernels.arrays import Dtype
from gensor_kernels.dispatch.calls.arguments import Operation, operations
from gensor_kernels.dispatch.calls.fallback import apply_steps
from gensor_kernels.operators.recurrent.recurrent import (
    GATES,
    QUANTISED,
    SIZES,
    VERIFIED_CLIP,
    WITH_VECTOR,
    workload_from_views,
)
from gensor_kernels.operators.types.in_bytes import rounded
from gensor_kernels.operators.types.workload import Workload

from .base import AbstractCall, Function, Inputs, KernelCall, LibraryCall, NeedsCopies, Result, compact

if TYPE_CHECKING:
    from gensor_kernels.arrays import Namespace
    from gensor_kernels.dispatch.calls.array import Backend, DeviceArray

    #: Operations of an epilogue.
    Items = Sequence[Any]

#: A name of FUSED, or a function (array library, x) -> y of floats.
Activation = str | Callable[[Any, Any], Any]
#: Activations that a kernel computes.
FUSED = ("relu", "sigmoid", "tanh")
#: Default activations: f, g and h.
DEFAULTS: dict[str, tuple[Activation, ...]] = {
    "lstm": ("sigmoid", "tanh", "tanh"),
    "gru": ("sigmoid", "tanh"),
    "rnn": ("tanh",),
}
#: Orders of gates.
PYTORCH, ONNX = 0, 1


class Cell(NamedTuple):
    """A kind of cell, and how it computes in one direction."""

    kind: str
    #: order of the gates' rows in weights and biases
    order: int
    activations: tuple[Activation, ...]
    #: whether it walks from the last step to the first
    reverse: bool = False
    #: bound on the inputs of gates, or None; as onnxruntime, not on c'
    clip: float | None = None
    #: gru: whether the reset gate is applied to r h + b, not to h
    linear_before_reset: bool = True
    #: lstm: whether the forget gate is 1 - the input gate
    coupled: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether a kernel may compute all steps of this cell."""
        resets = self.kind != "gru" or self.linear_before_reset
        return self.activations == DEFAULTS[self.kind] and resets and not self.coupled


class Recurrence(NamedTuple):
    """Arrays of a recurrence: what is added to the gates' products (steps, batch, directions, n * hidden), R
    (directions, n * hidden, hidden), initial states (directions, batch, hidden) or None, peepholes or the bias that a
    reset gate is applied to (directions, ...) or None, and lengths (batch,) or None."""

    inputs: DeviceArray
    r: DeviceArray
    h: DeviceArray
    c: DeviceArray
    vector: DeviceArray
    lengths: DeviceArray


class Operations(Protocol):
    """Products and element-wise operations of a step."""

    xp: Namespace

    def product(self, h: DeviceArray, r: DeviceArray, add: DeviceArray = None) -> DeviceArray:
        """Return h r + add, in at least float32."""

    def chain(self, x: DeviceArray, items: Items) -> DeviceArray:
        """Return the operations of an epilogue on x."""


class ByLibrary:
    """Operations of the array library."""

    def __init__(self, device: Backend, wide: Dtype, math: str | None, quantised: bool = False):
        self.device, self.xp, self.wide, self.math, self.quantised = device, device.xp, wide, math, quantised

    def product(self, h: DeviceArray, r: DeviceArray, add: DeviceArray = None) -> DeviceArray:
        """See Operations."""
        h = rounded(self.xp, h, self.xp.min(h), self.xp.max(h)) if self.quantised and h.size else h
        found = self.device.product(h.astype(self.wide, copy=False), r.astype(self.wide, copy=False), self.math)
        return found if add is None else found + add

    def chain(self, x: DeviceArray, items: Items) -> DeviceArray:
        """See Operations."""
        steps: tuple[Operation, ...] = operations(epilogue=items)
        return apply_steps(self.device, x, steps, x.dtype, x.dtype)


def walk_steps(
    by: Operations,
    given: Recurrence,
    cells: Sequence[Cell],
    y: DeviceArray,
    wide: Dtype,
    in_turn: Callable[[Sequence[int]], Iterable[int]] = iter,
) -> list[tuple[DeviceArray, DeviceArray]]:
    """Compute y (steps, batch, directions, hidden), and return the last h and c of each direction.

    Steps are those that `in_turn` yields: of arrays without memory, which count operations, one is walked.
    """
    xp, (steps, batch), hidden = by.xp, given.inputs.shape[:2], given.r.shape[2]
    alive = None
    if given.lengths is not None:
        alive = (xp.arange(steps)[:, None] < given.lengths)[..., None]

    def start(states: DeviceArray, way: int) -> DeviceArray:
        return xp.zeros((batch, hidden), wide) if states is None else states[way].astype(wide, copy=False)

    lasts = []
    for way, cell in enumerate(cells):
        step = _Step(by, given, cell, way)
        h, c = start(given.h, way), start(given.c, way) if cell.kind == "lstm" else None
        for place in in_turn(range(steps)[:: -1 if cell.reverse else 1]):
            with np.errstate(all="ignore"):
                next_h, next_c = step(given.inputs[place, :, way], h, c)
            if alive is not None:  # the state waits for the sequence to begin, or stays after its end
                next_h = xp.where(alive[place], next_h, h)
                next_c = None if c is None else xp.where(alive[place], next_c, c)
            h, c = next_h, next_c
            y[place, :, way] = h if alive is None else xp.where(alive[place], h, h.dtype.type(0))
        lasts.append((h, c))
    return lasts


class _Step:
    """A step of one direction: from the gates' inputs (batch, gates * hidden) and a state to the next state."""

    def __init__(self, by: Operations, given: Recurrence, cell: Cell, way: int):
        self.by, self.cell, self.r, self.hidden = by, cell, given.r[way], given.r.shape[2]
        self.vector = None if given.vector is None else given.vector[way]

    def __call__(self, inputs: DeviceArray, h: DeviceArray, c: DeviceArray) -> tuple[DeviceArray, DeviceArray]:
        """Return the next h and c; of a cell without c it is None."""
        if self.cell.kind == "lstm":
            return self._lstm(inputs, h, c)
        if self.cell.kind == "gru":
            return self._gru(inputs, h), None
        return self._activate(0, self._product(h, self.r, inputs)), None

    def _product(self, h: DeviceArray, r: DeviceArray, add: DeviceArray = None) -> DeviceArray:
        return self.by.product(h.astype(self.r.dtype, copy=False), r.T, add)

    def _gates(self, values: DeviceArray) -> dict[str, DeviceArray]:
        width, order = self.hidden, GATES[self.cell.kind][self.cell.order]
        return {name: values[:, at * width : (at + 1) * width] for at, name in enumerate(order)}

    def _activate(self, number: int, x: DeviceArray, before: Items = (), after: Items = ()) -> DeviceArray:
        """Apply activation f, g or h between other operations: in one kernel, if it is one of FUSED without a clip."""
        function, bound = self.cell.activations[number], None if number == 2 else self.cell.clip
        if bound is None and isinstance(function, str):
            return self.by.chain(x, [*before, function, *after])
        x, xp = self.by.chain(x, before) if before else x, self.by.xp
        if bound is not None:
            x = xp.minimum(xp.maximum(x, x.dtype.type(-bound)), x.dtype.type(bound))
        if isinstance(function, str):
            return self.by.chain(x, [function, *after])
        x = function(xp, x)
        return self.by.chain(x, after) if after else x

    def _lstm(self, inputs: DeviceArray, h: DeviceArray, c: DeviceArray) -> tuple[DeviceArray, DeviceArray]:
        sums, width = self._product(h, self.r, inputs), self.hidden
        raw, vector = self._gates(sums), self.vector
        if vector is not None:
            cut = {name: slice(place * width, (place + 1) * width) for place, name in enumerate("ifo")}

            def gate(name: str, state: DeviceArray) -> DeviceArray:
                return self._activate(0, state, [("mul", vector[cut[name]]), ("add", raw[name])])
        else:
            every = self._gates(self._activate(0, sums))  # at once, that of the gate g for nothing

            def gate(name: str, state: DeviceArray) -> DeviceArray:
                return every[name]

        entered = gate("i", c)
        kept = 1 - entered if self.cell.coupled else gate("f", c)
        kept = self.by.chain(kept, [("mul", c)])
        c = self._activate(1, raw["g"], after=[("mul", entered), ("add", kept)])
        return self._activate(2, c, after=[("mul", gate("o", c))]), c

    def _gru(self, inputs: DeviceArray, h: DeviceArray) -> DeviceArray:
        two = 2 * self.hidden  # rows of the gates r and z
        if self.cell.linear_before_reset:
            sums = self._product(h, self.r)
            gates = self._gates(self._activate(0, inputs[:, :two], [("add", sums[:, :two])]))
            bias = [] if self.vector is None else [("bias", self.vector)]
            new = self._activate(1, sums[:, two:], [*bias, ("mul", gates["r"]), ("add", inputs[:, two:])])
        else:
            gates = self._gates(self._activate(0, self._product(h, self.r[:two], inputs[:, :two])))
            new = self._activate(1, self._product(gates["r"] * h, self.r[two:], inputs[:, two:]))
        kept = self.by.chain(gates["z"], [("mul", h)])
        return self.by.chain(1 - gates["z"], [("mul", new), ("add", kept)])


@dataclass(frozen=True)
class Parameters:
    """Parameters of a recurrence: its operator, the order of gates, the direction of the only one, the clip (infinite
    for none), and whether y is stored batch by batch."""

    operator: str
    order: int
    reverse: bool
    clip: float
    batch_first: bool = False

    @property
    def kind(self) -> str:
        """The cell."""
        return self.operator.split("_")[1]


class RecurrenceFunction(Function):
    """All steps of a layer; inputs are those of operators/recurrent/recurrent.py, of which the last is written."""

    name = "recurrence"

    def result(self, inputs: Inputs, parameters: Parameters) -> Result:
        """Return y in the dtype of R."""
        steps, batch, directions, _ = inputs[0].shape
        order = (1, 0, 2, 3) if parameters.batch_first else None
        return Result((steps, batch, directions, inputs[1].shape[2]), inputs[1].dtype, order)

    def written(self, inputs: Inputs, parameters: Parameters) -> Inputs:
        """Return the array for the last states."""
        return inputs[-1:]

    def lower(self, call: AbstractCall) -> KernelCall:
        """Take any strides with contiguous units; copy other arrays."""
        p, given = call.parameters, call.given
        names = [name for name in "abdef" if name != "f" or p.operator in WITH_VECTOR] + ["l"]
        views = dict(zip(names, given, strict=True))
        copies = []
        for name, view in views.items():
            plain = compact(view).view(view)
            whole = name in "eld" and (view.strides, view.shape) != (plain.strides, plain.shape)
            strided = view.shape[-1] > 1 and view.strides[-1] != 1
            copies.append(compact(view) if name != "l" and (whole or strided) else None)
        if any(copies):
            raise NeedsCopies(*copies)
        views["c"] = call.out
        a, b = views["a"].shape, views["b"].shape
        sizes = dict(zip(SIZES, (*a[:3], b[2], p.order, int(p.reverse)), strict=True))
        return KernelCall.of_views(workload_from_views(p.operator, sizes, views), views, p.clip)

    def vendor_call(self, workload: Workload, arrays: Mapping[str, DeviceArray]) -> LibraryCall:
        """Return the arguments, with the clip of verification."""
        parameters = Parameters(
            workload.operator, workload.size["order"], bool(workload.size["reverse"]), VERIFIED_CLIP
        )
        return LibraryCall(tuple(arrays[name] for name in "abdefl" if name in arrays), parameters)

    def library(self, device: Backend, inputs: Inputs, p: Parameters, math: str | None, out: DeviceArray = None) -> Any:
        """Compute step by step."""
        z, r, state, lengths, *vector, last = inputs
        y = out if out is not None else device.xp.zeros((*z.shape[:3], r.shape[2]), r.dtype)
        clip = None if p.clip == np.inf else p.clip
        ways = (p.reverse,) if z.shape[2] == 1 else (False, True)
        cells = [Cell(p.kind, p.order, DEFAULTS[p.kind], way, clip) for way in ways]
        c = state[1] if p.kind == "lstm" else None
        given = Recurrence(z, r, state[0], c, vector[0] if vector else None, lengths)
        in_turn = getattr(device, "in_turn", iter)
        by = ByLibrary(device, z.dtype, math, p.operator == QUANTISED)
        for way, found in enumerate(walk_steps(by, given, cells, y, z.dtype, in_turn)):
            for place, each in enumerate(found[: len(last)]):
                last[place, way] = each
        return y


RECURRENCE = RecurrenceFunction()
