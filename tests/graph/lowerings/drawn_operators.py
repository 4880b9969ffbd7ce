"""Calls of ONNX operators, drawn for one version of the standard: inputs, attributes and the number of outputs.

Every function draws whatever any version has; `Draw.case` leaves out the attributes that the version lacks, and `moved`
gives as an attribute what later versions have as an input.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from onnx import defs, helper

#: dtypes that are drawn, where an operator takes them; the first is drawn more often than all others.
DTYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "int8", "bool")


@dataclass
class Case:
    """A node with its inputs.

    Attributes
    ----------
    operator : str
    version : int
        Version of the standard that the model has.
    inputs : list of numpy.ndarray or None
        None is an input that is left out.
    attributes : dict
    outputs : int
    known : set of int
        Places of inputs that are constants of the model.
    free : bool
        Whether the sizes of other inputs are names in the model.
    """

    operator: str
    version: int
    inputs: list[Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    known: set[int] = field(default_factory=set)
    free: bool = False

    def __str__(self) -> str:
        inputs = [None if each is None else f"{each.dtype}{list(each.shape)}" for each in self.inputs]
        small = {i: x.tolist() for i, x in enumerate(self.inputs) if x is not None and x.ndim < 2 and x.size < 9}
        return (
            f"{self.operator}-{self.version} {self.attributes} of {inputs}, elements {small}, constants {self.known}, "
            f"{self.outputs} outputs{', sizes by name' if self.free else ''}"
        )


class Draw:
    """Random numbers for one call of an operator."""

    def __init__(self, operator: str, version: int, seed: str):
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(self.random.getrandbits(64))
        self.operator, self.version = operator, version
        self.schema = defs.get_schema(operator, version, "")
        self.attributes: dict[str, Any] = {}
        self.inputs: list[Any] = []
        self.known: set[int] = set()
        self.outputs = 1

    def case(self) -> Case:
        """Return the call."""
        DRAWS[self.operator](self)
        taken = {name: value for name, value in self.attributes.items() if name in self.schema.attributes}
        known = {place for place in range(1, len(self.inputs)) if self.maybe(0.3)} | self.known
        free = self.maybe(0.3)
        return Case(self.operator, self.version, self.inputs, taken, self.outputs, known, free)

    def maybe(self, share: float = 0.5) -> bool:
        """Return whether something is done."""
        return self.random.random() < share

    def pick(self, *options: Any) -> Any:
        """Return one of some options."""
        return self.random.choice(options)

    def within(self, low: int, high: int) -> int:
        """Return an integer, both ends included."""
        return self.random.randint(low, high)

    def number(self) -> float:
        """Return the value of an attribute: 0 and negative ones are frequent."""
        return self.pick(0.0, -0.75, 0.3, 1.0, 2.5, -2.0)

    def shape(self, low: int = 1, high: int = 4, empty: bool = False) -> tuple[int, ...]:
        """Return a shape with some number of axes."""
        least = 0 if empty and self.maybe(0.1) else 1
        return tuple(self.within(least, 5) for _ in range(self.within(low, high)))

    def dtype(self, place: int = 0, *wanted: str) -> str:
        """Return a dtype that the schema allows for an input."""
        inputs = self.schema.inputs
        types = inputs[min(place, len(inputs) - 1)].types
        allowed = [
            each
            for each in wanted or DTYPES
            if f"tensor({dict(float32='float', float64='double').get(each, each)})" in types
        ]
        return allowed[0] if self.maybe(0.6) else self.pick(*allowed)

    def array(self, shape: Sequence[int], dtype: str = "float32", scale: float = 1.5) -> np.ndarray:
        """Return an array of small numbers."""
        if dtype == "bool":
            return self.numbers.random(shape) < 0.5
        if "int" in dtype:
            return self.numbers.integers(0 if dtype[0] == "u" else -6, 7, shape).astype(dtype)
        found = self.numbers.standard_normal(shape) * scale
        return np.asarray(found, ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)

    def axis(self, rank: int, since: int = 11) -> int:
        """Return an axis, negative ones where the version allows them."""
        return self.within(-rank if self.version >= since else 0, rank - 1)

    def axes(self, rank: int, most: int | None = None, since: int = 11) -> list[int]:
        """Return distinct axes in any order."""
        found = self.random.sample(range(rank), self.within(1, most or rank))
        return [each - rank if self.version >= since and self.maybe(0.3) else each for each in found]

    def moved(self, name: str, values: Any, place: int, dtype: str = "int64") -> None:
        """Give something as an attribute, or as the input that it became."""
        if name in self.schema.attributes:
            self.attributes[name] = values
        else:
            self.inputs += [None] * (place + 1 - len(self.inputs))
            self.inputs[place] = np.asarray(values, dtype)
            if self.maybe(0.8):
                self.known.add(place)

    def part(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return a shape that broadcasts to another."""
        found = [extent if self.maybe(0.7) else 1 for extent in shape]
        return tuple(found[self.within(0, len(found)) :])


