"""Programs that pass verification, and small ones that the emulator runs quickly."""

from typing import Any

from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.programs.core.family import Family
from gensor_kernels.programs.core.program import Program
from gensor_kernels.programs.space import Space
from gensor_tuner.build.pool import Candidate, candidate
from gensor_tuner.verify.verify import Verdict, verify
from tests.mutator.engine.configuration import Changed

THREAD = {"thread_m": 2, "thread_n": 4, "lanes_m": 4, "vthread_m": 1, "vthread_n": 1}
WARP = {"warp_m": 16, "warp_n": 16}
#: Coordinates of a small tile, by the name of the family.
SMALL = {
    "contraction_mma": {"block_m": 32, "block_n": 32} | WARP,
    "contraction_simt": {"block_m": 32, "block_n": 32} | THREAD,
    "gemv": {"threads_k": 4, "threads_l": 8, "items": 1, "small": 2},
}


def is_right(family: Family, program: Program, workload: Workload, **options: Any) -> Verdict:
    """Assert that a Program passes verification, and return its verdict."""
    verdict = verify(candidate(family, program, workload), workload, **options)
    assert verdict.outcome == "ok", f"{program.to_json()}\n{verdict.detail}"
    return verdict


def small_is_right(workload: Workload, family: str, values: dict[str, int]) -> Verdict:
    """Assert that a legal Program of a small tile, with these coordinates, passes verification without a cached
    verdict."""
    arch = lookup("sm_87")
    space = Space(workload, arch).family(family)
    program = space.family.starters(workload, arch)[0].replace(**SMALL[family] | values)
    assert space.legal(space.point(program)[None])[0]
    return is_right(space.family, program, workload, use_cache=False)


# ---- What verification says of a Program whose source has one text in place of another


def verdict_without(before: str, after: str, each: Candidate, workload: Workload) -> Verdict:
    """The verdict on a Program with `after` for `before`, which occurs once in the family's source."""

    def edit(text: str) -> str:
        assert text.count(before) == 1, before
        return text.replace(before, after)

    return verify(Changed(each.program, each.family, each.constants, edit), workload, use_cache=False)
