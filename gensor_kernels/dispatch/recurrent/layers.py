"""Layers of recurrent networks: one product of all steps' inputs, then all steps in one launch, or step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from gensor_kernels import config
from gensor_kernels.dispatch.api.current import current_runtime
from gensor_kernels.dispatch.api.matmul import matmul
from gensor_kernels.dispatch.api.norms import elementwise
from gensor_kernels.dispatch.functions.recurrent import (
    RECURRENCE,
    Cell,
    Parameters,
    Recurrence,
    walk_steps,
)
from gensor_kernels.dispatch.observe import record
from gensor_kernels.dispatch.observe.dry_run import Question, asking
from gensor_kernels.operators.recurrent.recurrent import GATES, QUANTISED, WITH_VECTOR

if TYPE_CHECKING:
    from gensor_kernels.arrays import Dtype
    from gensor_kernels.dispatch.calls.array import DeviceArray, Precision
    from gensor_kernels.dispatch.plans.runtime import Runtime

#: Makes a call of a function of this package.
Caller = Callable[..., Any]
#: Launches of a step in addition to its product, the copy of h into y among them, and of states in 8 bits before it.
LAUNCHES, ROUNDING = {"lstm": 5, "gru": 6, "rnn": 2}, 3


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
        gates = len(GATES[kind][0])
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


class ByKernels:
    """Operations of functions of this package; `quantised` ones round states to 8 bits before products."""

    quantised = False

    def __init__(self, runtime: Runtime, call: Caller, options: dict[str, Any]):
        self.xp, self.call, self.options = runtime.device.xp, call, options

    def product(self, h: DeviceArray, r: DeviceArray, add: DeviceArray = None) -> DeviceArray:
        """See functions/recurrent.py: Operations."""
        return self.call(matmul, h, r, add=add, **self.options)

    def chain(self, x: DeviceArray, items: Sequence[Any]) -> DeviceArray:
        """See functions/recurrent.py: Operations."""
        return self.call(elementwise, x, list(items))


def walk(
    runtime: Runtime,
    call: Caller,
    x: DeviceArray,
    network: Network,
    cells: Sequence[Cell],
    batch_first: bool = False,
    precision: Precision | None = None,
    by: type[ByKernels] = ByKernels,
) -> Sequences:
    """Compute a layer of one cell per direction over x (steps, batch, inputs); with `batch_first`, (batch, steps, ...).

    Then the memory of y is in that order too. All steps are one call where a kernel is predicted to be faster than
    calls step by step, made `by` these operations. ValueError and TypeError for arrays that do not fit.
    """
    if x.ndim != 3:
        raise ValueError(f"x has three axes, steps, batch and inputs, not {x.ndim}")
    batch, steps = x.shape[:2] if batch_first else x.shape[1::-1]
    dtype = network.check(x, batch, cells[0].kind)
    device, wide = runtime.device, np.dtype(np.float32) if dtype.itemsize < 4 else dtype
    options = {"dtype": wide.name, "precision": precision}
    xp, (directions, rows, hidden) = device.xp, network.r.shape
    peepholes = network.peepholes is not None
    at_once: bool = all(cell.is_plain for cell in cells) and rows * steps * batch > 0
    at_once = at_once and (directions == 1 or not cells[0].reverse)
    # In 8 bits there are LSTMs alone.
    at_once = at_once and not (by.quantised and (cells[0].kind != "lstm" or peepholes or dtype != np.float32))
    parameters = _parameters(cells, peepholes, by.quantised)
    kind = _Kind(parameters, (steps, batch, directions, rows), tuple(network.r.shape), dtype, wide, precision)
    # A call that is recorded or tuned is one of the recurrence, whatever serves it.
    is_asked_for = bool(record.active) or config.tune_mode() == "now"
    at_once = at_once and (is_asked_for or _is_best(runtime, kind))
    if asking.get():
        _ask(runtime, x, network, kind, at_once, options)
    bias, vector = _biases(xp, network, cells[0], wide)
    inputs = call(matmul, x, network.w.reshape(directions * rows, x.shape[2]).T, bias=bias, **options)
    inputs = inputs.reshape(*x.shape[:2], directions, rows)
    inputs = inputs.swapaxes(0, 1) if batch_first else inputs
    r = network.r.astype(dtype, copy=False)
    given = Recurrence(inputs, r, network.h, network.c, vector, network.lengths)
    if at_once:
        return _serve(runtime, call, given, replace(parameters, batch_first=batch_first), precision)
    y = device.empty((*x.shape[:2], directions, hidden), dtype)
    y = y.swapaxes(0, 1) if batch_first else y
    lasts = walk_steps(by(runtime, call, options), given, cells, y, wide)
    h, c = (None if each[0] is None else xp.stack(each).astype(dtype) for each in zip(*lasts, strict=True))
    return Sequences(y, h, c)


def _parameters(cells: Sequence[Cell], peepholes: bool, quantised: bool) -> Parameters:
    first = cells[0]
    clip = np.inf if first.clip is None else first.clip
    name = f"recurrent_{first.kind}{'_peepholes' * peepholes}{'_quantised' * quantised}"
    return Parameters(name, first.order, len(cells) == 1 and first.reverse, float(clip))


def recur(*inputs: DeviceArray, parameters: Parameters, precision: str | None) -> DeviceArray:
    """Compute a recurrence of its operands, of which the last is written; see functions/recurrent.py."""
    return current_runtime().serve(RECURRENCE, inputs, parameters, None, (), precision)


def _serve(
    runtime: Runtime,
    call: Caller,
    given: Recurrence,
    parameters: Parameters,
    precision: str | None,
) -> Sequences:
    """Compute all steps in one call, which a kernel serves in one launch."""
    device, kind = runtime.device, parameters.kind
    xp, wide, (steps, batch, directions, _) = device.xp, given.inputs.dtype, given.inputs.shape
    hidden, dtype = given.r.shape[2], given.r.dtype
    states = [given.h, given.c][: 2 if kind == "lstm" else 1]
    state = xp.zeros((len(states), directions, batch, hidden), wide)
    for place, each in enumerate(states):
        if each is not None:
            state[place] = each
    lengths = (
        xp.full((batch,), steps, np.int32) if given.lengths is None else given.lengths.astype(np.int32, copy=False)
    )
    vector = given.vector
    if kind == "gru" and vector is None:
        vector = xp.zeros((directions, hidden), wide)
    last = device.empty(state.shape, wide)
    more = () if vector is None else (vector,)
    inputs = (given.inputs, given.r, state, lengths.astype(np.int32, copy=False), *more, last)
    y = call(recur, *inputs, parameters=parameters, precision=precision)
    found = [each.astype(dtype, copy=False) for each in last]
    return Sequences(y, found[0], found[1] if kind == "lstm" else None)


def _ask(
    runtime: Runtime, x: DeviceArray, network: Network, kind: _Kind, at_once: bool, options: dict[str, Any]
) -> None:
    """Raise the Question of a layer: the product of its inputs, and the recurrence, or the products of its steps."""
    (steps, _, directions, rows), device, wide = kind.inputs, runtime.device, kind.wide
    is_biased = network.w_bias is not None or network.r_bias is not None
    bias = device.empty((directions * rows,), wide) if is_biased else None
    w = device.empty((directions * rows, x.shape[2]), network.w.dtype)
    asked = [_question(lambda: matmul(x, w.T, bias=bias, **options))]
    if at_once:
        asked.append(_question(lambda: kind.serve(runtime)))
    else:
        asked += [_question(lambda: kind.product(runtime))] * (steps * directions)
    raise Question(steps=tuple(each for each in asked if each is not None))


class _Kind(NamedTuple):
    """All that the choice of a kernel for a recurrence depends on: shapes, dtypes and parameters."""

    parameters: Parameters
    inputs: tuple[int, ...]
    r: tuple[int, ...]
    dtype: Dtype
    wide: Dtype
    precision: Precision | None

    def serve(self, runtime: Runtime) -> DeviceArray:
        """Make a call of this kind on arrays that are not initialised, to learn what serves it."""
        (_, batch, directions, _), hidden, empty = self.inputs, self.r[2], runtime.device.empty
        kind, operator = self.parameters.kind, self.parameters.operator
        state = empty((2 if kind == "lstm" else 1, directions, batch, hidden), self.wide)
        width = hidden if kind == "gru" else 3 * hidden
        more = [empty((directions, width), self.wide)] if operator in WITH_VECTOR else []
        lengths, r = empty((batch,), np.dtype(np.int32)), empty(self.r, self.dtype)
        inputs = (empty(self.inputs, self.wide), r, state, lengths, *more, state)
        return recur(*inputs, parameters=self.parameters, precision=self.precision)

    def product(self, runtime: Runtime) -> DeviceArray:
        """Make the call of a step's product, in the same way."""
        (_, batch, _, rows), empty = self.inputs, runtime.device.empty
        h, r = empty((batch, self.r[2]), self.dtype), empty(self.r[1:], self.dtype)
        return matmul(h, r.T, add=empty((batch, rows), self.wide), dtype=self.wide.name, precision=self.precision)


