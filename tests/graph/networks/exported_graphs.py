"""ONNX graphs of networks, written by `exported_torch` without weights, which a seed draws again."""

from __future__ import annotations

import gzip
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FOLDER = Path(__file__).parent / "exported"
#: Operators that pass a weight on to the operator that uses it.
MOVES = ("Cast", "Expand", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
#: Sizes of symbolic axes, unless a caller has others.
SIZES = {"batch": 1, "tokens": 16, "past": 15, "source": 16}


def names() -> list[str]:
    return sorted(path.name.removesuffix(".onnx.gz") for path in FOLDER.glob("*.onnx.gz"))


def read(name: str) -> onnx.ModelProto:
    """Return a committed graph; its weights have a name, a dtype and a shape, and no data."""
    return onnx.load_from_string(gzip.decompress((FOLDER / f"{name}.onnx.gz").read_bytes()))


def draw(name: str, dtype: str = "float32", seed: int = 0) -> onnx.ModelProto:
    """Return a graph with weights drawn by a seed, which keep activations near 1.

    Every weight is drawn in float32 and rounded to `dtype`: graphs of several dtypes have the same weights, and one of
    float64 has the float32 ones exactly.
    """
    model = read(name)
    rng = np.random.default_rng(seed)
    uses = _uses(model.graph)
    for tensor in model.graph.initializer:
        if _is_weight(tensor):
            weight = _weight(rng, tuple(tensor.dims), *uses.get(tensor.name, ("", 0, False)))
            tensor.CopyFrom(numpy_helper.from_array(weight.astype(np.float32), tensor.name))
    return model if dtype == "float32" else cast(model, dtype)


def rounding(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a float16 model in float32, with every result rounded to float16.

    onnxruntime has no float16 kernels for most operators on a CPU: it computes in float32, and rounds only results of
    the graph. Explicit casts make it round each tensor, as the file says.
    """
    made = onnx.shape_inference.infer_shapes(cast(model, "float32"))
    floats = {
        each.name
        for each in (*made.graph.value_info, *made.graph.output)
        if each.type.tensor_type.elem_type == TensorProto.FLOAT
    }
    nodes = []
    for node in made.graph.node:
        nodes.append(node)
        for place, name in enumerate(node.output):
            if name in floats:
                node.output[place] = f"{name}.float32"
                nodes.append(helper.make_node("Cast", [f"{name}.float32"], [f"{name}.float16"], to=TensorProto.FLOAT16))
                nodes.append(helper.make_node("Cast", [f"{name}.float16"], [name], to=TensorProto.FLOAT))
    kept = list(nodes)
    del made.graph.node[:], made.graph.value_info[:]
    made.graph.node.extend(kept)
    return made


def inputs(model: onnx.ModelProto, sizes: Mapping[str, int] = {}, seed: int = 1) -> dict[str, np.ndarray]:
    """Return inputs drawn by a seed: tokens of the vocabulary, a mask that hides the end of one row, normal floats."""
    rng, found, bound = np.random.default_rng(seed), {}, SIZES | dict(sizes)
    tokens = _vocabulary(model)
    for each in model.graph.input:
        kind = each.type.tensor_type
        shape = tuple(axis.dim_value or bound[axis.dim_param] for axis in kind.shape.dim)
        if kind.elem_type != TensorProto.INT64:
            found[each.name] = rng.standard_normal(shape).astype(helper.tensor_dtype_to_np_dtype(kind.elem_type))
        elif "mask" in each.name:
            found[each.name] = np.ones(shape, np.int64)
            found[each.name][-1, shape[1] * 3 // 4 :] = 0
        else:
            found[each.name] = rng.integers(0, 2 if "type" in each.name else tokens, shape)
    return found


def cast(model: onnx.ModelProto, dtype: str) -> onnx.ModelProto:
    """Return a copy of a model whose floating-point tensors have another dtype, but the scales of images."""
    made, target = onnx.ModelProto(), np.dtype(dtype)
    made.CopyFrom(model)
    kind = helper.np_dtype_to_tensor_dtype(target)
    kinds = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE)
    kept = {name for node in made.graph.node if node.op_type == "Resize" for name in node.input[2:3]}
    for tensor in made.graph.initializer:
        if tensor.data_type in kinds and tensor.name not in kept:
            tensor.CopyFrom(numpy_helper.from_array(_convert(numpy_helper.to_array(tensor), target), tensor.name))
    for node in made.graph.node:
        for each in () if kept.intersection(node.output) else node.attribute:
            if each.name in ("to", "dtype") and each.i in kinds:
                each.i = kind
            elif each.HasField("t") and each.t.data_type in kinds:
                each.t.CopyFrom(numpy_helper.from_array(_convert(numpy_helper.to_array(each.t), target)))
            elif node.op_type == "Constant" and each.name in ("value_float", "value_floats"):
                value = np.asarray(helper.get_attribute_value(each), np.float32)
                each.CopyFrom(helper.make_attribute("value", numpy_helper.from_array(_convert(value, target))))
    for value in (*made.graph.input, *made.graph.output):
        if value.type.tensor_type.elem_type in kinds:
            value.type.tensor_type.elem_type = kind
    return made


def _convert(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Round an array; the least number of a mask stays finite."""
    limit = np.finfo(dtype)
    return np.where(np.isfinite(array), np.clip(array, limit.min, limit.max), array).astype(dtype)


def _is_weight(tensor: TensorProto) -> bool:
    fields = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data")
    return math.prod(tensor.dims) > 0 and not any(getattr(tensor, each) for each in fields)


def _uses(graph: onnx.GraphProto) -> dict[str, tuple[str, int, bool]]:
    """Return for each initializer the operator that uses it, products first, the input's place, and if transposed."""
    readers: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
    for node in graph.node:
        for place, name in enumerate(node.input):
            readers.setdefault(name, []).append((node, place))

    def walk(name: str, turned: bool) -> Iterator[tuple[str, int, bool]]:
        for node, place in readers.get(name, ()):
            if node.op_type in MOVES and place == 0:
                yield from walk(node.output[0], turned ^ (node.op_type == "Transpose"))
                continue
            flags = {each.name: each.i for each in node.attribute}
            op = node.op_type
            if op == "Conv":
                after = [reader.op_type for reader, _ in readers.get(node.output[0], ())]
                op = "Conv, Add" if "Add" in after else "Conv, Clip" if "Clip" in after else op
            yield op, place, turned ^ bool(op == "Gemm" and place == 1 and flags.get("transB"))

    found = {}
    for tensor in graph.initializer:
        ordered = sorted(walk(tensor.name, False), key=lambda use: use[0] == "Gather")
        if ordered:
            found[tensor.name] = ordered[0]
    return found


def _weight(rng: np.random.Generator, shape: tuple[int, ...], op: str, place: int, turned: bool) -> np.ndarray:
    """Draw a weight for its use: of unit variance through products, near 1 where it scales, small where it is added."""
    scales = (op in ("LayerNormalization", "RMSNormalization", "Mul") and place < 2) or (
        op == "BatchNormalization" and place in (1, 4)
    )
    if scales:
        return rng.uniform(0.5, 1.5, shape)
    normal = rng.standard_normal(shape)
    if op == "Gather":
        return normal
    if op.startswith("Conv") and place == 1:
        # A rectifier loses half of its input; the branch of a residual is small compared with its sum.
        gain = {"Conv, Add": 0.5}.get(op, math.sqrt(2))
        return normal * gain / math.sqrt(math.prod(shape[1:]))
    if op in ("MatMul", "Gemm") and place < 2 and len(shape) > 1:
        return normal / math.sqrt(shape[-1] if turned else shape[-2])
    return normal * 0.1


def _vocabulary(model: onnx.ModelProto) -> int:
    """Return how many rows the table has in which tokens are looked up: the largest that the model gathers from."""
    gathered = {node.input[0] for node in model.graph.node if node.op_type == "Gather"}
    return max((each.dims[0] for each in model.graph.initializer if each.name in gathered and each.dims), default=1)
