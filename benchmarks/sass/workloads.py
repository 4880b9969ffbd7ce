"""The workloads of the comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.shapes.reader import Row, read_shapes

FILE = Path(__file__).resolve().parent / "workloads.csv"
ARCHS = ("sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_100", "sm_120")
#: Rows whose product's m or queries are at most this number are limited by DRAM.
FEW = 16


@dataclass(frozen=True)
class Case:
    """A workload of the comparison and the row of the shapes file that it is from."""

    name: str
    row: Row
    workload: Workload

    @property
    def operator(self) -> str:
        """ "matmul", "conv2d", "attention", "softmax" or "layernorm"."""
        name = self.workload.operator
        return "attention" if name.startswith("attention") else "layernorm" if name.startswith("layernorm") else name

    @property
    def stream(self) -> str:
        """Which operand tiles come from DRAM, where DRAM limits the workload: "b" or "all"; "" where products do."""
        size = self.workload.size
        few = min((size[axis] for axis in ("m", "queries") if axis in size), default=FEW + 1)
        if self.operator in ("softmax", "layernorm"):
            return "all"
        return "" if few > FEW else "b" if self.operator == "matmul" else "all"

    @property
    def rows(self) -> int | None:
        """Rows of results that one tile may hold: m, queries by the heads of a group, or None without an axis m."""
        size = self.workload.size
        group = size.get("heads", 1) // size.get("kv_heads", 1)
        return size["queries"] * group if "queries" in size else size.get("m")

    @property
    def depth(self) -> int:
        """Products that each result sums: k, the taps of a convolution, the keys of attention; 0 for rows."""
        size = self.workload.size
        if self.operator == "conv2d":
            return size["r"] * size["s"] * size["c"]
        return size.get("k", size.get("keys", 0))


def cases(names: Sequence[str] = (), file: Path = FILE) -> list[Case]:
    """Return the workloads of a file, or those of these names; ValueError for another name, or a row that is none."""
    rows = {row.name: row for row in read_shapes(file)}
    unknown = [name for name in names if name not in rows]
    if unknown:
        raise ValueError(f"unknown workload {unknown[0]}: it is one of {', '.join(rows)}")
    chosen = [rows[name] for name in names or rows]
    broken = [row for row in chosen if row.workload is None]
    if broken:
        raise ValueError(f"{file}: {broken[0].error}")
    return [Case(row.name, row, row.workload) for row in chosen if row.workload is not None]
