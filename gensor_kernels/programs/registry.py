"""The registry of kernel families: to add one, write its module and name it here."""

from __future__ import annotations

from .attention.family import Attention
from .contraction.mma.family import ContractionMma
from .contraction.patch.family import ContractionPatch
from .contraction.rewrite.align import ALIGNED
from .contraction.rewrite.ozaki import SLICED
from .contraction.rewrite.pack import PACKED, PACKED_WGMMA
from .contraction.rewrite.phases import PHASED, PHASED_MMA
from .contraction.rewrite.split_float import FLOATS_WGMMA
from .contraction.simt.family import ContractionSimt
from .contraction.strip.family import ContractionStrip
from .contraction.wgmma.family import ContractionWgmma
from .core.family import Family
from .gemv.family import Gemv
from .rows.family import RowsFamily
from .window.family import Window
from .winograd.family import Winograd

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        ContractionMma(),
        PACKED,
        ContractionPatch(),
        PHASED,
        PHASED_MMA,
        ContractionSimt(),
        SLICED,
        ContractionStrip(),
        ContractionWgmma(),
        ALIGNED,
        PACKED_WGMMA,
        FLOATS_WGMMA,
        Gemv(),
        RowsFamily(),
        Window(),
        Attention(),
        Winograd(),
    )
}
