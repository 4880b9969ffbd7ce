"""Rewrites of a graph, one class per rule, in the order in which they are applied."""

from gensor_kernels.graph.ir.graph import Graph
from gensor_kernels.graph.ir.options import DEFAULT, Options

from .activations import Activations
from .aliases import Aliases
from .base import Rewrite
from .batch_norm import BatchNorms
from .channel_scale import ChannelScales
from .epilogue import Epilogues
from .padding import Paddings
from .patterns import Attentions, Gelus, LayerNorms
from .precision import narrowed
from .quantised import quantised

#: Rules in order; each is applied until it changes nothing.
RULES: tuple[Rewrite, ...] = (
    *(Aliases(), Gelus(), LayerNorms(), Attentions()),
    *(BatchNorms(), ChannelScales(), Paddings(), Activations(), Epilogues()),
)


#: Rules that make kernels, which depend on dtypes; the others read constants as the file has them.
KERNELS = (Attentions, Activations, Epilogues)


def rewritten(graph: Graph, options: Options = DEFAULT) -> Graph:
    """Apply every rule to a graph, and return it: in 16 bits, and with quantised weights, where that is asked for."""
    dtype = options.narrow()
    if dtype is not None:
        _apply(graph, tuple(rule for rule in RULES if not isinstance(rule, KERNELS)))
        narrowed(graph, dtype)
    _apply(graph, RULES)
    if options.weights is not None:
        quantised(graph, options.weights)
    graph.tidy()
    return graph


def _apply(graph: Graph, rules: tuple[Rewrite, ...]) -> None:
    for rule in rules:
        while rule.apply(graph):
            pass
    graph.tidy()
