"""Attention: its lowering, and the same by the array library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.dispatch.calls.arguments import Operands
from gensor_kernels.dispatch.calls.problem import broadcast, overlaps
from gensor_kernels.operators.attention.attention import SINKS, workload_from_views
from gensor_kernels.operators.attention.forms import (
    CAUSAL,
    FORMS,
    UNBOUNDED,
    VERIFIED_SOFTCAP,
    WINDOW,
    causal_code,
    diagonals,
    window_sizes,
)
from gensor_kernels.operators.types.dtypes import array_dtype
from gensor_kernels.operators.types.workload import View, Workload, contiguous

from .base import AbstractCall, Copy, Function, Inputs, KernelCall, LibraryCall, NeedsCopies, Result, compact

if TYPE_CHECKING:
    from gensor_kernels.devices.device import Device
    from gensor_kernels.dispatch.calls.array import Backend, DeviceArray


@dataclass(frozen=True)
class Parameters:
    """Parameters of attention.

    `scale` None is 1 / sqrt(head). `window` are the numbers of keys that a query sees on its (left, right), None for
    all. `softcap` None is none. `ragged` and `paged` are those of attention_sequences.py. `sinks` and `lse`: the last
    inputs are the sinks, and an array for the logarithms of the denominators, which the call writes.
    """

    causal: bool | str
    scale: float | None
    window: tuple[int | None, int | None] = (None, None)
    softcap: float | None = None
    ragged: bool = False
    paged: bool = False
    sinks: bool = False
    lse: bool = False

    def split(self, inputs: Sequence[Any]) -> tuple[list[Any], Any, Any]:
        """Return the other inputs, the sinks and the array for the logarithms, None for what a call does not have."""
        others = list(inputs)
        lse = others.pop() if self.lse else None
        return others, others.pop() if self.sinks else None, lse

    def diagonals(self, queries: int, keys: int) -> tuple[int, int]:
        """Return (first, end): query i sees key j where i + first <= j < i + end."""
        sizes = {"causal": causal_code(self.causal), "queries": queries, "keys": keys}
        return diagonals(sizes | window_sizes(sizes, self.window))


class AnyAttention(Function):
    """Attention whose sinks and logarithms are its last inputs."""

    name = "attention"

    def written(self, inputs: Inputs, parameters: Parameters) -> Inputs:
        """Return the array for the logarithms, if the call has one."""
        return inputs[-1:] if parameters.lse else ()

    def fill(self, inputs: Inputs, parameters: Parameters) -> None:
        """Write the logarithms of rows that see no key."""
        others, sinks, lse = parameters.split(inputs)
        if lse is not None:
            lse[...] = -np.inf if sinks is None else sinks.astype(np.float32).reshape(1, others[0].shape[1], 1)


class Attention(AnyAttention):
    """Scaled dot-product attention of (batch, heads, rows, head) arrays; `parameters` is a Parameters.

    Inputs are q, k, v, the mask, which may be None or left out, and those of Parameters.
    """

    def result(self, inputs: Inputs, parameters: Parameters) -> Result:
        """Return the queries' shape, with heads of the size of v's, in the promoted dtype; ValueError for misfits."""
        (q, k, v, *masks), sinks, lse = parameters.split(inputs)
        mask = masks[0] if masks else None
        check(q.shape, k.shape, v.shape, None if mask is None else mask.shape)
        check_denominators(q, v, sinks, lse)
        if mask is not None and mask.dtype.kind not in "bf" and mask.dtype.name != "bfloat16":
            raise TypeError(f"mask is of bool (which keys count) or float (added to the scores), not {mask.dtype}")
        return Result((*q.shape[:3], v.shape[3]), result_dtype(q, k, v))

    def nothing(self, inputs: Inputs, parameters: Parameters) -> float | None:
        """Return zeros where there are no keys."""
        return 0.0 if inputs[1].shape[2] == 0 else None

    def lower(self, call: AbstractCall) -> KernelCall:
        """Take any strides with contiguous heads; copy other arrays."""
        dtype, p = call.result.dtype.name, call.parameters
        (q, k, v, *masks), sinks, lse = p.split(call.inputs)
        mask = masks[0] if masks else None
        pad_heads(call, dtype)
        copies = [None if x.dtype == dtype else compact(x, dtype) for x in (q, k, v)]
        is_read = mask is None or mask.dtype in ("bool", "float16", "bfloat16", "float32")
        copies += [None if mask is None or is_read else compact(mask, "float32")] * len(masks)
        copies += denominator_copies(sinks, lse)
        if any(copies):
            raise NeedsCopies(*copies)
        views = {"a": q, "b": k, "d": v, "c": call.out} | denominator_views(sinks, lse)
        if mask is not None:
            views["e"] = mask = broadcast(mask, (*q.shape[:3], k.shape[2]))
        more = {"causal": p.causal, "window": p.window, "softcap": p.softcap is not None}
        more |= {"sinks": sinks, "lse": p.lse}
        workload = workload_from_views(q, k, v, call.out, mask=mask, **more, epilogue=call.epilogue)
        return KernelCall.of_views(workload, views, p.scale, p.softcap or 0.0)

    def vendor_call(self, workload: Workload, arrays: Mapping[str, DeviceArray]) -> LibraryCall:
        """Return the arguments, with scale and soft cap of verification; a mask of bytes is one of booleans."""
        form = FORMS[workload.operator]
        mask = arrays.get("e")
        mask = mask != 0 if form.mask == "bool" else mask
        denominators = (arrays[name] for name in "sl" if name in arrays)
        return LibraryCall((arrays["a"], arrays["b"], arrays["d"], mask, *denominators), parameters_of(workload))

    def library(self, device: Backend, inputs: Inputs, p: Parameters, math: str | None, out: Any = None) -> Any:
        """Compute scores, a softmax and a product, in at least float32."""
        (q, k, v, *masks), sinks, lse = p.split(inputs)
        return compute(device, (q, k, v, masks[0] if masks else None, sinks, lse), p, math, out)


ATTENTION = Attention()


@dataclass(frozen=True)
class Padded:
    """A contiguous copy of (batch, heads, rows, head) with zeros at the end of its heads."""

    dtype: str
    head: int

    def view(self, view: View) -> View:
        """Return the View of the copy."""
        return contiguous((*view.shape[:3], self.head), self.dtype)

    def make(self, device: Device, array: DeviceArray) -> Any:
        """Make the copy."""
        copied, own = device.empty((*array.shape[:3], self.head), array_dtype(self.dtype)), array.shape[3]
        copied[..., :own], copied[..., own:] = array, 0
        return copied


def pad_heads(call: AbstractCall, dtype: str) -> None:
    """Raise NeedsCopies for values whose heads are of another size than the keys': kernels take one size."""
    (q, _, v), p = call.given[:3], call.parameters
    own, other = q.shape[3], v.shape[3]
    if own == other:
        return
    head = max(own, other)
    copies = [None if view.shape[3] == head else Padded(dtype, head) for view in call.given[:3]]
    raise NeedsCopies(
        *copies,
        *[None] * (len(call.inputs) - 3),
        words="the smaller heads are padded with zeros",
        parameters=replace(p, scale=max(own, 1) ** -0.5 if p.scale is None else p.scale),
        after=cut_heads,
        out=contiguous((*call.out.shape[:3], head), dtype),
    )


