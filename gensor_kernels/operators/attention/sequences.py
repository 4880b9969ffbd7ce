"""Attention over sequences of different lengths: rows stored one after the other, and keys in pages.

``attention_ragged``: Q and C (1, heads, queries, head) have the queries of all sequences, one after the other, K and V
(1, kv_heads, keys, head) their keys.  The ends F and G (batch,) say where the queries and the keys of each sequence
end, as in grouped matrix products (products/ragged.py): int32 on the device, ascending, unknown when a kernel is chosen
or launched.  An end beyond the rows counts as the number of rows; queries after the last end belong to no sequence,
and their result is zero.

``attention_paged``: K and V (pages, kv_heads, page_size, head) are pages of keys, and the table H (batch, table) names
those of each batch entry: key j is row j % page_size of page H[batch, j // page_size].  G has the number of keys of
each entry.  A page that K and V do not have is one of zeros.  ``attention_ragged_paged`` has Q and F of the former, K,
V, G and H of the latter, as servers of language models call it.

Everything else is as in attention.py, for each sequence by itself: its queries and keys in place of ``queries`` and
``keys``.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.declaration.operator import Arrays, Bounded, Conditions, Operand, Operator
from gensor_kernels.operators.types.dtypes import decode, facts
from gensor_kernels.operators.types.geometry import Geometry, Strides
from gensor_kernels.operators.types.workload import View, Workload, alignment_class, contiguous

from . import attention
from .attention import Attention
from .forms import (
    FORMS,
    UNBOUNDED,
    VERIFIED_SOFTCAP,
    WINDOW,
    Form,
    causal_code,
    check_softcap,
    diagonals,
    mean_sizes,
    read_keys,
    seen_pairs,
    window_sizes,
)

if TYPE_CHECKING:
    from gensor_kernels.operators.expression.expression import Expression

#: Behind attention's tail: addresses of both ends and of the table, its stride, sequences, alignment of the diagonals,
#: the power of two of a page's keys, pages.
_TOLD = struct.Struct("<3Q q 4i")
_BEFORE = 64
_PLACES = {"f": _BEFORE, "g": _BEFORE + 8, "h": _BEFORE + 16}
#: A diagonal that bounds nothing, for fewer queries and keys than this.
FAR = 2**30
#: Shares of the queries and of the keys that sequences have when kernels are verified: long ones, none, and nothing.
QUERY_SHARES, KEY_SHARES = (6, 0, 2, 1, 2), (6, 1, 0, 3, 2)
#: (sequences, queries of each, keys of each) of a portfolio's grid, and (heads, heads of K and V): of Llama 3 8B, and
#: of Qwen2 7B, whose groups of seven divide no tile.
USUAL = ((16, 1, 1024), (64, 1, 4096), (8, 512, 512), (4, 2048, 2048))
USUAL_HEADS = ((32, 8), (28, 4))


def relative_diagonals(sizes: Mapping[str, int]) -> tuple[int, int]:
    """Return (first, end): a query whose own key is p sees key j where p + first <= j < p + end."""
    left, right = (sizes[side] for side in WINDOW)
    end = 1 if sizes["causal"] else FAR if right == UNBOUNDED else right + 1
    return (-FAR if left == UNBOUNDED else -left), end


def spans(ends: Iterable[int], rows: int) -> list[tuple[int, int]]:
    """Return (first row, past the last row) of each sequence, cut off at ``rows``; empty where ends do not ascend."""
    cut = [min(max(int(end), 0), rows) for end in ends]
    return [(begin, max(begin, end)) for begin, end in zip([0, *cut[:-1]], cut, strict=True)]


def capacity(sizes: Mapping[str, int]) -> int:
    """Return the number of keys that a sequence can have."""
    return sizes["table"] * sizes["page_size"] if "table" in sizes else sizes["keys"]


class _Keys(NamedTuple):
    """Declared keys of a sequence: stages that find them, K and V as they are read, and where they begin and end."""

    stages: list[Expression]
    axes: tuple[Any, ...]
    place: Any
    operands: list[Any]
    begin: Any
    end: Any


def _declare_keys(form: Form, batch: Any, kv_heads: Any, d: Any, sizes: Mapping[str, int]) -> _Keys:
    """Declare the keys of a sequence; of pages, with stages that read each sequence's pages."""
    from gensor_kernels.operators.expression import expression as ex
    from gensor_kernels.operators.expression.values import apply

    ends = ex.tensor("g", batch)
    if not form.paged:
        (j,) = ex.axes("keys")
        operands = [ex.tensor(name, 1, kv_heads, j, d) for name in ("b", "d")]
        begin, end = (ex.minimum(each, float(sizes["keys"])) for each in (ends.pad()[batch - 1], ends[batch]))
        return _Keys([], (j,), ex.index(j), operands, begin, end)
    column, row, page = ex.axes("table page_size pages")
    table, stages = ex.tensor("h", batch, column), []
    for name in ("b", "d"):
        pages = ex.tensor(name, page, kv_heads, row, d)
        same = apply("equal", table[batch, column], ex.index(page))
        value = ex.where(same, pages[page, kv_heads, row, d], 0.0)
        stages.append(ex.Expression(f"gathered_{name}", (batch, kv_heads, column, row, d), value, ex.SUM))
    end = ex.minimum(ends[batch], float(capacity(sizes)))
    return _Keys(stages, (column, row), ex.index(column * sizes["page_size"] + row), [*stages], 0.0 * end, end)


