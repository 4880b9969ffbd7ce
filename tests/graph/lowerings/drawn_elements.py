"""Drawn calls of element-wise operators, reductions and norms."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from onnx import defs, helper

from .draw import DTYPES, Draw, draws, type_name


@draws(
    "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish "
    "Identity LeakyRelu Log Mish Neg Not Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign "
    "Sqrt Swish Tan Tanh ThresholdedRelu Size NonZero GlobalAveragePool GlobalMaxPool"
)
def _unary(d: Draw) -> None:
    if d.operator.startswith("Global"):
        d.give(3, 4)
    else:
        d.give(0, 4, empty=True)
    for name, attribute in d.schema.attributes.items():
        if attribute.type == defs.OpSchema.AttrType.FLOAT and d.maybe(0.7):
            d.attributes[name] = d.number()
    d.option("approximate", d.pick("none", "tanh"))


@draws("IsNaN IsInf")
def _special(d: Draw) -> None:
    x = d.array(d.shape(0, 3), d.dtype())
    d.inputs = [np.where(d.numbers.random(x.shape) < 0.5, d.numbers.choice([np.nan, np.inf, -np.inf], x.shape), x)]
    d.inputs[0] = np.asarray(d.inputs[0], x.dtype)
    d.attributes = {f"detect_{each}": d.within(0, 1) for each in ("negative", "positive") if d.maybe()}


@draws(
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


@draws("Max Min Sum Mean")
def _variadic(d: Draw) -> None:
    shape, dtype = d.shape(0, 4), d.dtype()
    d.inputs = [d.array(shape if d.version < 8 else d.part(shape), dtype) for _ in range(d.within(1, 4))]


@draws("Clip")
def _clip(d: Draw) -> None:
    dtype = d.dtype()
    d.inputs = [d.array(d.shape(0, 3), dtype)]
    for place, name in ((1, "min"), (2, "max")):
        if d.maybe(0.7):
            d.moved(name, abs(d.number()) if dtype[0] == "u" else d.number(), place, d.inputs[0].dtype)


@draws("Where")
def _where(d: Draw) -> None:
    shape, dtype = d.shape(0, 4), d.dtype(1)
    d.inputs = [d.array(d.part(shape), "bool"), d.array(d.part(shape), dtype), d.array(d.part(shape), dtype)]


@draws("Cast CastLike")
def _cast(d: Draw) -> None:
    d.inputs = [d.array(d.shape(0, 3), d.dtype(), 40)]
    allowed = d.schema.outputs[0].types
    wanted = {
        helper.np_dtype_to_tensor_dtype(np.dtype(getattr(ml_dtypes, each, each))): each
        for each in DTYPES
        if type_name(each) in allowed
    }
    to = d.pick(*wanted)
    if wanted[to][0] == "u":
        d.inputs[0] = np.abs(d.inputs[0])
    if d.operator == "CastLike":
        d.inputs.append(d.array((1,), wanted[to]))
    else:
        d.attributes["to"] = helper.tensor_dtype_to_string(to).rpartition(".")[2] if d.version < 6 else to


@draws("Dropout")
def _dropout(d: Draw) -> None:
    d.inputs, d.outputs = [d.array(d.shape(), d.dtype())], d.within(1, 2)
    d.attributes = {"is_test": 1}
    if d.maybe():
        d.moved("ratio", 0.3, 1, "float32")
        if d.version >= 12 and d.maybe():
            d.inputs.append(np.array(False))


@draws("Softmax LogSoftmax Hardmax LpNormalization")
def _along(d: Draw) -> None:
    shape = d.give(1 if d.version >= 13 or d.operator[:2] == "Lp" else 2, 4)
    d.option("axis", d.axis(len(shape), 1 if d.operator[:2] == "Lp" else 11), 0.8)
    d.option("p", d.within(1, 2))


@draws("ArgMax ArgMin")
def _position(d: Draw) -> None:
    shape = d.give()
    d.inputs[0] = np.round(d.inputs[0])
    d.option("axis", d.axis(len(shape)), 0.8)
    d.flags("keepdims", "select_last_index")


@draws(
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare"
)
def _reduction(d: Draw) -> None:
    shape = d.give(0, 4, empty=d.version >= 18)
    if d.operator == "ReduceLogSum":
        d.inputs[0] = np.abs(d.inputs[0])
    if shape and d.maybe(0.75):
        d.moved("axes", d.axes(len(shape)), 1)
    elif "axes" not in d.schema.attributes and d.maybe(0.4):
        d.moved("axes", [], 1)
    d.flags("keepdims", "noop_with_empty_axes")


@draws("LayerNormalization RMSNormalization")
def _norm(d: Draw) -> None:
    shape, dtype = d.shape(), d.dtype()
    axis = d.axis(len(shape), 1)
    d.inputs = [d.array(shape, dtype), d.array(shape[axis:], dtype)]
    if d.operator[0] == "L":
        if d.maybe():
            d.inputs.append(d.array(shape[axis:], dtype))
        d.outputs = d.pick(1, 1, 1, 2, 3)
    d.default("axis", axis, -1)
    d.option("epsilon", d.pick(0.1, 1e-3))


@draws("BatchNormalization")
def _batch_norm(d: Draw) -> None:
    shape, dtype = d.shape(2, 4), d.dtype()
    vectors = [d.array(shape[1:2], dtype) for _ in range(4)]
    d.inputs = [d.array(shape, dtype), *vectors[:3], np.abs(vectors[3])]
    d.attributes = {"is_test": 1, "consumed_inputs": [0, 0, 0, 1, 1]}
    d.option("momentum", d.number())
    d.option("epsilon", d.pick(0.1, 1e-3))
    d.option("spatial", 1, 0.2)


@draws("InstanceNormalization GroupNormalization")
def _channel_norm(d: Draw) -> None:
    n, *rest = d.shape(3, 4)
    groups, each, dtype = d.within(1, 3), d.within(1, 3), d.dtype()
    shape = (n, groups * each, *rest)
    d.inputs = [d.array(shape, dtype), *(d.array(shape[1:2], dtype) for _ in range(2))]
    d.attributes["num_groups"] = groups
    d.option("epsilon", d.pick(0.1, 1e-3))


@draws("MeanVarianceNormalization LRN")
def _whole_norm(d: Draw) -> None:
    d.give(4, 4)
    d.attributes["size"] = d.within(1, 5)
    d.option("axes", d.axes(4, since=1))
    for name in ("alpha", "beta", "bias"):
        d.option(name, d.pick(0.3, 1.0, 2.0))
