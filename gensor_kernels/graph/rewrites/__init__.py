"""Rewrites of a graph, one class per rule, in the order in which they are applied."""

from gensor_kernels.graph.ir.graph import Graph

from .activations import Activations
from .aliases import Aliases
from .base import Rewrite
from .batch_norm import BatchNorms
from .channel_scale import ChannelScales
from .epilogue import Epilogues
from .padding import Paddings
from .patterns import Attentions, Gelus, LayerNorms
from .rotary import Rotaries

#: Rules in order; each is applied until it changes nothing.
RULES: tuple[Rewrite, ...] = (
    *(Aliases(), Gelus(), LayerNorms(), Attentions(), Rotaries()),
    *(BatchNorms(), ChannelScales(), Paddings(), Activations(), Epilogues()),
)


def rewritten(graph: Graph) -> Graph:
    """Apply every rule to a graph, and return it."""
    for rule in RULES:
        while rule.apply(graph):
            pass
    graph.tidy()
    return graph
