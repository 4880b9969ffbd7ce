"""The Programs that the mutator runs its mutants in: small ones, which together make every site of the kernels run."""

from tests.mutator.engine.configuration import Configuration
from tests.programs.workloads.contraction_packed import packed_configurations
from tests.programs.workloads.contraction_patch import patch_configurations
from tests.programs.workloads.contraction_phased import phased_configurations
from tests.programs.workloads.contraction_strip import strip_configurations

from .attention import attention_configurations, attention_wgmma_configurations
from .contraction import convolution_configurations, mma_configurations, simt_configurations, sliced_configurations
from .gemv import gemv_configurations
from .rows import rows_configurations
from .wgmma import (
    aligned_configurations,
    floats_configurations,
    packed_wgmma_configurations,
    prepared_wgmma_configurations,
    weights_configurations,
    wgmma_configurations,
)
from .window import window_configurations

__all__ = ["Configuration", "configurations"]


def configurations() -> list[Configuration]:
    """Return Programs in every form that changes the meaning of a shift by one: accesses of several elements and of
    one, tiles that the threads divide evenly and not, splits, both store routes."""
    return [
        *simt_configurations(),
        *mma_configurations("cp.async"),
        *mma_configurations("registers"),
        *convolution_configurations(),
        *packed_configurations(),
        *phased_configurations(),
        *patch_configurations(),
        *strip_configurations(),
        *rows_configurations(),
        *gemv_configurations(),
        *wgmma_configurations(),
        *aligned_configurations(),
        *packed_wgmma_configurations(),
        *floats_configurations(),
        *weights_configurations(),
        *prepared_wgmma_configurations(),
        *sliced_configurations(),
        *attention_configurations("cp.async"),
        *attention_configurations("registers"),
        *attention_wgmma_configurations(),
        *window_configurations(),
    ]