def declare(form: Form, **sizes: int) -> tuple[Expression, ...]:
    """Declare where a query's keys begin and end, scores, and their softmax average of V."""
    from gensor_kernels.operators.expression import expression as ex
    from gensor_kernels.operators.expression.affine import Axis
    from gensor_kernels.operators.expression.values import apply

    batch, heads, kv_heads, i, d = ex.axes("batch heads kv_heads queries head")
    group = heads // max(sizes["heads"] // max(sizes["kv_heads"], 1), 1)
    keys = _declare_keys(form, batch, kv_heads, d, sizes)
    stages, begin, end = [*keys.stages], keys.begin, keys.end
    one = Axis("one", 1) if form.ragged else batch
    q, lead = ex.tensor("a", one, heads, i, d), (batch if form.paged else 0, group, *keys.axes, d)
    k, v = (operand[lead] for operand in keys.operands)
    upper = sizes["causal"] == 2
    moved = 0.0 * end if upper else end - float(sizes["queries"])  # the own key of query 0, less query 0
    if form.ragged:
        ends = ex.tensor("f", batch)
        bounds = [ex.minimum(each, float(sizes["queries"])) for each in (ends.pad()[batch - 1], ends[batch])]

        def own(value: Any) -> Any:
            """Return the value for the sequence of query i, 0 for others."""
            after, before = apply("less_equal", bounds[0], ex.index(i)), apply("less", ex.index(i), bounds[1])
            return ex.where(after, ex.where(before, value, 0.0), 0.0)

        moved = begin - bounds[0] if upper else end - bounds[1]
        of_query = {"begin": begin, "end": end, "moved": moved}
        stages += [ex.Expression(name, (i,), own(value), ex.SUM) for name, value in of_query.items()]
        begin, end, moved = (stage[i] for stage in stages[-3:])
        if form.paged:
            k = own(k)
            stages.append(ex.Expression("values", (heads, i, *keys.axes, d), own(v), ex.SUM))
            v = stages[-1][(heads, i, *keys.axes, d)]
    at = (one, heads, i, *keys.axes)
    stages.append(ex.Expression("scores", at, q[one, heads, i, d] * k, ex.SUM))
    score = stages[-1][at] * max(sizes["head"], 1) ** -0.5
    if form.capped:
        score = VERIFIED_SOFTCAP * ex.tanh(score * (1.0 / VERIFIED_SOFTCAP))
    first, last = (ex.index(i) + float(each) + moved for each in relative_diagonals(sizes))
    for below, above in ((keys.place, end), (keys.place, last), (begin - 1.0, keys.place), (first - 1.0, keys.place)):
        score = ex.where(apply("less", below, above), score, -math.inf)
    average = ex.Expression(
        "c",
        (one, heads, i, d),
        (score, v),
        ex.SOFTMAX_AVERAGE,
        map=ex.where(apply("equal", ex.result("sumexp"), 0.0), 0.0, ex.result()),
    )
    return (*stages, average)


