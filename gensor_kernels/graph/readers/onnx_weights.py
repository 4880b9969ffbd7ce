"""Weights of an ONNX model, separated from its operators so that changes of these do not copy the weights."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
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

    from .onnx_nodes import Weights

#: Elements up to which a constant stays among the operators, for the inference of shapes.
SMALL = 1024
#: Bytes of the data of a tensor up to which protobuf reads them: it copies them several times.
LEAST = 8 * SMALL
#: Location of data in the model's own bytes; no file has this name.
OWN = "\0"
#: TensorProto.data_location, the field 14, that is EXTERNAL.
EXTERNAL = b"\x70\x01"
#: Fields from a ModelProto to the data of tensors: graph, then initializers, or nodes, attributes and their tensors.
RAW_DATA: dict[int, Any] = {9: None}
PATHS = {7: {5: RAW_DATA, 1: {5: {5: RAW_DATA}}}}


def lighten(data: memoryview) -> bytes:
    """Return the bytes of a ModelProto whose large data are external, at places in `data` itself.

    ValueError for bytes that are no messages of protobuf.
    """
    return _lighten(data, 0, len(data), PATHS)


def _lighten(data: memoryview, start: int, end: int, paths: Mapping[int, Any]) -> bytes:
    pieces, kept, last = list[Any](), start, b""
    while start < end:
        field, (key, at) = start, _varint(data, start)
        kind = key & 7
        if kind == 2:
            size, at = _varint(data, at)
        elif kind == 0:
            size = _varint(data, at)[1] - at
        else:
            size = {1: 8, 5: 4}.get(kind, len(data))
        start = at + size
        if start > end:
            raise ValueError("the file was cut")
        if kind != 2 or size <= LEAST or key >> 3 not in paths:
            continue
        inner = paths[key >> 3]
        if inner is None:
            made = _entry("location", OWN) + _entry("offset", str(at)) + _entry("length", str(size))
            last = EXTERNAL  # after the data, files may have another location
        else:
            body = _lighten(data, at, start, inner)
            made = _lengthened(key, body)
        pieces += [data[kept:field], made]
        kept = start
    return b"".join([*pieces, data[kept:end], last])


def _entry(key: str, value: str) -> bytes:
    """Return TensorProto.external_data of one key."""
    return _lengthened(13 << 3 | 2, _lengthened(1 << 3 | 2, key.encode()) + _lengthened(2 << 3 | 2, value.encode()))


def _lengthened(key: int, body: bytes) -> bytes:
    found, size = bytes([key]), len(body)
    while size > 127:
        found, size = found + bytes([size & 127 | 128]), size >> 7
    return found + bytes([size]) + body


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return a number of protobuf and the place after it."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte, at = data[at], at + 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("the file was cut")


class Files:
    """Files with the data of external tensors: those in the folder of a model, and its own bytes, of `file` if any."""

    def __init__(self, folder: Path | None, own: memoryview | None = None, file: Path | None = None):
        self._folder, self._own, self._file = folder, own, file
        self._mapped: dict[Path, np.ndarray] = {}
        #: Where data were read: a file, the first byte there, and how many follow.
        self.places: list[tuple[Path, int, int]] = []

    def read(self, tensor: onnx.TensorProto, name: str) -> np.ndarray:
        """Return the bytes of an external tensor: those of a file are mapped into memory.

        ModelError if the file is missing or too short.
        """
        from onnx import helper

        label, places = f"weights {shown(name)}", {each.key: each.value for each in tensor.external_data}
        location = places.get("location", "")
        try:
            bits = _bits(helper.tensor_dtype_to_np_dtype(tensor.data_type))
            size = int(np.ceil(np.prod(tensor.dims, dtype=float) * bits / 8))
        except (KeyError, TypeError, ValueError):
            raise ModelError(f"{label}: elements of type {tensor.data_type} cannot be in another file") from None
        try:
            offset, length = int(places.get("offset") or 0), int(places.get("length") or size)
        except ValueError:
            raise ModelError(f"{label}: {shown(location)} is read from {shown(places)}, which are no numbers") from None
        if location == OWN and self._own is not None:
            file, whole = self._file, np.frombuffer(self._own, np.uint8)
        else:
            file, whole = self.map(label, location)
        if min(offset, size) < 0 or length != size or offset + length > whole.size:
            raise ModelError(f"{label}: {size} bytes are not at byte {offset} of {shown(location)}: the file was cut")
        if file is not None:
            self.places.append((file, offset, length))
        found = whole[offset : offset + length]
        return found.copy() if location == OWN else found

    def array(self, tensor: onnx.TensorProto, name: str) -> np.ndarray:
        """Return the elements of a tensor."""
        import onnx

        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            found = self.read(tensor, name)
            dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
            if _bits(dtype) % 8 == 0:
                return found.view(dtype).reshape(tuple(tensor.dims))
            tensor = onnx.TensorProto(data_type=tensor.data_type, dims=tensor.dims, raw_data=found.tobytes())
        try:
            return onnx.numpy_helper.to_array(tensor)
        except Exception as error:
            fail(f"weights {shown(name)} have no array", error, "export the model again")

    def map(self, label: str, location: str) -> tuple[Path, np.ndarray]:
        """Return the path and the bytes of a file of the folder; ModelError if it is none, of `label`."""
        if self._folder is None:
            raise ModelError(f"{label} are in another file: load the model by its path")
        if not location:
            raise ModelError(f"{label} are in another file, which the model does not name")
        root, path = self._folder.resolve(), (self._folder / location).resolve()
        if os.path.isabs(location) or root not in path.parents:
            raise ModelError(f"{label} are outside of the model's folder: {shown(location)}")
        if not path.is_file():
            raise ModelError(f"{label} are in another file, which is missing: {shown(location)}")
        if path not in self._mapped:
            is_empty = not path.stat().st_size
            self._mapped[path] = np.zeros(0, np.uint8) if is_empty else np.asarray(np.memmap(path, np.uint8, "r"))
        return path, self._mapped[path]


def _bits(dtype: np.dtype[Any]) -> int:
    """Return the bits of an element in a file."""
    packed = next((bits for bits in (2, 4) if dtype.name.partition("_")[0].endswith(f"t{bits}")), 0)
    if dtype.hasobject:
        raise ValueError
    return packed or 8 * dtype.itemsize


def split(model: onnx.ModelProto, files: Files) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Split an onnx.ModelProto into a copy whose large constants have no data, and their arrays by name.

    Arrays are views of the model's memory, or of external files that are mapped into memory. External tensors
    elsewhere (in other attributes, functions, graphs within graphs) are read, so that no library opens their files.

    ModelError for external data outside the folder and for a file that is too short, UnsupportedError for more than
    LARGEST_FOLDED bytes to read and for sparse weights.
    """
    import onnx

    operators, weights = onnx.ModelProto(), dict[str, np.ndarray]()
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
            weights[node.output[0]] = files.array(tensor, node.output[0])
            _hollow(operators.graph.initializer.add(), tensor, node.output[0])
    for tensor in model.graph.initializer:
        if _is_large(tensor):
            weights[tensor.name] = files.array(tensor, tensor.name)
            _hollow(operators.graph.initializer.add(), tensor, tensor.name)
        else:
            operators.graph.initializer.add().CopyFrom(tensor)
    _read(operators, files)
    if model.graph.sparse_initializer:
        name = model.graph.sparse_initializer[0].values.name
        raise UnsupportedError(f"weights {shown(name)} are sparse, which is not served; store them as a dense tensor")
    return operators, weights


