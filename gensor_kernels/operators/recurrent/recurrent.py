"""The recurrence of a layer: y[t, b, d] = h after step t, from the products of the inputs of all steps.

With n gates of `hidden` units, operands have the names that kernels use: a = products of the inputs with their biases
(steps, batch, directions, n * hidden), b = R (directions, n * hidden, hidden), d = initial states (cells, directions,
batch, hidden) with h before c, e = lengths (batch,) of int32, l = last states, of d's shape and written, and c = y
(steps, batch, directions, hidden).  The sums of gates, states and what is added to them have the accumulator's type; R
and y have the type of the network, to which h is rounded at every step.

    lstm  gates i f g o   c' = f(a_f) * c + f(a_i) * g(a_g)          h' = f(a_o) * tanh(c')
    gru   gates r z n     n = tanh(w x + r * (R h + bias)), bias f   h' = (1 - z) * n + z * h
    rnn   gate n          h' = tanh(a_n)

with sigmoids f, and f (directions, 3 * hidden) as the peepholes of i, f and o of `_lstm_peepholes`.  ``order`` 1 is
ONNX's order of the gates' rows: i o f g, and z r n.  ``reverse`` 1: the only direction begins at a sequence's last
step, as the second of two does.  Inputs of gates are clipped.  A step of a sequence past its length leaves its state,
and its y is 0.  Products of `_lstm_quantised` read h rounded to 8 bits (types/in_bytes.py), by the range of h of all
sequences.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.declaration.operator import Arrays, Bounded, Conditions, Operand, Operator
from gensor_kernels.operators.tolerance.base import (
    FUNCTION_ROUNDINGS,
    Expected,
    Magnitude,
    accumulation_bound,
    expect,
)
from gensor_kernels.operators.types.dtypes import ACCUMULATORS, decode, facts
from gensor_kernels.operators.types.geometry import Geometry, Strides
from gensor_kernels.operators.types.in_bytes import in_bytes
from gensor_kernels.operators.types.workload import View, Workload, alignment_class, contiguous

if TYPE_CHECKING:
    from gensor_kernels.operators.expression.expression import Expression

#: Gates by the kind of cell, in PyTorch's order of their rows and in ONNX's.
GATES = {"lstm": ("ifgo", "iofg"), "gru": ("rzn", "zrn"), "rnn": ("n", "n")}
#: Operators, and those with an operand f.
NAMES = ("recurrent_lstm", "recurrent_lstm_peepholes", "recurrent_gru", "recurrent_rnn")
WITH_VECTOR = ("recurrent_lstm_peepholes", "recurrent_gru")
#: The operator of an LSTM whose products read h in 8 bits.
QUANTISED = "recurrent_lstm_quantised"
#: The clip in verification: some inputs of gates exceed it.
VERIFIED_CLIP = 2.0
LARGEST = 2**31 - 1
#: Behind the addresses of lengths, vector and last states: stride of the vector, clip, rows of the gates, direction.
_TAIL = struct.Struct("<3Q q d 4i 2i")
PLACES = {"e": 0, "f": 8, "l": 16}
SIZES = ("steps", "batch", "directions", "hidden", "order", "reverse")


class State(NamedTuple):
    """h and c of one sequence and direction in float64, and bounds on a kernel's errors in them."""

    h: np.ndarray
    c: np.ndarray
    h_error: np.ndarray
    c_error: np.ndarray


def declare(**sizes: int) -> Expression:
    """Declare the products of one step with the state: what a recurrence repeats."""
    from gensor_kernels.operators.expression.expression import SUM, Expression, axes, tensor

    steps, batch, directions, hidden, k = axes("steps batch directions hidden k")
    b, d = tensor("b", directions, hidden, k), tensor("d", directions, batch, k)
    return Expression("c", (steps, batch, directions, hidden), b[directions, hidden, k] * d[directions, batch, k], SUM)


