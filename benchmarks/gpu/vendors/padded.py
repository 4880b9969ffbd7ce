"""Matrix products by CuPy on padded operands, for rows that are not multiples of 16 bytes.

Vendors' libraries are slow at such sizes. Operands are copied into padded ones, multiplied, and the result is copied
back; the copies count.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from gensor_kernels.dispatch.functions.vendor_call import library_call
from gensor_tuner.measure.operands import Block, Operands

ROW_BYTES = 16


def pad(operands: Operands) -> Callable[[], Any] | None:
    """Return the call for these operands, or None for other operators and epilogues and without padding."""
    workload, blocks, xp = operands.workload, operands.blocks, operands.device.xp
    if workload.operator != "matmul" or workload.epilogue or min(workload.align.values()) >= ROW_BYTES:
        return None
    whole = ROW_BYTES // min(block.storage.itemsize for block in blocks.values())
    given = {name: operands.typed(block) for name, block in blocks.items()}
    larger = {name: _zeros(xp, blocks[name], given[name].dtype, whole) for name in blocks}
    call = library_call(operands.device, workload, larger, ())
    if call is None:
        return None

    def run() -> Any:
        for name in "ab":
            _within(larger[name], given[name])[...] = given[name]
        product = call().reshape(larger["c"].shape)
        given["c"][...] = _within(product, given["c"])
        return given["c"]

    return run


def _zeros(xp: ModuleType, block: Block, dtype: np.dtype, whole: int) -> Any:
    """Return zeros of the padded shape, in the same order of rows and columns."""
    *batch, rows, columns = block.shape
    rows, columns = (-(-extent // whole) * whole for extent in (rows, columns))
    if block.strides[-1] == 1:
        return xp.zeros((*batch, rows, columns), dtype)
    return xp.zeros((*batch, columns, rows), dtype).swapaxes(-1, -2)


def _within(larger: Any, array: Any) -> Any:
    return larger[..., : array.shape[-2], : array.shape[-1]]
