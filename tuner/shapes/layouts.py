"""The columns of a shapes file that recordings add: how operands lie in memory, and what no kernel takes.

`layout_a`, `layout_b`, `layout_c`: the axis of the operand that has stride 1, `s` for none, with `*` behind it where
complex elements are taken conjugated; `align_a`, `align_b`,
`align_c`: bytes that divide its address and every other stride. Left empty they follow from the rest of the row, which
then means contiguous operands at 16-byte aligned addresses.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.shape_row import ALIGNMENTS, split
from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.types.epilogue import MAX_STEPS
from gensor_kernels.operators.types.workload import CONJUGATED, Workload

if TYPE_CHECKING:
    from .cells import Line

LAYOUTS = {"a": "mks", "b": "kns", "c": "ns"}
COLUMNS = (*(f"layout_{name}" for name in LAYOUTS), *(f"align_{name}" for name in LAYOUTS), "unsupported")


def laid_out(line: Line, workload: Workload) -> Workload:
    """`workload` with the layouts and alignments that the row gives; a RowError for impossible ones."""
    given = {column for column in COLUMNS if line.text(column, "")}
    if not given:
        return workload
    if line.text("order", "row").lower() == "col":
        raise line.fail("order", f"'col' cannot stand beside '{min(given)}', which is about the row-major problem")
    layouts, alignments = dict(workload.layout), dict(workload.alignment)
    conjugable = [*"ab"] if facts(workload.accumulator).is_complex else []
    for name in LAYOUTS:
        choices = [axis + mark for mark in ("", CONJUGATED)[: 1 + (name in conjugable)] for axis in LAYOUTS[name]]
        layouts[name] = line.choice(f"layout_{name}", choices, layouts[name])
        alignments[name] = _alignment(line, workload, name, layouts[name].removesuffix(CONJUGATED))
    return replace(workload, layout=tuple(layouts.items()), alignment=tuple(alignments.items()))


def _alignment(line: Line, workload: Workload, name: str, layout: str) -> int:
    """Bytes of an operand's alignment class: as given, else the most that its extent along the unit stride allows."""
    size = facts(workload.dtype[name]).itemsize
    row = 0 if layout == "s" else workload.size[layout] * size
    widths = [width for width in (16, 8, 4) if layout != "s" and width > size and row % width == 0] + [size]
    wanted = int(line.choice(f"align_{name}", ALIGNMENTS, str(widths[0])))
    if wanted not in widths:
        reason = (
            "elements without unit stride are read one by one" if layout == "s" else f"axis {layout} has {row} bytes"
        )
        possible = ", ".join(map(str, widths))
        raise line.fail(f"align_{name}", f"'{wanted}' is not one of {possible}: {reason}")
    return wanted


def operations(text: str) -> tuple[str, ...]:
    """Operation names of an epilogue cell: joined by `_`, and by `;` where `_` would read as another operation.

    UnsupportedError names a word that is no operation.
    """
    names = split(text)
    if len(names) > MAX_STEPS:
        raise UnsupportedError(f"epilogue '{text[:80]}' has {len(names)} operations, at most {MAX_STEPS} are served")
    return names
