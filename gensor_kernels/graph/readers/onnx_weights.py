"""Weights of an ONNX model, separated from its operators so that changes of these do not copy the weights."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.errors import ModelError, UnsupportedError
from gensor_kernels.graph.failures import fail
from gensor_kernels.shown import shown

from .onnx_limits import LARGEST_FOLDED, messages

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

#: Elements up to which a constant stays among the operators, for the inference of shapes.
SMALL = 1024


def split(model: onnx.ModelProto, folder: Path | None) -> tuple[onnx.ModelProto, dict[str, ir.TensorProtocol]]:
    """Split an onnx.ModelProto into a copy whose large constants have no data, and their tensors of onnx-ir by name.

    Tensors are views of the model's memory, or of files in `folder` that are mapped into memory. External tensors
    elsewhere (in other attributes, functions, graphs within graphs) are read, so that no library opens their files.

    ModelError for external data outside the folder and for a file that is too short, UnsupportedError for more than
    LARGEST_FOLDED bytes to read and for sparse weights.
    """
    import onnx

    operators, weights = onnx.ModelProto(), dict[str, "ir.TensorProtocol"]()
    for field, value in model.ListFields():
        if field.name != "graph":
            _copy_field(operators, field.name, value)
    for field, value in model.graph.ListFields():
        if field.name not in ("initializer", "node"):
            _copy_field(operators.graph, field.name, value)
    for node in model.graph.node:
        tensor = _constant(node)
        if tensor is None:
            operators.graph.node.add().CopyFrom(node)
        else:
            weights[node.output[0]] = _tensor(tensor, node.output[0], folder)
            _hollow(operators.graph.initializer.add(), tensor, node.output[0])
    for tensor in model.graph.initializer:
        if _is_large(tensor):
            weights[tensor.name] = _tensor(tensor, tensor.name, folder)
            _hollow(operators.graph.initializer.add(), tensor, tensor.name)
        else:
            operators.graph.initializer.add().CopyFrom(tensor)
    _read(operators, folder)
    if model.graph.sparse_initializer:
        name = model.graph.sparse_initializer[0].values.name
        raise UnsupportedError(f"weights {shown(name)} are sparse, which is not served; store them as a dense tensor")
    return operators, weights


def add(operators: onnx.ModelProto, weights: dict[str, ir.TensorProtocol], array: np.ndarray, name: str) -> None:
    """Add a constant to a model that `split` returned."""
    import onnx

    tensor = onnx.numpy_helper.from_array(array, name)
    if _is_large(tensor):
        weights[name] = _tensor(tensor, name, None)
        _hollow(operators.graph.initializer.add(), tensor, name)
    else:
        operators.graph.initializer.add().CopyFrom(tensor)


def external_files(model: onnx.ModelProto) -> list[str]:
    """Return the names of the files that hold a model's external data."""
    return sorted({_places(tensor).get("location", "") for tensor in external(model)})