DRAWS: dict[str, Callable[[Draw], None]] = {}


def _draws(operators: str) -> Callable[[Callable[[Draw], None]], Callable[[Draw], None]]:
    def noted(function: Callable[[Draw], None]) -> Callable[[Draw], None]:
        DRAWS.update(dict.fromkeys(operators.split(), function))
        return function

    return noted


@_draws(
    "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish "
    "Identity LeakyRelu Log Mish Neg Not Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign "
    "Sqrt Swish Tan Tanh ThresholdedRelu Size NonZero GlobalAveragePool GlobalMaxPool"
)
def _unary(d: Draw) -> None:
    shape = d.shape(3, 4) if d.operator.startswith("Global") else d.shape(0, 4, empty=True)
    d.inputs = [d.array(shape, d.dtype())]
    for name, attribute in d.schema.attributes.items():
        if attribute.type == defs.OpSchema.AttrType.FLOAT and d.maybe(0.7):
            d.attributes[name] = d.number()
    if d.maybe():
        d.attributes["approximate"] = d.pick("none", "tanh")


@_draws("IsNaN IsInf")
def _special(d: Draw) -> None:
    x = d.array(d.shape(0, 3), d.dtype())
    d.inputs = [np.where(d.numbers.random(x.shape) < 0.5, d.numbers.choice([np.nan, np.inf, -np.inf], x.shape), x)]
    d.inputs[0] = np.asarray(d.inputs[0], x.dtype)
    d.attributes = {f"detect_{each}": d.within(0, 1) for each in ("negative", "positive") if d.maybe()}


@_draws(
    "Add Sub Mul Div And Or Xor Equal Greater GreaterOrEqual Less LessOrEqual BitwiseAnd BitwiseOr BitwiseXor Pow Mod "
    "BitShift PRelu"
)
def _binary(d: Draw) -> None:
    shape, dtype = d.shape(0, 4, empty=d.version > 6), d.dtype()
    other = d.part(shape)
    if d.version < 7:
        begin = d.within(0, len(shape))
        other = shape[begin : d.within(begin, len(shape))]
        d.attributes["broadcast"] = int(other != shape)
        if other and (len(other) + begin < len(shape) or d.maybe()):
            d.attributes["axis"] = begin
        if d.operator == "PRelu":
            other = d.pick((1,), (shape[1] if len(shape) > 1 else 1,))
    a = d.array(shape, dtype)
    b = d.array(other, d.dtype(1) if d.operator == "Pow" and d.version >= 12 else dtype)
    if d.operator in ("Div", "Mod") and a.dtype.kind in "iu":
        b = np.where(b == 0, 1, b).astype(b.dtype)
    if d.operator == "Pow":
        a, b = np.abs(a) + a.dtype.type(1), np.clip(b, 0, 3).astype(b.dtype)
    if d.operator == "BitShift":
        b, d.attributes["direction"] = b % 8, d.pick("LEFT", "RIGHT")
    if d.operator == "Mod":
        d.attributes["fmod"] = 1 if a.dtype.kind not in "iu" else d.within(0, 1)
    d.inputs = [a, b] if d.version < 7 or d.operator == "PRelu" or d.maybe() else [b, a]
    if d.operator in ("Div", "Mod", "BitShift", "Pow"):
        d.inputs = [a, b]


@_draws("Max Min Sum Mean")
def _variadic(d: Draw) -> None:
    shape, dtype = d.shape(0, 4), d.dtype()
    d.inputs = [d.array(shape if d.version < 8 else d.part(shape), dtype) for _ in range(d.within(1, 4))]


