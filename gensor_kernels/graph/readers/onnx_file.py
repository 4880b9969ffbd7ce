"""From an ONNX file to a Graph, with the sizes of its inputs bound.

Old versions of operators are lifted by onnx's converter. onnxscript's optimiser simplifies a model once; for every
signature of inputs it only infers shapes and folds the constants that depend on them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from gensor_kernels.errors import ModelError, UnsupportedError
from gensor_kernels.graph.ir.graph import Graph, Node, Spec
from gensor_kernels.shown import shown

from . import onnx_bounds, onnx_weights
from .pickled import packed, unpacked

#: Version of the standard's operators that nodes of a Graph have.
OPSET = 24
#: Elements up to which onnxscript folds constants; onnx_bounds limits their bytes.
MOST_ELEMENTS = 2**31
#: Operators that are never served, by name or its first word: graphs within graphs, and values that are no tensors.
REFUSED = {
    **dict.fromkeys(("If", "Loop", "Scan"), "control flow is not served; export the model without it"),
    **dict.fromkeys(("Sequence", "SplitToSequence", "ConcatFromSequence"), "sequences of tensors are not served"),
    "Optional": "optional values are not served",
}
#: dtypes of weights, whose arrays are made once.
KEPT = ("float16", "bfloat16", "float32", "float64")
#: Passes over the constants of a model for one signature; more than two change nothing in practice.
MOST_PASSES = 4
INSTALL = "pip install 'gensor-kernels[onnx]'"


class Source:
    """A model as it was read: its operators lifted to OPSET and optimised once, sizes not bound.

    Parameters
    ----------
    model : onnx.ModelProto
        A model that onnx's checker accepts; it is not changed.
    folder : Path or None
        Folder of its external data.
    """

    #: Least and largest value of a size, by its name.
    bounds: Mapping[str, tuple[float, float]] = {}

    def __init__(self, model: Any, folder: Path | None = None):
        onnx_bounds.check(model)
        #: Names of the files beside the model that hold its weights.
        self.weight_files = onnx_weights.external_files(model)
        operators, weights = onnx_weights.parted(model, folder)
        lifted = _lifted(operators)
        constants = {each.name for each in lifted.graph.initializer}
        given = [each for each in lifted.graph.input if each.name not in constants]
        self.inputs = {each.name: _spec(each) for each in given}
        self._results = {each.name: _spec(each).dtype for each in lifted.graph.output}
        self.outputs = list(self._results)
        self._model = optimised(_with_weights(lifted, weights), self.inputs)

    def graph(self, shapes: Mapping[str, Sequence[int]] | None = None) -> Graph:
        """Return the graph for inputs of these shapes; without them, for the sizes that the file declares."""
        model = self._current()
        if shapes:
            model = _bound(model, shapes)
        graph = _graph(model, self.inputs if not shapes else None)
        for name, dtype in self._results.items():
            if name in graph.constants:  # an empty list that the optimiser has folded has lost its dtype
                graph.constants[name] = graph.constants[name].astype(dtype, copy=False)
        return graph

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_model": packed(self._model)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _model=unpacked(*state["_model"]))

    def _current(self) -> Any:
        """Return the model of onnx-ir; ModelError where its weights have changed since it was read."""
        return self._model


def _with_weights(lifted: Any, weights: Mapping[str, Any]) -> Any:
    """Return the model of onnx-ir with its weights."""
    import onnx_ir as ir

    model = ir.from_proto(lifted)
    for name, tensor in weights.items():
        model.graph.initializers[name].const_value = tensor
    return model


def optimised(model: Any, inputs: Mapping[str, Spec]) -> Any:
    """Simplify a model of onnx-ir as far as that holds for all sizes, and return it."""
    import onnx_ir as ir
    from onnxscript.optimizer import optimize_ir

    model.graph.inputs[:] = [each for each in model.graph.inputs if each.name in inputs]
    _forget_results(model)
    with _inferring():
        limit = MOST_ELEMENTS
        optimize_ir(model, should_fold=onnx_bounds.foldable(), input_size_limit=limit, output_size_limit=limit)
    _keep_dtypes(model)
    for name, value in model.graph.initializers.items():
        array = value.const_value.numpy()
        stable = array.dtype.name not in KEPT or value.const_value.numpy() is array
        if not stable or not array.flags.c_contiguous:  # one array for every signature
            value.const_value = ir.Tensor(np.asarray(array, order="C"), name=name)
    return model


def _keep_dtypes(model: Any) -> None:
    """Give weights the dtype of their product: a rule of onnxscript makes bfloat16 weights float32."""
    import onnx_ir as ir

    for node in model.graph:
        if node.op_type not in ("Conv", "ConvTranspose", "Gemm") or node.inputs[0].dtype is None:
            continue
        for each in filter(None, node.inputs[1:]):
            if each.is_initializer() and each.const_value is not None and each.dtype != node.inputs[0].dtype:
                array = each.const_value.numpy().astype(node.inputs[0].dtype.numpy())
                each.const_value, each.dtype = ir.Tensor(array, name=each.name), node.inputs[0].dtype


def _bound(optimised: Any, shapes: Mapping[str, Sequence[int]]) -> Any:
    """Return a copy of a model for inputs of these shapes: shapes inferred, and constants folded that follow."""
    import onnx_ir as ir
    from onnx_ir.passes import common
    from onnxscript.optimizer import fold_constants_ir

    model = optimised.clone()  # weights are shared
    for each in model.graph.inputs:
        if each.name in shapes:
            each.shape = ir.Shape(shapes[each.name])
    _forget_results(model)
    with _inferring():
        limits = {"input_size_limit": MOST_ELEMENTS, "output_size_limit": MOST_ELEMENTS}
        ask = onnx_bounds.foldable()
        for _ in range(MOST_PASSES):
            found: Any = fold_constants_ir(model, onnx_shape_inference=True, should_fold=ask, **limits)
            if not found.modified:
                break
        cleaning = (
            common.RemoveUnusedNodesPass(),
            common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
            common.OutputFixPass(),
            common.NameFixPass(),
        )
        ir.passes.Sequential(*cleaning)(model)
    return model


def _forget_results(model: Any) -> None:
    """Forget the shapes of results: declared ones could contradict bound sizes, and all are inferred again."""
    for each in model.graph.outputs:
        if each.producer() is not None:
            each.shape = None


@contextmanager
def _inferring() -> Iterator[None]:
    """Turn what a pass raises into a sentence."""
    try:
        yield
    except Exception as error:  # of a pass, with the cause behind it
        raise ModelError(f"shapes of the model cannot be inferred: {first_line(error.__cause__ or error)}") from None


def read(path: str | os.PathLike[str]) -> Source:
    """Read an ONNX file; its external data are mapped into memory.

    Raises FileNotFoundError, ModelError for a file that is no valid model, and UnsupportedError for operators that are
    not served.
    """
    onnx = library()
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no ONNX file is there")
    try:
        model = onnx.load(str(file), load_external_data=False)
        for tensor in onnx_weights.external(model):
            onnx_weights.check_external(tensor, file.parent)
        onnx.checker.check_model(str(file))
    except ModelError as error:
        raise ModelError(f"{file}: {error}") from None
    except Exception as error:  # of protobuf, of the checker
        raise ModelError(f"{file}: no valid ONNX model: {first_line(error)}") from None
    return Source(model, file.parent)


def library() -> Any:
    """Import onnx; ModelError with the fixing command where it is missing."""
    try:
        import onnx
        import onnx.checker
        import onnx.inliner
        import onnx.version_converter
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ModelError(f"ONNX models need further packages ({error.name} is missing): {INSTALL}") from None
    return onnx


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text."""
    return (str(error).strip() or type(error).__name__).partition("\n")[0]


