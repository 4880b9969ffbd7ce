"""The `op` column of a shapes file: which reader a row has, and which columns that reads.

To serve another op, write its reader in readers.py (product_readers.py) and name it here; an operator that is a
sum of products needs none.
"""

from __future__ import annotations

from collections.abc import Callable

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators import MODULES, shape_row
from gensor_kernels.operators.products import matmul

from . import layouts, readers
from . import product_readers as products
from .cells import Line
from .columns import Read

#: What every op reads.
COMMON = ("op", "dtype", "acc", "out", "epilogue", "count", "unsupported")
_WINDOW = (
    *("n", "h", "w", "c", "r", "s", "stride_h", "stride_w", "dilation_h", "dilation_w", *readers.PADS, "layout"),
    *("k_out", "groups", "weights", "prologue"),
)
_POOL = (*_WINDOW[:-4], "ceil_mode", "count_include_pad")
_KINDS: tuple[tuple[tuple[str, ...], Callable[[Line], Read], tuple[str, ...]], ...] = (
    (
        ("matmul", "batched_matmul", "grouped_matmul", "gemv"),
        products.matrix,
        (
            *("batch", "m", "n", "k", "dtype_b", "group", "zeros", "trans_a", "trans_b", "order", "prologue"),
            *layouts.COLUMNS,
        ),
    ),
    (("ragged_matmul",), products.groups, ("groups", "m", "n", "k", "trans_b")),
    (tuple(products.GATES), products.recurrent, ("hidden", "batch", "timesteps")),
    (
        ("conv2d", "grouped_conv2d", "depthwise_conv2d", "conv1d", "conv2d_transpose"),
        readers.convolution,
        _WINDOW,
    ),
    (("max_pool2d", "avg_pool2d", "global_avg_pool2d", "adaptive_avg_pool2d"), readers.pool, _POOL),
    ((*readers.ROWS, *readers.ELEMENTWISE), readers.reduction, ("shape", "axes")),
    (("attention",), readers.attend, ("batch", "heads", "kv_heads", "queries", "keys", "head", "causal")),
)
#: How the row of each op is read, and the columns that are read; others are kept as notes.
READERS = {op: reader for ops, reader, _ in _KINDS for op in ops}
COLUMNS = {op: (*COMMON, *names) for ops, _, names in _KINDS for op in ops}


def read(line: Line) -> Read:
    """What one row asks for; RowError where it says what is no op, or not what its op needs."""
    if line.text("unsupported", ""):  # a recorded call that no kernel takes, whatever its other cells
        return Read(unsupported=line.text("unsupported"))
    op = line.choice("op", READERS, None, MODULES)
    try:
        if op in MODULES and op != matmul.NAME and shape_row.is_whole(op, line.cells):
            return readers.whole(line)
        return READERS.get(op, readers.declared)(line)
    except UnsupportedError as error:
        return Read(unsupported=error.reason)


def columns(op: str) -> tuple[str, ...]:
    """The columns an op reads; others are kept as notes."""
    own = shape_row.columns(op) if op in MODULES else ()
    return (*COLUMNS.get(op, COMMON), *own)
