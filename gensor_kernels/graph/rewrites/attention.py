"""Attention as exporters write it: two products around a softmax."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from gensor_kernels.graph.ir.graph import Node
from gensor_kernels.graph.ir.links import Links
from gensor_kernels.graph.lowerings.caches import GROWS

from .base import is_last, number, products, rule
from .views import reshape, swap_last_axes

#: Largest number that, added to a score, hides its key: the exponential is zero next to that of any other score.
HIDES = -1e9


@rule("Guards", "Where")
def drop_guards(links: Links, node: Node) -> bool:
    """Where(IsNaN(p), 0, p) -> p, for shares p = Softmax(scores + mask) of a mask that hides no row whole.

    PyTorch's attention has this guard for rows that see no key, whose scores are all -inf.
    """
    shares = _guard_input(links, node)
    softmax = None if shares is None else links.maker(shares, "Softmax")
    if shares is None or softmax is None or not _sees_keys(links, softmax.inputs[0]):
        return False
    return links.bypass(node, shares)


def _guard_input(links: Links, node: Node) -> str | None:
    """Return p of Where(IsNaN(p), 0, p)."""
    condition = links.maker(node.inputs[0], "IsNaN")
    if condition is None or condition.inputs[0] != node.inputs[2] or number(links.graph, node.inputs[1]) != 0:
        return None
    return node.inputs[2]


def _sees_keys(links: Links, scores: str) -> bool:
    """Return whether each row of scores has a finite one, given finite products."""
    added = links.maker(scores, "Add")
    if added is None:
        return links.maker(scores, "MatMul", "Mul", "Div") is not None
    return any(_is_finite(links, mask) for mask in added.inputs)


def _is_finite(links: Links, mask: str) -> bool:
    """Return whether each row of a mask has a finite element."""
    graph = links.graph
    if mask in graph.constants:
        constant = graph.constants[mask]
        return bool(np.isfinite(constant.astype(np.float32)).any(axis=-1).all()) if constant.ndim else False
    chosen = links.maker(mask, "Where")
    if chosen is None:
        return False
    values = [graph.constants.get(each) for each in chosen.inputs[1:]]
    return all(each is not None and np.isfinite(each.astype(np.float32)).all() for each in values)


class Pattern(NamedTuple):
    """An attention in parts: the product of its scores, what it is scaled with, and its mask ("" for none)."""

    product: Node
    scale: float
    mask: str


@rule("Attentions", "Softmax")
def join_attention(links: Links, node: Node) -> bool:
    """MatMul(Softmax(MatMul(q, kT) * scale + mask), v) -> Attention(q, k, v, mask), for heads of 16 bits.

    Tensors have the axes (batch, heads, rows, head). A guard of rows without keys disappears, because the kernel gives
    zeros there, and so do casts to float32 around the softmax. In float32 an attention is the same three kernels.
    """
    graph, last, shares = links.graph, _value_product(links, node), node.outputs[0]
    shape = graph.shape(node.inputs[0])
    if last is None or shape is None or not is_last(node.attribute("axis"), shape):
        return False
    for found in _patterns(links, node.inputs[0]):
        q, keys, v = found.product.inputs[0], found.product.inputs[1], last.inputs[1]
        if not _fits(links, (q, keys, v), found.mask, last.outputs[0]):
            continue
        turn = swap_last_axes(links, found.product, keys)
        inputs = (q, turn.outputs[0], v, *((found.mask,) if found.mask else ()))
        new = Node("Attention", inputs, last.outputs, {"scale": found.scale}, node.name)
        links.replace(last, turn, new)
        links.drop((shares,))
        return True
    return False


def _value_product(links: Links, softmax: Node) -> Node | None:
    """Return the product with the values, after casts and a guard."""
    name = softmax.outputs[0]
    for _ in range(3):
        if (last := links.reader(name, "MatMul")) is not None:
            return last if last.inputs[0] == name else None
        readers = links.readers(name)
        guards = [each for each in readers if each.op == "Where" and _guard_input(links, each) == name]
        if len(readers) == 2 and guards and not links.is_result(name):
            name = guards[0].outputs[0]
        elif (cast := links.reader(name, "Cast")) is not None:
            name = cast.outputs[0]
        else:
            return None
    return None


def _patterns(links: Links, name: str) -> Iterator[Pattern]:
    """Yield what computes the scores that a softmax reads."""
    name = _uncast(links, name)
    for scores, mask in _masks(links, name):
        scores = _uncast(links, scores)
        scale, product = 1.0, links.plain(scores, "MatMul", "Mul", "Div")
        if product is not None and product.op != "MatMul":
            value, scale = next(products(links.graph, product), ("", 1.0))
            product = links.plain(value, "MatMul")
        if product is not None:
            yield Pattern(product, scale, mask)


def _masks(links: Links, name: str) -> Iterator[tuple[str, str]]:
    """Yield (scores, mask) that a softmax reads; "" where there is no mask."""
    yield name, ""
    if (added := links.plain(name, "Add")) is not None:
        first, second = added.inputs
        yield first, second
        yield second, first


def _uncast(links: Links, name: str) -> str:
    cast = links.plain(name, "Cast")
    return name if cast is None else cast.inputs[0]


def _fits(links: Links, heads: tuple[str, str, str], mask: str, result: str) -> bool:
    """Return whether the tensors are those of an attention that a kernel computes."""
    specs = [links.graph.spec(name) for name in (*heads, result)]
    shapes = [links.graph.static(name) for name in heads]
    dtypes = {spec.dtype.name for spec in specs if spec is not None}
    if any(shape is None or len(shape) != 4 for shape in shapes) or dtypes not in ({"float16"}, {"bfloat16"}):
        return False
    q, keys, v = (shape or () for shape in shapes)
    if not (q[3] == keys[2] == v[3] and q[:2] == keys[:2] == v[:2] and keys[3] == v[2]):
        return False
    spec, shape = links.graph.spec(mask), links.graph.static(mask)
    if not mask:
        return True
    full = (*q[:3], v[2])
    fits = shape is not None and 0 < len(shape) <= 4 and spec is not None
    return fits and all(a in (1, b) for a, b in zip(reversed(shape or ()), reversed(full), strict=False))


@rule("Masks", "Attention")
def simplify_masks(links: Links, node: Node) -> bool:
    """Attention(q, k, v, triangle) -> Attention(q, k, v; is_causal); a mask that hides nothing disappears.

    The triangle is a constant that hides the keys after each query, and no others.
    """
    mask = links.graph.constants.get(node.input(3))
    shape = links.graph.static(node.inputs[0])
    if mask is None or shape is None or node.attribute("is_causal") or len(node.outputs) > 1:
        return False
    visible = mask if mask.dtype == bool else mask == 0
    hidden = ~mask if mask.dtype == bool else mask.astype(np.float64) <= _least(mask.dtype)
    if not (visible | hidden).all():
        return False
    if visible.all():
        links.change(node, inputs=(*node.inputs[:3], *(("", *node.inputs[4:]) if node.inputs[4:] else ())))
        return True
    whole = mask.ndim >= 2 and mask.shape[-2:] == (shape[2], shape[2])
    if not whole or len(node.inputs) > 4 or (visible != np.tri(shape[2], dtype=bool)).any():
        return False
    links.change(node, inputs=node.inputs[:3], attributes=node.attributes | {"is_causal": 1})
    return True


def _least(dtype: np.dtype) -> float:
    """Return the number up to which an element of a mask hides its key."""
    return -3e4 if dtype.name == "float16" else HIDES


@rule("GroupedHeads", "Attention")
def group_heads(links: Links, node: Node) -> bool:
    """Attention(q, Reshape(Expand(k)), Reshape(Expand(v))) -> Attention(q, k, v), with fewer heads of keys and values.

    The expansion repeats each head of keys for a group of neighbouring heads of queries; the kernel reads it once.
    """
    keys, values = (_repeat_source(links, each) for each in node.inputs[1:3])
    if keys is None or values is None or keys[1] != values[1] or len(node.inputs) > 4:
        return False
    views = []
    for name, shape in (keys, values):
        views.append(reshape(links, name, shape, links.fresh(name + ".heads", name, shape), node.name))
    inputs = (node.inputs[0], *(view.outputs[0] for view in views), *node.inputs[3:])
    links.replace(node, *views, Node("Attention", inputs, node.outputs, node.attributes, node.name))
    links.drop(node.inputs[1:3])
    return True


def _repeat_source(links: Links, name: str) -> tuple[str, tuple[int, ...]] | None:
    """Return (x, shape) where `name` repeats each head of x, seen with this shape, as neighbours."""
    view = links.maker(name, "Reshape")
    expand = None if view is None else links.maker(view.inputs[0], "Expand")
    if expand is None:
        return None
    small, large, whole = (links.graph.static(each) for each in (expand.inputs[0], expand.outputs[0], name))
    if small is None or large is None or whole is None or len(small) != 5 or small[2] != 1 or len(whole) != 4:
        return None
    if large != (*small[:2], large[2], *small[3:]) or whole != (small[0], small[1] * large[2], *small[3:]):
        return None
    return expand.inputs[0], (*small[:2], *small[3:])


@rule("HeadsLast", "Attention")
def put_heads_last(links: Links, node: Node) -> bool:
    """Transpose(Attention(q, k, v), (0, 2, 1, 3)) -> Attention(q, k, v; heads_last), which stores its result so.

    The reshape after it, to (batch, rows, heads * head), is then a view.
    """
    turn = links.reader(node.outputs[0], "Transpose")
    shape = links.graph.static(node.inputs[0])
    if turn is None or shape is None or len(shape) != 4 or len(node.outputs) > 1:
        return False
    if turn.attribute("perm") != (0, 2, 1, 3):
        return False
    links.take_in(node, turn, attributes=node.attributes | {"heads_last": 1})
    return True


@rule("GrowingCaches", "Attention")
def grow_caches(links: Links, node: Node) -> bool:
    """Attention(q, TensorScatter(Concat(past, k), k), ...; sizes) -> Attention(q, k, v, past), of one batch entry.

    Rows of several entries begin at different places; those of one begin after the past, and without a past all begin
    at 0.
    """
    shape = links.graph.static(node.inputs[0])
    if not node.input(6) or shape is None or len(node.outputs) > 1:
        return False
    new, past, caches = list[str](), list[str](), list[Node]()
    for name in node.inputs[1:3]:
        cache = links.maker(name, "TensorScatter")
        if cache is None or not cache.attribute(GROWS):
            return False
        grown = links.maker(cache.inputs[0], "Concat")
        is_first = cache.inputs[0] == cache.inputs[1]  # without a past
        if not is_first and (grown is None or shape[0] != 1):
            return False
        caches.append(cache)
        new.append(cache.inputs[1])
        past.append("" if grown is None or is_first else grown.inputs[0])
    for cache in caches:
        links.remove(cache)
    inputs, outputs = (node.inputs[0], *new, node.input(3), *past), (*node.outputs, *node.inputs[1:3])
    links.put(node, replace(node, inputs=inputs, outputs=outputs))
    links.drop([*(cache.inputs[0] for cache in caches), node.inputs[6]])
    return True
