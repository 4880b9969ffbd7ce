"""Recurrent layers, and their equations in float64, one step and one sequence at a time."""

from collections.abc import Sequence
from typing import Any

import numpy as np

import gensor_kernels as gk

from .drawing import FLOATS, FORMS, Draw, dtype_of
from .serving import Served

GATES = {"lstm": 4, "gru": 3}
#: Bounds on the error of results below 1: those of h, which is rounded at every step.
BOUNDS = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 1e-5, "float64": 1e-12}
FUNCTIONS = {"sigmoid": lambda x: 1 / (1 + np.exp(-x)), "tanh": np.tanh, "relu": lambda x: np.maximum(x, 0)}


def layer(
    kind: str,
    arrays: Sequence[np.ndarray],
    *,
    names: Sequence[str],
    lengths: Any = None,
    reverse: bool = False,
    after: bool = True,
    peepholes: np.ndarray | None = None,
    clip: float | None = None,
) -> list[np.ndarray]:
    """y and the last states of a layer of x, weights, biases and states, all with directions."""
    x, w, r, b, d, *states = (np.asarray(each, np.float64) for each in arrays)
    steps, batch, hidden = x.shape[0], x.shape[1], r.shape[2]
    (f, g, *h), most = [FUNCTIONS[name] for name in names], np.inf if clip is None else clip

    def seen(way: int, gate: int, cell: np.ndarray) -> Any:
        return 0 if peepholes is None else peepholes[way].reshape(3, hidden)[gate] * cell

    y, lasts = np.zeros((steps, batch, len(w), hidden)), [each.copy() for each in states]
    for way, one in np.ndindex(len(w), batch):
        turns = range(steps if lengths is None else lengths[one])
        for t in turns[::-1] if reverse or way else turns:
            s, *c = (each[way, one] for each in lasts)
            entered = _product(w[way], x[t, one]) + b[way]
            own, inner, bias = (np.split(each, GATES[kind]) for each in (entered, r[way], d[way]))
            sums = [a + _product(m, s) + e for a, m, e in zip(own, inner, bias, strict=True)]
            if kind == "lstm":
                i, keep = (f(np.clip(sums[k] + seen(way, k, c[0]), -most, most)) for k in (0, 1))
                cell = keep * c[0] + i * g(np.clip(sums[2], -most, most))
                s = f(np.clip(sums[3] + seen(way, 2, cell), -most, most)) * h[0](cell)
                lasts[1][way, one] = cell
            else:
                reset, update = (f(np.clip(each, -most, most)) for each in sums[:2])
                before = _product(inner[2], s if after else reset * s) + bias[2]
                new = own[2] + (reset * before if after else before)
                s = (1 - update) * g(np.clip(new, -most, most)) + update * s
            lasts[0][way, one] = y[t, one, way] = s
    return [y.reshape(steps, batch, len(w) * hidden), *lasts]


def _product(m: np.ndarray, x: np.ndarray) -> np.ndarray:
    """m @ x without BLAS, which makes NaN of infinities at will."""
    return (m * x).sum(axis=-1)


def agrees(found: Any, wanted: Sequence[np.ndarray]) -> None:
    """Assert that results, of which states may be a pair, are those of `layer`."""
    y, states = found
    for a, b in zip([y, *(states if isinstance(states, tuple) else [states])], wanted, strict=True):
        assert a.shape == b.shape, (a.shape, b.shape)
        largest = np.abs(b[np.isfinite(b)]).max(initial=1)
        np.testing.assert_allclose(np.asarray(a, np.float64), b, 0, BOUNDS[a.dtype.name] * largest)


def _draw_layer(kind: str, draw: Draw, served: Served) -> None:
    dtype, directions = draw.pick(FLOATS), draw.pick([1, 2])
    steps, batch, inputs, hidden = draw.extent(3), draw.extent(5), draw.extent(20, zero=0), draw.extent(20, zero=0)
    rows = GATES[kind] * hidden

    def array(*shape: int) -> np.ndarray:
        draw.traits |= {dtype, *(trait for trait, size in (("zero-size", 0), ("size one", 1)) if size in shape)}
        # Divided, so that no state grows, and errors do not either.
        values = draw.values(shape, dtype).astype(np.float64) / max(shape[-1], 1)
        return draw.lay_out(values.astype(dtype_of(dtype)), draw.pick([*FORMS, "contiguous"]))

    arrays = [array(steps, batch, inputs), array(directions, rows, inputs), array(directions, rows, hidden)]
    arrays += [array(directions, rows), array(directions, rows)]
    states = [array(directions, batch, hidden) for _ in range(GATES[kind] - 2)]
    lengths = draw.rng.integers(0, steps + 1, batch).tolist() if draw.often(0.4) else None
    names = ("sigmoid", "tanh", "tanh")[: GATES[kind] - 1]
    more: dict[str, Any] = {"lengths": lengths}
    if draw.extreme:
        names = tuple(draw.pick([*FUNCTIONS]) for _ in names)
        more |= {"activations": names, "clip": draw.pick([None, 0.5])}
        more |= {"reverse": True} if directions == 1 and draw.often(0.5) else {}
    own = {"linear_before_reset": draw.often(0.5)} if kind == "gru" else {}
    first = draw.often(0.3)
    x = arrays[0].swapaxes(0, 1) if first else arrays[0]
    hx = tuple(states) if kind == "lstm" else states[0]
    y, last = served.call(getattr(gk, kind), x, *arrays[1:], hx, batch_first=first, **more, **own)
    more.pop("activations", None)
    after = own.get("linear_before_reset", True)
    wanted = layer(kind, [*arrays, *states], names=names, after=after, **more)
    agrees((y.swapaxes(0, 1) if first else y, last), wanted)


def lstm(draw: Draw, served: Served) -> None:
    _draw_layer("lstm", draw, served)


def gru(draw: Draw, served: Served) -> None:
    _draw_layer("gru", draw, served)


CASES = {"lstm": lstm, "gru": gru}