@_draws("Clip")
def _clip(d: Draw) -> None:
    dtype = d.dtype()
    d.inputs = [d.array(d.shape(0, 3), dtype)]
    for place, name in ((1, "min"), (2, "max")):
        if d.maybe(0.7):
            d.moved(name, abs(d.number()) if dtype[0] == "u" else d.number(), place, d.inputs[0].dtype)


@_draws("Where")
def _where(d: Draw) -> None:
    shape, dtype = d.shape(0, 4), d.dtype(1)
    d.inputs = [d.array(d.part(shape), "bool"), d.array(d.part(shape), dtype), d.array(d.part(shape), dtype)]


@_draws("Cast CastLike")
def _cast(d: Draw) -> None:
    d.inputs = [d.array(d.shape(0, 3), d.dtype(), 40)]
    allowed = d.schema.outputs[0].types
    names = {helper.np_dtype_to_tensor_dtype(np.dtype(getattr(ml_dtypes, each, each))): each for each in DTYPES}
    wanted = {
        number: each
        for number, each in names.items()
        if f"tensor({dict(float32='float', float64='double').get(each, each)})" in allowed
    }
    to = d.pick(*wanted)
    if wanted[to][0] == "u":
        d.inputs[0] = np.abs(d.inputs[0])
    if d.operator == "CastLike":
        d.inputs.append(d.array((1,), wanted[to]))
    else:
        d.attributes["to"] = helper.tensor_dtype_to_string(to).rpartition(".")[2] if d.version < 6 else to


@_draws("Dropout")
def _dropout(d: Draw) -> None:
    d.inputs, d.outputs = [d.array(d.shape(), d.dtype())], d.within(1, 2)
    d.attributes = {"is_test": 1}
    if d.maybe():
        d.moved("ratio", 0.3, 1, "float32")
        if d.version >= 12 and d.maybe():
            d.inputs.append(np.array(False))


@_draws("Softmax LogSoftmax Hardmax LpNormalization")
def _along(d: Draw) -> None:
    shape = d.shape(1 if d.version >= 13 or d.operator[:2] == "Lp" else 2, 4)
    d.inputs = [d.array(shape, d.dtype())]
    if d.maybe(0.8):
        d.attributes["axis"] = d.axis(len(shape), 1 if d.operator[:2] == "Lp" else 11)
    if d.maybe():
        d.attributes["p"] = d.within(1, 2)


@_draws("ArgMax ArgMin")
def _position(d: Draw) -> None:
    shape = d.shape()
    d.inputs = [np.round(d.array(shape, d.dtype()))]
    if d.maybe(0.8):
        d.attributes["axis"] = d.axis(len(shape))
    d.attributes |= {each: d.within(0, 1) for each in ("keepdims", "select_last_index") if d.maybe()}


@_draws(
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare"
)
def _reduction(d: Draw) -> None:
    shape = d.shape(0, 4, empty=d.version >= 18)
    d.inputs = [d.array(shape, d.dtype())]
    if d.operator == "ReduceLogSum":
        d.inputs[0] = np.abs(d.inputs[0])
    if shape and d.maybe(0.75):
        d.moved("axes", d.axes(len(shape)), 1)
    elif "axes" not in d.schema.attributes and d.maybe(0.4):
        d.moved("axes", [], 1)
    d.attributes |= {each: d.within(0, 1) for each in ("keepdims", "noop_with_empty_axes") if d.maybe()}


@_draws("LayerNormalization RMSNormalization")
def _norm(d: Draw) -> None:
    shape, dtype = d.shape(), d.dtype()
    axis = d.axis(len(shape), 1)
    d.inputs = [d.array(shape, dtype), d.array(shape[axis:], dtype)]
    if d.operator[0] == "L":
        if d.maybe():
            d.inputs.append(d.array(shape[axis:], dtype))
        d.outputs = d.pick(1, 1, 1, 2, 3)
    if axis != -1 or d.maybe():
        d.attributes["axis"] = axis
    if d.maybe():
        d.attributes["epsilon"] = d.pick(0.1, 1e-3)


