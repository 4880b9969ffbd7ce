"""An attention's sizes and element widths, as the vectorised code needs them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from gensor_kernels.operators.attention.attention import MASK_AXES
from gensor_kernels.operators.attention.forms import FORMS, WINDOW, Form, diagonals, mean_sizes, read_keys
from gensor_kernels.operators.declaration.prologue import vectors_of
from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.types.epilogue import OPERATIONS
from gensor_kernels.operators.types.workload import Workload

ELEMENT = 2


@dataclass(frozen=True)
class Sizes:
    """Sizes (an empty axis counts as 1). ``batch`` are pairs of a batch entry and a head of K and V, ``m`` the rows of
    each, queries times the heads that share it, ``n`` the elements of a head. Where sequences are ``ragged``, ``batch``
    are heads of K and V and ``m`` the rows of all ``sequences``, each of which counts as one of mean lengths.

    ``diagonal``: query i sees the keys below i + diagonal; ``first``: and from i + first on.  ``read``: keys that
    some query sees.  ``mask_bytes`` are the
    bytes of a mask's element, 0 without a mask; ``mask_whole`` the bytes of the mask; ``mask_heads``, ``mask_queries``
    and ``mask_keys`` whether it differs between heads of a group, queries and keys; ``mask_pair`` whether two keys of
    it are read at once; ``mask_large`` whether it makes scores as large as a float32 can be; ``extra`` the bytes of
    epilogue operands; ``steps`` epilogue operations, of which ``operands`` read one.  ``parts``: neighbouring
    entries that have the same keys and values.
    """

    form: Form

    batch: int
    sequences: int
    m: int
    n: int
    keys: int
    group: int
    diagonal: int
    first: int
    causal: bool
    bytes_c: int
    bytes_acc: int
    read: int
    mask_bytes: int
    mask_whole: float
    mask_heads: bool
    mask_queries: bool
    mask_keys: bool
    mask_pair: bool
    mask_large: bool
    extra: int
    steps: int
    operands: int
    parts: int = 1

    @property
    def rows(self) -> int:
        """Rows of an entry, or of a sequence."""
        return -(-self.m // self.sequences)

    def tiles(self, block: np.ndarray) -> np.ndarray:
        """Return the tiles of ``rows`` rows that are launched for an entry."""
        if not self.form.ragged:
            return -(-self.m // block)
        parts = min(self.sequences + 1, self.m)  # ragged_tiles in core/params.py
        return (self.m - parts) // block + parts

    def visible(self, rows: np.ndarray) -> np.ndarray:
        """Keys seen by rows of an entry."""
        return self._clipped(rows, self.diagonal)

    def unseen(self, rows: np.ndarray) -> np.ndarray:
        """Keys before the window of rows of an entry."""
        return self._clipped(rows, self.first)

    def _clipped(self, rows: np.ndarray, diagonal: int) -> np.ndarray:
        return np.clip(np.minimum(rows, self.rows - 1) // self.group + diagonal, 0, self.keys)


@lru_cache(maxsize=4096)
def sizes_of(workload: Workload) -> Sizes:
    """Return the numbers of an attention Workload."""
    form = FORMS[workload.operator]
    unchanged = ("causal", *WINDOW)
    size = {name: extent if name in unchanged else max(1, extent) for name, extent in mean_sizes(workload).items()}
    first, end = diagonals(size)
    queries, sequences = max(workload.size["queries"], 1), size["batch"] if form.ragged else 1
    group = max(size["heads"] // size["kv_heads"], 1)
    width = facts(workload.dtype["c"]).itemsize
    outputs = size["batch"] // sequences * size["heads"] * queries * size["head"]
    count = {"": 0, "n": size["head"], "mn": outputs}
    mask = facts(workload.dtype["e"]).itemsize if form.mask else 0
    axes = workload.size.get("mask_axes", 0)
    over = (size[axis] for axis, bit in MASK_AXES.items() if axes & bit)
    return Sizes(
        form=form,
        batch=size["batch"] // sequences * size["kv_heads"],
        sequences=sequences,
        m=queries * group,
        n=size["head"],
        keys=size["keys"],
        group=group,
        diagonal=end,
        first=first,
        causal=bool(size["causal"]),
        read=read_keys(workload),
        bytes_c=width,
        bytes_acc=4,
        mask_bytes=mask,
        mask_whole=float(np.prod(list(over), dtype=np.float64)) * mask,
        mask_heads=bool(axes & MASK_AXES["heads"]),
        mask_queries=bool(axes & MASK_AXES["queries"]),
        mask_keys=bool(axes & MASK_AXES["keys"]),
        mask_large=form.mask == "added" and workload.dtype["e"] != "float16",
        mask_pair=mask > 0 and workload.layouts["e"] != "s" and workload.align["e"] >= 2 * mask,
        extra=sum(count[OPERATIONS[x].operand] * (1 if x == "mask" else width) for x in workload.epilogue),
        steps=len(workload.epilogue),
        operands=vectors_of(workload.epilogue),
    )


def in_parts(e: Sizes, count: int) -> Sizes:
    """Return the numbers of an attention whose groups of heads are each divided into ``count`` parts, as entries."""
    return replace(e, batch=e.batch * count, m=e.m // count, group=e.group // count, parts=count)
