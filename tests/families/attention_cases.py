"""Attention over NumPy arrays for the tests: random operands, float64 references, and a kernel written in NumPy."""

import numpy as np

from gensor_kernels.operators import operator
from gensor_kernels.operators.attention import attention
from gensor_kernels.operators.attention.forms import FORMS, UNBOUNDED, VERIFIED_SOFTCAP, WINDOW, diagonals
from gensor_kernels.operators.types.dtypes import decode, encode, round_to
from gensor_kernels.operators.types.workload import Workload


def operands(w: Workload, seed: int = 0, spread: float = 1.0) -> dict[str, np.ndarray]:
    """Normal inputs by operand name, stored as their dtypes are; boolean masks of 0 and 1."""
    rng, found = np.random.default_rng(seed), {}
    declared = operator(w.operator)
    for each in declared.operands(w)[:-1]:
        if each.name in declared.written:
            continue
        values = rng.integers(0, 2, each.shape) if each.boolean else declared.draw(w, each.name, rng, each.shape)
        values = rng.standard_normal(each.shape) * spread if values is None else values
        found[each.name] = encode(w.dtype[each.name], values.astype(np.float64))
    return found


def added_mask(w: Workload, arrays: dict[str, np.ndarray]) -> np.ndarray:
    """Terms that are added to the scores: mask, diagonal and window, (batch, heads, queries, keys) or broadcastable."""
    first, end = (np.arange(w.size["queries"])[:, None] + each for each in diagonals(w.size))
    keys = np.arange(w.size["keys"])
    added = np.where((first <= keys) & (keys < end), 0.0, -np.inf)
    mask = FORMS[w.operator].mask
    if mask == "bool":
        added = added + np.where(arrays["e"] != 0, 0.0, -np.inf)
    elif mask == "added":
        added = added + decode(w.dtype["e"], arrays["e"])
    return added