@_draws("BatchNormalization")
def _batch_norm(d: Draw) -> None:
    shape, dtype = d.shape(2, 4), d.dtype()
    vectors = [d.array(shape[1:2], dtype) for _ in range(4)]
    d.inputs = [d.array(shape, dtype), *vectors[:3], np.abs(vectors[3])]
    d.attributes = {"is_test": 1, "consumed_inputs": [0, 0, 0, 1, 1]}
    d.attributes |= {name: d.number() for name in ("momentum",) if d.maybe()}
    if d.maybe():
        d.attributes["epsilon"] = d.pick(0.1, 1e-3)
    if d.maybe(0.2):
        d.attributes["spatial"] = 1


@_draws("InstanceNormalization GroupNormalization")
def _channel_norm(d: Draw) -> None:
    n, *rest = d.shape(3, 4)
    groups, each, dtype = d.within(1, 3), d.within(1, 3), d.dtype()
    shape = (n, groups * each, *rest)
    d.inputs = [d.array(shape, dtype), *(d.array(shape[1:2], dtype) for _ in range(2))]
    d.attributes["num_groups"] = groups
    if d.maybe():
        d.attributes["epsilon"] = d.pick(0.1, 1e-3)


@_draws("MeanVarianceNormalization LRN")
def _whole_norm(d: Draw) -> None:
    shape = d.shape(4, 4)
    d.inputs = [d.array(shape, d.dtype())]
    d.attributes["size"] = d.within(1, 5)
    if d.maybe():
        d.attributes["axes"] = d.axes(4, since=1)
    d.attributes |= {name: d.pick(0.3, 1.0, 2.0) for name in ("alpha", "beta", "bias") if d.maybe()}


@_draws("Reshape")
def _reshape(d: Draw) -> None:
    shape = d.shape(0, 4, empty=d.version >= 5)
    d.inputs = [d.array(shape, d.dtype())]
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
    if wanted or d.version >= 5:
        d.moved("shape", wanted, 1)
    else:
        d.moved("shape", [1], 1)


@_draws("Transpose")
def _transpose(d: Draw) -> None:
    shape = d.shape(0, 5)
    d.inputs = [d.array(shape, d.dtype())]
    if d.maybe(0.8) and shape:
        d.attributes["perm"] = d.random.sample(range(len(shape)), len(shape))


@_draws("Flatten")
def _flatten(d: Draw) -> None:
    shape = d.shape(1, 4)
    d.inputs = [d.array(shape, d.dtype())]
    if d.maybe(0.8):
        d.attributes["axis"] = d.within(-len(shape) if d.version >= 11 else 0, len(shape))


@_draws("Squeeze Unsqueeze")
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


@_draws("Concat")
def _concat(d: Draw) -> None:
    shape, dtype = list(d.shape()), d.dtype()
    axis = d.axis(len(shape))
    for _ in range(d.within(1, 3)):
        shape[axis] = d.within(0 if d.version > 4 and d.maybe(0.1) else 1, 4)
        d.inputs.append(d.array(shape, dtype))
    if d.version >= 4 or axis != 1 or d.maybe():
        d.attributes["axis"] = axis


