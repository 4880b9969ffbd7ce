"""Products of a tensor's rows with one matrix, in the memory order of the rows."""

from __future__ import annotations

import numpy as np

from gensor_kernels.graph.ir.graph import Node
from gensor_kernels.graph.ir.links import Links

from .base import other_operand, rule
from .views import VIEWS, Axes, Part, chain_of, follow, steps_to, view_nodes


@rule("Linears", "MatMul", "Gemm")
def move_views(links: Links, node: Node) -> bool:
    """View(MatMul(View(x), w) + b) -> View(View(MatMul(View(x), w) + b)), where the first views keep the rows of x.

    Exporters flatten or exchange batch and rows before a product, and undo that after it. Views before the product are
    reduced to those that gather the summed axis, the others move after it and cancel with their inverse; a residual can
    then join the product. A Gemm with such views is MatMul and Add.
    """
    given = links.maker(node.inputs[0], *VIEWS)
    matrix = _matrix(links, node)
    if given is None or matrix is None or node.epilogue:
        return False
    last, bias = _with_bias(links, node)
    readers = links.readers(last.outputs[0])
    if links.is_result(last.outputs[0]) or not readers or any(each.op not in VIEWS for each in readers):
        return False
    chain = chain_of(links, given)
    source = chain[0].inputs[0]
    shape, result = links.graph.static(source), links.graph.spec(last.outputs[0])
    axes = None if shape is None or 0 in shape else follow(links.graph, chain, shape)
    if axes is None or shape is None or result is None:
        return False
    kept = _group(sorted(part for axis in axes[:-1] for part in axis), shape)
    if not kept or kept == axes[:-1]:
        return False
    _replace(links, node, last, source, (kept, axes), matrix, bias)
    return True


def _replace(
    links: Links, node: Node, last: Node, source: str, ways: tuple[Axes, Axes], matrix: str, bias: str
) -> None:
    graph, (kept, axes) = links.graph, ways
    shape, wide = graph.static(source), graph.shape(last.outputs[0])
    assert shape is not None and wide is not None
    rows, columns, like = tuple(_extent(axis) for axis in kept), wide[-1], last.outputs[0]
    new, name = [], source
    if front := steps_to((*kept, axes[-1]), shape):
        name = links.fresh(node.inputs[0] + ".rows", source, (*rows, _extent(axes[-1])))
        new += view_nodes(links, node, source, front, name)
    product = links.fresh(node.outputs[0] + ".product", like, (*rows, columns))
    new.append(Node("MatMul", (name, matrix), (product,), {}, node.name))
    if bias:
        added = links.fresh(like + ".sum", like, (*rows, columns))
        new.append(Node("Add", (product, bias), (added,), {}, last.name))
        product = added
    # The rows in the order that the product had, as axes of the new product.
    number = {part: (place, rank) for place, axis in enumerate(kept) for rank, part in enumerate(axis)}
    ordered = tuple(tuple(Part(number[part], part.extent) for part in axis) for axis in axes[:-1])
    tail = (Part((len(kept),), int(columns or 1)),)
    back = steps_to((*ordered, tail if tail[0].extent > 1 else ()), (*rows, int(columns or 1)))
    if not back:
        back = [("Reshape", (*rows, int(columns or 1)))]
    new += view_nodes(links, last, product, back, last.outputs[0])
    links.replace(last, *new)


def _group(rows: list[Part], shape: tuple[int, ...]) -> Axes:
    """Return parts as axes: those of one axis of the source together, and its axes of one element."""
    found = []
    for place, extent in enumerate(shape):
        axis = tuple(part for part in rows if part.path[0] == place)
        if axis or extent == 1:
            found.append(axis)
    return tuple(found)


def _extent(axis: tuple[Part, ...]) -> int:
    return int(np.prod([part.extent for part in axis], dtype=np.int64))


def _matrix(links: Links, node: Node) -> str | None:
    """Return the constant matrix (k, n) of a product, or None for other and for scaled products."""
    constant = links.graph.constants.get(node.inputs[1])
    if constant is None or constant.ndim != 2:
        return None
    if node.op == "MatMul":
        return node.inputs[1]
    scaled = node.attribute("alpha"), node.attribute("beta")
    term = node.input(2)
    if scaled != (1.0, 1.0) or node.attribute("transA") or (term and not _is_vector(links, term, node)):
        return None
    if not node.attribute("transB"):
        return node.inputs[1]
    return links.graph.add(node.inputs[1] + ".turned", constant.T)


def _is_vector(links: Links, name: str, node: Node) -> bool:
    constant, shape = links.graph.constants.get(name), links.graph.shape(node.outputs[0])
    return constant is not None and bool(shape) and constant.shape == (shape or ())[-1:]


def _with_bias(links: Links, node: Node) -> tuple[Node, str]:
    """Return the last node of a product with a bias, and the bias ("" for none)."""
    if node.op == "Gemm":
        return node, node.input(2)
    added = links.reader(node.outputs[0], "Add")
    bias = "" if added is None else other_operand(added, node.outputs[0])
    return (added, bias) if added is not None and _is_vector(links, bias, added) else (node, "")