def exact(w: Workload, arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Attention in float64, and the logarithms of its denominators, query by query over the keys that each one sees:
    without the declaration's diagonals."""
    q, k, v = (decode(w.dtype[x], arrays[x]) for x in "abd")
    form, size = FORMS[w.operator], w.size
    made, group = np.zeros(q.shape), size["heads"] // size["kv_heads"]
    sinks = decode(w.dtype["s"], arrays["s"]) if form.sinks else np.full(size["heads"], -np.inf)
    logarithms = np.full(q.shape[:3], sinks[None, :, None])
    whole = (size["batch"], size["heads"], size["queries"], size["keys"])
    mask = np.broadcast_to(decode(w.dtype["e"], arrays["e"]), whole) if form.mask else np.ones(whole)
    for b, h, i in np.ndindex(whole[:3]):
        own = i + (0 if size["causal"] == 2 else size["keys"] - size["queries"])
        left, right = size.get("window_left", 10**9), size.get("window_right", 10**9)
        last = own if size["causal"] else own + right
        seen = [j for j in range(size["keys"]) if own - left <= j <= last]
        seen = [j for j in seen if form.mask != "bool" or mask[b, h, i, j]]
        if not seen:
            continue
        scores = k[b, h // group][seen] @ q[b, h, i] / np.sqrt(size["head"])
        if form.capped:
            scores = VERIFIED_SOFTCAP * np.tanh(scores / VERIFIED_SOFTCAP)
        scores = scores + (mask[b, h, i][seen] if form.mask == "added" else 0.0)
        whole = np.exp([*scores, sinks[h]]).sum()
        made[b, h, i], logarithms[b, h, i] = np.exp(scores) @ v[b, h // group][seen] / whole, np.log(whole)
    return made, logarithms


def exact_sequences(w: Workload, arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Attention of each sequence by itself, and the logarithms of its denominators."""
    form, size, made = FORMS[w.operator], w.size, np.zeros(arrays["a"].shape)
    last_row, last_key = 0, 0
    sinks = decode(w.dtype["s"], arrays["s"]) if form.sinks else np.full(size["heads"], -np.inf)
    logarithms = np.full(made.shape[:3], sinks[None, :, None])
    for number in range(size["batch"]):
        rows = slice(0, size["queries"])
        if form.ragged:
            rows = slice(last_row, min(int(arrays["f"][number]), size["queries"]))
            last_row = rows.stop
        entry = 0 if form.ragged else number
        if form.paged:
            places = range(min(int(arrays["g"][number]), size["table"] * size["page_size"]))
            pages = [int(arrays["h"][number, j // size["page_size"]]) for j in places]
            nothing = np.zeros((size["kv_heads"], size["head"]), arrays["b"].dtype)
            k, v = (
                np.array([
                    array[page, :, j % size["page_size"]] if 0 <= page < size["pages"] else nothing
                    for j, page in zip(places, pages, strict=True)
                ]).reshape(-1, *nothing.shape).swapaxes(0, 1)[None]
                for array in (arrays["b"], arrays["d"])
            )  # fmt: skip
        else:
            keys = slice(last_key, min(int(arrays["g"][number]), size["keys"]))
            last_key, (k, v) = keys.stop, (arrays[name][:, :, keys] for name in "bd")
        q = arrays["a"][entry : entry + 1, :, rows]
        if not q.size or not k.size:
            continue
        sides = (None if size[side] == UNBOUNDED else size[side] for side in WINDOW)
        alone = attention.workload(
            q.shape[2], k.shape[2], heads=size["heads"], kv_heads=size["kv_heads"], head=size["head"],
            dtype=w.dtype["a"], causal=["none", "lower_right", "upper_left"][size["causal"]], window=tuple(sides),
            softcap=form.capped, sinks=w.dtype.get("s", ""), lse=form.lse,
        )  # fmt: skip
        own = {"a": q, "b": k, "d": v, **{name: arrays[name] for name in "s" if form.sinks}}
        found = exact(alone, own)
        made[entry : entry + 1, :, rows], logarithms[entry : entry + 1, :, rows] = found
    return made, logarithms


def tiled(
    w: Workload, arrays: dict[str, np.ndarray], keys: int = 16, *, weights: str = "", sums: str = "float32",
    rescale: bool = True, split: int = 1, cap: str = "",
) -> np.ndarray:  # fmt: skip
    """An online softmax over tiles of ``keys`` keys, rounded as a kernel rounds; ``split`` parts are combined.

    ``cap`` "late" caps scores after the mask, "none" not at all.
    """
    q, k, v = (decode(w.dtype[x], arrays[x]) for x in "abd")
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    scores = round_to("float32", q @ np.swapaxes(k, -1, -2)) * q.shape[-1] ** -0.5
    if FORMS[w.operator].capped and not cap:
        scores = VERIFIED_SOFTCAP * round_to("float32", np.tanh(scores / VERIFIED_SOFTCAP))
    scores = round_to("float32", scores + added_mask(w, arrays))
    if cap == "late":
        scores = VERIFIED_SOFTCAP * np.tanh(scores / VERIFIED_SOFTCAP)
    tiles = np.arange(0, k.shape[2], keys)
    parts = [_part(scores, v, tiles[i::split], keys, weights or w.dtype["a"], sums, rescale) for i in range(split)]
    top = np.max([part[0] for part in parts], axis=0)
    base = np.where(np.isinf(top), 0.0, top)
    shares = [np.exp(part[0] - base) for part in parts]
    total = sum(part[1] * share for part, share in zip(parts, shares, strict=True))
    summed = sum(part[2] * share for part, share in zip(parts, shares, strict=True))
    return np.where(total == 0, 0.0, summed / np.where(total == 0, 1.0, total))


def _part(scores, v, starts, keys, weights, sums, rescale):
    top = np.full((*scores.shape[:3], 1), -np.inf)
    total, summed = np.zeros(top.shape), np.zeros((*scores.shape[:3], v.shape[3]))
    for start in starts:
        tile = scores[..., start : start + keys]
        largest = np.maximum(top, tile.max(axis=-1, keepdims=True))
        base = np.where(np.isinf(largest), 0.0, largest)
        p = round_to("float32", np.exp(tile - base))
        kept = round_to("float32", np.exp(top - base)) if rescale else 1.0
        total = round_to("float32", total * kept + p.sum(axis=-1, keepdims=True))
        summed = round_to(sums, summed * kept + round_to(weights, p) @ v[..., start : start + keys, :])
        top = largest
    return top, total, summed
