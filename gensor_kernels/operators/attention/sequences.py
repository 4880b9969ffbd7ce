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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.declaration.operator import Arrays
from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.types.geometry import Geometry
from gensor_kernels.operators.types.workload import View, Workload, alignment_class, contiguous

from . import attention
from .attention import Attention, declare_form, group_of, scaled, softmax_average, with_denominators
from .forms import FAR, FORMS, VERIFIED_SOFTCAP, Form, capacity, causal_code, relative_diagonals, window_sizes

if TYPE_CHECKING:
    from gensor_kernels.operators.expression.expression import Axis, Expression, Tensor, Value


#: Behind attention's tail: addresses of both ends and of the table, its stride, sequences, alignment of the diagonals,
#: the power of two of a page's keys, pages.
_TOLD = struct.Struct("<3Q q 4i")
#: Shares of the queries and of the keys that sequences have when kernels are verified: long ones, none, and nothing.
QUERY_SHARES, KEY_SHARES = (6, 0, 2, 1, 2), (6, 1, 0, 3, 2)
#: (sequences, queries of each, keys of each) of a portfolio's grid, and (heads, heads of K and V): of Llama 3 8B, and
#: of Qwen2 7B, whose groups of seven divide no tile.
USUAL = ((16, 1, 1024), (64, 1, 4096), (8, 512, 512), (4, 2048, 2048))
USUAL_HEADS = ((32, 8), (28, 4))


def spans(ends: Iterable[int], rows: int) -> list[tuple[int, int]]:
    """Return (first row, past the last row) of each sequence, cut off at ``rows``; empty where ends do not ascend."""
    cut = [min(max(int(end), 0), rows) for end in ends]
    return [(begin, max(begin, end)) for begin, end in zip([0, *cut[:-1]], cut, strict=True)]


class _Keys(NamedTuple):
    """Declared keys of a sequence: stages that find them, K and V as they are read, and where they begin and end."""

    stages: list[Expression]
    axes: tuple[Axis, ...]
    place: Value
    operands: Sequence[Tensor | Expression]
    begin: Value
    end: Value


def _declare_keys(form: Form, batch: Axis, kv_heads: Axis, d: Axis, sizes: Mapping[str, int]) -> _Keys:
    """Declare the keys of a sequence; of pages, with stages that read each sequence's pages."""
    from gensor_kernels.operators.expression import expression as ex

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
        same = ex.equal(table[batch, column], ex.index(page))
        value = ex.where(same, pages[page, kv_heads, row, d], 0.0)
        stages.append(ex.Expression(f"gathered_{name}", (batch, kv_heads, column, row, d), value, ex.SUM))
    end = ex.minimum(ends[batch], float(capacity(sizes)))
    return _Keys(stages, (column, row), ex.index(column * sizes["page_size"] + row), [*stages], 0.0 * end, end)


def declare(form: Form, **sizes: int) -> tuple[Expression, ...]:
    """Declare where a query's keys begin and end, scores, and their softmax average of V."""
    from gensor_kernels.operators.expression import expression as ex

    batch, heads, kv_heads, i, d = ex.axes("batch heads kv_heads queries head")
    group = heads // max(group_of(sizes), 1)
    keys = _declare_keys(form, batch, kv_heads, d, sizes)
    stages, begin, end = [*keys.stages], keys.begin, keys.end
    one = ex.Axis("one", 1) if form.ragged else batch
    q, lead = ex.tensor("a", one, heads, i, d), (batch if form.paged else 0, group, *keys.axes, d)
    k: Value
    k, v = (operand[lead] for operand in keys.operands)
    upper = sizes["causal"] == 2
    moved = 0.0 * end if upper else end - float(sizes["queries"])  # the own key of query 0, less query 0
    if form.ragged:
        ends = ex.tensor("f", batch)
        bounds = [ex.minimum(each, float(sizes["queries"])) for each in (ends.pad()[batch - 1], ends[batch])]

        def own(value: Value) -> Value:
            """Return the value for the sequence of query i, 0 for others."""
            after, before = ex.less_equal(bounds[0], ex.index(i)), ex.less(ex.index(i), bounds[1])
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
    score = scaled(form, stages[-1][at], sizes)
    first, last = (ex.index(i) + float(each) + moved for each in relative_diagonals(sizes))
    for below, above in ((keys.place, end), (keys.place, last), (begin - 1.0, keys.place), (first - 1.0, keys.place)):
        score = ex.where(ex.less(below, above), score, -math.inf)
    return (*stages, *softmax_average(form, (one, heads, i, d), score, v))


