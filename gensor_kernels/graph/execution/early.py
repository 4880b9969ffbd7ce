"""Refusals when a model is made, rather than when it is called."""

from __future__ import annotations

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.graph.ir.graph import Graph
from gensor_kernels.graph.ir.options import Options
from gensor_kernels.graph.lowerings.base import WINDOWS, spatial_axes
from gensor_kernels.graph.rewrites.quantised import LEAST, product_dtype
from gensor_kernels.shown import shown


def refuse_early(graph: Graph, options: Options) -> None:
    """Raise UnsupportedError for windows over more than two axes, complex numbers, and quantised float32 products."""
    for name, spec in (*graph.inputs.items(), *graph.specs.items()):
        if spec.dtype.kind == "c":
            raise UnsupportedError(f"tensor {shown(name)} is {spec.dtype.name}; a model takes real numbers")
    for node in graph.nodes:
        shape = graph.shape(node.inputs[0]) if node.inputs and node.inputs[0] else None
        if node.op in WINDOWS and shape is not None:
            spatial_axes(node, len(shape))
        if options.weights and options.dtype is None and node.op in ("Gemm", "MatMul"):
            matrix, known = graph.constants.get(node.inputs[1]), graph.spec(node.inputs[0]) is not None
            if matrix is not None and matrix.ndim == 2 and matrix.size >= LEAST and known:
                product_dtype(graph, node, options.weights)
