"""Legality of quantise (quantise.cu)."""

from __future__ import annotations

from gensor_kernels.families.core.rules import GRID, LAUNCH, Rules
from gensor_kernels.families.pointwise.rules import COMPUTED, DERIVED, HELD, WARPS

RULES = Rules((WARPS, HELD, *GRID, *LAUNCH), derived=DERIVED, computed=COMPUTED)
