"""One operator of ONNX's reference evaluator at a time, in float64: the reference of images, norms and attention."""

from functools import lru_cache
from typing import Any

import numpy as np
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

OPSET = 23  # the first with RMSNormalization and Attention
TYPES = {"f": TensorProto.DOUBLE, "i": TensorProto.INT64, "b": TensorProto.BOOL}


def run(op: str, *inputs: np.ndarray | None, **attributes: Any) -> np.ndarray:
    """The first output of `op` on these inputs; an input of None is omitted."""
    arrays = {f"x{i}": np.asarray(x, order="C") for i, x in enumerate(inputs) if x is not None}
    kinds = "".join("." if x is None else x.dtype.kind for x in inputs)
    frozen = tuple((name, tuple(v) if isinstance(v, list) else v) for name, v in sorted(attributes.items()))
    (found,) = _evaluator(op, kinds, frozen).run(None, arrays)
    return np.asarray(found)


@lru_cache(maxsize=4096)
def _evaluator(op: str, kinds: str, attributes: tuple[tuple[str, Any], ...]) -> ReferenceEvaluator:
    names = ["" if kind == "." else f"x{i}" for i, kind in enumerate(kinds)]
    given = [helper.make_tensor_value_info(n, TYPES[k], None) for n, k in zip(names, kinds, strict=True) if n]
    node = helper.make_node(op, names, ["y"], **{name: value for name, value in attributes})
    graph = helper.make_graph([node], op, given, [helper.make_tensor_value_info("y", TensorProto.UNDEFINED, None)])
    return ReferenceEvaluator(helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)]))
