"""Features of Programs for the Gaussian process that chooses batches: what each leans on, from its terms."""

from __future__ import annotations

import numpy as np

from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import DRAM_EFFICIENCY, SM_L2_BYTES, SUBCORES, Terms

F = np.float32
#: Number of features.
COUNT = 24
#: Stands for no multiplication in the ratios of copies: above it, every ratio is a float32.
LEAST = F(1e-30)


def features(terms: Terms, arch: Arch) -> np.ndarray:
    """Return the features of Programs on a part, (features, n) float32.

    First the clocks of an iteration for arithmetic, shared memory, L2 and DRAM as in `roofline.seconds`, divided by the
    largest of them; then those of one block alone and the sum of the first three; the rest are terms and their ratios.
    """
    t = terms
    pipe = np.maximum(t.math, t.multiplies + t.issue)
    quarter = np.ceil(t.warps * F(1 / SUBCORES)) * pipe
    resident_warps = t.residents * t.warps
    compute = np.ceil(resident_warps * F(1 / SUBCORES)) * pipe
    shared = t.residents * t.wavefronts * F(128 / arch.smem_bytes_per_clk)
    running = t.residents * F(arch.sms)
    l2 = t.l2_bytes * np.maximum(t.residents * F(1 / SM_L2_BYTES), running * F(1 / arch.l2_bytes_per_clk))
    dram_clk = arch.dram_gb_s * DRAM_EFFICIENCY / arch.clock_ghz
    dram = running * t.dram_bytes / (t.blocks * t.iterations) * F(1 / dram_clk)
    over = 1 / np.maximum(np.maximum(compute, shared), np.maximum(l2, dram))
    rounds = t.blocks / running
    per_multiply, products = 1 / np.maximum(t.multiplies, LEAST), np.maximum(t.math, LEAST)
    columns = (
        *(compute * over, shared * over, l2 * over, dram * over, (quarter + t.chain) * over),
        (compute + shared + l2) * over,
        *(t.issue * per_multiply, t.issue / products, t.warps, t.residents, resident_warps),
        *(t.registers, t.shared_bytes),
        *(t.chain / quarter, t.math, t.wavefronts / t.warps, t.wavefronts / t.warps * per_multiply),
        *(rounds, np.ceil(rounds) / rounds, t.l2_bytes, t.blocks, t.issue, t.dram_bytes),
        t.epilogue_busy / (products * t.iterations),
    )
    return np.stack([np.broadcast_to(column, t.blocks.shape) for column in columns]).astype(F)
