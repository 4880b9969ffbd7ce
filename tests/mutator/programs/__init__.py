"""The Programs that the mutator runs its mutants in: small ones, which together make every site of the kernels run."""

from tests.families.workloads import images
from tests.mutator.engine.configuration import Configuration

from . import attention, contraction, gemv, pointwise, recurrent, rows, tcgen05, wgmma, window

__all__ = ["Configuration", "configurations"]


def configurations() -> list[Configuration]:
    """Return Programs in every form that changes the meaning of a shift by one: accesses of several elements and of
    one, tiles that the threads divide evenly and not, splits, both store routes."""
    return [
        *contraction.simt_configurations(),
        *contraction.mma_configurations("cp.async"),
        *contraction.mma_configurations("registers"),
        *contraction.convolution_configurations(),
        *images.packed_configurations(),
        *images.phased_configurations(),
        *images.patch_configurations(),
        *images.strip_configurations(),
        *recurrent.recurrent_configurations(),
        *recurrent.sliced_configurations(),
        *rows.rows_configurations(),
        *pointwise.pointwise_configurations(),
        *gemv.gemv_configurations(),
        *wgmma.wgmma_configurations(),
        *wgmma.aligned_configurations(),
        *wgmma.packed_wgmma_configurations(),
        *wgmma.floats_configurations(),
        *wgmma.weights_configurations(),
        *tcgen05.tcgen05_configurations(),
        *tcgen05.paired_configurations(),
        *tcgen05.scaled_configurations(),
        *tcgen05.rewritten_configurations(),
        *wgmma.prepared_wgmma_configurations(),
        *contraction.block_configurations(),
        *contraction.sliced_configurations(),
        *attention.attention_configurations("cp.async"),
        *attention.attention_configurations("registers"),
        *attention.attention_wgmma_configurations(),
        *attention.attention_tcgen05_configurations(),
        *window.window_configurations(),
        *window.groups_configurations(),
    ]
