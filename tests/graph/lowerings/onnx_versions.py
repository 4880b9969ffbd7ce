"""The calls of onnx's node tests in every older version of their operators, compared with onnxruntime.

A call that onnxruntime does not compute is compared with onnx's reference evaluator. Versions below 7, which neither
knows, are compared with the same call in version 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, defs, helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases
from onnx.reference import ReferenceEvaluator

from gensor_kernels.errors import GensorError
from gensor_kernels.graph.execution.model import Model
from gensor_kernels.graph.lowerings import LOWERINGS
from gensor_kernels.graph.readers.onnx_file import Source
from tests.graph.models import by_onnxruntime

#: The oldest version that onnxruntime and the evaluator know.
OLDEST = 7
#: Names of inputs in older versions, where some of them are attributes.
RENAMED = {"constant_value": "value", "K": "k", "input_mean": "mean", "input_var": "var"}
RIGHT, REFUSED, WRONG, INVALID, DEPARTS = "right", "refused", "wrong", "invalid", "onnxruntime departs"
UNITS = {"float16": 2.0**-9, "bfloat16": 2.0**-6, "float32": 1e-5, "float64": 1e-9}


@dataclass
class Case:
    """A call of an operator in a version of the standard."""

    operator: str
    version: int
    #: Arrays, or None for an input that is left out.
    inputs: list[Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    #: Places of inputs that are constants of the model.
    known: set[int] = field(default_factory=set)
    #: Whether the sizes of other inputs are names in the model.
    free: bool = False
    #: The same call in a version that the references know, if this is none.
    meant: Case | None = None

    def __str__(self) -> str:
        inputs = [None if each is None else f"{each.dtype}{list(each.shape)}" for each in self.inputs]
        small = {i: x.tolist() for i, x in enumerate(self.inputs) if x is not None and x.ndim < 2 and x.size < 9}
        return (
            f"{self.operator}-{self.version} {self.attributes} of {inputs}, elements {small}, constants {self.known}, "
            f"{self.outputs} outputs{', sizes by name' if self.free else ''}"
        )


@cache
def node_cases() -> list[Case]:
    """Return the calls of onnx's tests of single served operators, in the version that each was written for."""
    found = []
    for case in collect_testcases(None):
        (node, *more), graph = case.model.graph.node, case.model.graph
        is_served = node.domain == "" and (node.op_type in LOWERINGS or node.op_type in ("Upsample", "Scatter"))
        if more or not is_served or not all(each.type.HasField("tensor_type") for each in graph.input):
            continue
        given = dict(zip((each.name for each in graph.input), case.data_sets[0][0], strict=False))
        arrays = [given.get(name) for name in node.input]
        arrays = [numpy_helper.to_array(each) if isinstance(each, TensorProto) else each for each in arrays]
        attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        version = next(each.version for each in case.model.opset_import if each.domain == "")
        if all(each is None or isinstance(each, np.ndarray | np.generic) for each in arrays):
            arrays = [None if each is None else np.asarray(each) for each in arrays]
            found.append(Case(node.op_type, version, arrays, attributes, len(node.output)))
    return found


@cache
def definitions(operator: str) -> list[Any]:
    """Return the definitions of an operator that were not withdrawn, the oldest first."""
    every = [each for each in defs.get_all_schemas_with_history() if (each.domain, each.name) == ("", operator)]
    return sorted((each for each in every if not each.deprecated), key=lambda each: each.since_version)


def at_version(case: Case, version: int) -> Case | None:
    """Return a call in another version, None where that one cannot express it."""
    now = defs.get_schema(case.operator, case.version, "")
    then = defs.get_schema(case.operator, version, "")
    attributes, inputs = dict(case.attributes), []
    names = [each.name for each in then.inputs]
    is_variadic = bool(then.inputs) and then.inputs[-1].option == defs.OpSchema.FormalParameterOption.Variadic
    for place, value in enumerate(case.inputs):
        name = now.inputs[min(place, len(now.inputs) - 1)].name
        own = RENAMED.get(name, name)
        if is_variadic or {name, own} & {*names} or (place == 0 and names):
            inputs.append(value)
        elif own in then.attributes and value is not None:
            values = value.tolist() if value.ndim and own not in ("k", "value") else value.item()
            attributes |= {own: float(values) if own in ("min", "max", "value") else values} if value.size else {}
        elif value is not None and not (name == "steps" and (value == 1).all()):
            return None
    for name in list(attributes):
        if name not in then.attributes:
            default = now.attributes[name].default_value if name in now.attributes else None
            if default is None or attributes.pop(name) != helper.get_attribute_value(default):
                return None
    if "broadcast" in then.attributes and (case.operator == "Gemm" or inputs[0].shape != inputs[1].shape):
        if case.operator != "Gemm" and inputs[0].shape[inputs[0].ndim - inputs[1].ndim :] != inputs[1].shape:
            return None
        attributes["broadcast"] = 1
    if not then.min_input <= len(inputs) <= then.max_input or case.outputs > then.max_output:
        return None
    if case.operator == "Cast" and version < 6:
        attributes["to"] = TensorProto.DataType.Name(attributes["to"])
    if "is_test" in then.attributes:
        attributes["is_test"] = 1
    attributes |= {"consumed_inputs": [0, 0, 0, 1, 1]} if case.operator == "BatchNormalization" and version == 1 else {}
    for place, value in enumerate(inputs):
        expected = then.inputs[min(place, len(then.inputs) - 1)]
        if value is None and expected.option == defs.OpSchema.FormalParameterOption.Single:
            inputs[place] = np.zeros(0, "float32")  # as the region and the scales of a Resize
        elif value is not None and type_name(value.dtype.name) not in expected.types:
            return None
    return replace(case, version=version, inputs=inputs, attributes=attributes)


def type_name(dtype: str) -> str:
    return f"tensor({dict(float32='float', float64='double').get(dtype, dtype)})"


@cache
def older_cases() -> list[Case]:
    """Return every call in the first version of each older definition of its operator."""
    found = []
    for number, case in enumerate(node_cases()):
        for schema in definitions(case.operator):
            version = schema.since_version
            older = at_version(case, version) if version <= case.version else None
            if older is not None:
                known = {place for place in range(1, len(older.inputs)) if (number + place) % 3 == 0}
                meant = at_version(case, OLDEST) if version < OLDEST else None
                found.append(replace(older, known=known, free=number % 3 == 1, meant=meant))
    return found


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
        unit, wide = max(UNITS.get(a.dtype.name, 0.0), unit), np.asarray(b, np.float64)
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
    """Return what becomes of a call, and how it differs where it is wrong."""
    meant = case.meant or case
    runtime = by_runtime(meant)
    wanted = by_reference(meant) if runtime is None else runtime
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
    if runtime is not None:
        reference = by_reference(meant)
        if reference is not None and len(reference) == len(found) and agree(found, reference, unit) is None:
            return DEPARTS, difference
    return WRONG, difference