@_draws("Split")
def _split(d: Draw) -> None:
    shape = list(d.shape())
    axis, d.outputs = d.axis(len(shape)), d.within(1, 3)
    sizes = [d.within(0 if d.version >= 11 and d.maybe(0.2) else 1, 3) for _ in range(d.outputs)]
    if even := d.maybe():
        sizes = sizes[:1] * d.outputs
    shape[axis] = sum(sizes)
    d.inputs = [d.array(shape, d.dtype())]
    if axis != 0 or d.maybe():
        d.attributes["axis"] = axis
    if even and d.maybe() and sizes[0]:
        d.attributes["num_outputs"] = d.outputs
        if (
            d.version >= 18
            and shape[axis] > d.outputs
            and -(-(shape[axis] - 1) // d.outputs) * (d.outputs - 1) < shape[axis] - 1
        ):
            d.inputs[0] = d.inputs[0].take(range(shape[axis] - 1), axis)
    elif d.version == 1 and d.maybe():
        d.inputs.append(np.array(sizes, d.inputs[0].dtype))
    else:
        d.moved("split", sizes, 1)


@_draws("Slice")
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


@_draws("Gather GatherElements ScatterElements Scatter")
def _gather(d: Draw) -> None:
    shape = d.shape()
    axis, dtype = d.axis(len(shape)), d.dtype()
    low = -shape[axis] if d.version >= 11 else 0
    where = d.shape(0, 3) if d.operator == "Gather" else tuple(d.within(1, each) for each in shape)
    places = d.numbers.integers(low, shape[axis], where).astype(d.pick("int32", "int64"))
    d.inputs = [d.array(shape, dtype), places]
    if axis != 0 or d.maybe():
        d.attributes["axis"] = axis
    if d.operator[0] == "S":
        reduction = d.pick("none", "add", "mul", "max", "min") if d.version >= 16 else "none"
        if d.version < 18 and reduction in ("max", "min"):
            reduction = "add"
        if reduction == "none":  # the order of equal places is free
            order = np.argsort(d.numbers.random(shape), axis).astype(places.dtype)
            d.inputs[1] = order[tuple(slice(0, each) for each in where)]
        d.inputs.append(d.array(where, dtype))
        d.attributes["reduction"] = reduction


@_draws("GatherND ScatterND")
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
        reduction = d.pick("none", "add", "mul", "max", "min") if d.version >= 16 else "none"
        reduction = "add" if d.version < 18 and reduction in ("max", "min") else reduction
        if reduction == "none":
            count = min(math.prod(shape[:depth]), d.within(1, 4))
            chosen = d.random.sample(range(math.prod(shape[:depth])), count)
            d.inputs[1] = np.stack(np.unravel_index(chosen, shape[:depth]), -1).astype("int64")
        d.inputs.append(d.array((*d.inputs[1].shape[:-1], *shape[depth:]), d.inputs[0].dtype.name))
        d.attributes["reduction"] = reduction


@_draws("Expand Tile ConstantOfShape")
def _expand(d: Draw) -> None:
    shape = d.shape(1 if d.operator == "Tile" else 0, 3)
    if d.operator == "ConstantOfShape":
        if d.maybe():
            d.attributes["value"] = helper.make_tensor(
                "v",
                helper.np_dtype_to_tensor_dtype(np.dtype(dtype := d.pick("float32", "int64", "bool"))),
                [1],
                [d.pick(0, 1)],
            )
    elif d.operator == "Tile":
        d.inputs = [d.array(shape, d.dtype())]
        shape = tuple(d.within(0 if d.maybe(0.1) else 1, 3) for _ in shape)
    else:
        d.inputs = [d.array(d.part(shape), d.dtype())]
        shape = tuple(1 if d.maybe(0.2) else each for each in shape)
    d.moved("", list(shape), len(d.inputs))


@_draws("Shape")
def _shape(d: Draw) -> None:
    shape = d.shape(0, 4)
    d.inputs = [d.array(shape, d.dtype())]
    d.attributes = {each: d.within(-5, 5) for each in ("start", "end") if d.maybe()}


@_draws("Range")
def _range(d: Draw) -> None:
    dtype = d.dtype(0, "float32", "float64", "int32", "int64", "int16")
    step = d.pick(1, 2, -1, -3, 3)
    d.inputs = [np.asarray(each, dtype) for each in (d.within(-5, 5), d.within(-9, 9), step)]
    d.known = {place for place in range(3) if d.maybe(0.6)}


@_draws("Pad")
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


@_draws("DepthToSpace SpaceToDepth")
def _blocks(d: Draw) -> None:
    n, c, h, w = d.shape(4, 4)
    block = d.within(1, 3)
    shape = (n, c * block**2, h, w) if d.operator[0] == "D" else (n, c, h * block, w * block)
    d.inputs, d.attributes["blocksize"] = [d.array(shape, d.dtype())], block
    if d.maybe():
        d.attributes["mode"] = d.pick("DCR", "CRD")


@_draws("Trilu EyeLike")
def _matrix(d: Draw) -> None:
    eye = d.operator == "EyeLike"
    d.inputs = [d.array(d.shape(2, 2 if eye else 4), d.dtype())]
    if eye:
        d.attributes["k"] = d.within(-3, 3)
        if d.maybe():
            d.attributes["dtype"] = d.pick(1, 7, 11, 6)
        return
    d.attributes = {"upper": d.within(0, 1)} if d.maybe() else {}
    if d.maybe():
        d.moved("", d.within(-3, 3), 1)


@_draws("OneHot")
def _one_hot(d: Draw) -> None:
    shape, depth = d.shape(0 if d.version > 9 else 1, 3), d.within(1, 6)
    places = d.numbers.integers(-depth - 1 if d.version >= 11 else 0, depth + 1, shape)
    d.inputs = [
        places.astype(d.pick("int64", "int32", "float32")),
        np.asarray(depth if d.maybe(0.8) else [depth], "int64"),
        d.array((2,), d.dtype(2)),
    ]
    d.known.add(1)
    if d.maybe():
        d.attributes["axis"] = d.within(-len(shape) - 1 if d.version >= 11 else -1, len(shape))


@_draws("CumSum")
def _cumsum(d: Draw) -> None:
    shape = d.shape()
    d.inputs = [d.array(shape, d.dtype())]
    d.moved("axis", d.axis(len(shape), 1), 1, d.pick("int32", "int64"))
    d.attributes = {each: d.within(0, 1) for each in ("exclusive", "reverse") if d.maybe()}


@_draws("TopK")
def _top_k(d: Draw) -> None:
    shape = d.shape()
    axis = d.axis(len(shape))
    d.inputs, d.outputs = [np.round(d.array(shape, d.dtype(), 4))], 2
    if axis != -1 or d.maybe():
        d.attributes["axis"] = axis
    if d.maybe():
        d.attributes["largest"] = d.within(0, 1)
    count = d.within(0 if d.version >= 11 else 1, shape[axis])
    d.moved("k", count if d.version < 10 else [count], 1)


@_draws("Compress")
def _compress(d: Draw) -> None:
    shape = d.shape()
    d.inputs = [d.array(shape, d.dtype())]
    extent = math.prod(shape)
    if d.maybe(0.7):
        d.attributes["axis"] = d.axis(len(shape))
        extent = shape[d.attributes["axis"]]
    d.inputs.append(d.array((d.within(1, extent),), "bool"))


@_draws("MatMul MatMulInteger")
def _matmul(d: Draw) -> None:
    m, n, k = (d.within(1, 6) for _ in range(3))
    lead = d.shape(0, 2)
    a, b = (*d.part(lead), m, k), (*d.part(lead), k, n)
    dtype = d.dtype()
    other = dtype
    if d.operator == "MatMulInteger":
        dtype, other = d.pick("uint8", "int8"), d.pick("uint8", "int8")
    else:
        a, b = d.pick((a, b), (a, b), ((k,), b), (a, (k,)), ((k,), (k,)))
    d.inputs = [d.array(a, dtype), d.array(b, other)]
    if d.operator == "MatMulInteger":
        for place, dtype_of in enumerate((dtype, other)):
            shape = () if d.maybe() else (1,)
            if d.maybe(0.7):
                d.inputs += [None] * (3 + place - len(d.inputs))
                d.inputs[2 + place] = np.abs(d.array(shape, dtype_of)) * d.within(0, 1)


@_draws("Gemm")
def _gemm(d: Draw) -> None:
    m, n, k = (d.within(1, 6) for _ in range(3))
    dtype, across, along = d.dtype(), d.within(0, 1), d.within(0, 1)
    d.inputs = [d.array((k, m) if across else (m, k), dtype), d.array((n, k) if along else (k, n), dtype)]
    d.attributes = {name: value for name, value in (("transA", across), ("transB", along)) if value or d.maybe()}
    d.attributes |= {
        name: d.number() if "int" not in dtype else float(d.within(-2, 2)) for name in ("alpha", "beta") if d.maybe()
    }
    if d.version < 11 or d.maybe(0.8):
        shape = d.pick((m, n), (n,), (1, n), (m, 1), (1,), (), (1, 1)) if d.version >= 7 else d.pick((m, n), (n,))
        d.inputs.append(d.array(shape, dtype))
        d.attributes["broadcast"] = int(shape != (m, n))


@_draws("Einsum")
def _einsum(d: Draw) -> None:
    equation = d.pick(
        "ij,jk->ik",
        "bij,bjk->bik",
        "i,i->",
        "ij->ji",
        "ij->i",
        "ij,ij->i",
        " ij, kj -> ik",
        "ii->i",
        "ij,jk",
        "...ij,...jk->...ik",
        "bhid,bhjd->bhij",
        "ij,j,jk->ik",
    )
    sizes, dtype = {each: d.within(1, 4) for each in "ijkbhd"}, d.dtype(0, "float32", "float64", "int32", "float16")
    d.attributes["equation"] = equation
    for term in equation.partition("->")[0].replace(" ", "").split(","):
        d.inputs.append(d.array([2] * ("..." in term) + [sizes[each] for each in term.replace(".", "")], dtype))


@_draws("Conv ConvTranspose MaxPool AveragePool")
def _window(d: Draw) -> None:
    spatial, dtype = d.pick(1, 2, 2, 2), d.dtype(0, "float32", "float16", "float64")
    taps = [d.within(1, 3) for _ in range(spatial)]
    strides = [d.within(1, 3) for _ in range(spatial)] if d.maybe() else None
    dilates = d.maybe(0.4) and (d.operator[:4] == "Conv" or d.version >= (10 if d.operator[0] == "M" else 19))
    dilations = [d.within(1, 2) for _ in range(spatial)] if dilates else None
    reach = [(tap - 1) * step + 1 for tap, step in zip(taps, dilations or [1] * spatial, strict=True)]
    image = [each + d.within(0, 5) for each in reach]
    mode = d.pick("NOTSET", "NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
    for name, value in (("strides", strides), ("dilations", dilations)):
        if value:
            d.attributes[name] = value
    pads = None
    if mode == "NOTSET" and d.maybe(0.7):
        most = [each - 1 if d.operator[-4:] == "Pool" else 2 for each in taps]
        pads = d.attributes["pads"] = [d.within(0, each) for each in most * 2]
    elif mode != "NOTSET":
        d.attributes["auto_pad"] = mode
    channels, group, n = d.within(1, 3), d.within(1, 2), d.within(1, 2)
    if d.operator[-4:] == "Pool":
        d.attributes["kernel_shape"] = taps
        d.attributes |= {
            name: d.within(0, 1) for name in ("ceil_mode", "count_include_pad", "storage_order") if d.maybe()
        }
        d.inputs = [d.array((n, channels, *image), dtype)]
        return
    filters = d.within(1, 3)
    shape = (filters * group, channels, *taps) if d.operator == "Conv" else (channels * group, filters, *taps)
    d.inputs = [d.array((n, channels * group, *image), dtype), d.array(shape, dtype)]
    if d.maybe():
        d.inputs.append(d.array((filters * group,), dtype))
    if group > 1 or d.maybe():
        d.attributes["group"] = group
    if d.maybe():
        d.attributes["kernel_shape"] = taps
    if d.operator == "ConvTranspose" and d.maybe(0.4) and mode == "NOTSET":
        d.attributes["output_padding"] = [d.within(0, each - 1) for each in strides or [1] * spatial]
    elif d.operator == "ConvTranspose" and d.maybe(0.2):
        full = [s * (e - 1) + r for s, e, r in zip(strides or [1] * spatial, image, reach, strict=True)]
        d.attributes["output_shape"] = [max(each - d.within(0, 2), 1) for each in full]


@_draws("Resize Upsample")
def _resize(d: Draw) -> None:
    shape, dtype = d.shape(4, 4), d.dtype(0, "float32", "float16", "uint8", "int32")
    mode = d.pick("nearest", "linear")
    dtype = "float32" if mode == "linear" and dtype[0] not in "f" else dtype
    up = d.operator == "Upsample"
    scales = [
        1.0,
        1.0,
        *(d.pick(1.0, 2.0, 1.5, 3.0, 1.3, 2.6, *(() if up else (0.5, 0.6, 0.8, 0.35))) for _ in range(2)),
    ]
    d.inputs = [d.array(shape, dtype)]
    d.attributes = {"mode": "bilinear" if up and d.version < 7 and mode == "linear" else mode}
    if up or d.version < 11:
        d.attributes |= {"height_scale": scales[2], "width_scale": scales[3]}
        if up and d.version < 7:
            return
        d.moved("scales", scales, 1, "float32")
        return
    coordinates = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
    coordinates += ["tf_half_pixel_for_nn"] if d.version < 13 else ["half_pixel_symmetric"] if d.version >= 19 else []
    if d.maybe(0.8):
        d.attributes["coordinate_transformation_mode"] = d.pick(*coordinates)
    if d.maybe():
        d.attributes["nearest_mode"] = d.pick("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    axes = d.random.sample((2, 3), d.within(1, 2)) if d.version >= 18 and d.maybe() else None
    chosen = [scales[each] for each in axes or range(4)]
    if axes:
        d.attributes["axes"] = axes
    empty = np.zeros(0, "float32")
    if d.maybe():
        d.inputs += [empty if d.version < 13 else None, np.asarray(chosen, "float32")]
        d.known |= {1, 2}
    else:
        sizes = [
            max(int(shape[a] * s + d.pick(0, 0.5)), 1) if s != 1 else shape[a]
            for a, s in zip(axes or range(4), chosen, strict=True)
        ]
        d.inputs += [empty if d.version < 13 else None, empty if d.version < 13 else None, np.asarray(sizes, "int64")]
        d.known |= {1, 2, 3}


@_draws("Attention")
def _attention(d: Draw) -> None:
    batch, kv_heads, group, queries, keys, size = (d.within(1, 3) for _ in range(6))
    keys, size, dtype = keys + 2, 2 * size, d.dtype(0, "float32", "float16")
    heads, values = kv_heads * group, size if d.maybe() else d.within(1, 5)
    merged, past = d.maybe(0.4), d.within(1, 3) if d.maybe(0.3) else 0
    shapes = [(batch, heads, queries, size), (batch, kv_heads, keys, size), (batch, kv_heads, keys, values)]
    d.inputs = [d.array(each, dtype, 1.0) for each in shapes]
    if merged:
        d.inputs = [each.transpose(0, 2, 1, 3).reshape(batch, each.shape[2], -1) for each in d.inputs]
        d.attributes |= {"q_num_heads": heads, "kv_num_heads": kv_heads}
    if d.maybe():
        shape = d.part((batch, heads)) + (queries, keys + past)
        d.inputs.append(d.array(shape, d.pick("bool", dtype)))
    if past:
        d.inputs += [None] * (4 - len(d.inputs))
        d.inputs += [d.array((batch, kv_heads, past, each), dtype, 1.0) for each in (size, values)]
        d.outputs = 3
    if d.maybe():
        d.attributes["is_causal"] = d.within(0, 1)
    if d.maybe(0.6):
        d.attributes["scale"] = d.pick(0.0, 0.5, -0.3, 1.0)
    if d.maybe(0.4):
        d.attributes["softcap"] = d.pick(0.0, 0.7, 3.0)
    if not past and d.version >= 24 and d.maybe(0.3):
        d.inputs += [None] * (6 - len(d.inputs))
        d.inputs.append(d.numbers.integers(1, keys + 1, (batch,)))
    if d.maybe(0.2):
        d.outputs = 4 if past else 1
        d.attributes["qk_matmul_output_mode"] = d.within(0, 3)


@_draws("RotaryEmbedding")
def _rotary(d: Draw) -> None:
    batch, heads, length, size = d.within(1, 3), d.within(1, 3), d.within(1, 4), 2 * d.within(1, 4)
    rotated = d.pick(0, 2 * d.within(1, size // 2))
    merged, places, dtype = d.maybe(), d.maybe(), d.dtype()
    x = d.array((batch, heads, length, size), dtype)
    half = (rotated or size) // 2
    lead = (7,) if places else (batch, length)
    d.inputs = [
        x.transpose(0, 2, 1, 3).reshape(batch, length, -1) if merged else x,
        d.array((*lead, half), dtype),
        d.array((*lead, half), dtype),
    ]
    if places:
        d.inputs.append(d.numbers.integers(0, 7, (batch, length)))
    d.attributes = {"interleaved": d.within(0, 1)} if d.maybe() else {}
    if rotated or d.maybe():
        d.attributes["rotary_embedding_dim"] = rotated
    if merged or rotated:
        d.attributes["num_heads"] = heads


@_draws("TensorScatter")
def _tensor_scatter(d: Draw) -> None:
    batch, heads, capacity, size = (d.within(1, 4) for _ in range(4))
    new, dtype = d.within(1, capacity), d.dtype()
    shape = d.pick((batch, heads, capacity, size), (batch, capacity, size))
    axis = len(shape) - 2
    update = (*shape[:axis], new, size)
    d.inputs = [d.array(shape, dtype), d.array(update, dtype)]
    circular = d.maybe()
    if d.maybe(0.8):
        d.inputs.append(d.numbers.integers(0, capacity if circular else capacity - new + 1, (batch,)))
    if circular or d.maybe():
        d.attributes["mode"] = "circular" if circular else "linear"
    if d.maybe():
        d.attributes["axis"] = d.pick(axis, -2)
