"""Memory effects of a graph of PyTorch: changes in place, and results that share memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch


def value_of(node: torch.fx.Node) -> Any:
    """Return the traced value of a node: a fake tensor, a symbolic number, or None."""
    return node.meta.get("example_value", node.meta.get("val"))


def placeholders(gm: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """Return the input nodes of a graph, in order."""
    return list(gm.graph.find_nodes(op="placeholder"))


class Memory(NamedTuple):
    """Memory effects of a graph."""

    #: Inputs that it changes in place, by name.
    changes: tuple[str, ...]
    #: Whether a result shares memory with an input.
    returns_inputs: bool
    #: Whether other results share memory with each other.
    shares: bool


def memory_of(gm: torch.fx.GraphModule) -> Memory | None:
    """Return the memory effects of a graph of torch.fx from a run on fake tensors, or None if that run fails."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    nodes = placeholders(gm)
    values = [value_of(each) for each in nodes]
    mode = next((each.fake_mode for each in values if isinstance(each, FakeTensor)), None)
    if mode is None:
        return Memory((), False, False)
    try:
        fresh = (mode.shape_env or ShapeEnv()).ignore_fresh_unbacked_symbols()
        with mode, fresh, torch.no_grad():
            inputs = [_fresh(each) if isinstance(each, torch.Tensor) else each for each in values]
            tensors = [each for each in inputs if isinstance(each, torch.Tensor)]
            before = [getattr(each, "_version", 0) for each in inputs]
            found = torch.fx.Interpreter(gm).run(*inputs)
    except Exception:  # of any operator's fake kernel
        return None
    given = {each.untyped_storage()._cdata for each in tensors}
    outputs = [each for each in torch.utils._pytree.tree_leaves(found) if isinstance(each, torch.Tensor)]
    # A tensor that is returned twice is one result: AOTAutograd returns the new value of a buffer so.
    memory = [each.untyped_storage()._cdata for each in {id(each): each for each in outputs}.values()]
    own = [each for each in memory if each not in given]
    changed = (
        node.name
        for node, each, version in zip(nodes, inputs, before, strict=True)
        if getattr(each, "_version", 0) != version
    )
    return Memory(tuple(changed), len(own) < len(memory), len(set(own)) < len(own))


def _fresh(fake: torch.Tensor) -> torch.Tensor:
    """Return a new fake tensor of the same layout; changes of it change no other."""
    import torch

    return torch.empty_strided(fake.size(), fake.stride(), dtype=fake.dtype, device=fake.device)
