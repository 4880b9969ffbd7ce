"""Programs of the families with warpgroup products that the emulator runs quickly."""

from gensor_kernels.families.core.family import Family
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.build.pool import Candidate, candidate

ARCH = lookup("sm_90")
PLAIN = {
    "block_m": 64, "block_n": 64, "block_k": 64, "cluster": 0, "persistent": 0, "stages": 2, "consumers": 1,
    "split_k": 1, "raster": 1, "epilogue_staged": 1, "epilogue_fixed": 0, "min_blocks": 1,
}  # fmt: skip


def small(family: Family, workload: Workload, **values: int) -> Candidate:
    """A Program of one small tile and warpgroup, with these coordinates."""
    return candidate(family, family.starters(workload, ARCH)[0].replace(**PLAIN | values), workload)
