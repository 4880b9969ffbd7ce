"""Rewrites of a graph, one class per rule, in the order in which they are applied."""

from gensor_kernels.graph.ir.graph import Graph
from gensor_kernels.graph.ir.links import Links
from gensor_kernels.graph.ir.options import DEFAULT, Options
from gensor_kernels.graph.lowerings.predicted import predict

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
from .normed import NormedProducts
from .norms import LayerNorms, RMSNorms
from .padding import Paddings
from .precision import narrow_floats
from .quantised import quantise
from .rotary import RotaryEmbeddings
from .rotations import Rotations
from .scales import Scales
from .siblings import Siblings
from .views import Selects, Views

#: Rules that recognise operators and views in the output of exporters, for all dtypes.
PATTERNS: tuple[Rewrite, ...] = (
    *(Aliases(), Views(), Linears(), Views(), Selects(), Views()),
    *(Gelus(), Swishes(), LayerNorms(), RMSNorms(), RotaryEmbeddings(), Aliases(), Linears(), Views()),
)
#: Rules that form kernels, which depend on the dtype.
KERNELS: tuple[Rewrite, ...] = (
    *(Scales(), Guards(), Attentions(), Views(), GroupedHeads(), Masks(), Views(), HeadsLast(), Linears(), Views()),
    *(Gates(), Siblings(), Rotations()),
    *(Constants(), BatchNorms(), ChannelScales(), Paddings(), Activations(), Epilogues(), NormedProducts()),
)
#: All rules in order; each is applied until it changes nothing.
RULES = (*PATTERNS, *KERNELS)


def rewrite(graph: Graph, potential: Potential | None = None, options: Options = DEFAULT) -> Graph:
    """Apply every rule to a graph, and return it; `potential` predicts times, by default those of the device.

    In 16 bits, and with quantised weights, if `options` say so: constants are cast after the rules that read those of
    the file.
    """
    dtype = options.narrow()
    if dtype is not None:
        apply(graph, (*PATTERNS, Constants(), BatchNorms(), ChannelScales(), Paddings()), potential)
        narrow_floats(graph, dtype)
    # Quantised products take no norms.
    apply(graph, RULES if options.weights is None else RULES[:-1], potential)
    if options.weights is not None:
        quantise(graph, options.weights)
        graph.tidy()
    return graph


def apply(graph: Graph, rules: tuple[Rewrite, ...], potential: Potential | None = None) -> Graph:
    """Apply rules, in order, to a graph, and return it."""
    links, potential = Links(graph), potential or predict
    for rule in rules:
        apply_everywhere(rule, links, potential)
    links.store().tidy()
    return graph