def _lifted(model: Any) -> Any:
    """Refuse what is never served, inline functions, and lift the rest to OPSET."""
    onnx = library()
    if model.functions:  # onnx's converter drops them
        model = onnx.inliner.inline_local_functions(model)
    for node in model.graph.node:
        label = f"node {shown(node.name or node.output[0])}" if node.output else f"node {shown(node.name)}"
        for word, reason in REFUSED.items():
            if node.op_type == word or (word in ("Optional", "Sequence") and node.op_type.startswith(word)):
                raise UnsupportedError(f"{label} ({node.op_type}): {reason}")
        if node.op_type == "CastLike" and any(each.name == "saturate" and not each.i for each in node.attribute):
            # The optimiser turns it into a Cast that saturates.
            raise UnsupportedError(f"{label} (CastLike): casts like another tensor saturate; use Cast with saturate=0")
        if node.domain not in ("", "ai.onnx") and not any(
            (f.domain, f.name) == (node.domain, node.op_type) for f in model.functions
        ):
            raise UnsupportedError(f"{label}: operator {node.op_type} of domain {shown(node.domain)} is not served")
    versions = [each.version for each in model.opset_import if each.domain in ("", "ai.onnx")]
    if not versions or versions[0] >= OPSET:
        return model
    try:
        return onnx.version_converter.convert_version(model, OPSET)
    except Exception as error:  # of the converter, which is C++
        raise ModelError(
            f"the model's operators (version {versions[0]}) cannot be lifted to version {OPSET}: {first_line(error)}"
        ) from None


