"""Weights of products in 8 or 4 bits, with scales that need no data."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.graph.ir.graph import Graph, Node, Step
from gensor_kernels.operators.types.epilogue import MAX_STEPS
from gensor_kernels.shown import shown

#: Elements of a weight matrix below which a product gains nothing from fewer bytes.
LEAST = 1 << 14
#: Operations that the epilogue of such a product takes: neither gates nor norms.
PLAIN = {"add", "bias", "gelu", "gelu_tanh", "mul", "relu", "relu6", "scale", "sigmoid", "silu", "tanh"}
#: Elements of a row of 4-bit weights that share a scale, the first that divides the row.
GROUPS = (128, 64, 32)


def quantise(graph: Graph, weights: str) -> None:
    """MatMul(x, w) and Gemm(x, w, c) -> QuantisedLinear(x, numbers, scales), where w is a large constant.

    Numbers are int8 (n, k), or uint8 (n, k / 2) with two of 4 bits in a byte. A scale is the largest magnitude of a row
    of 8-bit weights over 127, of a group of 4-bit weights over 7: an element differs by at most half a scale. Epilogues
    stay.

    UnsupportedError for float32 products, which kernels do not multiply by quantised weights.
    """
    for place, node in enumerate(graph.nodes):
        matrix = _matrix(graph, node)
        if matrix is None:
            continue
        dtype = product_dtype(graph, node, weights)
        steps = _steps(graph, node)
        if steps is None or len(steps) > MAX_STEPS or not PLAIN.issuperset(step.name for step in steps):
            continue
        if weights == "int4" and matrix.shape[1] % GROUPS[-1]:
            continue
        numbers, scales = _in_bits(graph, matrix, weights, dtype)
        name = f"{node.inputs[1]}.{weights}"
        inputs = (node.inputs[0], graph.add(name, numbers), graph.add(f"{name}.scales", scales))
        joined = node.joined if node.op == "MatMul" else ("Add", *node.joined) if len(node.inputs) > 2 else node.joined
        graph.nodes[place] = replace(
            node, op="QuantisedLinear", inputs=inputs, epilogue=steps, joined=joined, attributes={"weights": weights}
        )


def product_dtype(graph: Graph, node: Node, weights: str) -> np.dtype[np.generic]:
    """Return the dtype of a product with quantised weights; UnsupportedError unless it has 16 bits."""
    spec = graph.spec(node.inputs[0])
    if spec is None or spec.dtype.name not in ("float16", "bfloat16"):
        name = "an unknown dtype" if spec is None else spec.dtype.name
        reason = f"weights={weights!r} needs products of 16 bits, not of {name}; load it with dtype='float16'"
        raise UnsupportedError(f"node {shown(node.name)} ({node.op}): {reason}")
    return spec.dtype


def _matrix(graph: Graph, node: Node) -> np.ndarray | None:
    """Return the constant weights of a product as a matrix (n, k), or None for other nodes and small weights."""
    if node.op not in ("MatMul", "Gemm") or node.attribute("transA"):
        return None
    weights, shape = graph.constants.get(node.inputs[1]), graph.shape(node.inputs[0])
    if weights is None or weights.ndim != 2 or weights.size < LEAST or shape is None or len(shape) < 2:
        return None
    if weights.dtype.name not in ("float16", "bfloat16", "float32"):
        return None
    return weights if node.attribute("transB") else weights.T


def _in_bits(
    graph: Graph, matrix: np.ndarray, weights: str, dtype: np.dtype[np.generic]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers and the scales of a matrix (n, k)."""

    @cache
    def make() -> tuple[np.ndarray, np.ndarray]:
        return (eight_bits if weights == "int8" else four_bits)(matrix.astype(np.float32), dtype)

    numbers = graph.derived.array((weights, "numbers", dtype.name), [matrix], lambda: make()[0])
    return numbers, graph.derived.array((weights, "scales", dtype.name), [matrix], lambda: make()[1])


def _steps(graph: Graph, node: Node) -> tuple[Step, ...] | None:
    """Return all operations after the product itself, or None for a Gemm whose term is scaled."""
    if node.op == "MatMul":
        return node.epilogue
    alpha, beta = node.attribute("alpha"), node.attribute("beta")
    first = () if alpha == 1 else (Step("scale", "", alpha),)
    if not node.input(2) or beta == 0:
        return (*first, *node.epilogue)
    return (*first, Step("add", node.inputs[2]), *node.epilogue) if beta == 1 else None


def eight_bits(matrix: np.ndarray, dtype: np.dtype[np.generic]) -> tuple[np.ndarray, np.ndarray]:
    """Return (int8 numbers, scales of `dtype`) of a float32 matrix (n, k), one scale for each row."""
    scales = _scales(np.abs(matrix).max(axis=1), 127, dtype)
    numbers = np.clip(np.rint(matrix / scales.astype(np.float32)[:, None]), -127, 127).astype(np.int8)
    return np.ascontiguousarray(numbers), scales


def four_bits(matrix: np.ndarray, dtype: np.dtype[np.generic]) -> tuple[np.ndarray, np.ndarray]:
    """Return (uint8 pairs of numbers, scales (n, groups) of `dtype`) of a float32 matrix (n, k); 32 divides k."""
    n, k = matrix.shape
    group = next(each for each in GROUPS if k % each == 0)
    groups = matrix.reshape(n, k // group, group)
    scales = _scales(np.abs(groups).max(axis=2), 7, dtype)
    numbers = np.clip(np.rint(groups / scales.astype(np.float32)[..., None]), -7, 7) + 8
    pairs = numbers.astype(np.uint8).reshape(n, k)
    return np.ascontiguousarray(pairs[:, ::2] | pairs[:, 1::2] << 4), scales


def _scales(largest: np.ndarray, most: int, dtype: np.dtype[np.generic]) -> np.ndarray:
    """Return scales as normal numbers of `dtype`."""
    found = np.maximum(largest / most, np.finfo(np.float16).tiny)
    return found.astype(dtype)
