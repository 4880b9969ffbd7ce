"""Scaled dot-product attention: C[b, h, i] = sum over j of softmax_j(scale Q[b, h, i] . K[b, g, j] + mask) V[b, g, j].

Query head h reads head g = h // (heads / kv_heads) of K and V (grouped-query attention).  Operands have the names that
kernels use: a = Q (batch, heads, queries, head), b = K and d = V (batch, kv_heads, keys, head), e = mask (batch,
heads, queries, keys) and c, of Q's shape.

``causal`` is a size, so that one kernel serves all three values:

* 0: every query sees every key.
* 1, "lower_right": query i sees key j where j <= i + keys - queries.  The last query sees all keys, as decoding with
  cached keys needs it.  ``causal=True`` means this value here and in FlashAttention (2.1 and later).
* 2, "upper_left": query i sees key j where j <= i, as ``is_causal`` of PyTorch's scaled_dot_product_attention.

Both diagonals are the same for equal numbers of queries and keys.  A query that sees no key, because of the diagonal,
the window or the mask, gives zeros, as in PyTorch with a mask.  A masked key has weight zero, but an infinity or NaN of
V at its place still spreads.

Forms with a window (forms.py) also have its sizes: with the query's own key at p = i + keys - queries (p = i for
"upper_left"), query i sees the keys from p - window_left to p + window_right, as in FlashAttention.  Forms with a soft
cap bend scaled scores s to softcap tanh(s / softcap), before the mask.

Forms with sinks have an operand s (heads,): exp(s[h]) is one more term of the denominator of every row of head h.
Forms with lse have a second output, operand l (batch, heads, queries) of float32: the natural logarithm of each row's
denominator, the sink's term included; -inf for a row without terms.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.declaration.operator import Arrays, Bounded, Conditions, Operand, Operator
from gensor_kernels.operators.types import epilogue as epilogues
from gensor_kernels.operators.types.dtypes import ACCUMULATORS, decode, facts
from gensor_kernels.operators.types.geometry import Geometry, Strides
from gensor_kernels.operators.types.workload import View, Workload, alignment_class, contiguous

from .forms import (
    FORMS,
    PLAIN,
    UNBOUNDED,
    VERIFIED_SOFTCAP,
    WINDOW,
    Form,
    capacity,
    causal_code,
    check_softcap,
    diagonals,
    mean_sizes,
    read_keys,
    relative_diagonals,
    seen_pairs,
    window_sizes,
)

if TYPE_CHECKING:
    from gensor_kernels.operators.expression.expression import Axis, Expression, Value
    from gensor_kernels.operators.tolerance.base import Expected


#: Bits of the size ``mask_axes``: axes along which a mask varies; it is broadcast along all other axes.
MASK_AXES = {"batch": 8, "heads": 4, "queries": 2, "keys": 1}
#: Behind the mask's address: strides along (batch, head of K and V, head of the group, query, key), scale, diagonal
#: after the last key that a query sees, diagonal of the first one, soft cap.
_TOLD = struct.Struct("<Q 5q f 2i f")
#: Scales between these numbers are finite and above 0 as a float32.
_LEAST_SCALE, _MOST_SCALE = 2.0**-150, 2.0**128 - 2.0**103
LARGEST = 2**31 - 1
#: Layouts of contiguous operands: ends and lengths of sequences, the table of pages, sinks, and logarithms.
CONTIGUOUS = {"f": "batch", "g": "batch", "h": "batch", "s": "heads", "l": "queries"}
#: Bytes of the kernel's arguments before the addresses of inputs after V.
PLACES = {"e": 0, "f": 64, "g": 72, "h": 80, "s": 112, "l": 120}
#: Types of sinks that kernels read.
SINKS = ("float16", "bfloat16", "float32")
#: Queries, keys and head sizes in a portfolio's grid, in addition to tuned sizes.
USUAL = (*((1, keys) for keys in (256, 1024, 4096)), (16, 1024), (128, 128), (512, 512), (1024, 1024), (4096, 4096))
USUAL_HEADS = (64, 128, 256)
#: Windows there: none, and that of models with windows of 4096 keys at most.
USUAL_WINDOWS = tuple(dict(zip(WINDOW, (left, UNBOUNDED), strict=True)) for left in (UNBOUNDED, 1023))


def declare(form: Form, **sizes: int) -> tuple[Expression, ...]:
    """Declare scores, then their softmax average of V."""
    from gensor_kernels.operators.expression import expression as ex

    batch, heads, kv_heads, i, j, d = ex.axes("batch heads kv_heads queries keys head")
    q, k = ex.tensor("a", batch, heads, i, d), ex.tensor("b", batch, kv_heads, j, d)
    v = ex.tensor("d", batch, kv_heads, j, d)
    group = heads // max(group_of(sizes), 1)
    scores = ex.Expression("scores", (batch, heads, i, j), q[batch, heads, i, d] * k[batch, group, j, d], ex.SUM)
    score = scaled(form, scores[batch, heads, i, j], sizes)
    if form.mask:
        varies = [axis for axis in (batch, heads, i, j) if sizes["mask_axes"] & MASK_AXES[axis.name]]
        full: list[ex.Axis] = [batch, heads, i, j]
        mask = ex.tensor("e", *(axis if axis in varies else 1 for axis in full))
        value = mask[tuple(axis if axis in varies else 0 for axis in full)]
        score = score + value if form.mask == "added" else ex.where(ex.equal(value, 0.0), -math.inf, score)
    first, end = diagonals(sizes)
    if end < sizes["keys"]:  # a query's last key
        score = ex.where(j < i + end, score, -math.inf)
    if 1 - sizes["queries"] < first:
        score = ex.where(j < i + first, -math.inf, score)
    return scores, *softmax_average(form, (batch, heads, i, d), score, v[batch, group, j, d])


def scaled(form: Form, score: Value, sizes: Mapping[str, int]) -> Value:
    """Return a declared score after the scale and, if the form has one, the soft cap."""
    from gensor_kernels.operators.expression.expression import tanh

    score = score * max(sizes["head"], 1) ** -0.5
    return VERIFIED_SOFTCAP * tanh(score * (1.0 / VERIFIED_SOFTCAP)) if form.capped else score


def softmax_average(form: Form, axes: tuple[Axis, ...], score: Value, value: Value) -> tuple[Expression, ...]:
    """Declare the logarithm of the denominator, if the form has it, and the softmax average of values: 0 for a query
    that sees no key."""
    from gensor_kernels.operators.expression import expression as ex

    average, logarithm = ex.result(), None
    if form.sinks:
        sink, total = ex.tensor("s", axes[1])[axes[1]], ex.result("sumexp")
        average = average * (total / (total + ex.exp(sink - ex.result("max"))))
        logarithm = ex.log(ex.exp(ex.result()) + ex.exp(sink))
    kept = ex.where(ex.equal(ex.result("sumexp"), 0.0), 0.0, average)
    logarithms = (ex.Expression("l", axes[:-1], score, ex.LOGSUMEXP, map=logarithm),) * form.lse
    return *logarithms, ex.Expression("c", axes, (score, value), ex.SOFTMAX_AVERAGE, map=kept)


def check_scale(workload: Workload, scale: float | None) -> float:
    """Return the scale of a call, 1 / sqrt(head) by default; UnsupportedError for one that kernels do not take."""
    scale = max(workload.size["head"], 1) ** -0.5 if scale is None else float(scale)
    if not _LEAST_SCALE < scale < _MOST_SCALE:
        raise UnsupportedError(f"attention with a scale of {scale}: kernels take finite numbers above 0")
    return scale


def group_of(sizes: Mapping[str, int]) -> int:
    """Return the number of query heads that share a head of K and V."""
    return sizes["heads"] // max(sizes["kv_heads"], 1)


def last_diagonal(geometry: Geometry) -> int:
    """Return the diagonal after the last key that a query sees: query i sees the keys below i + this."""
    return int(_TOLD.unpack_from(geometry.tail)[7])


def _mask_strides(strides: tuple[int, ...], axes: int, group: int) -> tuple[int, ...]:
    batch, head, query, key = (s if axes >> (3 - place) & 1 else 0 for place, s in enumerate(strides))
    return batch, head * group, head, query, key


def mask_strides(geometry: Geometry) -> tuple[int, ...]:
    """Return the strides of a call's mask along batch, heads of K and V, heads of a group, queries and keys."""
    return _TOLD.unpack_from(geometry.tail)[1:6]


