"""Drawn calls of operators that move, make and select elements."""

from __future__ import annotations

import math

import numpy as np
from onnx import helper

from .draw import Draw, draws


@draws("Reshape")
def _reshape(d: Draw) -> None:
    shape = d.give(0, 4, empty=d.version >= 5)
    wanted = list(shape)
    d.random.shuffle(wanted)
    if len(wanted) > 1 and d.maybe():
        wanted[:2] = [wanted[0] * wanted[1]]
    if d.maybe() and math.prod(wanted):
        wanted.insert(d.within(0, len(wanted)), 1)
    for place in range(min(len(wanted), len(shape))):
        if wanted[place] == shape[place] and d.maybe(0.3):
            wanted[place] = 0
    if wanted and math.prod(shape) and d.maybe():
        wanted[d.within(0, len(wanted) - 1)] = -1
    if 0 not in wanted and d.maybe():
        d.attributes["allowzero"] = d.within(0, 1)
    d.moved("shape", wanted if wanted or d.version >= 5 else [1], 1)


@draws("Transpose")
def _transpose(d: Draw) -> None:
    shape = d.give(0, 5)
    if d.maybe(0.8) and shape:
        d.attributes["perm"] = d.random.sample(range(len(shape)), len(shape))


@draws("Flatten")
def _flatten(d: Draw) -> None:
    shape = d.give(1, 4)
    d.option("axis", d.within(-len(shape) if d.version >= 11 else 0, len(shape)), 0.8)


@draws("Squeeze Unsqueeze")
def _squeeze(d: Draw) -> None:
    shape = d.shape(0, 3)
    count = d.within(1, 2)
    axes = d.axes(len(shape) + count, count)
    axes += [each for each in range(len(shape) + count) if each not in axes and each - len(shape) - count not in axes][
        : count - len(axes)
    ]
    if d.operator == "Squeeze":
        for place in sorted(each % (len(shape) + count) for each in axes):
            shape = (*shape[:place], 1, *shape[place:])
    d.inputs = [d.array(shape, d.dtype())]
    if axes and (d.operator == "Unsqueeze" or d.maybe(0.8)):
        d.moved("axes", axes, 1)


@draws("Concat")
def _concat(d: Draw) -> None:
    shape, dtype = list(d.shape()), d.dtype()
    axis = d.axis(len(shape))
    for _ in range(d.within(1, 3)):
        shape[axis] = d.within(0 if d.version > 4 and d.maybe(0.1) else 1, 4)
        d.inputs.append(d.array(shape, dtype))
    if d.version >= 4 or axis != 1 or d.maybe():
        d.attributes["axis"] = axis


