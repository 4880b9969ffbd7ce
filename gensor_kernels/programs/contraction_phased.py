"""contraction_phased: transposed convolutions with a stride on the CUDA cores, phase by phase.

The kernels are cuda/contraction_phased.cu and phases.cuh; what is said of them is contraction_simt's, of the
convolution that all phases are together (phased.py).
"""

from __future__ import annotations

from types import MappingProxyType

from .contraction_simt import ContractionSimt
from .phased import OfPhases
from .stream_k import NAME as STREAM


class ContractionPhased(OfPhases, ContractionSimt):
    """Multiply-adds of the taps that each phase has."""

    name = "contraction_phased"
    abi = 2
    source = "contraction_phased.cu"
    fixed = MappingProxyType({STREAM: 0, "epilogue_staged": 0})
