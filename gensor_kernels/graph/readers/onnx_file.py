"""From an ONNX file to a Graph, with the sizes of its inputs bound.

onnx_lifting lifts operators of old versions and of com.microsoft. `fold` infers shapes and folds constants, once for
all sizes and once for every signature of inputs. Models with control flow or sequences, and those of PyTorch, go
through onnx-ir and the passes of onnxscript first, which take ten times as long.
"""

from __future__ import annotations

import graphlib
import logging
import os
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from mmap import ACCESS_READ, mmap
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from gensor_kernels import install
from gensor_kernels.errors import ModelError, UnsupportedError
from gensor_kernels.graph.failures import failing, first_line
from gensor_kernels.graph.ir.graph import OPSET, Graph, Spec
from gensor_kernels.shown import shown

from . import (  # noqa: F401 - some register what they lift
    onnx_attention,
    onnx_control,
    onnx_limits,
    onnx_microsoft,
    onnx_versions,
    onnx_weights,
)
from .folding import fold
from .onnx_lifting import FOREIGN, lift
from .onnx_limits import WEIGHT_BYTES
from .onnx_nodes import dtype_of, extents_of, graph_of, node_of, spec_of
from .onnx_weights import pack, unpack

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

    from gensor_kernels.graph.layouts.laid_out import Layouts

    from .onnx_nodes import Weights

#: Elements up to which onnxscript folds constants; onnx_limits limits their bytes.
LIMITS: dict[str, Any] = dict.fromkeys(("input_size_limit", "output_size_limit"), 2**31)
#: Arrays, numbers, and nested lists of numbers, by name.
Values: TypeAlias = Mapping[str, Any]
#: Names of sizes; exporters write others, such as "?" and "-1", for any number of unrelated sizes.
SIZE = re.compile(r"[^\W\d][\w.]*")
#: dtypes of weights whose arrays are made once.
KEPT = ("float16", "bfloat16", "float32", "float64")
#: Passes over the constants of a model for one signature; more than two change nothing in practice.
MOST_PASSES = 4


