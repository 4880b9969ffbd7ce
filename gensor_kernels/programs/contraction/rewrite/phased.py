"""contraction_phased: transposed convolutions with a stride on the CUDA cores, phase by phase.

The kernels are contraction_phased.cu and phases.cuh; what is said of them is
contraction_simt's, of the convolution that all phases are together (phases.py).
"""

from __future__ import annotations

from types import MappingProxyType

from gensor_kernels.programs.contraction.simt.family import ContractionSimt
from gensor_kernels.programs.contraction.stream_k import NAME as STREAM

from .phases import OfPhases


class ContractionPhased(OfPhases, ContractionSimt):
    """Multiply-adds of the taps that each phase has."""

    name = "contraction_phased"
    abi = 2
    source = "contraction_phased.cu"
    fixed = MappingProxyType({STREAM: 0, "epilogue_staged": 0})
