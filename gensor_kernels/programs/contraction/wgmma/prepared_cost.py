"""Tabulated cost of a prologue in registers: what contraction_prologue_wgmma has beside contraction_wgmma."""

from __future__ import annotations

from typing import Any

import numpy as np

from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.programs.contraction.problem import Extents
from gensor_kernels.programs.contraction.prologue import element_issue

#: Elements of A that are prepared together: a chunk of k, of which a step has CHUNKS; two of them are in registers.
CHUNKS = 2
#: Elements that tiles of a warpgroup may have along k.
MOST_K = 256
#: Registers of contraction_wgmma that a multiplying thread does not need here, and that it needs beside those of one
#: product.
SPARED_REGISTERS, PRODUCT_REGISTERS = 8, 8
#: Instructions of a step beside those of elements and products, and of a load of the vectors' elements with its
#: address; counted in the SASS of six Programs.
STEP_ISSUE, LOAD_ISSUE = 30.0, 3.0
#: Clocks from the first read of a chunk to its first product, beside its instructions: an estimate, not measured.
CHUNK_LATENCY = 80.0


def step_issue(block_k: Any, tiles: Any, e: Extents) -> Any:
    """Instructions of a warp's step: a thread has two rows of each tile, and a quarter of k."""
    assert e.prologue
    # A pair of elements of each vector for every 8 of k.
    loads = sum(-(-2 * facts(dtype).itemsize // align) for dtype, align in e.prologue.vectors)
    elements = tiles * block_k / 2
    return elements * element_issue(e.prologue, e.element) + STEP_ISSUE + block_k / 8 * loads * LOAD_ISSUE


def waits(math: Any, consumers: Any) -> Any:
    """Clocks of a step in which a warpgroup waits for a chunk that is prepared longer than the other one's products
    take; other warpgroups multiply meanwhile."""
    return CHUNKS * np.maximum(CHUNK_LATENCY * (1 + (consumers == 1)) / 2 - math / CHUNKS, 0)


def registers(block_k: Any, tiles: Any, e: Extents) -> Any:
    """Registers of a thread for elements of two chunks, one of them half prepared, and for elements of the vectors."""
    assert e.prologue
    vectors = sum(facts(dtype).itemsize for dtype, _ in e.prologue.vectors)
    return tiles * block_k * 5 // 8 + vectors * block_k // 32 - SPARED_REGISTERS
