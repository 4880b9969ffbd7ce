"""Attention over sequences of different lengths: its lowering, and the same by the array library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators import operator
from gensor_kernels.operators.attention.sequences import spans, workload_from_views
from gensor_kernels.operators.types.workload import View, Workload

from .attention import (
    AnyAttention,
    Parameters,
    check,
    check_denominators,
    compute,
    denominator_copies,
    denominator_views,
    pad_heads,
    parameters_of,
    result_dtype,
)
from .base import AbstractCall, Inputs, KernelCall, LibraryCall, NeedsCopies, Result, compact

if TYPE_CHECKING:
    from gensor_kernels.dispatch.calls.array import Backend, DeviceArray


class Sequences(AnyAttention):
    """Attention of packed sequences, or of sequences with paged keys; `parameters` is a Parameters.

    Inputs are q, k, v, the ends of queries (`ragged`), the ends of keys or their numbers, the table (`paged`), and
    those of Parameters.
    """

    waits = True

    def result(self, inputs: Inputs, parameters: Parameters) -> Result:
        """Return the queries' shape, with heads of v's size, in the promoted dtype; ValueError for misfits."""
        q, k, v, ends, keys, table, sinks, lse = _split_inputs(inputs, parameters)
        batch = q.shape[0] if q.ndim == 4 else 0
        if parameters.paged:
            if k.ndim != 4:
                raise ValueError(f"k and v have the axes (pages, kv_heads, page_size, head), not {tuple(k.shape)}")
            check(q.shape, (batch, *k.shape[1:]), (batch, *v.shape[1:]), None)
            if k.shape[0] != v.shape[0]:
                raise ValueError(f"k and v have the shapes {tuple(k.shape)}, {tuple(v.shape)}: as many pages each")
        else:
            check(q.shape, k.shape, v.shape, None)
        count = batch
        if parameters.ragged:
            if batch != 1:
                raise ValueError(f"sequences one after the other have a batch of 1, not {batch}: q is {tuple(q.shape)}")
            count = _count("offsets", ends, ends.shape[:1])
        _count("key_offsets and key_sizes", keys, (count,))
        if parameters.paged:
            _count("block_table", table, (count, *table.shape[1:2]))
        check_denominators(q, v, sinks, lse)
        return Result((*q.shape[:3], v.shape[3]), result_dtype(q, k, v))

    def nothing(self, inputs: Inputs, parameters: Parameters) -> float | None:
        """Return zeros where there are no keys, or no sequences."""
        _, k, _, _, keys, table, _, _ = _split_inputs(inputs, parameters)
        return 0.0 if 0 in (keys.shape[0], k.shape[0], k.shape[2], 1 if table is None else table.shape[1]) else None

    def lower(self, call: AbstractCall) -> KernelCall:
        """Take any strides of q, k and v; copy ends and tables that are not contiguous int32."""
        p, dtype = call.parameters, call.result.dtype.name
        given, sinks, lse = p.split(call.given)
        if p.paged and given[1].shape[3] != given[2].shape[3]:
            raise UnsupportedError("values in pages with heads of another size than the keys'")
        pad_heads(call, dtype)
        copies = [None if x.dtype == dtype else compact(x, dtype) for x in given[:3]]
        copies += [None if _is_list(x) else compact(x, "int32") for x in given[3:]]
        copies += denominator_copies(sinks, lse)
        if any(copies):
            raise NeedsCopies(*copies)
        names = ("a", "b", "d", *(("f",) if p.ragged else ()), "g", *(("h",) if p.paged else ()))
        views = dict(zip(names, given, strict=True)) | {"c": call.out} | denominator_views(sinks, lse)
        q, k, v, c = (views[name] for name in "abdc")
        workload = workload_from_views(
            *(q, k, v, c, {name: views[name] for name in names[3:]}),
            causal=p.causal,
            window=p.window,
            softcap=p.softcap is not None,
            sinks=sinks,
            lse=p.lse,
            epilogue=call.epilogue,
        )
        return KernelCall.of_views(workload, views, p.scale, p.softcap or 0.0)

    def vendor_call(self, workload: Workload, arrays: Mapping[str, DeviceArray]) -> LibraryCall:
        """Return the arguments, with scale and soft cap of verification."""
        inputs = operator(workload.operator).names[:-1]
        return LibraryCall(tuple(arrays[name] for name in inputs), parameters_of(workload))

    def library(self, device: Backend, inputs: Inputs, p: Parameters, math: str | None, out: Any = None) -> Any:
        """Compute attention of one sequence after the other; ends and table are read, which waits for the device."""
        q, k, v, ends, keys, table, sinks, lse = _split_inputs(inputs, p)
        self.fill(inputs, p)
        value = out
        if value is None:
            value = device.xp.zeros((*q.shape[:3], v.shape[3]), np.promote_types(result_dtype(q, k, v), np.float32))
        else:
            value[...] = 0
        rows = spans(ends.tolist(), q.shape[2]) if p.ragged else [(0, q.shape[2])] * q.shape[0]
        if p.paged:
            most = table.shape[1] * k.shape[2]
            found = [(0, min(max(int(length), 0), most)) for length in keys.tolist()]
        else:
            found = spans(keys.tolist(), k.shape[2])
        for number, ((first, last), (begin, end)) in enumerate(zip(rows, found, strict=True)):
            if first == last or begin == end:
                continue
            entry = slice(0, 1) if p.ragged else slice(number, number + 1)
            if p.paged:
                own = (_gather(device, x, table[number], end) for x in (k, v))
            else:
                own = (x[:, :, begin:end] for x in (k, v))
            logarithms = None if lse is None else lse[entry, :, first:last]
            part = compute(device, (q[entry, :, first:last], *own, None, sinks, logarithms), p, math)
            value[entry, :, first:last] = part
        return value


SEQUENCES = Sequences()


def _split_inputs(inputs: Sequence[Any], p: Parameters) -> tuple[Any, ...]:
    """Return (q, k, v, ends of queries, ends or numbers of keys, table, sinks, logarithms), None for those a call does
    not have."""
    (q, k, v, *rest), sinks, lse = p.split(inputs)
    ends = rest.pop(0) if p.ragged else None
    return q, k, v, ends, rest[0], rest[1] if p.paged else None, sinks, lse


def _count(name: str, given: Any, shape: tuple[int, ...]) -> int:
    """Return the number of sequences; ValueError for other numbers than one per sequence (and page)."""
    axes = 2 if name == "block_table" else 1
    if given.ndim != axes or tuple(given.shape) != tuple(shape) or given.dtype.kind not in "iu":
        expected = "(sequences, pages)" if axes == 2 else f"{tuple(shape)}, one per sequence"
        raise ValueError(f"{name} are integers of the shape {expected}, not {given.dtype} of {tuple(given.shape)}")
    return int(given.shape[0])


def _is_list(view: View) -> bool:
    """Return whether kernels read these ends, or this table: int32, adjacent along the last axis."""
    return view.dtype == "int32" and (view.shape[-1] <= 1 or view.strides[-1] == 1)


def _gather(device: Backend, pages: Any, table: Any, keys: int) -> Any:
    """Return the keys (1, kv_heads, keys, head) of a row of the table; zeros for pages that do not exist."""
    xp = device.xp
    own = table[: -(-keys // pages.shape[2])].astype(np.int64)
    there = (own >= 0) & (own < pages.shape[0])
    found = xp.where(there[:, None, None, None], pages[xp.where(there, own, 0)], pages.dtype.type(0))
    return found.transpose(1, 0, 2, 3).reshape(1, pages.shape[1], -1, pages.shape[3])[:, :, :keys]
