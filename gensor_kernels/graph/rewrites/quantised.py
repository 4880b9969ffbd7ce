"""Weights of products in 8 or 4 bits: of the file, or with scales that need no data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.graph.ir.graph import Graph, Node, Step
from gensor_kernels.graph.ir.links import Links
from gensor_kernels.operators.types.epilogue import MAX_STEPS
from gensor_kernels.shown import shown

from .base import rule

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


class Weights(NamedTuple):
    """A matrix (n, k) of a file: int8, or uint8 with two numbers of 4 bits in a byte."""

    numbers: np.ndarray
    #: Of 16 bits: (n,) or (n, groups).
    scales: np.ndarray
    #: Zero points in the shape of the scales, or None for 0 (of 4 bits: 8).
    zeros: np.ndarray | None
    kind: str


@rule("QuantisedWeights", "MatMul", "Gemm")
def keep_weights(links: Links, node: Node) -> bool:
    """MatMul(x, DequantizeLinear(w)) -> QuantisedLinear(x, w, scales, zeros), for x of 16 bits and constants."""
    graph, found, steps = links.graph, find_weights(links, node), _steps(links.graph, node)
    if found is None or steps is None or len(steps) > MAX_STEPS or not PLAIN.issuperset(step.name for step in steps):
        return False
    parts = {"numbers": found.numbers, "scales": found.scales, "zeros": found.zeros}
    names = [graph.add(f"{node.inputs[1]}.{what}", each) for what, each in parts.items() if each is not None]
    joined = node.joined if node.op == "MatMul" or len(node.inputs) < 3 else ("Add", *node.joined)
    attributes = {"weights": found.kind}
    new = Node("QuantisedLinear", (node.inputs[0], *names), node.outputs, attributes, node.name, steps, joined)
    links.replace(node, new)
    return True


def find_weights(links: Links, node: Node) -> Weights | None:
    """Return the weights of a 16-bit product that a DequantizeLinear of constants makes, if kernels can read them.

    Casts and transposes may be between. Scales along both axes, or along k without blocks of GROUPS, give None.
    """
    graph, spec = links.graph, links.graph.spec(node.inputs[0])
    if spec is None or spec.dtype.name not in ("float16", "bfloat16") or node.attribute("transA"):
        return None
    across, maker = bool(node.attribute("transB")), links.maker(node.inputs[1])
    while maker is not None and maker.op in ("Cast", "Transpose"):
        across ^= maker.op == "Transpose"
        maker = links.maker(maker.inputs[0])
    if maker is None or maker.op != "DequantizeLinear" or not all(each in graph.constants for each in maker.reads()):
        return None
    given = [graph.constants[each] for each in maker.reads()]
    if given[0].ndim != 2 or given[0].dtype.name not in ("int8", "int4", "uint4"):
        return None
    key, attributes = repr(sorted(maker.attributes.items())), (maker.attribute("axis"), maker.attribute("block_size"))

    @cache
    def make() -> tuple[np.ndarray | None, ...]:
        return _arranged(given, across, *attributes, spec.dtype)

    def kept(place: int) -> np.ndarray | None:
        how = ("kept", place, key, across, spec.dtype.name)
        found = graph.derived.array(how, given, lambda: _or_empty(make()[place]))
        return found if found.size else None

    numbers, scales = kept(0), kept(1)
    if numbers is None or scales is None:
        return None
    return Weights(numbers, scales, kept(2), "int8" if given[0].dtype == np.int8 else "int4")


def _or_empty(array: np.ndarray | None) -> np.ndarray:
    return np.zeros(0) if array is None else array


def _arranged(
    given: Sequence[np.ndarray], across: bool, axis: int, block: int, dtype: np.dtype[np.generic]
) -> tuple[np.ndarray | None, ...]:
    """Return (numbers, scales, zeros) as kernels read them, of weights, scales and zero points; `across` if (n, k)."""
    w, *rest = given
    axis %= 2
    of_k = axis == (1 if across else 0)
    matrix = np.ascontiguousarray(w if across else w.T)
    n, k = matrix.shape
    is_wide, offset = w.dtype == np.int8, 8 if w.dtype.name == "int4" else 0
    if rest[0].size == 1 and not block:
        scales, zeros = (np.broadcast_to(each.reshape(1), (n,)) for each in (rest[0], _zeros(rest)))
    elif not block:
        if of_k:
            return None, None, None
        scales, zeros = rest[0].ravel(), np.broadcast_to(_zeros(rest).ravel(), (n,))
    else:
        if not of_k or k % block or (block not in GROUPS and block % GROUPS[0]):
            return None, None, None
        times = max(block // GROUPS[0], 1)
        groups = rest[0] if across else rest[0].T
        scales = np.repeat(groups, times, axis=1)
        points = _zeros(rest)
        zeros = np.broadcast_to(
            np.repeat(points if across or points.size == 1 else points.T, times, axis=-1), scales.shape
        )
    narrow = scales.astype(dtype)
    if (np.abs(narrow.astype(np.float64) - scales) > np.abs(scales.astype(np.float64)) * 2.0**-8).any():
        return None, None, None  # too small or too large for 16 bits
    if is_wide:
        return matrix, np.ascontiguousarray(narrow), np.ascontiguousarray(zeros, np.int8) if zeros.any() else None
    if k % 2:
        return None, None, None
    pairs = (matrix.astype(np.int8) + offset).astype(np.uint8)
    zeros = (zeros + offset).astype(np.uint8)
    packed = np.ascontiguousarray(pairs[:, ::2] | pairs[:, 1::2] << 4)
    return packed, np.ascontiguousarray(narrow), None if (zeros == 8).all() else np.ascontiguousarray(zeros)


def _zeros(rest: Sequence[np.ndarray]) -> np.ndarray:
    """Return zero points as int8, 0 where there are none."""
    return rest[1].astype(np.int8) if len(rest) > 1 else np.zeros(1, np.int8)


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
