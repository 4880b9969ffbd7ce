"""From a PyTorch module to a Graph: `torch.export` traces it, and PyTorch's ONNX exporter translates the trace.

The exporter's model is read where it lies in memory. Parameters in the host's memory are not copied: its initializers
are views of them, so no size of a file limits them.
"""

from __future__ import annotations

import contextlib
import re
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gensor_kernels import forking
from gensor_kernels.errors import ModelError, UnsupportedError
from gensor_kernels.graph.failures import first_line
from gensor_kernels.graph.ir.graph import Spec
from gensor_kernels.graph.ir.options import Options
from gensor_kernels.shown import shown

from .onnx_file import OPSET, Source, dtype_of, extents_of, library, optimised
from .torch_memory import memory_of
from .torch_operators import translations

INSTALL = "pip install 'gensor-kernels[torch]'"
#: PyTorch's tracers replace functions of the whole process while they run.
_tracing = threading.RLock()


@forking.in_child
def _after_fork() -> None:
    global _tracing
    _tracing = threading.RLock()


class TorchSource(Source):
    """A module as it was exported, sizes not bound.

    Parameters
    ----------
    model : onnx_ir.Model
        What PyTorch's exporter has made, in version OPSET of the operators.
    weights : sequence of torch.Tensor
        Parameters and buffers of the module.
    """

    remedy = 'torch.compile(module, backend="gensor") computes them eagerly'

    def __init__(self, model: Any, weights: Sequence[Any] = ()):
        self._versions = [(each, version(each)) for each in weights]
        self.inputs = {each.name: Spec(dtype_of(each.dtype), extents_of(each.shape)) for each in model.graph.inputs}
        self._results = {each.name: dtype_of(each.dtype) for each in model.graph.outputs}
        self.outputs = list(self._results)
        self.weight_files = []
        self._model = optimised(model, self.inputs)

    def _current(self) -> Any:
        if any(version(each) != before for each, before in self._versions):
            raise ModelError("parameters of the module have changed: call from_torch again")
        return self._model


def version(tensor: Any) -> int:
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
        dynamic_shapes = _named(torch, dynamic_shapes)
        program = exported(module, args, keywords, dynamic_shapes)
    refuse_changes(program)
    return translated(program, dynamic_shapes)


def _named(torch: Any, shapes: Any) -> Any:
    """Return dynamic shapes with a `torch.export.Dim` in place of each name."""
    if isinstance(shapes, str):
        return torch.export.Dim(shapes)
    if isinstance(shapes, Mapping):
        return {key: _named(torch, value) for key, value in shapes.items()}
    return type(shapes)(_named(torch, each) for each in shapes) if isinstance(shapes, (list, tuple)) else shapes


def torch_library() -> Any:
    """Import torch and onnx; ModelError with the fixing command where one is missing."""
    library()
    try:
        import torch
        import torch.export
    except ImportError as error:
        raise ModelError(f"PyTorch modules need further packages ({error.name} is missing): {INSTALL}") from None
    return torch


def torch_options(dtype: Any = None, weights: str | None = None) -> Options:
    """Return the options of a model, for a dtype by name or of torch; ValueError where there are none such."""
    name = str(dtype).removeprefix("torch.") if isinstance(dtype, torch_library().dtype) else dtype
    return Options(name, weights).checked()


def exported(module: Any, args: Sequence[Any], keywords: Mapping[str, Any], dynamic_shapes: Any) -> Any:
    """Return the `torch.export.ExportedProgram` of a module; ModelError where there is none."""
    torch = torch_library()
    with _alone(torch):
        try:
            return torch.export.export(module, tuple(args), dict(keywords), dynamic_shapes=dynamic_shapes, strict=False)
        except Exception as error:  # of the module's own code, too
            raise ModelError(f"torch.export cannot trace {_label(module)}: {_reason(error)}") from error


def refuse_changes(program: Any) -> None:
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


def translated(program: Any, dynamic_shapes: Any = None) -> TorchSource:
    """Return the Source of an exported program; UnsupportedError where an operator has no translation.

    Open sizes have the names of `dynamic_shapes`, where these are given.
    """
    torch = torch_library()
    with _alone(torch):
        try:
            found = torch.onnx.export(
                program,
                dynamo=True,
                opset_version=OPSET,
                dynamic_shapes=dynamic_shapes,
                optimize=False,  # shapes are bound first
                verbose=False,
                custom_translation_table=translations(torch),
            )
        except Exception as error:  # of the exporter, with the cause behind it
            raise _refused(error) from error
    weights = [*program.state_dict.values(), *program.tensor_constants.values()]
    return TorchSource(found.model, weights)


@contextlib.contextmanager
def _alone(torch: Any) -> Iterator[None]:
    """Trace in one thread at a time, without gradients and the exporter's warnings."""
    with _tracing, torch.inference_mode(False), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _refused(error: BaseException) -> Exception:
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


def _label(module: Any) -> str:
    return getattr(module, "__name__", None) or type(module).__name__
