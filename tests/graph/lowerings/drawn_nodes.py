"""Drawn calls of every served ONNX operator in every version of it, compared with onnxruntime.

`python -m tests.graph.lowerings.drawn_nodes --cases 200` draws that many of each operator and version; `--only NAME`
names operators. A call that onnxruntime does not compute is compared with onnx's reference evaluator. Versions below 7,
which neither knows, are written in version 13 with the values of their arrays.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, defs, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from tqdm import tqdm

import gensor_kernels
from gensor_kernels.errors import GensorError
from gensor_kernels.graph.execution.model import Model
from gensor_kernels.graph.lowerings import LOWERINGS
from gensor_kernels.graph.readers.onnx_file import Source
from tests import campaign_size
from tests.graph.models import by_onnxruntime

from . import drawn_arrays, drawn_elements, drawn_products  # noqa: F401 (they note what they draw)
from .draw import Case, Draw

#: Newest version of the standard that onnx has; onnxruntime has older ones.
NEWEST = defs.onnx_opset_version()
#: The version in which calls of versions below 7 are written for the reference.
MODERN = 13
#: Attributes of old versions that are inputs in MODERN.
MOVED = {
    **{"Clip": ("min", "max"), "Pad": ("pads", "value"), "Reshape": ("shape",), "Slice": ("starts", "ends", "axes")},
    **{"Split": ("split",), "TopK": ("k",), **dict.fromkeys(("ReduceSum", "Squeeze", "Unsqueeze"), ("axes",))},
}
#: Definitions that are refused: the first Tile took one number of tiles and one axis.
UNSERVED = ("Tile-1",)
RIGHT, REFUSED, WRONG, INVALID, DEPARTS = "right", "refused", "wrong", "invalid", "onnxruntime departs"
UNITS = {"float16": 2.0**-9, "bfloat16": 2.0**-6, "float32": 1e-5, "float64": 1e-9}


def versions() -> list[tuple[str, int, int]]:
    """Return every served operator with the first and last version of the standard of each of its definitions."""
    found = []
    history: dict[str, list[Any]] = {}
    for schema in defs.get_all_schemas_with_history():
        if schema.domain == "" and (schema.name in LOWERINGS or schema.name in ("Upsample", "Scatter")):
            history.setdefault(schema.name, []).append(schema)
    for operator, schemas in sorted(history.items()):
        schemas.sort(key=lambda each: each.since_version)
        ends = [each.since_version - 1 for each in schemas[1:]] + [NEWEST]
        for schema, end in zip(schemas, ends, strict=True):
            if schema.since_version <= NEWEST and not schema.deprecated:
                found.append((operator, schema.since_version, min(end, NEWEST)))
    return found


def draw_case(operator: str, first: int, last: int, number: int, seed: int) -> Case:
    key = f"{seed} {operator} {first} {number}"
    # the first version of a definition and the last are drawn most
    version = (first, last, first + number % (last - first + 1))[number % 3]
    return Draw(operator, version, key).case()


def model_of(case: Case) -> Any:
    names = ["" if each is None else f"x{place}" for place, each in enumerate(case.inputs)]
    given, constants = [], []
    for place, (name, each) in enumerate(zip(names, case.inputs, strict=True)):
        if each is None:
            continue
        if place in case.known:
            constants.append(numpy_helper.from_array(each, name))
            continue
        shape = [f"{name}_{axis}" for axis in range(each.ndim)] if case.free else each.shape
        given.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype), shape))
    results = [f"y{place}" for place in range(case.outputs)]
    node = helper.make_node(case.operator, names, results, "it", **case.attributes)
    declared = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in results]
    graph = helper.make_graph([node], "drawn", given, declared, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", case.version)], ir_version=10)
    inferred = onnx.shape_inference.infer_shapes(model)
    dtypes = result_dtypes(case)
    for place, each in enumerate(inferred.graph.output):
        if not each.type.tensor_type.elem_type:
            each.type.tensor_type.elem_type = dtypes[place]
    return inferred


def result_dtypes(case: Case) -> list[int]:
    """Return the types of the results where onnx infers none: that of the first input that shares their name."""
    schema = defs.get_schema(case.operator, case.version, "")
    found = []
    for output in [*schema.outputs, *schema.outputs[-1:] * case.outputs][: case.outputs]:
        for place, value in enumerate(case.inputs):
            if value is not None and schema.inputs[min(place, len(schema.inputs) - 1)].type_str == output.type_str:
                found.append(helper.np_dtype_to_tensor_dtype(value.dtype))
                break
        else:
            names = {str(each): each for each in output.types}
            only = next(iter(names)) if len(names) == 1 else "tensor(float)"
            found.append(TensorProto.DataType.Value(only[7:-1].upper()))
    return found


def modern(case: Case) -> Case:
    """Return a call of a version below 7 in version MODERN, by its arrays."""
    inputs, attributes = list(case.inputs), dict(case.attributes)
    for name in ("consumed_inputs", "is_test", "spatial"):
        attributes.pop(name, None)
    if attributes.pop("broadcast", 0) and "axis" in attributes:
        b = inputs[1]
        inputs[1] = b.reshape(*b.shape, *[1] * (inputs[0].ndim - attributes["axis"] - b.ndim))
    if "broadcast" in case.attributes:
        attributes.pop("axis", None)
    if case.operator == "PRelu":
        inputs[1] = inputs[1].reshape(-1, *[1] * max(inputs[0].ndim - 2, 0))
    if case.operator == "Cast" and case.version < 6:
        attributes["to"] = TensorProto.DataType.Value(attributes["to"])
    if case.operator == "Concat":
        attributes.setdefault("axis", 1)
    if case.operator == "Selu":
        attributes = {"alpha": 1.6732, "gamma": 1.0507} | attributes if case.version == 1 else attributes
    if case.operator == "Upsample":
        scales = [1, 1, attributes.pop("height_scale"), attributes.pop("width_scale")]
        mode = "nearest" if attributes["mode"] == "nearest" else "linear"
        return replace(
            case, operator="Upsample", version=9, inputs=[*inputs, np.array(scales, "f4")], attributes={"mode": mode}
        )
    attributes["pads"] = attributes.pop("paddings", attributes.pop("pads", None))
    for place, name in enumerate(MOVED.get(case.operator, ()), 1):
        value = attributes.pop(name, None)
        if value is not None:
            inputs += [None] * (place + 1 - len(inputs))
            dtype = inputs[0].dtype if name in ("min", "max", "value") else "int64"
            inputs[place] = np.asarray([value] if name == "k" else value, dtype)
    if case.operator == "Split" and len(inputs) > 1:
        inputs[1] = inputs[1].astype("int64")
    attributes = {name: value for name, value in attributes.items() if value is not None}
    if case.operator in ("Softmax", "LogSoftmax", "Hardmax"):
        return replace(case, version=11)
    if case.operator in ("MaxPool", "AveragePool", "Conv", "ConvTranspose", "Dropout"):
        return replace(case, version=11, attributes=attributes)
    return replace(case, version=MODERN, inputs=inputs, attributes=attributes, known=set())


def pad(case: Case) -> Case:
    """Return a call with explicit paddings in place of SAME, which onnxruntime and the evaluator get wrong at times."""
    attributes = dict(case.attributes)
    if case.operator not in ("Conv", "MaxPool", "AveragePool") or "SAME" not in attributes.get("auto_pad", ""):
        return case
    mode, image, pads = attributes.pop("auto_pad"), case.inputs[0].shape[2:], []
    attributes.pop("ceil_mode", None)
    taps = attributes.get("kernel_shape") or case.inputs[1].shape[2:]
    ones = (1,) * len(image)
    strides, dilations = attributes.get("strides", ones), attributes.get("dilations", ones)
    for extent, tap, step, far in zip(image, taps, strides, dilations, strict=True):
        total = max((-(-extent // step) - 1) * step + (tap - 1) * far + 1 - extent, 0)
        pads.append((total // 2, total - total // 2) if mode == "SAME_UPPER" else (total - total // 2, total // 2))
    return replace(case, attributes=attributes | {"pads": [side for pair in zip(*pads, strict=True) for side in pair]})


def doubtful(case: Case) -> str | None:
    """Return where onnxruntime, or the reference evaluator where onnxruntime has nothing, departs from the standard."""
    x = case.inputs[0]
    if case.operator == "Attention" and case.attributes.get("scale", 1) < 0:
        return "the root of a negative scale is taken: NaN"
    if case.operator in ("ReduceLogSumExp", "Erf") and x.dtype.kind in "iu":
        return "functions of integers are rounded otherwise"
    if case.operator in ("Resize", "Upsample") and case.version < 11:
        case = modern(case) if case.version < 7 else case
        factors = np.asarray(case.attributes.get("scales", case.inputs[-1]), "float32")
        if (np.floor(np.asarray(x.shape, "float32") * factors) == x.shape).all():
            return "an image that keeps its size is not resized, whatever the factors"
    if case.operator == "LayerNormalization" and x.dtype.name == "bfloat16":
        return "the evaluator gives statistics in bfloat16, where stash_type is float32"
    if case.operator == "LRN" and case.attributes["size"] % 2 == 0:
        return "the evaluator sums over other channels; onnxruntime takes no even sizes"
    return None


def feeds(case: Case) -> dict[str, np.ndarray]:
    return {f"x{place}": each for place, each in enumerate(case.inputs) if each is not None and place not in case.known}


def by_runtime(case: Case) -> list[Any] | None:
    """Return the results of onnxruntime, in float32 if it has no others, or None for a call that it refuses."""
    found = _by_runtime(case)
    floats = [each.dtype for each in case.inputs if each is not None and each.dtype.name in UNITS]
    if found is not None or not floats or case.operator in ("Cast", "CastLike"):
        return found
    single = [each.astype("float32") if each is not None and each.dtype in floats else each for each in case.inputs]
    found = _by_runtime(replace(case, inputs=single))
    return found and [each.astype(floats[0]) if each.dtype == "float32" else each for each in found]


def _by_runtime(case: Case) -> list[Any] | None:
    if any(each is not None and each.dtype.name == "bfloat16" for each in case.inputs):
        return None
    try:
        return by_onnxruntime(model_of(case), feeds(case))
    except Exception:  # its own kinds, and those of pybind11
        return None


def by_reference(case: Case) -> list[Any] | None:
    """Return the results of onnx's reference evaluator, or None for a call that it does not compute."""
    try:
        with np.errstate(all="ignore"):
            return list(ReferenceEvaluator(model_of(case)).run(None, feeds(case)))
    except Exception:  # of NumPy, of the evaluator
        return None


