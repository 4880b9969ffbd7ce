"""Extreme arguments of any call: some that change nothing, and some that every way has to refuse."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .drawing import Draw


@dataclass
class Change:
    """Arguments as they are passed on, and how the result is made what it would have been without a change."""

    arguments: list[Any]
    keywords: dict[str, Any]
    function: str
    out: np.ndarray | None = None
    result: Callable[[Any], Any] = lambda found: found

    def write_to(self, array: np.ndarray) -> None:
        """Put another array into the place of `out`."""
        self.arguments = [array if each is self.out else each for each in self.arguments]
        self.keywords = {name: array if each is self.out else each for name, each in self.keywords.items()}

    def convert(self, mine: np.ndarray) -> None:
        """Put another array into the place of `out`, whose values are copied there after the call."""
        out = self.out
        self.write_to(mine)

        def result(found: Any) -> Any:
            assert found is mine, "the result is not out"
            out[...] = mine
            return out

        self.result = result


def draw_change(
    draw: Draw, function: str, arguments: tuple[Any, ...], keywords: dict[str, Any], emulated: bool
) -> Change:
    """The arguments, in half of all calls with a change; `draw.refused` says why all ways refuse it, if they do.

    `emulated`: NumPy arrays of the other byte order are taken there alone.
    """
    change = Change(list(arguments), dict(keywords), function, draw.result)
    if draw.extreme and not draw.refused and draw.often(0.5):
        draw.refused = draw.pick(CHANGES)(draw, change, emulated) or ""
    return change


def _arrays(change: Change) -> list[int]:
    """Places of operands among the positional arguments."""
    return [i for i, each in enumerate(change.arguments) if type(each) is np.ndarray and each is not change.out]


def _swap_bytes(draw: Draw, change: Change, emulated: bool) -> None:
    """One operand or all arrays, `out` among them, in the other byte order."""

    def has_order(value: Any) -> bool:
        kind = value.dtype.kind if type(value) is np.ndarray else ""
        return kind in tuple("iufc") and value.dtype.itemsize > 1 and value.dtype.name != "bfloat16"

    places = [place for place in _arrays(change) if has_order(change.arguments[place])]
    several = draw.often(0.5)
    chosen = places if several else [draw.pick(places)] if places else []
    if not emulated:
        return
    for place in chosen:
        change.arguments[place] = change.arguments[place].astype(change.arguments[place].dtype.newbyteorder())
    out = change.out
    if several and out is not None and has_order(out):
        change.convert(np.zeros(out.shape, out.dtype.newbyteorder()))
    for name, value in change.keywords.items():
        if several and has_order(value) and value is not out and value.dtype.isnative:
            change.keywords[name] = value.astype(value.dtype.newbyteorder())


def _read_only(draw: Draw, change: Change, emulated: bool) -> None:
    for place in _arrays(change):
        change.arguments[place] = change.arguments[place].view()
        change.arguments[place].flags.writeable = False


def _numpy_numbers(draw: Draw, change: Change, emulated: bool) -> None:
    kinds = {int: np.int64, float: np.float64, bool: np.bool_}
    for values in (change.arguments, change.keywords):
        for place in range(len(values)) if isinstance(values, list) else values:
            kind = kinds.get(type(values[place]))
            if kind is not None and place != "optimize":  # NumPy takes True and False alone
                values[place] = kind(values[place])


def _alias_out(draw: Draw, change: Change, emulated: bool) -> None:
    """The result is written over an operand, or over a part of it."""
    out = change.out
    if out is None or not out.size:
        return
    same = [place for place in _arrays(change) if change.arguments[place].dtype == out.dtype]
    fitting = [place for place in same if change.arguments[place].size >= out.size]
    if not fitting:
        return
    place = draw.pick(fitting)
    memory = np.array(change.arguments[place], order="C", copy=True)
    change.arguments[place] = memory
    flat = memory.reshape(-1)
    first = int(draw.rng.integers(flat.size - out.size + 1))
    change.convert(flat[first : first + out.size].reshape(out.shape))


def _wide_out(draw: Draw, change: Change, emulated: bool) -> str | None:
    """A result that is converted to a wider dtype."""
    out = change.out
    wider = {"float32": np.float64, "complex64": np.complex128, "int32": np.int64}
    if out is None or out.dtype.name not in wider:
        return None
    change.convert(np.empty(out.shape, wider[out.dtype.name]))
    return "out of another dtype than the result" if change.function in ("dot", "outer") else None


def _out_shape(draw: Draw, change: Change, emulated: bool) -> str | None:
    out = change.out
    if out is None:
        return None
    shape = [*out.shape, 1] if not out.ndim or draw.often(0.3) else list(out.shape)
    if len(shape) == out.ndim:
        shape[int(draw.rng.integers(len(shape)))] += 1
    change.write_to(np.zeros(shape, out.dtype))
    return "out of another shape"


def _out_dtype(draw: Draw, change: Change, emulated: bool) -> str | None:
    out = change.out
    if out is None or out.dtype.kind == "b":  # everything takes booleans
        return None
    kind = out.dtype.kind
    narrower = np.bool_ if kind in "iu" else np.float32 if kind == "c" else draw.pick([np.int64, np.int32, np.bool_])
    change.write_to(np.zeros(out.shape, narrower))
    return "out of another kind"


def _out_read_only(draw: Draw, change: Change, emulated: bool) -> str | None:
    out = change.out
    if out is None or not out.size:
        return None
    sealed = out.view()
    sealed.flags.writeable = False
    change.write_to(sealed)
    return "out that cannot be written"


def _no_array(draw: Draw, change: Change, emulated: bool) -> str | None:
    places = _arrays(change)
    if not places:
        return None
    place = draw.pick(places)
    x = change.arguments[place]
    masked, odd = np.ma.masked_array(x, np.zeros(x.shape, bool)), draw.pick(["O", "M8[s]", "U3", "V4"])
    change.arguments[place] = draw.pick(["text", 1.5, masked, np.zeros(x.shape, odd), object()])
    return "no array"


def _bad_word(draw: Draw, change: Change, emulated: bool) -> str | None:
    names = sorted(WRONG.keys() & change.keywords.keys())
    if not names:
        return None
    name = draw.pick(names)
    change.keywords[name] = draw.pick(WRONG[name])
    return "a keyword of another kind"


#: Values of keywords that no function takes.
WRONG: dict[str, list[Any]] = {
    "activation": ["swish2", 3, ("relu",)], "precision": ["fast", 1], "layout": ["CHWN", 4], "dtype": ["float3", 7],
    "stride": [0, -1, (1, 2, 3), 1.5, "x", (1, 0)], "padding": [-1, (1, 2, 3), 1.5, (0, -1)],
    "dilation": [0, -2, (1, 2, 3), (0, 1), 0.5], "output_padding": [-1, 99, (1, 2, 3), 0.5], "groups": [0, -1, 7, 1.5],
    "window": [3, (1,), "ab", (0.5, 1)], "softcap": ["x", -1, float("nan")], "ddof": ["x", None, 1j],
    "alpha": ["x", [1, 2]], "epilogue": ["relu", 3, [("scale",)]], "scales": [3.0, "x"], "sizes": ["x", 3, [0.5]],
    "block_table": ["x", [1, 2], 3], "conjugate": [7, (0, 5), "x"],
}  # fmt: skip

#: A change is drawn from these: each returns why every way refuses it, or None.
CHANGES = (
    *(_swap_bytes, _read_only, _numpy_numbers, _alias_out, _alias_out, _wide_out),
    *(_out_shape, _out_dtype, _out_read_only, _no_array, _bad_word, _bad_word),
)