@dataclass(frozen=True)
class Sequences(Attention):
    """Attention over sequences of different lengths, for tuner and dispatch."""

    def geometry(
        self,
        workload: Workload,
        strides: Mapping[str, tuple[int, ...]],
        scale: float | None = None,
        softcap: float = VERIFIED_SOFTCAP,
    ) -> Geometry:
        """Return the kernel's view of a call; see Attention.geometry."""
        z, form = workload.size, self.form
        row, page, pages = (strides["h"][0], z["page_size"], z["pages"]) if form.paged else (0, 1, 0)
        geometry = super().geometry(workload, strides, scale, softcap)
        own = _TOLD.pack(0, 0, 0, row, z["batch"], z["causal"] == 2, page.bit_length() - 1, pages)
        return replace(
            geometry,
            tail=geometry.tail + own,
            ragged=z["batch"] if form.ragged else 0,
        )

    def check_counts(self, workload: Workload, strides: Mapping[str, tuple[int, ...]]) -> None:
        """Raise UnsupportedError for more queries or keys than kernels can count, and for pages too far apart."""
        z, keys = workload.size, capacity(workload.size)
        apart = max(abs(strides[name][axis]) for name in "bd" for axis in (0, 2)) * facts(workload.dtype["b"]).itemsize
        if self.form.paged and apart > attention.LARGEST:
            raise UnsupportedError(f"pages or keys that are {apart} bytes apart: kernels take up to 2^31")
        if 2 * (z["queries"] * group_of(z) + keys) + 256 > FAR:
            raise UnsupportedError(f"sequences of up to {z['queries']} queries and {keys} keys: kernels count to 2^29")

    def lengths(self, workload: Workload, arrays: Arrays) -> list[tuple[tuple[int, int], tuple[int, int]]]:
        """Return (begin, end) of the queries and of the keys of each sequence."""
        z = workload.size
        if self.form.paged:
            keys = [(0, min(max(int(length), 0), capacity(z))) for length in arrays["g"]]
        else:
            keys = spans(arrays["g"], z["keys"])
        queries = spans(arrays["f"], z["queries"]) if self.form.ragged else [(0, z["queries"])] * z["batch"]
        return list(zip(queries, keys, strict=True))

    def stored_keys(self, arrays: Arrays, name: str, entry: int, head: int, span: tuple[int, int]) -> np.ndarray:
        """Return the keys ``span`` of K or V of a sequence and a head, as they are stored."""
        array, (begin, end) = arrays[name], span
        if not self.form.paged:
            return array[0, head, begin:end]
        pages = arrays["h"][entry].astype(np.int64)
        there = (pages >= 0) & (pages < len(array))
        found = np.where(there[:, None, None], array[np.where(there, pages, 0), head], array.dtype.type(0))
        return found.reshape(-1, array.shape[3])[:end]

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
        if name not in ("f", "g"):
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


_SIZES = {"batch": 1, "heads": 1, "kv_heads": 1, "queries": 1, "head": 16, "causal": 0}
_PAGED = {"pages": 1, "page_size": 16, "table": 1}
OPERATORS = {
    name: declare_form(Sequences, declare, form, {**_SIZES, **(_PAGED if form.paged else {"keys": 1})})
    for name, form in FORMS.items()
    if form.sequences
}


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
    sinks: str = "",
    lse: bool = False,
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
    own = contiguous((heads,), sinks) if sinks else None
    return workload_from_views(
        q, k, k, c, lengths, causal=causal, window=window, softcap=softcap, sinks=own, lse=lse, epilogue=epilogue
    )


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
    sinks: View | None = None,
    lse: bool = False,
    epilogue: str | Iterable[str] = (),
) -> Workload:
    """Return the Workload of arrays in memory: Q, K, V and C, and the ends F and G and the table H by operand name.

    F says that sequences are ragged, H that keys are stored in pages.  Parameters and errors are those of
    attention.workload_from_views; UnsupportedError also for pages of other sizes than powers of two.
    """
    form = Form("", softcap, True, "f" in lengths, "h" in lengths, sinks is not None, lse)
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
    found = replace(
        base,
        operator=form.name,
        sizes=tuple(sizes.items()),
        dtypes=(*base.dtypes, *((name, view.dtype) for name, view in lengths.items())),
        layout=(*base.layout, *((name, "batch") for name in lengths)),
        alignment=tuple({**base.align, **_page_alignment(base, b=k, d=v), **dict.fromkeys(lengths, 4)}.items()),
    )
    return with_denominators(found, sinks, lse)


def _as_batch(view: View, batch: int) -> View:
    """Return K or V as attention reads a batch entry of it."""
    return view._replace(shape=(batch, *view.shape[1:]), strides=(0, *view.strides[1:]))


def _page_alignment(base: Workload, **views: View) -> dict[str, int]:
    """Return the alignment of K and V with their stride from page to page."""
    return {name: alignment_class(view, None if base.layouts[name] == "s" else -1) for name, view in views.items()}
