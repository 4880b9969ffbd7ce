"""The sizes at which a workload runs: its own, as far as memory suffices, or tiny sizes in a rehearsal."""

from __future__ import annotations

from benchmarks.gpu.harness.session import Session
from gensor_kernels.operators import operator
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.programs.core.family import Family

from .output_blocks import cuts_of

#: Reductions by multiples of this keep the alignment class.
WHOLE = 16
REHEARSED = {"batch": 2, "m": 40, "n": 24, "k": 40}


def shrunk(workload: Workload, limit: int) -> Workload:
    """Return the class at small sizes: the operator's sizes for verification where they depend on each other, else
    `smaller`."""
    declared = operator(workload.operator)
    if declared.parameters:
        try:
            return declared.resize(workload, REHEARSED)
        except NotImplementedError:
            pass  # windows: their sizes are independent of each other
    return smaller(workload, limit)


def smaller(workload: Workload, limit: int) -> Workload:
    """Return the same class and window with every size at most `limit` + 15, reduced by multiples of 16."""
    less = {name: size - -(-(size - limit) // WHOLE) * WHOLE for name, size in workload.sizes if size > limit}
    less |= {"batch": 2} if workload.size.get("batch", 0) > 2 else {}
    return workload.with_sizes(**{name: max(1, size) for name, size in less.items()})


def fitting(session: Session, workload: Workload, family: Family | None = None) -> Workload:
    """Return the workload at its real sizes, or as large a part as a third of the free memory holds; in a rehearsal
    tiny sizes, if possible ones that `family`, whose kernel is to run, serves."""
    if session.emulate:
        ways = [shrunk(workload, 40), smaller(workload, 40)]
        served = (way for way in ways if family and family.serves(way, session.arch) is None)
        return next(served, ways[0])
    cupy = session.device.xp
    free, _ = cupy.cuda.runtime.memGetInfo()
    if workload.bytes_moved() > free / 3:
        cupy.get_default_memory_pool().free_all_blocks()  # memory of earlier items is free, too
        free, _ = cupy.cuda.runtime.memGetInfo()
    while workload.bytes_moved() > free / 3:
        cuts = cuts_of(workload)
        # Rows of an image stay whole: the number of pixels of a result is part of its class.
        extents = {axis: extent for axis, extent in cuts.extents.items() if axis != "rows"}
        longest = max(extents, key=lambda axis: extents[axis], default=None)
        if longest is None or extents[longest] == 1:
            break
        half = extents[longest] // 2
        ranges = {axis: (0, extent) for axis, extent in cuts.extents.items()}
        ranges[longest] = 0, half // WHOLE * WHOLE if half > WHOLE else max(half, 1)
        workload = cuts.part(ranges).workload
    return workload