def add(operators: onnx.ModelProto, weights: Weights, array: np.ndarray, name: str) -> None:
    """Add a constant to a model that `split` returned."""
    import onnx

    tensor = onnx.numpy_helper.from_array(array, name)
    if _is_large(tensor):
        weights[name] = array
        _hollow(operators.graph.initializer.add(), tensor, name)
    else:
        operators.graph.initializer.add().CopyFrom(tensor)


def external_files(model: onnx.ModelProto) -> list[str]:
    """Return the names of the files that hold a model's external data."""
    entries = (each for tensor in external(model) for each in tensor.external_data)
    return sorted({each.value for each in entries if each.key == "location"} - {OWN})


def external(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield the tensors of a model whose data are in other files, wherever in the model they are."""
    import onnx

    for tensor in messages(model, onnx.TensorProto):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            yield tensor


def _read(operators: onnx.ModelProto, files: Files) -> None:
    """Read the tensors that are in other files, within a bound."""
    total = 0
    for tensor in external(operators):
        found = files.read(tensor, tensor.name)
        total += found.size
        if total > LARGEST_FOLDED:
            raise UnsupportedError(
                f"weights {shown(tensor.name)}: {total} bytes in other files that are no initializers of the graph are "
                f"not served, {LARGEST_FOLDED} are; make them initializers"
            )
        tensor.raw_data = found.tobytes()
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


def _hollow(target: onnx.TensorProto, tensor: onnx.TensorProto, name: str) -> None:
    """Make an initializer with the type and shape of a tensor, and no data."""
    target.name, target.data_type, target.raw_data = name, tensor.data_type, b""
    target.dims.extend(tensor.dims)


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