@dataclass(frozen=True)
class Recurrent(Operator):
    """A kind of cell, for tuner and dispatch."""

    @property
    def kind(self) -> str:
        """The kind of cell."""
        return self.name.split("_")[1]

    @property
    def gates(self) -> int:
        """Number of gates."""
        return len(GATES[self.kind][0])

    @property
    def cells(self) -> int:
        """Number of states."""
        return 2 if self.kind == "lstm" else 1

    @property
    def quantised(self) -> bool:
        """Whether products read h in 8 bits."""
        return self.name == QUANTISED

    @property
    def names(self) -> tuple[str, ...]:
        """Operands in the order of kernels."""
        return ("a", "b", "d", "e", *("f",) * (self.name in WITH_VECTOR), "l", "c")

    @property
    def written(self) -> tuple[str, ...]:
        """The last states."""
        return ("l",)

    def shapes(self, z: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the operands."""
        steps, batch, directions, hidden = (z[name] for name in SIZES[:4])
        states = (self.cells, directions, batch, hidden)
        return {
            "a": (steps, batch, directions, self.gates * hidden),
            "b": (directions, self.gates * hidden, hidden),
            "d": states,
            "e": (batch,),
            "f": (directions, hidden if self.kind == "gru" else 3 * hidden),
            "l": states,
            "c": (steps, batch, directions, hidden),
        }

    def operands(self, workload: Workload) -> tuple[Operand, ...]:
        """Return the operands of `names`, whose last axes are contiguous; lengths and states are without gaps."""
        shapes = self.shapes(workload.size)
        found = []
        for name in self.names:
            if workload.layouts[name] != "hidden":
                raise ValueError(f"'layout' of {name} is hidden, not {workload.layouts[name]!r}")
            rank = len(shapes[name])
            found.append(Operand(name, shapes[name], tuple(range(rank)), rank if name in "eld" else 1))
        return tuple(found)

    def geometry(
        self, workload: Workload, strides: Mapping[str, tuple[int, ...]], clip: float = VERIFIED_CLIP
    ) -> Geometry:
        """Return the kernel's view of a call: m entries of the batch, n units, k units, and directions as batch."""
        z = workload.size
        a, b, d = strides["a"], strides["b"], strides["d"]
        width = self.gates * z["hidden"]
        if max(z["batch"] * width, z["steps"] * z["batch"], *z.values()) > LARGEST:
            raise UnsupportedError("a layer with more units or steps than kernels count in 32 bits")
        order = GATES[self.kind][z["order"]]
        rows = [order.index(gate) * z["hidden"] for gate in GATES[self.kind][0]]
        rows += [0] * (4 - len(rows))
        return Geometry(
            (z["batch"], z["hidden"], z["hidden"]),
            (1, z["steps"], z["directions"]),
            Strides((0, a[0], a[2]), a[1], 1),
            Strides((0, 0, b[0]), 1, b[1]),
            self.output(workload, strides["c"]),
            Strides((d[0], 0, d[1]), d[2], 1),
            _TAIL.pack(
                0, 0, 0, strides["f"][0] if "f" in strides else 0, clip, *rows, *[0] * (4 - len(rows)), z["reverse"], 0
            ),
            others=tuple(PLACES[name] for name in self.names if name in PLACES),
        )

    def output(self, workload: Workload, strides: tuple[int, ...]) -> Strides:
        """Return the strides of y by (step, direction), batch and unit."""
        return Strides((0, strides[0], strides[2]), strides[1], strides[3])

    def result_and_bound(self, workload: Workload, arrays: Arrays, conditions: Conditions) -> Bounded:
        """Return y in float64; see Operator."""
        return self._results(workload, arrays, conditions)[0]

    def expect_written(self, workload: Workload, arrays: Arrays, *, structured: bool = False) -> Mapping[str, Expected]:
        """Return the last states; see Operator."""
        wide = workload.accumulator
        found = self._results(workload, arrays, Conditions(structured))[1]
        return {"l": expect(*found, accumulator=wide, output=wide)}

    def _results(self, workload: Workload, arrays: Arrays, conditions: Conditions) -> tuple[Bounded, Bounded]:
        z, types = workload.size, workload.dtype
        given = {name: decode(types[name], arrays[name]) for name in self.names[:-2] if name != "e"}
        shapes = self.shapes(z)
        y, y_error = np.zeros(shapes["c"]), np.zeros(shapes["c"])
        last, last_error = np.zeros(shapes["l"]), np.zeros(shapes["l"])
        cell = _Cell(self, workload, given, conditions.structured)
        lengths = np.clip(np.asarray(arrays["e"], np.int64), 0, z["steps"])
        none = np.zeros(z["hidden"])
        for way in range(z["directions"]):
            states = [State(d[0], d[-1], none, none) for d in given["d"][:, way].swapaxes(0, 1)]
            for t in range(z["steps"])[:: -1 if way or z["reverse"] else 1]:
                read = cell.read(states)
                for one in np.flatnonzero(t < lengths).tolist():
                    states[one] = cell.step(way, given["a"][t, one, way], states[one], read[one])
                    y[t, one, way], y_error[t, one, way] = states[one].h, states[one].h_error
            for one, place in np.ndindex(z["batch"], self.cells):
                last[place, way, one], last_error[place, way, one] = states[one][place], states[one][2 + place]
        return (y, y_error), (last, last_error)

    def flops(self, workload: Workload) -> int:
        """Return the operations of the products, 2 per multiply-add."""
        z = workload.size
        return 2 * z["steps"] * z["batch"] * z["directions"] * self.gates * z["hidden"] ** 2

    def bytes_moved(self, workload: Workload) -> int:
        """Return the least traffic in bytes: every operand once."""
        shapes, types = self.shapes(workload.size), workload.dtype
        return sum(int(np.prod(shapes[name], dtype=np.int64)) * facts(types[name]).itemsize for name in self.names)

    def draw(
        self, workload: Workload, name: str, rng: np.random.Generator, shape: tuple[int, ...]
    ) -> np.ndarray | None:
        """Return weights whose products stay small, so that errors do not grow from step to step, and lengths."""
        if name == "b":
            return rng.standard_normal(shape) / max(shape[-1], 1) * 2
        if name == "e":
            lengths = rng.integers(0, workload.size["steps"] + 1, shape)
            lengths[: 1 + len(lengths) // 3] = workload.size["steps"]
            lengths[1:2] = 0
            return lengths.astype(np.float64)
        return None

    def resize(self, workload: Workload, wanted: Mapping[str, int]) -> Workload:
        """Return a Workload of k steps, m entries and n units, up to the alignment class."""
        least = max(workload.align[name] // facts(workload.dtype[name]).itemsize for name in "abc")
        units = -(-min(wanted["n"], 512) // least) * least
        return workload.with_sizes(steps=min(wanted["k"], 16), batch=wanted["m"], directions=2, hidden=units, reverse=0)

    def peak_dtype(self, workload: Workload) -> str:
        """Return the accumulator's type."""
        return workload.accumulator


class _Cell:
    """Steps of a cell in float64, with bounds on the errors of a kernel's."""

    def __init__(self, of: Recurrent, workload: Workload, given: Mapping[str, np.ndarray], structured: bool):
        self.of, self.given, self.structured = of, given, structured
        self.hidden, self.accumulator = workload.size["hidden"], workload.accumulator
        self.dtype, self.order = workload.dtype["b"], GATES[of.kind][workload.size["order"]]
        self.u = facts(self.accumulator).unit_roundoff * (2.0 if self.accumulator == "float64" else 1.0)
        self.rounding = 0.0 if self.dtype == self.accumulator else facts(workload.dtype["c"]).unit_roundoff
        self.tiny = facts(workload.dtype["c"]).smallest_subnormal

    def read(self, states: Sequence[State]) -> Sequence[Bounded]:
        """Return h as products read it, with its errors.

        In 8 bits, an element near the middle between two numbers may become either, and the scale has the errors of the
        range.
        """
        if not self.of.quantised or not states:
            return [(each.h, each.h_error) for each in states]
        h, errors = (np.stack([each[place] for each in states]) for place in (0, 2))
        number, scale, zero = in_bytes(np, h, h.min(), h.max())
        most = errors.max() + 4 * self.u * np.abs(h).max()
        apart = np.abs(np.abs(h / scale - np.floor(h / scale)) - 0.5) * scale
        errors = 3 * most + np.where(apart <= 3 * most, scale, 0.0)
        return list(zip((number - zero) * scale, errors, strict=True))

    def _sums(self, way: int, h: np.ndarray, h_error: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return R h and its error."""
        r = self.given["b"][way]
        terms = r * h
        sums = terms.sum(axis=1)
        magnitude = Magnitude(np.abs(terms).sum(axis=1), np.sqrt((terms * terms).sum(axis=1)))
        own = accumulation_bound(
            sums, magnitude, self.hidden, dtype="float32", accumulator=self.accumulator, structured=self.structured
        )
        return sums, own + np.abs(r) @ h_error

    def _activate(self, x: np.ndarray, error: np.ndarray, sigmoid: bool, clip: bool = True) -> Bounded:
        x = np.clip(x, -VERIFIED_CLIP, VERIFIED_CLIP) if clip else x
        value = 1 / (1 + np.exp(-x)) if sigmoid else np.tanh(x)
        slope = 0.25 if sigmoid else 1.0
        return value, slope * (error + 4 * self.u * np.abs(x)) + FUNCTION_ROUNDINGS * self.u * np.abs(value)

    def step(self, way: int, inputs: np.ndarray, state: State, read: Bounded) -> State:
        """Return the state after a step, whose products read `read`."""
        sums, errors = self._sums(way, *read)
        cut = {gate: slice(place * self.hidden, (place + 1) * self.hidden) for place, gate in enumerate(self.order)}
        vector = self.given["f"][way] if "f" in self.given else None

        def gate(name: str, more: np.ndarray | float = 0.0, error: np.ndarray | float = 0.0) -> Bounded:
            x = inputs[cut[name]] + sums[cut[name]] + more
            return self._activate(
                x, errors[cut[name]] + error + 2 * self.u * np.abs(inputs[cut[name]]), name not in "gn"
            )

        if self.of.kind == "rnn":
            return self._rounded(*gate("n"), state.c, state.c_error)
        if self.of.kind == "gru":
            assert vector is not None
            (r, r_error), (z, z_error) = gate("r"), gate("z")
            inner, inner_error = sums[cut["n"]] + vector, errors[cut["n"]] + self.u * np.abs(vector)
            x = inputs[cut["n"]] + r * inner
            error = r * inner_error + np.abs(inner) * r_error + 3 * self.u * (np.abs(x) + np.abs(inner))
            n, n_error = self._activate(x, error, False)
            h = (1 - z) * n + z * state.h
            h_error = (1 - z) * n_error + z * state.h_error + (np.abs(n) + np.abs(state.h)) * (z_error + 4 * self.u)
            return self._rounded(h, h_error, state.c, state.c_error)
        p = [0.0] * 3 if vector is None else vector.reshape(3, -1)
        i, i_error = gate("i", p[0] * state.c, np.abs(p[0]) * (state.c_error + 2 * self.u * np.abs(state.c)))
        f, f_error = gate("f", p[1] * state.c, np.abs(p[1]) * (state.c_error + 2 * self.u * np.abs(state.c)))
        g, g_error = gate("g")
        c = f * state.c + i * g
        c_error = f * state.c_error + np.abs(state.c) * f_error + i * g_error + np.abs(g) * i_error
        c_error = c_error + 3 * self.u * (np.abs(c) + np.abs(state.c) + np.abs(g))
        o, o_error = gate("o", p[2] * c, np.abs(p[2]) * (c_error + 2 * self.u * np.abs(c)))
        bent, bent_error = self._activate(c, c_error, False, clip=False)
        return self._rounded(o * bent, o * bent_error + np.abs(bent) * o_error + self.u * np.abs(bent), c, c_error)

    def _rounded(self, h: np.ndarray, h_error: np.ndarray, c: np.ndarray, c_error: np.ndarray) -> State:
        """Return a state whose h is rounded to the network's type, which may go either way."""
        return State(h, c, h_error + 1.01 * self.rounding * np.abs(h) + self.tiny * (self.rounding > 0), c_error)


OPERATORS = {
    name: Recurrent(name, declare, smallest=(*((size, 1) for size in SIZES[:4]), ("order", 0), ("reverse", 0)))
    for name in (*NAMES, QUANTISED)
}


def workload(
    name: str,
    steps: int,
    batch: int,
    hidden: int,
    *,
    directions: int = 1,
    dtype: str = "float16",
    order: int = 0,
    reverse: int = 0,
) -> Workload:
    """Return the Workload of contiguous operands at 16-byte aligned addresses."""
    sizes = dict(zip(SIZES, (steps, batch, directions, hidden, order, reverse), strict=True))
    wide, shapes = ACCUMULATORS[dtype], OPERATORS[name].shapes(sizes)
    views = {each: contiguous(shapes[each], dtype if each in "bc" else "int32" if each == "e" else wide)
             for each in OPERATORS[name].names}  # fmt: skip
    return workload_from_views(name, sizes, views)


def workload_from_views(name: str, sizes: Mapping[str, int], views: Mapping[str, View]) -> Workload:
    """Return the Workload of arrays in memory, whose last axes are contiguous; UnsupportedError for other types."""
    dtype = views["b"].dtype
    if name == QUANTISED and dtype != "float32":
        raise UnsupportedError(f"a recurrence of {dtype} that is rounded to 8 bits: kernels take float32")
    if dtype not in ACCUMULATORS or facts(dtype).is_integer or facts(dtype).is_complex:
        raise UnsupportedError(f"a recurrence of {dtype}: kernels take real floats")
    for each, view in views.items():
        if view.shape[-1] > 1 and view.strides[-1] != 1:
            raise UnsupportedError(f"the last axis of {each} has the stride {view.strides[-1]}")
    return Workload(
        operator=name,
        sizes=tuple(sizes.items()),
        dtypes=tuple((each, view.dtype) for each, view in views.items()),
        accumulator=ACCUMULATORS[dtype],
        math="ieee",
        layout=tuple((each, "hidden") for each in views),
        alignment=tuple((each, alignment_class(view, -1 if each == "b" else None)) for each, view in views.items()),
    )