def cut_heads(device: Device, value: Any, result: Result, out: DeviceArray) -> Any:
    """Return the result without the padding of its heads; see NeedsCopies."""
    own = value[..., : result.shape[3]]
    return device.xp.ascontiguousarray(own) if out is None else Operands((), out, ()).give(own)


def result_dtype(q: DeviceArray, k: DeviceArray, v: DeviceArray) -> np.dtype[Any]:
    """Return the promoted dtype; TypeError for one that is not floating-point."""
    dtype = np.promote_types(np.promote_types(q.dtype, k.dtype), v.dtype)
    if dtype.kind not in "fV" and dtype.name != "bfloat16":
        raise TypeError(f"q, k and v are floating-point arrays, not {dtype}: cast integers, as in q.astype('float16')")
    return dtype


def check(q: Sequence[int], k: Sequence[int], v: Sequence[int], mask: Sequence[int] | None) -> None:
    """Raise ValueError, in words, for shapes that do not fit together."""
    if not len(q) == len(k) == len(v) == 4:
        raise ValueError(f"q, k and v have the axes (batch, heads, rows, head), not {tuple(q)}, {tuple(k)}, {tuple(v)}")
    if tuple(k[:3]) != tuple(v[:3]):
        raise ValueError(f"k and v have the shapes {tuple(k)} and {tuple(v)}: only their heads may differ in size")
    if (q[0], q[3]) != (k[0], k[3]):
        raise ValueError(f"q of shape {tuple(q)} and k of shape {tuple(k)}: batch and head must be equal")
    if q[1] % k[1] if k[1] else q[1]:
        raise ValueError(f"q has {q[1]} heads, no multiple of the {k[1]} of k and v")
    full = (*q[:3], k[2])
    if mask is not None:
        fits = len(mask) <= 4 and all(m in (1, f) for m, f in zip(reversed(mask), reversed(full), strict=False))
        if not fits:
            raise ValueError(f"mask of shape {tuple(mask)} does not broadcast to {full}: (batch, heads, queries, keys)")


def check_denominators(q: DeviceArray, v: DeviceArray, sinks: DeviceArray, lse: DeviceArray) -> None:
    """Raise ValueError or TypeError for sinks that do not fit, and for logarithms of values without elements."""
    if sinks is not None:
        if tuple(sinks.shape) != tuple(q.shape[1:2]):
            raise ValueError(f"sinks of shape {tuple(sinks.shape)}: one number per head of q, ({q.shape[1]},)")
        if sinks.dtype.kind != "f" and sinks.dtype.name != "bfloat16":
            raise TypeError(f"sinks are floating-point numbers, not {sinks.dtype}")
    if lse is not None and v.shape[3] == 0:
        raise ValueError("return_lse needs values: heads of v have no elements")


