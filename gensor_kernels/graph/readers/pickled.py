"""Models of onnx-ir as values that `pickle` takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import onnx_ir as ir


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