def _graph(model: Any, declared: Mapping[str, Spec] | None) -> Graph:
    """Return the Graph of a model of onnx-ir."""
    constants = {name: _constant(value) for name, value in model.graph.initializers.items()}
    specs: dict[str, Spec] = {}
    nodes = []
    for number, node in enumerate(model.graph):
        if node.op_type in REFUSED:  # from a function of the model
            raise UnsupportedError(f"node {shown(node.name)} ({node.op_type}): {REFUSED[node.op_type]}")
        if node.domain not in ("", "ai.onnx"):
            raise UnsupportedError(
                f"node {shown(node.name)}: operator {node.op_type} of domain {shown(node.domain)} is not served"
            )
        for value in node.outputs:
            if value.dtype is not None:
                specs[value.name] = Spec(dtype_of(value.dtype), extents_of(value.shape))
        attributes = {name: _attribute(value) for name, value in node.attributes.items()}
        if node.op_type == "Constant":
            (value,) = attributes.values()
            constants[node.outputs[0].name] = np.asarray(value)
            continue
        inputs = tuple("" if each is None else each.name for each in node.inputs)
        outputs = tuple(each.name for each in node.outputs)
        nodes.append(Node(node.op_type, inputs, outputs, attributes, node.name or f"{node.op_type}_{number}"))
    inputs_of = {each.name: Spec(dtype_of(each.dtype), extents_of(each.shape)) for each in model.graph.inputs}
    return Graph(nodes, dict(declared or inputs_of), [each.name for each in model.graph.outputs], constants, specs)


def _constant(value: Any) -> np.ndarray:
    array = value.const_value.numpy()
    return array if array.flags.c_contiguous else array.copy()


def dtype_of(dtype: Any) -> np.dtype[Any]:
    """Return a dtype of onnx-ir as NumPy's; `object` for text and unknown types."""
    try:
        return np.dtype(dtype.numpy())
    except (TypeError, ValueError):
        return np.dtype(object)


def extents_of(shape: Any) -> tuple[int | str | None, ...] | None:
    """Return a shape of onnx-ir as numbers and names."""
    if shape is None:
        return None
    return tuple(each if isinstance(each, int) else each.value for each in shape)


def _attribute(attribute: Any) -> Any:
    value = attribute.value
    if hasattr(value, "numpy"):
        return value.numpy()
    return value if isinstance(value, (int, float, str)) or value is None else tuple(value)


def _spec(value: Any) -> Spec:
    """Return the Spec of a ValueInfoProto; UnsupportedError for sequences and the like."""
    from onnx import helper

    if not value.type.HasField("tensor_type"):
        raise UnsupportedError(f"{shown(value.name)} is no tensor: sequences and optional values are not served")
    tensor = value.type.tensor_type
    shape = None
    if tensor.HasField("shape"):
        shape = tuple(
            each.dim_value if each.HasField("dim_value") else each.dim_param or None for each in tensor.shape.dim
        )
    return Spec(np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type)), shape)