def external(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield the tensors of a model whose data are in other files, wherever in the model they are."""
    import onnx

    for tensor in messages(model, onnx.TensorProto):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            yield tensor


def _read(operators: onnx.ModelProto, folder: Path | None) -> None:
    """Read the tensors that are in other files, within a bound."""
    total = 0
    for tensor in external(operators):
        found: Any = _external(tensor, tensor.name, folder)
        total += found.length
        if total > LARGEST_FOLDED:
            raise UnsupportedError(
                f"weights {shown(tensor.name)}: {total} bytes in other files that are no initializers of the graph are "
                f"not served, {LARGEST_FOLDED} are; make them initializers"
            )
        with open(found.path, "rb") as file:
            file.seek(found.offset)
            tensor.raw_data = file.read(found.length)
        tensor.ClearField("data_location")
        tensor.ClearField("external_data")


def _copy_field(target: Any, name: str, value: Any) -> None:
    """Copy one field of a message."""
    if hasattr(value, "ListFields"):
        getattr(target, name).CopyFrom(value)
    elif isinstance(value, (int, float, str, bytes)):
        setattr(target, name, value)
    else:
        getattr(target, name).extend(value)


def _constant(node: onnx.NodeProto) -> onnx.TensorProto | None:
    """Return the tensor of a Constant with many elements, else None."""
    if node.op_type != "Constant" or node.domain not in ("", "ai.onnx"):
        return None
    found = next((each.t for each in node.attribute if each.name == "value"), None)
    return found if found is not None and _is_large(found) else None


def _is_large(tensor: onnx.TensorProto) -> bool:
    """Return whether a tensor is kept apart: it has many elements, or its data are in another file."""
    import onnx

    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return True
    return tensor.data_type != onnx.TensorProto.STRING and np.prod(tensor.dims, dtype=float) > SMALL


def _tensor(tensor: onnx.TensorProto, name: str, folder: Path | None) -> ir.TensorProtocol:
    """Return the tensor of onnx-ir with the data of a TensorProto."""
    import onnx
    import onnx_ir as ir

    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return _external(tensor, name, folder)
    try:
        return ir.Tensor(onnx.numpy_helper.to_array(tensor), name=name)
    except Exception as error:
        fail(f"weights {shown(name)} have no array", error, "export the model again")


def _hollow(target: onnx.TensorProto, tensor: onnx.TensorProto, name: str) -> None:
    """Make an initializer with the type and shape of a tensor, and no data."""
    target.name, target.data_type, target.raw_data = name, tensor.data_type, b""
    target.dims.extend(tensor.dims)


def _places(tensor: onnx.TensorProto) -> dict[str, str]:
    return {each.key: each.value for each in tensor.external_data}


def _external(tensor: onnx.TensorProto, name: str, folder: Path | None) -> ir.ExternalTensor:
    """Return a tensor in a file of the model's folder; ModelError if the file is missing or too short."""
    import onnx_ir as ir

    label, places = f"weights {shown(name)}", _places(tensor)
    location = places.get("location", "")
    if folder is None:
        raise ModelError(f"{label} are in another file: load the model by its path")
    if not location:
        raise ModelError(f"{label} are in another file, which the model does not name")
    root, path = folder.resolve(), (folder / location).resolve()
    if os.path.isabs(location) or root not in path.parents:
        raise ModelError(f"{label} are outside of the model's folder: {shown(location)}")
    if not path.is_file():
        raise ModelError(f"{label} are in another file, which is missing: {shown(location)}")
    try:
        dtype = ir.DataType(tensor.data_type)
        size = int(np.ceil(np.prod(tensor.dims, dtype=float) * dtype.bitwidth / 8))
    except (ValueError, TypeError):
        raise ModelError(f"{label}: elements of type {tensor.data_type} cannot be in another file") from None
    try:
        offset, length = int(places.get("offset") or 0), int(places.get("length") or size)
    except ValueError:
        raise ModelError(f"{label}: {shown(location)} is read from {shown(places)}, which are no numbers") from None
    if min(offset, size) < 0 or length != size or offset + length > path.stat().st_size:
        raise ModelError(f"{label}: {size} bytes are not at byte {offset} of {shown(location)}: the file was cut")
    return ir.ExternalTensor(
        location, offset, length, dtype, shape=ir.Shape(tensor.dims), name=name, base_dir=str(root)
    )


def pack(model: Any) -> tuple[bytes, dict[str, np.ndarray], dict[str, Any]]:
    """Return a model as a protobuf without weights, its weights (protobuf limits their size), and its notes."""
    import onnx_ir as ir

    draft, weights = model.clone(), {}
    for name, value in draft.graph.initializers.items():
        weights[name] = np.array(value.const_value.numpy())
        value.const_value = ir.Tensor(np.zeros(0, weights[name].dtype), name=name)
    return ir.to_proto(draft).SerializeToString(), weights, dict(model.meta)


def unpack(operators: bytes, weights: dict[str, np.ndarray], notes: dict[str, Any]) -> ir.Model:
    """Return the model that `pack` was given."""
    import onnx
    import onnx_ir as ir

    model = ir.from_proto(onnx.load_model_from_string(operators))
    model.meta.update(notes)
    for name, array in weights.items():
        value = model.graph.initializers[name]
        value.const_value = ir.Tensor(array, name=name)
        value.shape, value.dtype = ir.Shape(array.shape), value.const_value.dtype
    return model


def in_memory(tensor: ir.TensorProtocol) -> ir.Tensor:
    """Return a tensor of onnx-ir whose elements are in no file."""
    import onnx_ir as ir

    return ir.Tensor(np.array(tensor.numpy()), name=tensor.name)