@draws("Split")
def _split(d: Draw) -> None:
    shape = list(d.shape())
    axis, d.outputs = d.axis(len(shape)), d.within(1, 3)
    sizes = [d.within(0 if d.version >= 11 and d.maybe(0.2) else 1, 3) for _ in range(d.outputs)]
    if even := d.maybe():
        sizes = sizes[:1] * d.outputs
    shape[axis] = sum(sizes)
    d.inputs = [d.array(shape, d.dtype())]
    d.default("axis", axis, 0)
    if even and d.maybe() and sizes[0]:
        d.attributes["num_outputs"] = d.outputs
        shorter = shape[axis] - 1  # the last part is shorter than the others, and not empty
        if d.version >= 18 and shorter >= d.outputs and -(-shorter // d.outputs) * (d.outputs - 1) < shorter:
            d.inputs[0] = d.inputs[0].take(range(shorter), axis)
    elif d.version == 1 and d.maybe():
        d.inputs.append(np.array(sizes, d.inputs[0].dtype))
    else:
        d.moved("split", sizes, 1)


@draws("Slice")
def _slice(d: Draw) -> None:
    shape = d.shape()
    axes = d.axes(len(shape), since=10)
    d.inputs = [d.array(shape, d.dtype())]
    steps = [d.pick(1, 1, 2, -1, -2, 3) if d.version >= 10 else 1 for _ in axes]
    starts, ends = [], []
    for axis, step in zip(axes, steps, strict=True):
        begin, end = sorted(d.pick(-9, *range(-shape[axis], shape[axis] + 1), 2**31 - 1) for _ in range(2))
        starts.append(begin if step > 0 else end)
        ends.append(end if step > 0 else begin)
    if axes == list(range(len(axes))) and d.maybe():
        axes = []
    for place, (name, values) in enumerate({"starts": starts, "ends": ends, "axes": axes, "steps": steps}.items(), 1):
        if values and (name != "steps" or (d.version >= 10 and (set(values) != {1} or d.maybe()))):
            d.moved(name, values, place)


def _pick_reduction(d: Draw) -> str:
    if d.version < 16:
        return "none"
    return d.pick("none", "add", "mul", *(("max", "min") if d.version >= 18 else ()))


@draws("Gather GatherElements ScatterElements Scatter")
def _gather(d: Draw) -> None:
    shape = d.shape()
    axis, dtype = d.axis(len(shape)), d.dtype()
    low = -shape[axis] if d.version >= 11 else 0
    where = d.shape(0, 3) if d.operator == "Gather" else tuple(d.within(1, each) for each in shape)
    places = d.numbers.integers(low, shape[axis], where).astype(d.pick("int32", "int64"))
    d.inputs = [d.array(shape, dtype), places]
    d.default("axis", axis, 0)
    if d.operator[0] == "S":
        reduction = _pick_reduction(d)
        if reduction == "none":  # the order of equal places is free
            order = np.argsort(d.numbers.random(shape), axis).astype(places.dtype)
            d.inputs[1] = order[tuple(slice(0, each) for each in where)]
        d.inputs.append(d.array(where, dtype))
        d.attributes["reduction"] = reduction


@draws("GatherND ScatterND")
def _nd(d: Draw) -> None:
    shape = d.shape()
    batch = d.within(0, len(shape) - 1) if d.operator[0] == "G" and d.version >= 12 and d.maybe() else 0
    depth = d.within(1, len(shape) - batch)
    lead = (*shape[:batch], *d.shape(0, 2))
    places = np.stack(
        [d.numbers.integers(-shape[batch + each], shape[batch + each], lead) for each in range(depth)], -1
    )
    d.inputs = [d.array(shape, d.dtype()), places.astype("int64")]
    d.attributes["batch_dims"] = batch
    if d.operator[0] == "S":
        reduction = _pick_reduction(d)
        if reduction == "none":
            count = min(math.prod(shape[:depth]), d.within(1, 4))
            chosen = d.random.sample(range(math.prod(shape[:depth])), count)
            d.inputs[1] = np.stack(np.unravel_index(chosen, shape[:depth]), -1).astype("int64")
        d.inputs.append(d.array((*d.inputs[1].shape[:-1], *shape[depth:]), d.inputs[0].dtype.name))
        d.attributes["reduction"] = reduction


@draws("Expand Tile ConstantOfShape")
def _expand(d: Draw) -> None:
    shape = d.shape(1 if d.operator == "Tile" else 0, 3)
    if d.operator == "ConstantOfShape":
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(d.pick("float32", "int64", "bool")))
        d.option("value", helper.make_tensor("v", kind, [1], [d.pick(0, 1)]))
    elif d.operator == "Tile":
        d.inputs = [d.array(shape, d.dtype())]
        shape = tuple(d.within(0 if d.maybe(0.1) else 1, 3) for _ in shape)
    else:
        d.inputs = [d.array(d.part(shape), d.dtype())]
        shape = tuple(1 if d.maybe(0.2) else each for each in shape)
    d.moved("", list(shape), len(d.inputs))


@draws("Shape")
def _shape(d: Draw) -> None:
    d.give(0, 4)
    for name in ("start", "end"):
        d.option(name, d.within(-5, 5))


