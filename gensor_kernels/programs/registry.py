"""The registry of kernel families: to add one, write its module and name it here."""

from __future__ import annotations

from .attention.family import Attention
from .contraction.mma.family import ContractionMma
from .contraction.patch.family import ContractionPatch
from .contraction.rewrite.aligned import ContractionAligned
from .contraction.rewrite.floats_wgmma import ContractionFloatsWgmma
from .contraction.rewrite.packed import ContractionPacked
from .contraction.rewrite.packed_wgmma import ContractionPackedWgmma
from .contraction.rewrite.phased import ContractionPhased
from .contraction.rewrite.phased_mma import ContractionPhasedMma
from .contraction.rewrite.sliced import ContractionSliced
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
        ContractionPacked(),
        ContractionPatch(),
        ContractionPhased(),
        ContractionPhasedMma(),
        ContractionSimt(),
        ContractionSliced(),
        ContractionStrip(),
        ContractionWgmma(),
        ContractionAligned(),
        ContractionPackedWgmma(),
        ContractionFloatsWgmma(),
        Gemv(),
        RowsFamily(),
        Window(),
        Attention(),
        Winograd(),
    )
}
