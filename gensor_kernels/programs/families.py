"""The registry of kernel families: to add one, write its module and name it here."""

from __future__ import annotations

from .attention import Attention
from .contraction_aligned import ContractionAligned
from .contraction_floats_wgmma import ContractionFloatsWgmma
from .contraction_mma import ContractionMma
from .contraction_packed import ContractionPacked
from .contraction_packed_wgmma import ContractionPackedWgmma
from .contraction_patch import ContractionPatch
from .contraction_phased import ContractionPhased
from .contraction_phased_mma import ContractionPhasedMma
from .contraction_simt import ContractionSimt
from .contraction_sliced import ContractionSliced
from .contraction_strip import ContractionStrip
from .contraction_wgmma import ContractionWgmma
from .family import Family
from .gemv import Gemv
from .rows import RowsFamily
from .window import Window
from .winograd import Winograd

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
