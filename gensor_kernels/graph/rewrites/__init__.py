"""Rewrites of a graph: the rules, in the order in which they are applied."""

from gensor_kernels.graph.ir.graph import Graph
from gensor_kernels.graph.ir.links import Links, Potential
from gensor_kernels.graph.ir.options import DEFAULT, Options
from gensor_kernels.graph.lowerings.predicted import predict

from .attention import drop_guards, group_heads, grow_caches, join_attention, put_heads_last, simplify_masks
from .base import Rule
from .convolutions import fold_channel_scales, fold_paddings, unfold_batch_norms
from .dynamic import convolve_dynamic, multiply_dynamic, split_dynamic
from .elementwise import drop_aliases, join_epilogues, make_elementwise, turn_constants
from .integers import (
    convolve_integers,
    dequantise_constants,
    dequantise_others,
    move_integers,
    multiply_integers,
    requantise,
    sign_integers,
)
from .linears import move_views
from .norms import join_norms
from .patterns import Patterns, find_patterns
from .pointwise import join_programs, share_programs, spread_scales
from .precision import narrow_floats
from .products import join_gates, join_siblings, move_scales
from .quantised import keep_weights, quantise
from .rotary import find_rotary, rotate_elements
from .transposes import Transposes, move_transposes
from .views import shorten_views, slice_views

#: Rules that recognise operators and views in the output of exporters, for all dtypes.
PATTERNS = (
    *(drop_aliases, shorten_views, move_transposes, shorten_views, move_views, shorten_views, slice_views),
    *(shorten_views, find_patterns, find_rotary, drop_aliases, move_views, shorten_views),
)
#: Rules that form products and convolutions of quantised tensors.
INTEGERS = (sign_integers, move_integers, multiply_integers, multiply_dynamic, convolve_integers, convolve_dynamic)
#: Rules that fold constants of the file into others.
FOLDS = (turn_constants, unfold_batch_norms, fold_channel_scales, fold_paddings)
#: Rules that form kernels, which depend on the dtype.
KERNELS = (
    *(*INTEGERS, dequantise_constants),
    *(grow_caches, move_scales, drop_guards, join_attention, shorten_views, group_heads, simplify_masks, shorten_views),
    *(put_heads_last, move_views, shorten_views, join_gates, join_siblings, rotate_elements),
    *(*FOLDS, make_elementwise, join_epilogues, requantise, keep_weights, dequantise_others, join_norms),
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
        _apply(graph, (*PATTERNS, *INTEGERS, *FOLDS), potential)
        narrow_floats(graph, dtype)
    # Quantised products take no norms.
    _apply(graph, RULES if options.weights is None else RULES[:-1], potential)
    if options.weights is not None:
        quantise(graph, options.weights)
        graph.tidy()
    _apply(graph, (split_dynamic, spread_scales, join_programs), potential)
    share_programs(graph)
    return graph


def _apply(graph: Graph, rules: tuple[Rule | Transposes | Patterns, ...], potential: Potential | None) -> None:
    links = Links(graph, potential or predict)
    for rule in rules:
        rule.everywhere(links)
    links.store().tidy()