#: Whether a kernel serves recurrences best, by their kind, for each Runtime and the epoch of its library.
_known: WeakKeyDictionary[Runtime, tuple[object, dict[_Kind, bool]]] = WeakKeyDictionary()


def _is_best(runtime: Runtime, kind: _Kind) -> bool:
    """Return whether a kernel serves a recurrence, and is predicted to take no longer than calls step by step."""
    from gensor_kernels.dispatch.plans.make import choose

    epoch, answers = _known.get(runtime, (None, {}))
    if epoch is not runtime.library.epoch:  # other kernels or timings
        answers = {}
        _known[runtime] = runtime.library.epoch, answers
    if kind not in answers:
        with runtime.device.lending(None), runtime.dry_run():
            question, product = _question(lambda: kind.serve(runtime)), _question(lambda: kind.product(runtime))
        choice = None if question is None else choose(question.call, question.operands, capturing=False)[0]
        ours = None if choice is None else choice.measured_us or choice.predicted_us
        theirs = None if product is None else _steps_us(runtime, kind, product)
        served = choice is not None and choice.kernel is not None
        answers[kind] = served and (ours is None or theirs is None or ours <= theirs)
    return answers[kind]


def _steps_us(runtime: Runtime, kind: _Kind, product: Question) -> float | None:
    """Return the predicted microseconds of all steps, each a product and further launches, or None if unknown."""
    from gensor_kernels.dispatch.api.explain import find_time

    each, arch = find_time(runtime, product).us, runtime.device.arch
    if each is None or arch is None:
        return None
    more = LAUNCHES[kind.parameters.kind] + ROUNDING * (kind.parameters.operator == QUANTISED)
    return kind.inputs[0] * kind.inputs[2] * (each + more * arch.launch_us)


def _question(call: Callable[[], Any]) -> Question | None:
    try:
        call()
    except Question as question:
        return question
    return None


def _biases(xp: Any, network: Network, cell: Cell, wide: Dtype) -> tuple[DeviceArray, DeviceArray]:
    """Return the biases of all directions that are added before the steps, and what steps have: peepholes, or the bias
    that a reset gate is applied to."""
    given = [None if each is None else each.astype(wide, copy=False) for each in (network.w_bias, network.r_bias)]
    peepholes = None if network.peepholes is None else network.peepholes.astype(wide, copy=False)
    if cell.kind == "gru" and cell.linear_before_reset and given[1] is not None:
        two = 2 * network.r.shape[2]  # the gate n is the last one
        before = xp.zeros(given[1].shape, wide) if given[0] is None else given[0].copy()
        before[:, :two] += given[1][:, :two]
        return before.reshape(-1), given[1][:, two:]
    there = [each.reshape(-1) for each in given if each is not None]
    return (sum(there[1:], there[0]) if there else None), peepholes
