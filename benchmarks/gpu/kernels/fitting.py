"""The sizes at which a workload runs: its own, as far as memory suffices, or tiny sizes in a rehearsal."""

from __future__ import annotations

from benchmarks.gpu.harness.session import Session
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators import operator
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.build.pool import Candidate

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


def fitting(session: Session, workload: Workload, kernel: Candidate | None = None) -> Workload:
    """Return the workload at its real sizes, or as large a part as a third of the free memory holds; in a rehearsal
    tiny sizes, if possible ones at which `kernel`, which is to run, is legal."""
    if session.emulate:
        ways = [shrunk(workload, 40), *(smaller(workload, limit) for limit in (40, 64, 128))]
        return next((way for way in ways if kernel and is_legal(kernel, way, session.arch)), ways[0])
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


def is_legal(kernel: Candidate, workload: Workload, arch: Arch) -> bool:
    """Return whether a kernel may run on a workload."""
    try:
        space = Space(workload, arch).family(kernel.program.family)
        return bool(space.legal(space.point(kernel.program)[None])[0])
    except (UnsupportedError, KeyError, ValueError):  # the family does not serve it, or has no such Program here
        return False
