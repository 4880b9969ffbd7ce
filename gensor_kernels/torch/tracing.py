"""A graph of Dynamo, and its surgery: which inputs are constants, and which sizes are open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gensor_kernels import install
from gensor_kernels.graph.readers.torch_module import placeholders, value_of

if TYPE_CHECKING:
    import torch


def torch_itself() -> Any:
    """Import torch; ModuleNotFoundError with the fixing command where it is not installed."""
    try:
        import torch
    except ModuleNotFoundError as error:
        sentence = f"gensor_kernels.torch needs PyTorch: {install.command('torch')}"
        raise ModuleNotFoundError(sentence, name=error.name) from None
    return torch


def results(gm: torch.fx.GraphModule) -> list[Any]:
    """Return what a graph returns, in order: nodes and Python values."""
    found = gm.graph.output_node().args[0]
    return list(found) if isinstance(found, (list, tuple)) else [found]


def frozen(gm: torch.fx.GraphModule, constants: dict[int, Any]) -> tuple[torch.fx.GraphModule, list[int]]:
    """Return a copy of a graph without the inputs that are constants or sizes of others, and the inputs it keeps.

    Parameters
    ----------
    gm : torch.fx.GraphModule
    constants : dict of int to object
        Values of inputs by position: tensors that become attributes, and numbers.

    Returns
    -------
    (torch.fx.GraphModule, list of int)
        The copy returns tensors alone, in a tuple.
    """
    import torch

    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    copy = torch.fx.GraphModule(gm, graph)
    tensors = [each for each in results(copy) if is_tensor(each)]
    output = graph.output_node()
    output.args = (tuple(tensors),)
    inputs, kept = placeholders(copy), []
    for place, node in enumerate(inputs):
        if place in constants:
            with graph.inserting_before(next(iter(graph.nodes))):
                node.replace_all_uses_with(_constant(copy, graph, place, constants[place]))
            graph.erase_node(node)
        elif is_tensor(node):
            kept.append(place)
    _bind_sizes(graph, inputs, kept)
    for node in graph.nodes:
        node.meta = {}  # AOTAutograd's tensors are usable only inside its trace
    graph.lint()
    copy.recompile()
    return copy, kept


def is_tensor(node: object) -> bool:
    """Return whether a node of a graph is a tensor."""
    import torch

    return isinstance(node, torch.fx.Node) and isinstance(value_of(node), torch.Tensor)


def _constant(copy: torch.fx.GraphModule, graph: torch.fx.Graph, place: int, value: Any) -> Any:
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    name = f"gensor_constant_{place}"
    if isinstance(value, torch.nn.Parameter):
        setattr(copy, name, value)
    else:
        copy.register_buffer(name, value)
    return graph.get_attr(name)


def _bind_sizes(graph: torch.fx.Graph, inputs: Sequence[torch.fx.Node], kept: Sequence[int]) -> None:
    """Replace inputs that are a size of a tensor by the question for that size."""
    import torch

    behind = inputs[kept[-1]].next if kept else None
    for node in inputs:
        if node._erased or is_tensor(node):
            continue
        if node.users:
            owner, axis = size_of(value_of(node), inputs, kept)
            with graph.inserting_before(behind):
                node.replace_all_uses_with(graph.call_function(torch.ops.aten.sym_size.int, (inputs[owner], axis)))
        graph.erase_node(node)


def size_of(symbol: Any, inputs: Sequence[torch.fx.Node], kept: Sequence[int]) -> tuple[int, int]:
    """Return the position of a tensor and its axis whose extent is this symbol; LookupError where there is none."""
    expression = getattr(getattr(symbol, "node", None), "expr", None)
    for owner in kept:
        for axis, extent in enumerate(value_of(inputs[owner]).shape):
            if expression is not None and getattr(getattr(extent, "node", None), "expr", None) == expression:
                return owner, axis
    raise LookupError("a number that is no size of an input")


def open_axes(node: torch.fx.Node) -> Iterator[int]:
    """Yield the axes of an input whose extents are symbols."""
    for axis, extent in enumerate(value_of(node).shape):
        if not isinstance(extent, int):
            yield axis