class Source:
    """A model as it was read, from an onnx.ModelProto and the folder of its external data.

    Its operators are lifted to OPSET and optimised once, sizes are not bound. `inputs` are values of inputs that become
    constants.
    """

    #: Advice about an operator that is not served.
    remedy = onnx_limits.CUT
    #: Constants that a call may override, as the file declares them.
    defaults: Mapping[str, Spec] = {}
    #: Least and largest value of a size, by its name.
    bounds: Mapping[str, tuple[float, float]] = {}
    #: Weights in files: the file, the first byte there, and how many follow.
    places: Sequence[tuple[Path, int, int]] = ()
    #: Whether every operator was found to be served before.
    is_checked = False
    _parts: tuple[onnx.ModelProto, Weights] | None = None

    def __init__(
        self,
        model: onnx.ModelProto,
        folder: Path | None = None,
        inputs: Values | None = None,
        files: onnx_weights.Files | None = None,
    ):
        onnx_limits.refuse_early(model)
        onnx_limits.check(model)
        #: Names of the files next to the model that hold its weights.
        self.weight_files = onnx_weights.external_files(model)
        files = files or onnx_weights.Files(folder)
        operators, weights = onnx_weights.split(model, files)
        self.places = files.places
        _fix(operators, weights, inputs or {})
        _tidy(operators)
        _check(operators, weights)
        lifted = _lift(operators, weights)
        constants = {each.name for each in lifted.graph.initializer}
        declared = {each.name: spec_of(each) for each in lifted.graph.input}
        self.inputs = {name: spec for name, spec in declared.items() if name not in constants}
        if model.ir_version >= 4:  # older files list every constant as an input
            self.defaults = {name: spec for name, spec in declared.items() if name in constants}
        self._results = {each.name: spec_of(each).dtype for each in lifted.graph.output if each.HasField("type")}
        self.outputs = [each.name for each in lifted.graph.output]
        self._parts = (lifted, weights) if self.defaults else None
        self._overridden: dict[frozenset[str], Graph | ir.Model] = {}
        self._model = _simple(lifted, weights, self.inputs)

    def graph(self, shapes: Mapping[str, Sequence[int]] | None = None) -> Graph:
        """Return the graph for inputs of these shapes; without them, for the sizes that the file declares.

        Defaults among the shapes are inputs of the graph.
        """
        model = self._current()
        if given := self.defaults.keys() & (shapes or {}):
            model = self._with_inputs(frozenset(given))
        if isinstance(model, Graph):
            graph = model.bound(shapes or {})
        else:
            model = _bound(model, shapes) if shapes else model
            graph = _graph(model, self.inputs if not shapes else None, self.remedy)
        for name, dtype in self._results.items():
            if name in graph.constants:  # an empty list that the optimiser has folded has lost its dtype
                graph.constants[name] = graph.constants[name].astype(dtype, copy=False)
        return graph

    def plan(self, key: Hashable) -> tuple[Graph, Layouts | None] | None:
        """Return a plan that was stored for a signature and a part, or None."""
        return None

    def _with_inputs(self, names: frozenset[str]) -> Graph | ir.Model:
        """Return the model with some defaults as inputs."""
        if names not in self._overridden and self._parts is not None:
            lifted, weights = self._parts
            inputs = {**self.inputs, **{name: spec for name, spec in self.defaults.items() if name in names}}
            self._overridden[names] = _simple(lifted, weights, inputs)
        return self._overridden[names]

    def __getstate__(self) -> dict[str, Any]:
        parts = self._parts and (self._parts[0], {name: np.array(each) for name, each in self._parts[1].items()})
        model = self._model.bound({}) if isinstance(self._model, Graph) else pack(self._model)
        return {**self.__dict__, "_model": model, "_parts": parts, "_overridden": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        model = state["_model"]
        self.__dict__.update(state, _model=model if isinstance(model, Graph) else unpack(*model))

    def _current(self) -> Graph | ir.Model:
        """Return the model for all sizes; ModelError where its weights have changed since it was read.

        A model of onnx-ir has branches or loops that sizes of a call decide.
        """
        return self._model


def _simple(lifted: onnx.ModelProto, weights: Weights, inputs: Mapping[str, Spec]) -> Graph | ir.Model:
    """Return a lifted model for all sizes, with shapes inferred and constants folded."""
    graph = graph_of(lifted, weights, inputs)
    if graph is not None:
        fold(graph, is_open=True)
        return graph
    library(simplifies=True)
    import onnx_ir as ir

    model = ir.from_proto(lifted)
    for name, array in weights.items():
        model.graph.initializers[name].const_value = ir.Tensor(array, name=name)
    for name in inputs:
        model.graph.initializers.pop(name, None)
    return optimise(model, inputs)


def simplify(model: ir.Model) -> None:
    """Infer shapes, fold constants, take out control flow, and remove what is not read."""
    _fold(model)
    while onnx_control.take_out(model):
        _fold(model)
    _clean(model)


def optimise(model: ir.Model, inputs: Iterable[str], simplify: Callable[[ir.Model], None] = simplify) -> ir.Model:
    """Simplify a model of onnx-ir for all sizes, and return it."""
    import onnx_ir as ir

    by_name = {each.name: each for each in model.graph.inputs}
    model.graph.inputs[:] = [by_name[name] for name in inputs]
    _forget_results(model)
    with failing("shapes of the model cannot be inferred"):
        model.meta[WEIGHT_BYTES] = onnx_limits.weight_bytes(model)
        simplify(model)
    for name, value in model.graph.initializers.items():
        tensor: Any = value.const_value
        array = tensor.numpy()
        stable = array.dtype.name not in KEPT or tensor.numpy() is array
        if not stable or not array.flags.c_contiguous:  # one array for every signature
            value.const_value = ir.Tensor(np.asarray(array, order="C"), name=name)
    return model


def _bound(optimised: Any, shapes: Mapping[str, Sequence[int]]) -> ir.Model:
    """Return a copy of a model for inputs of these shapes: shapes inferred, and constants folded that follow."""
    import onnx_ir as ir

    with failing("shapes of the model cannot be inferred"):
        model = optimised.clone()  # weights are shared
        model.meta.update(optimised.meta)
        for each in model.graph.inputs:
            if each.name in shapes:
                each.shape = ir.Shape(shapes[each.name])
        _forget_results(model)
        simplify(model)
    return model


def _clean(model: ir.Model) -> None:
    """Remove what is not read and what is computed twice; constants become initializers."""
    import onnx_ir as ir
    from onnx_ir.passes import common

    cleaning = (
        common.RemoveUnusedNodesPass(),
        common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        common.LiftSubgraphInitializersToMainGraphPass(),
        common.DeduplicateInitializersPass(),
        common.CommonSubexpressionEliminationPass(),
        common.OutputFixPass(),
        common.NameFixPass(),
    )
    ir.passes.Sequential(*cleaning)(model)


def _fold(model: ir.Model) -> None:
    """Infer shapes and fold constants until nothing changes."""
    from onnxscript.optimizer import fold_constants_ir

    ask = onnx_limits.foldable(model)
    for _ in range(MOST_PASSES):
        found: Any = fold_constants_ir(model, onnx_shape_inference=True, should_fold=ask, **LIMITS)
        if not found.modified:
            break


def _forget_results(model: ir.Model) -> None:
    """Forget the shapes of results: declared ones could contradict bound sizes, and all are inferred again."""
    for each in model.graph.outputs:
        if each.producer() is not None:
            each.shape = None


def read(model: Any, inputs: Values | None = None) -> Source:
    """Read an ONNX model: a file, whose external data are mapped into memory, its bytes, or an onnx.ModelProto.

    `inputs` are values of inputs that become constants. Raises FileNotFoundError, ModelError for what is no valid
    model or no value of its inputs, and UnsupportedError for operators that are not served.
    """
    onnx = library()
    if isinstance(model, onnx.ModelProto):
        return _source(model, inputs)
    if isinstance(model, (bytes, bytearray, memoryview)):
        return _parsed(memoryview(model), None, inputs)
    if not isinstance(model, (str, os.PathLike)):
        raise TypeError(f"load takes a path, bytes or an onnx.ModelProto, not {shown(model)}")
    file = Path(model)
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no ONNX file is there")
    try:
        with open(file, "rb") as stream:
            data = mmap(stream.fileno(), 0, access=ACCESS_READ) if file.stat().st_size else b""
        return _parsed(memoryview(data), file, inputs)
    except ModelError as error:
        raise ModelError(f"{file}: {error}") from None


def _source(model: onnx.ModelProto, inputs: Values | None, files: onnx_weights.Files | None = None) -> Source:
    with failing("no valid ONNX model"):
        return Source(model, None, inputs, files)


def _parsed(data: memoryview, file: Path | None, inputs: Values | None) -> Source:
    data = data.cast("B")
    try:
        model = library().load_model_from_string(onnx_weights.lighten(data))
    except Exception as error:  # of protobuf
        raise ModelError(f"no valid ONNX model: {first_line(error)}") from None
    return _source(model, inputs, onnx_weights.Files(file and file.parent, data, file and file.resolve()))


def _fix(operators: onnx.ModelProto, weights: Weights, inputs: Values) -> None:
    """Turn inputs of a model without weights into constants; ModelError for values that do not fit."""
    declared = {each.name: each for each in operators.graph.input}
    for name, value in inputs.items():
        if name not in declared:
            raise ModelError(f"input {shown(name)} is none of {', '.join(map(shown, declared))}")
        spec, array = spec_of(declared[name]), np.asarray(value)
        if not np.can_cast(array.dtype, spec.dtype, "same_kind"):
            raise ModelError(f"input {shown(name)} is {array.dtype}, the model takes {spec.dtype.name}")
        fits = spec.shape is None or len(spec.shape) == array.ndim
        for size, extent in zip(spec.shape or (), array.shape, strict=False):
            fits &= not isinstance(size, int) or size == extent
        if not fits or (spec.dtype.kind in "iu" and not (array == array.astype(spec.dtype)).all()):
            raise ModelError(f"input {shown(name)} cannot be {shown(value)}, the model takes {spec}")
        kept = [each for each in operators.graph.initializer if each.name != name]
        del operators.graph.initializer[:]
        operators.graph.initializer.extend(kept)
        operators.graph.input.remove(declared[name])
        weights.pop(name, None)
        onnx_weights.add(operators, weights, array.astype(spec.dtype), name)


def _tidy(model: onnx.ModelProto) -> None:
    """Correct what the standard forbids and other runtimes accept: names of sizes and domains, the order of nodes."""
    onnx = library()
    inner = [*onnx_weights.messages(model, onnx.NodeProto)]
    opsets = (opset for each in (model, *model.functions) for opset in each.opset_import)
    for each in (*inner, *opsets):
        if each.domain == "ai.onnx":
            each.domain = ""
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for each in value.type.tensor_type.shape.dim:
            if each.dim_value < 0 or (each.dim_param and not SIZE.fullmatch(each.dim_param)):
                each.Clear()
    for node in inner:
        if not node.domain and ("com.microsoft", node.op_type) in FOREIGN and not _is_standard(node.op_type, model):
            node.domain = "com.microsoft"
    if all(each.domain != "com.microsoft" for each in model.opset_import):  # onnxruntime's optimisers leave it out
        model.opset_import.add(domain="com.microsoft", version=1)
    nodes = [*model.graph.node]
    makers = {name: place for place, node in enumerate(nodes) for name in node.output if name}
    reads = [{makers[name] for each in _with_inner(node) for name in each.input if name in makers} for node in nodes]
    if any(place <= max(each, default=-1) for place, each in enumerate(reads)):
        with suppress(graphlib.CycleError):  # which the checker refuses
            order = [*graphlib.TopologicalSorter(dict(enumerate(reads))).static_order()]
            del model.graph.node[:]
            model.graph.node.extend(nodes[place] for place in order)


def _with_inner(node: onnx.NodeProto) -> Iterable[onnx.NodeProto]:
    """Return a node, and those of its graphs."""
    has_graphs = any(each.HasField("g") or each.graphs for each in node.attribute)
    return onnx_weights.messages(node, library().NodeProto) if has_graphs else (node,)


def _is_standard(operator: str, model: onnx.ModelProto) -> bool:
    """Return whether the standard has an operator in the version of a model."""
    version = max((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), default=0)
    return bool(library().defs.has(operator, version, ""))


def library(simplifies: bool = False) -> ModuleType:
    """Import onnx, and what `optimise` needs; ModelError with the fixing command where a package is missing."""
    try:
        import onnx
        import onnx.checker
        import onnx.inliner

        if simplifies:
            import onnxscript  # noqa: F401
    except ImportError as error:
        raise ModelError(f"ONNX models cannot be read: {install.about(error) or error}") from None
    for package in ("onnxscript", "onnx_ir"):  # Python prints warnings that have no handler
        if not logging.getLogger(package).handlers:
            logging.getLogger(package).addHandler(logging.NullHandler())
    return onnx


def _check(operators: onnx.ModelProto, weights: Weights) -> None:
    """Raise ModelError where onnx's checker refuses a model; shapes may be missing, and types of results."""
    onnx = library()
    checked = onnx.ModelProto()
    checked.CopyFrom(operators)
    if checked.ir_version:  # older files list every constant as an input, or should
        checked.ir_version = max(4, checked.ir_version)
    graph, given = checked.graph, {each.name for each in checked.graph.input}
    del graph.initializer[:]
    for each in operators.graph.initializer:
        if each.name not in weights:
            graph.initializer.append(each)
        elif each.name not in given:  # without data the checker knows it as an input
            graph.input.append(onnx.helper.make_tensor_value_info(each.name, each.data_type, each.dims))
    for each in graph.output:
        if not each.HasField("type"):
            each.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    for each in (*graph.input, *graph.output):
        if each.type.HasField("tensor_type"):
            each.type.tensor_type.shape.SetInParent()
    newest = onnx.defs.onnx_opset_version()
    for each in checked.opset_import:
        if each.domain in ("", "ai.onnx") and each.version > newest:
            raise UnsupportedError(
                f"operators of version {each.version} of the standard are not served: onnx {onnx.__version__} knows "
                f"{newest}; update it, or export the model with an older opset"
            )
    with failing("no valid ONNX model", "correct it, or export it again"):
        onnx.checker.check_model(checked)


def _lift(model: onnx.ModelProto, weights: Weights) -> onnx.ModelProto:
    """Inline functions, and lift operators to OPSET."""
    onnx = library()
    if model.functions:  # onnx's converter drops them
        model = onnx.inliner.inline_local_functions(model)
    for node in model.graph.node:
        if node.op_type == "CastLike" and any(each.name == "saturate" and not each.i for each in node.attribute):
            # The optimiser turns it into a Cast that saturates.
            label = f"node {shown(node.name or node.output[0])} (CastLike)"
            raise UnsupportedError(f"{label}: casts like another tensor saturate; use Cast with saturate=0")
    lift(model, OPSET, weights)
    return model


def _graph(model: Any, declared: Mapping[str, Spec] | None, remedy: str) -> Graph:
    """Return the Graph of a model of onnx-ir; with `declared` inputs, branches may be left to the sizes of a call."""
    onnx_limits.refuse(model.graph, declared is not None, remedy)
    constants = {name: _constant(value) for name, value in model.graph.initializers.items()}
    specs: dict[str, Spec] = {}
    nodes = []
    for number, node in enumerate(model.graph):
        for value in node.outputs:
            if value.dtype is not None:
                specs[value.name] = Spec(dtype_of(value.dtype), extents_of(value.shape))
        made = node_of(node, number)
        if made.op == "Constant":
            (constant,) = made.attributes.values()
            constants[made.outputs[0]] = np.asarray(constant)
        else:
            nodes.append(made)
    inputs_of = {each.name: Spec(dtype_of(each.dtype), extents_of(each.shape)) for each in model.graph.inputs}
    outputs_of, weights = [each.name for each in model.graph.outputs], model.meta[WEIGHT_BYTES]
    return Graph(nodes, dict(declared or inputs_of), outputs_of, constants, specs, weight_bytes=weights)


def _constant(value: Any) -> np.ndarray:
    array = value.const_value.numpy()
    return array if array.flags.c_contiguous else array.copy()
