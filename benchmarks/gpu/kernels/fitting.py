"""The sizes a workload is run at: its own, as much as memory holds, or tiny ones in a rehearsal."""

from __future__ import annotations

from benchmarks.gpu.harness.session import Session
from gensor_kernels.operators import operator
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.operators.windows import winograd
from gensor_kernels.programs.core.family import Family

from .output_blocks import cuts_of

#: Axes of parts that alignment classes say nothing of, or whose multiples of 16 they allow.
WHOLE = 16
REHEARSED = {"batch": 2, "m": 40, "n": 24, "k": 40}


def shrunk(workload: Workload, limit: int) -> Workload:
    """The same class at small sizes: what an operator whose sizes depend on each other is verified at, else those of
    `smaller`."""
    declared = operator(workload.operator)
    # What an operator is verified at moves and dilates windows, which Winograd's algorithm does not.
    if declared.parameters and workload.math != winograd.MATH:
        try:
            return declared.sized(workload, REHEARSED)
        except NotImplementedError:
            pass  # windows: their sizes are independent of each other
    return smaller(workload, limit)


def smaller(workload: Workload, limit: int) -> Workload:
    """The same class, and window, with every size at most `limit` + 15, the same multiple of 16 apart as before."""
    less = {name: size - -(-(size - limit) // WHOLE) * WHOLE for name, size in workload.sizes if size > limit}
    less |= {"batch": 2} if workload.size.get("batch", 0) > 2 else {}
    return workload.with_sizes(**{name: max(1, size) for name, size in less.items()})


def fitting(session: Session, workload: Workload, family: Family | None = None) -> Workload:
    """The workload at its real sizes, or as much of it as a third of the free memory holds; tiny in a rehearsal, and if
    there are such sizes, ones that `family` serves, whose kernel is to run."""
    if session.emulate:
        ways = [shrunk(workload, 40), smaller(workload, 40)]
        served = (way for way in ways if family and family.serves(way, session.arch) is None)
        return next(served, ways[0])
    cupy = session.device.xp
    free, _ = cupy.cuda.runtime.memGetInfo()
    if workload.bytes_moved() > free / 3:
        cupy.get_default_memory_pool().free_all_blocks()  # what earlier items had is free, too
        free, _ = cupy.cuda.runtime.memGetInfo()
    while workload.bytes_moved() > free / 3:
        cuts = cuts_of(workload)
        # Rows of an image are left whole: how many pixels a result has is part of its class.
        extents = {axis: extent for axis, extent in cuts.extents.items() if axis != "rows"}
        longest = max(extents, key=lambda axis: extents[axis], default=None)
        if longest is None or extents[longest] == 1:
            break
        half = extents[longest] // 2
        ranges = {axis: (0, extent) for axis, extent in cuts.extents.items()}
        ranges[longest] = 0, half // WHOLE * WHOLE if half > WHOLE else max(half, 1)
        workload = cuts.part(ranges).workload
    return workload