@draws("Range")
def _range(d: Draw) -> None:
    dtype = d.dtype(0, "float32", "float64", "int32", "int64", "int16")
    step = d.pick(1, 2, -1, -3, 3)
    d.inputs = [np.asarray(each, dtype) for each in (d.within(-5, 5), d.within(-9, 9), step)]
    d.known = {place for place in range(3) if d.maybe(0.6)}


@draws("Pad")
def _pad(d: Draw) -> None:
    shape, mode = d.shape(1, 4), d.pick("constant", "constant", "reflect", "edge", "wrap")
    mode = "edge" if mode == "wrap" and d.version < 19 else mode
    d.inputs = [d.array(shape, d.dtype())]
    least = -1 if mode == "constant" or d.maybe(0.1) else 0
    axes = d.axes(len(shape)) if d.version >= 18 and d.maybe() else list(range(len(shape)))
    most = [shape[each] - 1 if mode == "reflect" else 3 for each in axes]
    pads = [
        max(d.within(least, each), 1 - shape[axis] if shape[axis] > 1 else 0)
        for axis, each in zip(axes * 2, most * 2, strict=True)
    ]
    for place, axis in enumerate(axes):
        if shape[axis] + min(pads[place], 0) + min(pads[place + len(axes)], 0) < 1:
            pads[place] = 0
    d.moved("paddings" if d.version < 2 else "pads", pads, 1)
    if d.maybe():
        d.moved("value", d.pick(0.0, 2.0, 1.0), 2, d.inputs[0].dtype)
    if axes != list(range(len(shape))):
        d.moved("axes", axes, 3)
    if mode != "constant" or d.maybe():
        d.attributes["mode"] = mode


@draws("DepthToSpace SpaceToDepth")
def _blocks(d: Draw) -> None:
    n, c, h, w = d.shape(4, 4)
    block = d.within(1, 3)
    shape = (n, c * block**2, h, w) if d.operator[0] == "D" else (n, c, h * block, w * block)
    d.inputs, d.attributes["blocksize"] = [d.array(shape, d.dtype())], block
    d.option("mode", d.pick("DCR", "CRD"))


@draws("Trilu EyeLike")
def _matrix(d: Draw) -> None:
    eye = d.operator == "EyeLike"
    d.give(2, 2 if eye else 4)
    if eye:
        d.attributes["k"] = d.within(-3, 3)
        d.option("dtype", d.pick(1, 7, 11, 6))
        return
    d.flags("upper")
    if d.maybe():
        d.moved("", d.within(-3, 3), 1)


@draws("OneHot")
def _one_hot(d: Draw) -> None:
    shape, depth = d.shape(0 if d.version > 9 else 1, 3), d.within(1, 6)
    places = d.numbers.integers(-depth - 1 if d.version >= 11 else 0, depth + 1, shape)
    kind, depths = d.pick("int64", "int32", "float32"), np.asarray(depth if d.maybe(0.8) else [depth], "int64")
    d.inputs = [places.astype(kind), depths, d.array((2,), d.dtype(2))]
    d.known.add(1)
    d.option("axis", d.within(-len(shape) - 1 if d.version >= 11 else -1, len(shape)))


@draws("CumSum")
def _cumsum(d: Draw) -> None:
    shape = d.give()
    d.moved("axis", d.axis(len(shape), 1), 1, d.pick("int32", "int64"))
    d.flags("exclusive", "reverse")


@draws("TopK")
def _top_k(d: Draw) -> None:
    shape = d.shape()
    axis = d.axis(len(shape))
    d.inputs, d.outputs = [np.round(d.array(shape, d.dtype(), 4))], 2
    d.default("axis", axis, -1)
    d.option("largest", d.within(0, 1))
    count = d.within(0 if d.version >= 11 else 1, shape[axis])
    d.moved("k", count if d.version < 10 else [count], 1)


@draws("Compress")
def _compress(d: Draw) -> None:
    shape = d.give()
    extent = math.prod(shape)
    if d.maybe(0.7):
        d.attributes["axis"] = d.axis(len(shape))
        extent = shape[d.attributes["axis"]]
    d.inputs.append(d.array((d.within(1, extent),), "bool"))
