"""Rewrites of a graph, one class per rule, in the order in which they are applied."""

from gensor_kernels.graph.ir.graph import Graph
from gensor_kernels.graph.ir.links import Links
from gensor_kernels.graph.lowerings.predicted import predicted

from .activations import Activations
from .aliases import Aliases, Constants
from .attention import Attentions, GroupedHeads, Guards, HeadsLast, Masks
from .base import Potential, Rewrite, apply_everywhere
from .batch_norm import BatchNorms
from .channel_scale import ChannelScales
from .epilogue import Epilogues
from .gates import Gates
from .gelu import Gelus, Swishes
from .linears import Linears
from .norms import LayerNorms, RMSNorms
from .padding import Paddings
from .scales import Scales
from .siblings import Siblings
from .views import Selects, Views

#: Rules in order; each is applied until it changes nothing.
RULES: tuple[Rewrite, ...] = (
    *(Aliases(), Views(), Linears(), Views(), Selects(), Views()),
    *(Gelus(), Swishes(), LayerNorms(), RMSNorms(), Aliases(), Linears(), Views()),
    *(Scales(), Guards(), Attentions(), Views(), GroupedHeads(), Masks(), Views(), HeadsLast(), Linears(), Views()),
    *(Gates(), Siblings()),
    *(Constants(), BatchNorms(), ChannelScales(), Paddings(), Activations(), Epilogues()),
)


def rewritten(graph: Graph, potential: Potential = predicted) -> Graph:
    """Apply every rule to a graph, and return it; `potential` predicts the time of alternatives."""
    links = Links(graph)
    for rule in RULES:
        apply_everywhere(rule, links, potential)
    links.store().tidy()
    return graph