def agree(found: Sequence[Any], wanted: Sequence[Any], unit: float = 0.0) -> str | None:
    for a, b in zip(found, map(np.asarray, wanted), strict=True):
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"{a.dtype}{list(a.shape)} in place of {b.dtype}{list(b.shape)}"
        if a.dtype.kind in "iub":
            if not np.array_equal(a, b):
                return f"{a.ravel()[:8]} in place of {b.ravel()[:8]}"
            continue
        unit, wide = max(UNITS[a.dtype.name], unit), np.asarray(b, np.float64)
        finite = np.abs(wide[np.isfinite(wide)])
        close = np.isclose(
            np.asarray(a, np.float64), wide, rtol=8 * unit, atol=unit * max(finite.max(initial=0), 1), equal_nan=True
        )
        if not close.all():
            place = np.argwhere(~close)[0] if a.ndim else ()
            values = f"{a[tuple(place)]} in place of {b[tuple(place)]} at {[*map(int, place)]}"
            return f"{values}, {(~close).sum()} of {a.size} differ"
    return None


def ours(case: Case) -> list[Any]:
    found = Model(Source(model_of(case)), "drawn")(*feeds(case).values())
    return list(found) if isinstance(found, tuple) else [found]


def outcome(case: Case) -> tuple[str, str]:
    old = pad(modern(case) if case.version < 7 else case)
    runtime = by_runtime(old)
    reference = None if runtime is not None else by_reference(old)
    wanted = reference if runtime is None else runtime
    try:
        found = ours(case)
    except GensorError as error:
        return (INVALID if wanted is None else REFUSED), str(error)
    except Exception as error:
        return WRONG, f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    if wanted is None:
        return INVALID, "computed, without a reference"
    unit = UNITS["float32"] if any(each is not None and each.dtype == "float64" for each in case.inputs) else 0.0
    if case.operator == "Dropout" and case.version < 10:  # the mask has the dtype of the data
        found, wanted = found[:1], wanted[:1]
    difference = agree(found, wanted, unit)
    if difference is None:
        return RIGHT, ""
    if reason := doubtful(case):
        return DEPARTS, f"{reason}: {difference}"
    if runtime is not None:
        reference = by_reference(old)
        if reference is not None and len(reference) == len(found) and agree(found, reference, unit) is None:
            return DEPARTS, difference
    return WRONG, difference


def main() -> int:
    """Draw and compare; 1 where a result is wrong, or a definition has no correct call."""
    parser = argparse.ArgumentParser(prog="python -m tests.graph.lowerings.drawn_nodes", description=__doc__)
    parser.add_argument("--cases", type=int, default=100, help="calls of each operator and version")
    parser.add_argument("--only", nargs="*", help="operators")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    count: Counter[str] = Counter()
    never = []
    definitions = [each for each in versions() if not options.only or each[0] in options.only]
    for operator, first, last in tqdm(definitions, disable=None):
        before = count[RIGHT]
        for number in range(options.cases):
            case = draw_case(operator, first, last, number, campaign_size.SEED)
            with gensor_kernels.emulated("sm_87"):
                what, text = outcome(case)
            count[what] += 1
            if what == WRONG:
                print(f"{case}: {text}", flush=True)
        if count[RIGHT] == before and f"{operator}-{first}" not in UNSERVED:
            never.append(f"{operator}-{first}")
    print(
        f"GENSOR_CAMPAIGN_SEED={campaign_size.SEED}: {len(definitions)} definitions, {dict(count)}, no right: {never}"
    )
    return 1 if count[WRONG] or never else 0


if __name__ == "__main__":
    sys.exit(main())
