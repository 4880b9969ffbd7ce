"""The registry of kernel families: to add one, write its module and name it here."""

from __future__ import annotations

import json
from collections.abc import Mapping

from .attention.family import Attention
from .attention.tcgen05.family import AttentionTcgen05
from .attention.wgmma.family import AttentionWgmma
from .contraction.blocks.family import ContractionBlocks
from .contraction.mma.family import ContractionMma
from .contraction.patch.family import ContractionPatch
from .contraction.rewrite.align import ALIGNED, ALIGNED_TCGEN05
from .contraction.rewrite.ozaki import SLICED
from .contraction.rewrite.pack import PACKED, PACKED_TCGEN05, PACKED_WGMMA
from .contraction.rewrite.phases import PHASED, PHASED_MMA
from .contraction.rewrite.prepare import PREPARED, PREPARED_TCGEN05
from .contraction.rewrite.split_float import FLOATS_TCGEN05, FLOATS_WGMMA
from .contraction.simt.family import ContractionSimt
from .contraction.strip.family import ContractionStrip
from .contraction.tcgen05.family import ContractionTcgen05
from .contraction.weights_wgmma.family import ContractionWeightsWgmma
from .contraction.wgmma.family import ContractionWgmma
from .core.family import Family
from .core.program import Program
from .gemv.family import Gemv
from .pointwise.family import PointwiseFamily
from .quantise.family import Quantise
from .recurrent.family import RecurrentFamily
from .recurrent.slices.family import RecurrentSlices
from .rows.family import RowsFamily
from .window.family import Window
from .window.groups.family import WindowGroups

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        ContractionMma(),
        ContractionBlocks(),
        PACKED,
        ContractionPatch(),
        PHASED,
        PHASED_MMA,
        ContractionSimt(),
        SLICED,
        ContractionStrip(),
        ContractionWgmma(),
        ContractionTcgen05(),
        ContractionWeightsWgmma(),
        ALIGNED,
        ALIGNED_TCGEN05,
        PACKED_WGMMA,
        PACKED_TCGEN05,
        FLOATS_WGMMA,
        FLOATS_TCGEN05,
        PREPARED,
        PREPARED_TCGEN05,
        Gemv(),
        RecurrentFamily(),
        RecurrentSlices(),
        RowsFamily(),
        PointwiseFamily(),
        Quantise(),
        Window(),
        WindowGroups(),
        Attention(),
        AttentionWgmma(),
        AttentionTcgen05(),
    )
}


def current_family(name: str, abi: int) -> Family | None:
    """Return the family of this name; None where this version has none with this ABI, so that a kernel is outdated."""
    family = FAMILIES.get(name)
    return family if family is not None and family.abi == abi else None


def program_from_json(text: str | Mapping[str, object]) -> Program:
    """Return the Program of canonical JSON or of an already parsed mapping, its coordinates in its family's order.

    ValueError for text that is no Program.
    """
    body = json.loads(text) if isinstance(text, str) else text
    family = FAMILIES.get(str(body["family"])) if isinstance(body, Mapping) and "family" in body else None
    if family is None:
        return Program.from_json(text, None)
    return Program.from_json(body, family.names, family.always)