def part_heads(geometry: Geometry, count: int) -> Geometry:
    """Return a call whose groups of heads are each divided into ``count`` parts, entries of the middle batch axis.

    Heads of Q, of the output and of the mask follow each other evenly.  Strides of K and V stay those of whole groups.
    """
    if count <= 1:
        return geometry
    outer, middle, group = geometry.batch
    a, c = (part_strides(each, group // count) for each in (geometry.a, geometry.c))
    told = list(_TOLD.unpack_from(geometry.tail))
    told[2] = told[3] * (group // count)
    tail = _TOLD.pack(*told) + geometry.tail[_TOLD.size :]
    return replace(geometry, batch=(outer, middle * count, group // count), a=a, c=c, tail=tail)


def part_strides(strides: Strides, heads: int) -> Strides:
    """Return the strides of an operand by (batch entry, part of ``heads`` heads, head within its part)."""
    outer, _, head = strides.batch
    return replace(strides, batch=(outer, head * heads, head))


@dataclass(frozen=True)
class Attention(Operator):
    """One form of attention, for tuner and dispatch."""

    form: Form = PLAIN

    @property
    def names(self) -> tuple[str, ...]:
        """Operands in the order of kernels: Q, K, V, the mask, ends of queries and of keys, the table, the sinks, the
        logarithms, the output."""
        form = self.form
        there = {"e": bool(form.mask), "f": form.ragged, "g": form.sequences, "h": form.paged}
        there |= {"s": form.sinks, "l": form.lse}
        return ("a", "b", "d", *(name for name in there if there[name]), "c")

    @property
    def written(self) -> tuple[str, ...]:
        """The logarithms, if the form has them."""
        return ("l",) * self.form.lse

    def operands(self, workload: Workload) -> tuple[Operand, ...]:
        """Return the operands of `names`."""
        z, form = workload.size, self.form
        rows = (1 if form.ragged else z["batch"], z["heads"], z["queries"], z["head"])
        entries, keys = (z["pages"], z["page_size"]) if form.paged else (rows[0], z["keys"])
        stored, ends = (entries, z["kv_heads"], keys, z["head"]), (z["batch"],)
        shapes: dict[str, tuple[int, ...]] = {"a": rows, "b": stored, "c": rows, "d": stored, "f": ends, "g": ends}
        shapes |= {"s": rows[1:2], "l": rows[:3]}
        if form.mask:
            shapes["e"] = tuple(z[axis] if z["mask_axes"] & bit else 1 for axis, bit in MASK_AXES.items())
        if form.paged:
            shapes["h"] = (z["batch"], z["table"])
        return tuple(self._operand(workload, name, shapes[name]) for name in self.names)

    def _operand(self, workload: Workload, name: str, shape: tuple[int, ...]) -> Operand:
        layout, order = workload.layouts[name], tuple(range(len(shape)))
        if name in CONTIGUOUS:
            if layout != CONTIGUOUS[name]:
                raise ValueError(f"'layout' of {name} is {CONTIGUOUS[name]}, not {layout!r}")
            return Operand(name, shape, order, len(shape))
        unit = "keys" if name == "e" else "head"
        if layout not in (unit, "s"):
            raise ValueError(f"'layout' of {name} is {unit} or s, not {layout!r}")
        return Operand(name, shape, order, 1, 1 + (layout == "s"), name == "e" and self.form.mask == "bool")

    def geometry(
        self,
        workload: Workload,
        strides: Mapping[str, tuple[int, ...]],
        scale: float | None = None,
        softcap: float = VERIFIED_SOFTCAP,
    ) -> Geometry:
        """Return the kernel's view of a call: m queries, n elements of a head, k keys.

        Batch axes are (batch, head of K and V, query head within its group).  ``scale`` is 1 / sqrt(head) by default.
        UnsupportedError for a scale that is not above 0, for a soft cap that kernels do not take, and for more rows or
        keys than kernels can count.
        """
        z, form = workload.size, self.form
        scale = check_scale(workload, scale)
        cap = check_softcap(softcap, scale) if form.capped else 0.0
        self.check_counts(workload, strides)
        first, end = relative_diagonals(z) if form.sequences else diagonals(z)
        mask = _mask_strides(strides["e"], z["mask_axes"], group_of(z)) if form.mask else (0, 0, 0, 0, 0)
        b, d = strides["b"], strides["d"]
        entry = 0 if form.ragged and not form.paged else 1  # packed keys have no stride along sequences
        return Geometry(
            (z["queries"], z["head"], capacity(z)),
            (1 if form.ragged else z["batch"], z["kv_heads"], group_of(z)),
            self.output(workload, strides["a"]),
            Strides((entry * b[0], b[1], 0), b[3], b[2]),
            self.output(workload, strides["c"]),
            Strides((entry * d[0], d[1], 0), d[2], d[3]),
            _TOLD.pack(0, *mask, scale, end, first, cap),
            others=tuple(PLACES[name] for name in self.names if name in PLACES),
        )

    def check_counts(self, workload: Workload, strides: Mapping[str, tuple[int, ...]]) -> None:
        """Raise UnsupportedError for more rows or keys than kernels can count."""
        z = workload.size
        rows = z["queries"] * group_of(z)
        reach = (z["queries"] + z["keys"]) * (1 + self.form.windowed)
        if max(reach, rows, z["batch"] * z["heads"] * z["queries"]) + 256 > LARGEST:
            raise UnsupportedError(f"attention over {rows} rows and {z['keys']} keys: kernels count to 2^31")

    def output(self, workload: Workload, strides: tuple[int, ...]) -> Strides:
        """Return strides by (batch entry, head of K and V, head within its group), query and element of a head."""
        batch, head, query, element = strides
        return Strides((batch, head * group_of(workload.size), head), query, element)

    def lengths(self, workload: Workload, arrays: Arrays) -> list[tuple[tuple[int, int], tuple[int, int]]]:
        """Return (begin, end) of the queries and of the keys of each batch entry, or sequence."""
        z = workload.size
        return [((0, z["queries"]), (0, z["keys"]))] * z["batch"]

    def stored_keys(self, arrays: Arrays, name: str, entry: int, head: int, span: tuple[int, int]) -> np.ndarray:
        """Return the keys ``span`` of K or V of a batch entry and a head, as they are stored."""
        return arrays[name][entry, head]

    def result_and_bound(self, workload: Workload, arrays: Arrays, conditions: Conditions) -> Bounded:
        """Return softmax averages of each batch entry, or sequence, in float64; see Operator."""
        return self._results(workload, arrays, conditions)[0]

    def expect_written(self, workload: Workload, arrays: Arrays, *, structured: bool = False) -> Mapping[str, Expected]:
        """Return the logarithms of the denominators; see Operator."""
        from gensor_kernels.operators.tolerance.base import expect

        if not self.form.lse:
            return {}
        logarithms = self._results(workload, arrays, Conditions(structured))[1]
        return {"l": expect(*logarithms, accumulator="float32", output="float32")}

    def _results(self, workload: Workload, arrays: Arrays, conditions: Conditions) -> tuple[Bounded, Bounded]:
        """Return the softmax averages and the logarithms of their denominators, each with its bound."""
        from .reference import Head, attention_and_bound

        z, types = workload.size, workload.dtype
        shape = self.operands(workload)[-1].shape
        values, bound = np.zeros(shape), np.zeros(shape)
        sinks = decode(types["s"], arrays["s"]) if self.form.sinks else np.full(z["heads"], -np.inf)
        logarithms, margin = np.broadcast_to(sinks[:, None], shape[:3]).copy(), np.zeros(shape[:3])
        masks = np.broadcast_to(arrays["e"], (*shape[:3], z["keys"])) if self.form.mask else None
        for entry, (queries, keys) in enumerate(self.lengths(workload, arrays)):
            limits = diagonals({**z, "queries": queries[1] - queries[0], "keys": keys[1] - keys[0]})
            for head in range(z["heads"]):
                at = 0 if self.form.ragged else entry, head, slice(*queries)
                k, v = (
                    decode(types[name], self.stored_keys(arrays, name, entry, head // group_of(z), keys))
                    for name in "bd"
                )
                mask = None if masks is None else decode(types["e"], masks[at])
                given = Head(decode(types["a"], arrays["a"][at]), k, v, mask, float(sinks[head]))
                found = attention_and_bound(given, self.form, limits, types["a"], conditions.structured)
                (values[at], bound[at]), (logarithms[at], margin[at]) = found
        return (values, bound), (logarithms, margin)

    def resize(self, workload: Workload, wanted: Mapping[str, int]) -> Workload:
        """Return a Workload with m queries, k keys, and heads of n elements up to 256."""
        names = {"batch": "batch", "m": "queries", "k": "keys"}
        sizes = {names[axis]: extent for axis, extent in wanted.items() if axis in names}
        return workload.with_sizes(**sizes, head=min(wanted.get("n", 64), 256))

    def usual(self, workload: Workload) -> list[Workload]:
        """Return decoding steps and prefills of 32 heads, with 8 heads of K and V."""
        sizes = {"batch": 1, "heads": 32, "kv_heads": 8}
        if self.form.mask:
            sizes["mask_axes"] = workload.size["mask_axes"] or MASK_AXES["keys"]
        windows = USUAL_WINDOWS if self.form.windowed else ({},)
        return [
            workload.with_sizes(queries=queries, keys=keys, head=head, causal=causal, **sizes, **window)
            for queries, keys in USUAL
            for head in USUAL_HEADS
            for window in windows
            for causal in ((0, 1) if queries > 1 and not window else (1,) if window else (0,))
        ]

    def bytes_moved(self, workload: Workload) -> int:
        """Return the least traffic in bytes; of K and V, only keys that some query sees, of sequences of mean
        lengths."""
        z = workload.size
        entries = z["pages"] if self.form.paged else 1 if self.form.ragged else z["batch"]
        stored = entries * z["page_size" if self.form.paged else "keys"]
        unread = stored - min(read_keys(workload) * z["batch"], stored)
        logarithms = 4 * math.prod(self.operands(workload)[-1].shape[:3]) * self.form.lse
        key = 2 * z["kv_heads"] * z["head"] * facts(workload.dtype["b"]).itemsize
        return super().bytes_moved(workload) + logarithms - unread * key

    def flops(self, workload: Workload) -> int:
        """Return the operations of both products over the pairs that the diagonals allow, 2 per multiply-add; of
        sequences, for mean lengths."""
        z = workload.size
        return 4 * z["batch"] * z["heads"] * z["head"] * seen_pairs(mean_sizes(workload))


def declare_form(
    kind: type[Attention], declare: Callable[..., Sequence[Expression]], form: Form, own: Mapping[str, int]
) -> Attention:
    """Return the operator of a form, with its ``own`` sizes."""
    sizes = {**own, **(dict.fromkeys(WINDOW, UNBOUNDED) if form.windowed else {})}
    parameters = tuple(name for name in sizes if name != "batch")
    return kind(form.name, partial(declare, form), parameters, tuple(sizes.items()), form=form)


_SIZES = {"batch": 1, "heads": 1, "kv_heads": 1, "queries": 1, "keys": 1, "head": 16, "causal": 0}
OPERATORS = {
    name: declare_form(Attention, declare, form, {**_SIZES, **({"mask_axes": 15} if form.mask else {})})
    for name, form in FORMS.items()
    if not form.sequences
}


def workload(
    queries: int,
    keys: int | None = None,
    *,
    batch: int = 1,
    heads: int = 1,
    kv_heads: int | None = None,
    head: int = 64,
    dtype: str = "float16",
    out: str | None = None,
    causal: bool | str = False,
    mask: str = "",
    mask_axes: Iterable[str] = tuple(MASK_AXES),
    window: tuple[int | None, int | None] = (None, None),
    softcap: bool = False,
    sinks: str = "",
    lse: bool = False,
    epilogue: str | Iterable[str] = (),
) -> Workload:
    """Return the Workload of contiguous operands (batch, heads, rows, head) at 16-byte aligned addresses.

    ``keys`` is ``queries`` by default, ``kv_heads`` is ``heads``.  ``causal`` is False, True (the same as
    "lower_right") or "upper_left".  ``mask`` is the dtype of a mask: "bool" (bytes, True keeps a key) or the dtype of
    an additive mask; ``mask_axes`` names the axes along which it is not broadcast.  ``sinks`` is the dtype of sinks,
    empty for none.  ``window``, ``softcap`` and ``lse`` are as in :func:`workload_from_views`, which raises
    UnsupportedError and ValueError.
    """
    keys, kv_heads = queries if keys is None else keys, heads if kv_heads is None else kv_heads
    q = contiguous((batch, heads, queries, head), dtype)
    k = contiguous((batch, kv_heads, keys, head), dtype)
    c = contiguous((batch, heads, queries, head), out or dtype)
    view = None
    if mask:
        shape, over = (batch, heads, queries, keys), set(mask_axes)
        packed = contiguous((n if axis in over else 1 for axis, n in zip(MASK_AXES, shape, strict=True)), "int8")
        strides = tuple(s if axis in over else 0 for axis, s in zip(MASK_AXES, packed.strides, strict=True))
        view = View(shape, strides, mask)
    own = contiguous((heads,), sinks) if sinks else None
    return workload_from_views(
        q, k, k, c, mask=view, causal=causal, window=window, softcap=softcap, sinks=own, lse=lse, epilogue=epilogue
    )


def workload_from_views(
    q: View,
    k: View,
    v: View,
    c: View,
    *,
    mask: View | None = None,
    causal: bool | str = False,
    window: tuple[int | None, int | None] = (None, None),
    softcap: bool = False,
    sinks: View | None = None,
    lse: bool = False,
    epilogue: str | Iterable[str] = (),
) -> Workload:
    """Return the Workload of arrays in memory.

    Q and C are (batch, heads, queries, head), K and V (batch, kv_heads, keys, head); the mask is broadcast to (batch,
    heads, queries, keys), with strides of 0 along repeated axes.  A mask of "bool" selects keys, and kernels read it as
    int8; a mask of float16, bfloat16 or float32 is added to the scores.  ``window`` is the number of keys that a query
    sees to the (left, right) of its position, None or -1 for all; ``softcap`` says whether scores have a soft cap; its
    value is a run-time number.  ``sinks`` are (heads,), of a type of SINKS and contiguous; ``lse`` says whether the
    logarithms of the denominators are written, to a contiguous array.  ValueError for shapes that do not fit together,
    UnsupportedError for types that no kernel serves.
    """
    sizes = _sizes(q, k, v, c, mask) | {"causal": causal_code(causal)}
    kind = "" if mask is None else "bool" if mask.dtype == "bool" else "added"
    sides = window_sizes(sizes, window)
    more = softcap or lse or sinks is not None
    windowed = more or any(side != UNBOUNDED for side in sides.values())
    form = Form(kind, softcap, windowed, sinks=sinks is not None, lse=lse)
    sizes |= sides if form.windowed else {}
    if len({q.dtype, k.dtype, v.dtype}) > 1 or q.dtype not in ACCUMULATORS:
        given = ", ".join(dict.fromkeys((q.dtype, k.dtype, v.dtype)))
        raise UnsupportedError(f"attention takes one dtype, float16 or bfloat16, got {given}: cast q, k and v")
    views = {"a": q, "b": k, "d": v, "c": c}
    if mask is not None:
        views["e"] = mask._replace(dtype="int8") if kind == "bool" else mask
        varies = (bit for bit, n, s in zip(MASK_AXES.values(), mask.shape, mask.strides, strict=True) if s and n > 1)
        sizes["mask_axes"] = sum(varies)
    layout = {name: _unit(view, "keys" if name == "e" else "head") for name, view in views.items()}
    if layout.get("e") == "keys":
        sizes["mask_axes"] |= MASK_AXES["keys"]
    found = Workload(
        operator=form.name,
        sizes=tuple(sizes.items()),
        dtypes=tuple((name, view.dtype) for name, view in views.items()),
        accumulator=ACCUMULATORS[q.dtype],
        math="ieee",
        layout=tuple(layout.items()),
        alignment=tuple(
            (name, alignment_class(view, None if layout[name] == "s" else -1)) for name, view in views.items()
        ),
        epilogue=epilogues.parse(epilogue) if isinstance(epilogue, str) else tuple(epilogue),
    )
    return with_denominators(found, sinks, lse)


def with_denominators(workload: Workload, sinks: View | None, lse: bool) -> Workload:
    """Return a Workload with operands for the sinks and the logarithms."""
    types = {"l": "float32"} if lse else {}
    if sinks is not None:
        if sinks.shape != (workload.size["heads"],):
            raise ValueError(f"sinks of shape {sinks.shape}: one per head, {workload.size['heads']}")
        if sinks.dtype not in SINKS:
            raise UnsupportedError(f"sinks of {sinks.dtype}: kernels read {', '.join(SINKS)}")
        types = {"s": sinks.dtype, **types}
    return replace(
        workload,
        dtypes=(*workload.dtypes, *types.items()),
        layout=(*workload.layout, *((name, CONTIGUOUS[name]) for name in types)),
        alignment=(*workload.alignment, *((name, facts(dtype).itemsize) for name, dtype in types.items())),
    )


def _sizes(q: View, k: View, v: View, c: View, mask: View | None) -> dict[str, int]:
    shapes = {"q": q.shape, "k": k.shape, "v": v.shape, "out": c.shape}
    if any(len(shape) != 4 for shape in shapes.values()):
        raise ValueError(f"attention takes (batch, heads, rows, head) operands, not {shapes}")
    (batch, heads, queries, head), (_, kv_heads, keys, _) = q.shape, k.shape
    whole = kv_heads > 0 and heads % kv_heads == 0
    if k.shape != v.shape or c.shape != q.shape or (batch, head) != (k.shape[0], k.shape[3]) or not whole:
        raise ValueError(f"attention operands do not fit: {shapes}; heads are a multiple of the heads of k and v")
    if mask is not None and mask.shape != (batch, heads, queries, keys):
        raise ValueError(f"the mask is broadcast to {(batch, heads, queries, keys)}, not {mask.shape}")
    for view in (q, k, v, c):
        facts(view.dtype)
    names = ("batch", "heads", "kv_heads", "queries", "keys", "head")
    return dict(zip(names, (batch, heads, kv_heads, queries, keys, head), strict=True))


def _unit(view: View, name: str) -> str:
    """Return ``name`` if the last axis has stride 1, or is so short or broadcast that no stride matters; else "s"."""
    return name if view.shape[-1] <= 1 or view.strides[-1] == 1 else "s"
