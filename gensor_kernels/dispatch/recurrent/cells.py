"""Recurrent cells over whole sequences: one product of all steps' inputs, then one product per step.

The cells are those of cuDNN, PyTorch and ONNX. With the gates' inputs a = w x + r h + biases, where h and c are the
state before a step and * is element by element:

    lstm  c' = f(a_f) * c + f(a_i) * g(a_g)               h' = f(a_o) * h(c')
    gru   n = g(a_n), with a_n = w x + reset * (r h)      h' = (1 - f(a_z)) * n + f(a_z) * h
    rnn   h' = f(a_n)

Products round to the dtype of the network; gates and the cell state are computed in at least float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gensor_kernels.dispatch.api.matmul import matmul
from gensor_kernels.dispatch.api.norms import elementwise
from gensor_kernels.dispatch.observe.dry_run import Question, asking

if TYPE_CHECKING:
    from gensor_kernels.arrays import Dtype, Namespace
    from gensor_kernels.devices.device import Device
    from gensor_kernels.dispatch.calls.array import DeviceArray

    #: Operations of an epilogue.
    Items = Sequence[tuple[str, DeviceArray]]

#: Makes a call of a function of this package.
Caller = Callable[..., Any]
#: A name of FUSED, or a function (array library, x) -> y of floats.
Activation = str | Callable[[Any, Any], Any]
#: Activations that a kernel computes.
FUSED = ("relu", "sigmoid", "tanh")
#: Gates of a cell in the order of PyTorch's and of ONNX's weights, by the cell.
PYTORCH = {"lstm": "ifgo", "gru": "rzn"}
ONNX = {"lstm": "iofg", "gru": "zrn", "rnn": "n"}
#: Default activations: f, g and h.
DEFAULTS: dict[str, tuple[Activation, ...]] = {
    "lstm": ("sigmoid", "tanh", "tanh"),
    "gru": ("sigmoid", "tanh"),
    "rnn": ("tanh",),
}


class Cell(NamedTuple):
    """A kind of cell, and how it computes in one direction."""

    kind: str
    #: gates in the order of their rows in weights and biases
    gates: str
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
    def resets_products(self) -> bool:
        """Whether the reset gate is applied to products of h with their bias."""
        return self.kind == "gru" and self.linear_before_reset


@dataclass(frozen=True)
class Network:
    """Arrays of a layer, for one or two directions: the first axis of all but the lengths.

    With n gates of `hidden` units: w (directions, n * hidden, inputs), r (directions, n * hidden, hidden), their biases
    (directions, n * hidden), states h and c (directions, batch, hidden), peepholes of the gates i, f and o (directions,
    3 * hidden), lengths (batch,) of integers. Only w and r are required.
    """

    w: DeviceArray
    r: DeviceArray
    w_bias: DeviceArray = None
    r_bias: DeviceArray = None
    h: DeviceArray = None
    c: DeviceArray = None
    peepholes: DeviceArray = None
    lengths: DeviceArray = None

    def check(self, x: DeviceArray, batch: int, kind: str) -> Dtype:
        """Return the promoted dtype; ValueError for shapes that do not fit, TypeError for other than floats."""
        gates = len(ONNX[kind])
        if self.r.ndim != 3 or self.r.shape[1] != gates * self.r.shape[2] or self.r.shape[0] not in (1, 2):
            wanted = f"(directions, {gates} * hidden, hidden)"
            raise ValueError(f"the recurrent weights of {kind} have the shape {wanted}, not {tuple(self.r.shape)}")
        directions, rows, hidden = self.r.shape
        state = (directions, batch, hidden)
        expected: list[tuple[str, DeviceArray, tuple[int, ...]]] = [
            ("the input weights", self.w, (directions, rows, x.shape[-1])),
            ("the input bias", self.w_bias, (directions, rows)),
            ("the recurrent bias", self.r_bias, (directions, rows)),
            ("the initial state h", self.h, state),
            ("the initial state c", self.c, state),
            ("peepholes", self.peepholes, (directions, 3 * hidden)),
            ("lengths", self.lengths, (batch,)),
        ]
        for what, array, shape in expected:
            if array is not None and tuple(array.shape) != shape:
                raise ValueError(f"{what} of {kind}: the shape is {tuple(array.shape)}, where {shape} is expected")
        dtype = np.promote_types(np.promote_types(x.dtype, self.w.dtype), self.r.dtype)
        if dtype.kind != "f" and dtype.name != "bfloat16":
            raise TypeError(f"x and weights of {kind} are floating-point arrays, not {dtype}")
        return dtype


class Sequences(NamedTuple):
    """Results: y (steps, batch, directions, hidden), 0 past a sequence's end, and the last states.

    Of a cell without c it is None. The states of a sequence of length 0 are the initial ones.
    """

    y: DeviceArray
    h: DeviceArray
    c: DeviceArray


def walk(
    device: Device,
    call: Caller,
    x: DeviceArray,
    network: Network,
    cells: Sequence[Cell],
    batch_first: bool = False,
    precision: str | None = None,
) -> Sequences:
    """Compute a layer of one cell per direction over x (steps, batch, inputs); with `batch_first`, (batch, steps, ...).

    Then the memory of y is in that order too. ValueError and TypeError for arrays that do not fit.
    """
    if x.ndim != 3:
        raise ValueError(f"x has three axes, steps, batch and inputs, not {x.ndim}")
    batch, steps = x.shape[:2] if batch_first else x.shape[1::-1]
    dtype = network.check(x, batch, cells[0].kind)
    wide = np.dtype(np.float32) if dtype.itemsize < 4 else dtype
    options = {"dtype": wide.name, "precision": precision}
    xp, (directions, rows, hidden) = device.xp, network.r.shape
    if asking.get():
        _ask(device, x, network, dtype, (steps, batch), options)
    bias = _input_bias(network, cells[0], wide)
    inputs = call(matmul, x, network.w.reshape(directions * rows, x.shape[2]).T, bias=bias, **options)
    y = device.empty((*x.shape[:2], directions, hidden), dtype)
    if batch_first:
        inputs, y = inputs.swapaxes(0, 1), y.swapaxes(0, 1)
    alive = None
    if network.lengths is not None:
        alive = (xp.arange(steps)[:, None] < network.lengths)[..., None]
    lasts = []
    for number, cell in enumerate(cells):
        step = _Step(xp, call, network, cell, number, dtype, options)
        h = step.state(network.h, batch)
        c = step.state(network.c, batch) if cell.kind == "lstm" else None
        for place in range(steps)[:: -1 if cell.reverse else 1]:
            with np.errstate(all="ignore"):
                next_h, next_c = step(inputs[place, :, number * rows : (number + 1) * rows], h, c)
            if alive is not None:  # the state waits for the sequence to begin, or stays after its end
                next_h = xp.where(alive[place], next_h, h)
                next_c = None if c is None else xp.where(alive[place], next_c, c)
            h, c = next_h, next_c
            y[place, :, number] = h if alive is None else xp.where(alive[place], h, h.dtype.type(0))
        lasts.append((h, c))
    return Sequences(
        y, *(None if each[0] is None else xp.stack(each).astype(dtype) for each in zip(*lasts, strict=True))
    )


def _ask(
    device: Device, x: DeviceArray, network: Network, dtype: Dtype, sizes: tuple[int, int], options: dict[str, Any]
) -> None:
    """Raise the Question of a layer: the product of its inputs, and those of its steps."""
    (steps, batch), (directions, rows, hidden) = sizes, network.r.shape
    w, r = device.empty((directions * rows, x.shape[2]), network.w.dtype), device.empty((rows, hidden), dtype)
    h, inputs = (
        device.empty((batch, hidden), dtype),
        device.empty((batch, directions * rows), np.dtype(options["dtype"])),
    )
    bias = None if network.w_bias is None and network.r_bias is None else inputs[0]
    asked: list[Question] = []
    for count, a, b, epilogue in (
        (1, x, w, {"bias": bias}),
        (steps * directions, h, r, {"add": inputs[:batch, :rows]}),
    ):
        try:
            matmul(a, b.T, **epilogue, **options)
        except Question as question:
            asked += [question] * count
    raise Question(steps=tuple(asked))


def _input_bias(network: Network, cell: Cell, wide: Dtype) -> DeviceArray:
    """Return the biases of all directions that are added before the steps: both, but for an r_bias that is reset."""
    given = [network.w_bias, None if cell.resets_products else network.r_bias]
    given = [each.reshape(-1).astype(wide, copy=False) for each in given if each is not None]
    return sum(given[1:], given[0]) if given else None


class _Step:
    """A step of one direction: from the gates' inputs (batch, gates * hidden) and a state to the next state."""

    def __init__(
        self,
        xp: Namespace,
        call: Caller,
        network: Network,
        cell: Cell,
        number: int,
        dtype: Dtype,
        options: dict[str, Any],
    ):
        self.xp, self.call, self.cell, self.number = xp, call, cell, number
        self.dtype, self.wide, self.options = dtype, np.dtype(options["dtype"]), options
        self.r, self.hidden = network.r[number], network.r.shape[2]
        self.bias, self.peepholes = None, {}
        if cell.resets_products and network.r_bias is not None:
            self.bias = network.r_bias[number].astype(self.wide, copy=False)
        if network.peepholes is not None:
            own = network.peepholes[number].astype(self.wide, copy=False).reshape(3, self.hidden)
            self.peepholes = dict(zip("ifo", own, strict=True))

    def __call__(self, inputs: DeviceArray, h: DeviceArray, c: DeviceArray) -> tuple[DeviceArray, DeviceArray]:
        """Return the next h and c; of a cell without c it is None."""
        if self.cell.kind == "lstm":
            return self._lstm(inputs, h, c)
        if self.cell.kind == "gru":
            return self._gru(inputs, h), None
        return self._activate(0, self._product(h, self.r, add=inputs)), None

    def state(self, given: DeviceArray, batch: int) -> DeviceArray:
        """Return the initial state of this direction: zeros if none is given."""
        if given is None:
            return self.xp.zeros((batch, self.hidden), self.wide)
        return given[self.number].astype(self.wide, copy=False)

    def _product(self, h: DeviceArray, r: DeviceArray, **epilogue: DeviceArray) -> DeviceArray:
        return self.call(matmul, h.astype(self.dtype, copy=False), r.T, **epilogue, **self.options)

    def _gates(self, values: DeviceArray) -> dict[str, DeviceArray]:
        width = self.hidden
        return {name: values[:, at * width : (at + 1) * width] for at, name in enumerate(self.cell.gates)}

    def _activate(self, number: int, x: DeviceArray, before: Items = (), after: Items = ()) -> DeviceArray:
        """Apply activation f, g or h between other operations: in one kernel, if it is one of FUSED without a clip."""
        function, bound = self.cell.activations[number], None if number == 2 else self.cell.clip
        if bound is None and isinstance(function, str):
            return self.call(elementwise, x, [*before, function, *after])
        x = self.call(elementwise, x, [*before]) if before else x
        if bound is not None:
            x = self.xp.minimum(self.xp.maximum(x, x.dtype.type(-bound)), x.dtype.type(bound))
        if isinstance(function, str):
            return self.call(elementwise, x, [function, *after])
        x = function(self.xp, x)
        return self.call(elementwise, x, [*after]) if after else x

    def _lstm(self, inputs: DeviceArray, h: DeviceArray, c: DeviceArray) -> tuple[DeviceArray, DeviceArray]:
        sums = self._product(h, self.r, add=inputs)
        raw = self._gates(sums)
        if self.peepholes:

            def gate(name: str, state: DeviceArray) -> DeviceArray:
                return self._activate(0, state, [("mul", self.peepholes[name]), ("add", raw[name])])
        else:
            every = self._gates(self._activate(0, sums))  # at once, that of the gate g for nothing

            def gate(name: str, state: DeviceArray) -> DeviceArray:
                return every[name]

        entered = gate("i", c)
        kept = 1 - entered if self.cell.coupled else gate("f", c)
        kept = self.call(elementwise, kept, [("mul", c)])
        c = self._activate(1, raw["g"], after=[("mul", entered), ("add", kept)])
        return self._activate(2, c, after=[("mul", gate("o", c))]), c

    def _gru(self, inputs: DeviceArray, h: DeviceArray) -> DeviceArray:
        two = 2 * self.hidden  # rows of the gates r and z
        if self.cell.linear_before_reset:
            sums = self._product(h, self.r, bias=self.bias)
            gates = self._gates(self._activate(0, inputs[:, :two], [("add", sums[:, :two])]))
            new = self._activate(1, sums[:, two:], [("mul", gates["r"]), ("add", inputs[:, two:])])
        else:
            gates = self._gates(self._activate(0, self._product(h, self.r[:two], add=inputs[:, :two])))
            new = self._activate(1, self._product(gates["r"] * h, self.r[two:], add=inputs[:, two:]))
        kept = self.call(elementwise, gates["z"], [("mul", h)])
        return self.call(elementwise, 1 - gates["z"], [("mul", new), ("add", kept)])
