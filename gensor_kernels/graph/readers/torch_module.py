"""From a PyTorch module to a Graph: `torch.export` traces it, and PyTorch's ONNX exporter translates the trace.

The exporter's model is read in memory. Parameters in the host's memory are not copied: its initializers are views of
them, so no size of a file limits them.
"""

from __future__ import annotations

import ast
import contextlib
import math
import re
import threading
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from gensor_kernels import forking, install
from gensor_kernels.errors import ModelError, UnsupportedError
from gensor_kernels.graph.failures import first_line
from gensor_kernels.graph.ir.graph import OPSET, Graph, Spec
from gensor_kernels.graph.ir.options import Options
from gensor_kernels.shown import shown

from . import onnx_limits
from .onnx_file import LIMITS, Source, library, optimise
from .onnx_nodes import dtype_of, extents_of
from .torch_checked import check
from .torch_operators import translations

if TYPE_CHECKING:
    import onnx_ir as ir
    import torch


def value_of(node: torch.fx.Node) -> Any:
    """Return the traced value of a node: a fake tensor, a symbolic number, or None."""
    return node.meta.get("example_value", node.meta.get("val"))


def placeholders(gm: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """Return the input nodes of a graph, in order."""
    return list(gm.graph.find_nodes(op="placeholder"))


class Memory(NamedTuple):
    """Memory effects of a graph."""

    #: Inputs that it changes in place, by name.
    changes: tuple[str, ...]
    #: Whether a result shares memory with an input.
    returns_inputs: bool
    #: Whether other results share memory with each other.
    shares: bool


def memory_of(gm: torch.fx.GraphModule) -> Memory | None:
    """Return the memory effects of a graph of torch.fx from a run on fake tensors, or None if that run fails."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    nodes = placeholders(gm)
    values = [value_of(each) for each in nodes]
    mode = next((each.fake_mode for each in values if isinstance(each, FakeTensor)), None)
    if mode is None:
        return Memory((), False, False)
    try:
        fresh = (mode.shape_env or ShapeEnv()).ignore_fresh_unbacked_symbols()
        with mode, fresh, torch.no_grad():
            inputs = [_fresh(each) if isinstance(each, torch.Tensor) else each for each in values]
            tensors = [each for each in inputs if isinstance(each, torch.Tensor)]
            before = [getattr(each, "_version", 0) for each in inputs]
            found = torch.fx.Interpreter(gm).run(*inputs)
    except Exception:  # of any operator's fake kernel
        return None
    given = {each.untyped_storage()._cdata for each in tensors}
    outputs = [each for each in torch.utils._pytree.tree_leaves(found) if isinstance(each, torch.Tensor)]
    # A tensor that is returned twice is one result: AOTAutograd returns the new value of a buffer so.
    memory = [each.untyped_storage()._cdata for each in {id(each): each for each in outputs}.values()]
    own = [each for each in memory if each not in given]
    changed = (
        node.name
        for node, each, version in zip(nodes, inputs, before, strict=True)
        if getattr(each, "_version", 0) != version
    )
    return Memory(tuple(changed), len(own) < len(memory), len(set(own)) < len(own))


def _fresh(fake: torch.Tensor) -> torch.Tensor:
    """Return a new fake tensor of the same layout; changes of it change no other."""
    import torch

    return torch.empty_strided(fake.size(), fake.stride(), dtype=fake.dtype, device=fake.device)


#: PyTorch's tracers replace functions of the whole process while they run.
_tracing = threading.RLock()


@forking.in_child
def _after_fork() -> None:
    global _tracing
    _tracing = threading.RLock()


def _simplify(model: Any) -> None:
    """Inline functions and apply the rules of onnxscript, which PyTorch's exporter relies on."""
    import onnx_ir as ir
    from onnxscript.optimizer import optimize_ir

    optimize_ir(model, should_fold=onnx_limits.foldable(model), **LIMITS)
    model.graph.sort()  # a rule may put a node after its readers
    for node in model.graph:  # a rule makes bfloat16 weights float32
        if node.op_type not in ("Conv", "ConvTranspose", "Gemm") or node.inputs[0].dtype is None:
            continue
        for each in filter(None, node.inputs[1:]):
            if each.is_initializer() and each.const_value is not None and each.dtype != node.inputs[0].dtype:
                array = each.const_value.numpy().astype(node.inputs[0].dtype.numpy())
                each.const_value, each.dtype = ir.Tensor(array, name=each.name), node.inputs[0].dtype


class TorchSource(Source):
    """A module as PyTorch's exporter translates it to onnx-ir, sizes not bound.

    `weights` are parameters and buffers of the module, `ranges` the least and largest values of open extents.
    """

    remedy = 'torch.compile(module, backend="gensor") computes them eagerly'

    def __init__(
        self,
        model: ir.Model,
        weights: Sequence[torch.Tensor],
        ranges: Mapping[tuple[str, int], tuple[float, float]],
    ):
        self._versions = [(each, version(each)) for each in weights]
        self.inputs = {each.name: Spec(dtype_of(each.dtype), extents_of(each.shape)) for each in model.graph.inputs}
        self.bounds = {
            str((self.inputs[name].shape or ())[axis]): bounds
            for (name, axis), bounds in ranges.items()
            if name in self.inputs
        }
        self._results = {each.name: dtype_of(each.dtype) for each in model.graph.outputs}
        self.outputs = list(self._results)
        self.weight_files = []
        self._model = optimise(model, self.inputs, _simplify)
        _name_by_module(self._model)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_versions": []}  # a copy has its own weights

    def _current(self) -> Graph | ir.Model:
        if any(version(each) != before for each, before in self._versions):
            raise ModelError("parameters of the module have changed: call from_torch again")
        return self._model


def _name_by_module(model: ir.Model) -> None:
    """Name nodes by the path of their module and the operator, as far as the exporter says it: "layers.0/linear"."""
    taken: Counter[str] = Counter()
    for node in model.graph:
        try:
            path = ast.literal_eval(node.metadata_props["pkg.torch.onnx.name_scopes"])[:-1]
            operator = ast.literal_eval(node.metadata_props["pkg.torch.onnx.class_hierarchy"])[-1]
        except (KeyError, ValueError, SyntaxError):
            continue
        words = operator.split(".")  # "aten", "linear", "default"
        name = "/".join(filter(None, (path[-1] if path else "", words[1] if len(words) == 3 else operator)))
        taken[name] += 1
        node.name = name if taken[name] == 1 else f"{name}.{taken[name]}"


def version(tensor: torch.Tensor) -> int:
    """Return how often a tensor was changed in place; 0 for inference tensors, which do not count that."""
    return 0 if tensor.is_inference() else int(tensor._version)


def read(module: Any, args: Sequence[Any], keywords: Mapping[str, Any], dynamic_shapes: Any = None) -> TorchSource:
    """Export a module, or translate a program that was exported already.

    Raises ModelError for a module that cannot be exported, and UnsupportedError for operators that are not served.
    """
    torch = torch_library()
    if isinstance(module, torch.export.ExportedProgram):
        program = module
    else:
        dynamic_shapes = _with_dims(torch, dynamic_shapes)
        program = export(module, args, keywords, dynamic_shapes)
    refuse_changes(program)
    return translate(program, dynamic_shapes)


def _with_dims(torch: Any, shapes: Any) -> Any:
    """Return dynamic shapes with a `torch.export.Dim` in place of each name."""
    if isinstance(shapes, str):
        return torch.export.Dim(shapes)
    if isinstance(shapes, Mapping):
        return {key: _with_dims(torch, value) for key, value in shapes.items()}
    return type(shapes)(_with_dims(torch, each) for each in shapes) if isinstance(shapes, (list, tuple)) else shapes


def torch_library() -> ModuleType:
    """Import torch and onnx; ModelError with the fixing command where one is missing."""
    library(simplifies=True)
    try:
        import torch
        import torch.export
    except ImportError as error:
        raise ModelError(f"PyTorch modules cannot be read: {install.about(error) or error}") from None
    return torch


def torch_options(dtype: Any = None, weights: str | None = None) -> Options:
    """Return the options of a model, for a dtype by name or of torch; ValueError for unknown values."""
    name = str(dtype).removeprefix("torch.") if isinstance(dtype, torch_library().dtype) else dtype
    return Options(name, weights).validate()


def export(
    module: torch.nn.Module, args: Sequence[Any], keywords: Mapping[str, Any], dynamic_shapes: Any
) -> torch.export.ExportedProgram:
    """Return the exported program of a module; ModelError if tracing fails."""
    torch = torch_library()
    with _alone(torch):
        try:
            return torch.export.export(module, tuple(args), dict(keywords), dynamic_shapes=dynamic_shapes, strict=False)
        except Exception as error:  # also of the module's code
            raise ModelError(f"torch.export cannot trace {_label(module)}: {_reason(error)}") from error


def refuse_changes(program: torch.export.ExportedProgram) -> None:
    """Raise UnsupportedError where a program changes its inputs or buffers in place: a Graph has results alone."""
    memory = memory_of(program.graph_module)
    signature = (program if memory is not None else program.run_decompositions({})).graph_signature
    changed = [*signature.user_inputs_to_mutate.values(), *signature.buffers_to_mutate.values()]
    changed += memory.changes if memory is not None else ()
    if changed:
        raise UnsupportedError(
            f"the module changes {', '.join(sorted(set(changed)))} in place, which a graph of operators cannot; "
            "return the new value in place of it, and call module.eval() before"
        )


def translate(program: torch.export.ExportedProgram, dynamic_shapes: Any = None) -> TorchSource:
    """Return the Source of an exported program; UnsupportedError where an operator has no translation.

    Open sizes have the names of `dynamic_shapes`, where these are given.
    """
    torch = torch_library()
    refuse_numbers(program)
    weights = [*program.state_dict.values(), *program.tensor_constants.values()]
    absent = next((each.device for each in weights if each.device.type not in ("cpu", "cuda")), None)
    if absent is not None:
        raise ModelError(f"parameters of the module are on the device {absent}: move them to the host or a GPU before")
    with _alone(torch):
        try:
            found = _to_onnx(program, dynamic_shapes)
        except Exception as error:  # of the exporter
            raise _refusal(error) from error
        check(program, _to_onnx)
    return TorchSource(found.model, weights, dict(_ranges(program)))


def refuse_numbers(program: torch.export.ExportedProgram) -> None:
    """Raise UnsupportedError where a program returns something else than tensors and None."""
    for place, each in enumerate(program.graph.output_node().args[0]):
        value = value_of(each) if hasattr(each, "meta") else each
        if value is not None and not hasattr(value, "dtype"):
            what = "a size" if hasattr(value, "node") else f"the number {shown(value)}"
            raise UnsupportedError(
                f"result {place} of the module is {what}; a model returns tensors alone: leave it out, "
                "or return a tensor"
            )


def _ranges(program: torch.export.ExportedProgram) -> Iterator[tuple[tuple[str, int], tuple[float, float]]]:
    """Yield the least and largest value of each extent of an input that the program limits, by input and axis.

    A least value of 2 is not the caller's: the tracer assumes it for every size that is not 0 or 1 in the example.
    """
    for node in placeholders(program.graph_module):
        for axis, extent in enumerate(getattr(value_of(node), "shape", ())):
            found = program.range_constraints.get(getattr(getattr(extent, "node", None), "expr", None))
            if found is not None:
                least, most = (float(each) if each.is_finite else math.inf for each in (found.lower, found.upper))
                if least > 2 or most < math.inf:
                    yield (node.name, axis), (least if least > 2 else 0, most)


def _to_onnx(program: torch.export.ExportedProgram, dynamic_shapes: Any = None) -> torch.onnx.ONNXProgram:
    """Return what PyTorch's exporter makes of a program."""
    torch = torch_library()
    return torch.onnx.export(
        program,
        dynamo=True,
        opset_version=OPSET,
        dynamic_shapes=dynamic_shapes,
        optimize=False,  # shapes are bound first
        verbose=False,
        custom_translation_table=translations(torch),
    )


@contextlib.contextmanager
def _alone(torch: ModuleType) -> Iterator[None]:
    """Trace in one thread at a time, without gradients and the exporter's warnings.

    Dynamo waits meanwhile: methods of `torch.nn.Module` are others while `torch.export` runs, and Dynamo would trace
    them and guard on them.
    """
    from torch._dynamo import convert_frame

    compiling = getattr(convert_frame, "compile_lock", contextlib.nullcontext())
    with _tracing, compiling, torch.inference_mode(False), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _refusal(error: BaseException) -> Exception:
    """Return our error for one of the exporter, with the operator's name where that is what it lacks."""
    deepest = error
    while deepest.__cause__ is not None:
        deepest = deepest.__cause__
        found = re.search(r"No ONNX function found for <OpOverload\(op='([^']+)'", str(deepest))
        if found:
            return UnsupportedError(f"operator {shown(found[1])} of PyTorch has no translation to ONNX")
    return ModelError(f"the exported program cannot be translated: {first_line(deepest)}")


def _reason(error: BaseException) -> str:
    """Return what an error of the tracer says, without its advice for debugging."""
    pattern = r"^ +- You marked (\w+) as dynamic but your code specialized it to be a constant \((\d+)\)"
    broken = re.findall(pattern, str(error), re.MULTILINE)
    if broken:
        sizes = ", ".join(f"{name} is {size} in every call" for name, size in broken)
        return (
            f"dynamic_shapes leaves sizes open that the module fixes ({sizes}): take them out, or give an example of "
            "another size if it is 1"
        )
    return first_line(error)


def _label(module: torch.nn.Module) -> str:
    return getattr(module, "__name__", None) or type(module).__name__