@dataclass(frozen=True)
class Sequences(Attention):
    """Attention over sequences of different lengths, for tuner and dispatch."""

    @property
    def names(self) -> tuple[str, ...]:
        """Operands in the order of kernels: Q, K, V, ends of queries and keys, the table, the output."""
        return ("a", "b", "d", *(("f",) if self.form.ragged else ()), "g", *(("h",) if self.form.paged else ()), "c")

    def operands(self, workload: Workload) -> tuple[Operand, ...]:
        """Return Q, K, V, ends or lengths, the table, and the output."""
        z, found = workload.size, []
        rows = (1 if self.form.ragged else z["batch"], z["heads"], z["queries"], z["head"])
        lead, keys = (z["pages"], z["page_size"]) if self.form.paged else (1, z["keys"])
        kv = (lead, z["kv_heads"], keys, z["head"])
        for name in self.names:
            unit = workload.layouts[name]
            if name in _PLACES:
                if unit != "batch":
                    raise ValueError(f"'layout' of {name} is batch, not {unit!r}")
                shape = (z["batch"], z["table"]) if name == "h" else (z["batch"],)
                found.append(Operand(name, shape, tuple(range(len(shape))), len(shape)))
                continue
            if unit not in ("head", "s"):
                raise ValueError(f"'layout' of {name} is head or s, not {unit!r}")
            found.append(Operand(name, rows if name in "ac" else kv, (0, 1, 2, 3), 1, 1 + (unit == "s")))
        return tuple(found)

    def geometry(
        self,
        workload: Workload,
        strides: Mapping[str, tuple[int, ...]],
        scale: float | None = None,
        softcap: float = VERIFIED_SOFTCAP,
    ) -> Geometry:
        """Return the kernel's view of a call; as Attention.geometry, and UnsupportedError for too many keys."""
        z, form = workload.size, self.form
        scale = attention.check_scale(workload, scale)
        cap = check_softcap(softcap, scale) if form.capped else 0.0
        group, keys = z["heads"] // max(z["kv_heads"], 1), capacity(z)
        apart = max(abs(strides[name][axis]) for name in "bd" for axis in (0, 2)) * facts(workload.dtype["b"]).itemsize
        if form.paged and apart > attention.LARGEST:
            raise UnsupportedError(f"pages or keys that are {apart} bytes apart: kernels take up to 2^31")
        if 2 * (z["queries"] * group + keys) + 256 > FAR:
            raise UnsupportedError(f"sequences of up to {z['queries']} queries and {keys} keys: kernels count to 2^29")
        a, c = (self.output(workload, strides[name]) for name in "ac")
        b, d = (strides[name] for name in "bd")
        page, pages = (z["page_size"], z["pages"]) if form.paged else (1, 0)
        lead = 1 if form.paged else 0  # packed keys have no stride along sequences
        row = strides["h"][0] if form.paged else 0
        tail = attention.params_tail((0,) * 5, scale, relative_diagonals(z), cap)
        tail += _TOLD.pack(0, 0, 0, row, z["batch"], z["causal"] == 2, page.bit_length() - 1, pages)
        return Geometry(
            (z["queries"], z["head"], keys),
            (1 if form.ragged else z["batch"], z["kv_heads"], group),
            a,
            Strides((lead * b[0], b[1], 0), b[3], b[2]),
            c,
            Strides((lead * d[0], d[1], 0), d[2], d[3]),
            tail,
            ragged=z["batch"] if form.ragged else 0,
            others=tuple(_PLACES[name] for name in self.names if name in _PLACES),
        )

    def lengths(self, workload: Workload, arrays: Arrays) -> list[tuple[tuple[int, int], tuple[int, int]]]:
        """Return (begin, end) of the queries and of the keys of each sequence."""
        z = workload.size
        if self.form.paged:
            keys = [(0, min(max(int(length), 0), capacity(z))) for length in arrays["g"]]
        else:
            keys = spans(arrays["g"], z["keys"])
        queries = spans(arrays["f"], z["queries"]) if self.form.ragged else [(0, z["queries"])] * z["batch"]
        return list(zip(queries, keys, strict=True))

    def result_and_bound(self, workload: Workload, arrays: Arrays, conditions: Conditions) -> Bounded:
        """Return softmax averages of each sequence in float64; see Operator."""
        from .reference import of_head

        z, form = workload.size, self.form
        shape = self.operands(workload)[-1].shape
        values, bound = np.zeros(shape), np.zeros(shape)
        group = z["heads"] // max(z["kv_heads"], 1)
        for number, ((first, end), (begin, stop)) in enumerate(self.lengths(workload, arrays)):
            entry, sizes = 0 if form.ragged else number, {**z, "queries": end - first, "keys": stop - begin}
            for head in range(z["heads"]):
                at = entry, head, slice(first, end)
                k, v = (self._keys(workload, arrays, name, number, head // group, (begin, stop)) for name in "bd")
                read = decode(workload.dtype["a"], arrays["a"][at]), k, v, None
                values[at], bound[at] = of_head(read, form, diagonals(sizes), workload, conditions.structured)
        return values, bound

    def _keys(
        self, workload: Workload, arrays: Arrays, name: str, number: int, head: int, span: tuple[int, int]
    ) -> np.ndarray:
        """Return K or V of a sequence and a head, in float64."""
        array, (begin, end) = arrays[name], span
        if not self.form.paged:
            return decode(workload.dtype[name], array[0, head, begin:end])
        pages = arrays["h"][number].astype(np.int64)
        there = (pages >= 0) & (pages < len(array))
        found = np.where(there[:, None, None], array[np.where(there, pages, 0), head], array.dtype.type(0))
        return decode(workload.dtype[name], found.reshape(-1, array.shape[3])[:end])

    def draw(
        self, workload: Workload, name: str, rng: np.random.Generator, shape: tuple[int, ...]
    ) -> np.ndarray | None:
        """Return unequal lengths, some of them 0, followed by rows of no sequence; of three, the last end is too far.

        Tables have a page that K and V do not have, and in places that no key needs they have none but such.
        """
        z = workload.size
        if name == "h":
            pages = rng.integers(0, max(z["pages"], 1), shape)
            pages[:1, 1:2] = z["pages"]
            pages[1:2, :] = -1
            return pages.astype(np.float64)
        if name not in _PLACES:
            return None
        shares = np.resize(QUERY_SHARES if name == "f" else KEY_SHARES, z["batch"])
        if self.form.paged and name == "g":
            return np.asarray(capacity(z) * shares // 6 - (shares % 6 > 0) + 3 * (z["batch"] == 3), np.float64)
        rows = z["queries"] if name == "f" else z["keys"]
        ends = np.cumsum(shares) * rows // (shares.sum() + 1)
        ends[-1:] += rows * (z["batch"] == 3)
        return ends.astype(np.float64)

    def unused_slices(self, workload: Workload, name: str) -> tuple[slice, ...]:
        """Return the rows of packed K and V after the last key."""
        if name not in ("b", "d") or self.form.paged or not workload.size["batch"]:
            return ()
        ends = self.draw(workload, "g", np.random.default_rng(0), (workload.size["batch"],))
        assert ends is not None
        return (slice(None), slice(None), slice(int(ends[-1]), None))

    def resize(self, workload: Workload, wanted: Mapping[str, int]) -> Workload:
        """Return a Workload with m queries and k keys in each of five sequences, and heads of n elements up to 256."""
        sizes = {"batch": 5, "queries": wanted["m"] * (5 if self.form.ragged else 1), "head": min(wanted["n"], 256)}
        return workload.with_sizes(**sizes, **self._holding(workload, 5, wanted["k"]))

    def _holding(self, workload: Workload, batch: int, keys: int) -> dict[str, int]:
        """Return the sizes of K and V that hold this many keys of each sequence."""
        if not self.form.paged:
            return {"keys": keys * batch}
        page = workload.size["page_size"]
        return {"pages": max(-(-keys // page), 1) * batch, "table": max(-(-keys // page), 1)}

    def usual(self, workload: Workload) -> list[Workload]:
        """Return decoding steps and prefills of usual models' heads, causal and with a window."""
        found = []
        for (batch, queries, keys), (heads, kv_heads) in product(USUAL, USUAL_HEADS):
            sizes = {
                "batch": batch,
                "queries": queries * (batch if self.form.ragged else 1),
                "heads": heads,
                "kv_heads": kv_heads,
            }
            page = {"page_size": 16} if self.form.paged else {}
            paged = workload.with_sizes(**sizes, **page)
            for window in attention.USUAL_WINDOWS:
                more = {"head": 128, "causal": 1, **window, **self._holding(paged, batch, keys)}
                found.append(paged.with_sizes(**more))
        return found

    def bytes_moved(self, workload: Workload) -> int:
        """Return the least traffic in bytes; of K and V, the keys of sequences of mean lengths that queries see."""
        z, found = workload.size, Operator.bytes_moved(self, workload)
        lead, keys = (z["pages"], z["page_size"]) if self.form.paged else (1, z["keys"])
        each = 2 * z["kv_heads"] * z["head"] * facts(workload.dtype["b"]).itemsize
        read = min(read_keys(workload) * z["batch"], lead * keys)
        return found - (lead * keys - read) * each

    def flops(self, workload: Workload) -> int:
        """Return the operations of both products for sequences of mean lengths, 2 per multiply-add."""
        z = workload.size
        return 4 * z["batch"] * z["heads"] * z["head"] * seen_pairs(mean_sizes(workload))


_SIZES = (("batch", 1), ("heads", 1), ("kv_heads", 1), ("queries", 1), ("head", 16), ("causal", 0))
_PAGED = (("pages", 1), ("page_size", 16), ("table", 1))


def _declare_form(form: Form) -> Sequences:
    own = _PAGED if form.paged else (("keys", 1),)
    sizes = (*_SIZES, *own, *((side, UNBOUNDED) for side in WINDOW))
    parameters = tuple(name for name, _ in sizes if name != "batch")
    return Sequences(form.name, partial(declare, form), parameters, sizes, form=form)


OPERATORS = {name: _declare_form(form) for name, form in FORMS.items() if form.sequences}


def workload(
    batch: int,
    queries: int,
    keys: int,
    *,
    ragged: bool = True,
    page_size: int = 0,
    table: int = 0,
    heads: int = 1,
    kv_heads: int | None = None,
    head: int = 64,
    dtype: str = "float16",
    out: str | None = None,
    causal: bool | str = False,
    window: tuple[int | None, int | None] = (None, None),
    softcap: bool = False,
    epilogue: str | Iterable[str] = (),
) -> Workload:
    """Return the Workload of contiguous operands at 16-byte aligned addresses.

    ``batch`` sequences have ``queries`` in all, or as many each where they are not ``ragged``, and ``keys`` in all.
    With ``page_size``, these are stored in pages, and a sequence has a row of ``table`` pages, by default all of them.
    Other parameters are as in attention.workload.
    """
    kv_heads = heads if kv_heads is None else kv_heads
    q = contiguous((1 if ragged else batch, heads, queries, head), dtype)
    k = contiguous((1, kv_heads, keys, head), dtype)
    ends = contiguous((batch,), "int32")
    views: dict[str, View] = {"f": ends} if ragged else {}
    if page_size:
        k = contiguous((-(-keys // page_size), kv_heads, page_size, head), dtype)
        views["h"] = contiguous((batch, table or k.shape[0]), "int32")
    c, lengths = q._replace(dtype=out or dtype), views | {"g": ends}
    return workload_from_views(q, k, k, c, lengths, causal=causal, window=window, softcap=softcap, epilogue=epilogue)


def workload_from_views(
    q: View,
    k: View,
    v: View,
    c: View,
    lengths: Mapping[str, View],
    *,
    causal: bool | str = False,
    window: tuple[int | None, int | None] = (None, None),
    softcap: bool = False,
    epilogue: str | Iterable[str] = (),
) -> Workload:
    """Return the Workload of arrays in memory: Q, K, V and C, and the ends F and G and the table H by operand name.

    F says that sequences are ragged, H that keys are stored in pages.  Parameters and errors are those of
    attention.workload_from_views; UnsupportedError also for pages of other sizes than powers of two.
    """
    form = Form("", softcap, True, "f" in lengths, "h" in lengths)
    batch, page = lengths["g"].shape[0], k.shape[2]
    if form.paged and page & (page - 1):
        raise UnsupportedError(f"pages of {page} keys: kernels take powers of two")
    # The class of plain attention over the same heads: its types, layouts and alignments.
    base = attention.workload_from_views(
        q, _as_batch(k, q.shape[0]), _as_batch(v, q.shape[0]), c, causal=causal, epilogue=epilogue
    )
    z = base.size
    sizes = {name: z[name] for name in ("heads", "kv_heads", "queries", "head", "causal")} | {"batch": batch}
    sizes |= {"pages": k.shape[0], "page_size": page, "table": lengths["h"].shape[1]} if form.paged else {"keys": page}
    sizes |= window_sizes({"queries": z["queries"], "keys": capacity(sizes), "causal": causal_code(causal)}, window)
    return replace(
        base,
        operator=form.name,
        sizes=tuple(sizes.items()),
        dtypes=(*base.dtypes, *((name, view.dtype) for name, view in lengths.items())),
        layout=(*base.layout, *((name, "batch") for name in lengths)),
        alignment=tuple({**base.align, **_page_alignment(base, b=k, d=v), **dict.fromkeys(lengths, 4)}.items()),
    )


def _as_batch(view: View, batch: int) -> View:
    """Return K or V as attention reads a batch entry of it."""
    return view._replace(shape=(batch, *view.shape[1:]), strides=(0, *view.strides[1:]))


def _page_alignment(base: Workload, **views: View) -> dict[str, int]:
    """Return the alignment of K and V with their stride from page to page."""
    return {name: alignment_class(view, None if base.layouts[name] == "s" else -1) for name, view in views.items()}