def denominator_copies(sinks: View | None, lse: View | None) -> list[Copy | None]:
    """Return the copies of sinks and logarithms that kernels need: sinks of a type that they read, one after the
    other."""
    if sinks is None:
        return [None] * (lse is not None)
    is_read, is_dense = sinks.dtype in SINKS, sinks.shape[0] <= 1 or sinks.strides[0] == 1
    own = None if is_read and is_dense else compact(sinks, sinks.dtype if is_read else "float32")
    return [own, *[None] * (lse is not None)]


def denominator_views(sinks: View | None, lse: View | None) -> dict[str, View]:
    """Return the Views of sinks and logarithms by operand name."""
    return {name: view for name, view in (("s", sinks), ("l", lse)) if view is not None}


def new_logarithms(device: Device, q: DeviceArray, read: Sequence[DeviceArray], given: DeviceArray) -> Any:
    """Return the array that a call writes its logarithms to: `given`, if kernels can write to it while they `read`
    other arrays, or a new one."""
    if given is not None:
        if tuple(given.shape) != tuple(q.shape[:3]) or given.dtype != np.float32:
            raise ValueError(f"lse is float32 of shape {tuple(q.shape[:3])}, not {given.dtype} of {tuple(given.shape)}")
        fits = given.flags.c_contiguous and device.pointer(given) % 4 == 0
        if fits and not overlaps(device.pointer, Operands(read, given, ())):
            return given
    return device.empty(tuple(q.shape[:3]), np.float32)


def parameters_of(workload: Workload) -> Parameters:
    """Return the Parameters of a Workload, with the scale and the soft cap of verification."""
    form = FORMS[workload.operator]
    word = next(word for word, code in CAUSAL.items() if code == workload.size["causal"])
    sides = (workload.size.get(side, UNBOUNDED) for side in WINDOW)
    left, right = (None if each == UNBOUNDED else each for each in sides)
    softcap = VERIFIED_SOFTCAP if form.capped else None
    kinds = form.ragged, form.paged, form.sinks, form.lse
    return Parameters(False if word == "none" else word, None, (left, right), softcap, *kinds)


def compute(device: Backend, inputs: Inputs, p: Parameters, math: str | None, out: DeviceArray = None) -> Any:
    """Compute attention by the array library, in at least float32; into a contiguous `out` of the same dtype.

    Inputs are q, k, v, the mask, the sinks and the array for the logarithms; the last three may be None.
    """
    q, k, v, mask, sinks, lse = inputs
    xp = device.xp
    wide = np.promote_types(np.promote_types(np.promote_types(q.dtype, k.dtype), v.dtype), np.float32)
    batch, heads, queries, head = q.shape
    kv_heads, keys, values = k.shape[1], k.shape[2], v.shape[3]
    group = heads // kv_heads
    grouped = q.astype(wide, copy=False).reshape(batch, kv_heads, group * queries, head)
    scores = device.product(grouped, k.astype(wide, copy=False).transpose(0, 1, 3, 2), math)
    scores = scores.reshape(batch, heads, queries, keys) * wide.type(head**-0.5 if p.scale is None else p.scale)
    if p.softcap is not None:
        scores = xp.tanh(scores / wide.type(p.softcap)) * wide.type(p.softcap)
    if mask is not None:
        keep = mask.dtype == bool
        scores = xp.where(mask, scores, -np.inf) if keep else scores + mask.astype(wide, copy=False)
    first, end = p.diagonals(queries, keys)
    if end < keys:
        scores = xp.where(xp.arange(keys)[None] < xp.arange(queries)[:, None] + end, scores, -np.inf)
    if first > 1 - queries:
        scores = xp.where(xp.arange(keys)[None] < xp.arange(queries)[:, None] + first, -np.inf, scores)
    top = scores.max(axis=-1, keepdims=True) if keys else xp.zeros((*scores.shape[:3], 1), wide)
    if sinks is not None:
        sinks = sinks.astype(wide).reshape(1, heads, 1, 1)
        top = xp.maximum(top, sinks)
    top = xp.where(top == -np.inf, 0, top)
    weights = xp.exp(scores - top)
    total = weights.sum(axis=-1, keepdims=True)
    if sinks is not None:
        total = total + xp.where(sinks == top, 1, xp.exp(sinks - top))  # an infinite sink leaves no weight to keys
    if lse is not None:
        lse[...] = (top + xp.log(total)).reshape(batch, heads, queries)
    weights = weights / xp.where(total == 0, 1, total)
    weights, v = weights.reshape(batch, kv_heads, group * queries, keys), v.astype(wide, copy=False)
    if out is not None and out.dtype == wide and out.flags.c_contiguous:
        device.product(weights, v, math, out.reshape(batch, kv_heads, group * queries, values))
        return out
    return device.product(weights, v, math).reshape(batch, heads, queries, values)
