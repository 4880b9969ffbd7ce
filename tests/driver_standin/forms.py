"""The forms of launch that are executed: for each family and form, one of the mutator's small Programs, and a cubin."""

from collections.abc import Iterator
from dataclasses import dataclass

from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.families.core.family import Launch
from gensor_kernels.families.core.program import Program
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.types.workload import Workload
from tests.mutator.engine.configuration import Configuration
from tests.mutator.programs import configurations


@dataclass(frozen=True)
class Form:
    """A Program to launch on a part, and its cubin; picklable."""

    name: str
    family: str
    words: str
    part: str
    program: Program
    workload: Workload
    cubin: bytes


def words(launches: tuple[Launch, ...]) -> str:
    """Return how launches are made: their number, and what else applies."""
    found = {
        "dependent": any(each.dependent for each in launches),
        "walking": any(each.per_sm for each in launches),
        "stream": any(each.together for each in launches),
        "cluster": any(each.cluster > 1 for each in launches),
        "maps": any(each.maps for each in launches),
        "pixels": any(map.window == "image" and map.copied_at is None for each in launches for map in each.maps),
        "stores": any(map.operand == "c" for each in launches for map in each.maps),
    }
    return " ".join([str(len(launches)), *(word for word, applies in found.items() if applies)])


def launches_of(each: Configuration) -> tuple[Launch, ...]:
    return each.candidate.family.launches(each.candidate.program, each.workload)


def every() -> Iterator[Configuration]:
    seen = set()
    for each in configurations():
        key = each.candidate.family.name, words(launches_of(each))
        if key not in seen:
            seen.add(key)
            yield each


def form(each: Configuration) -> Form:
    """Compile a Program: for Hopper where its launches may be dependent, else for its own part."""
    candidate, launches = each.candidate, launches_of(each)
    part = lookup("sm_90" if any(launch.dependent for launch in launches) else each.arch)
    binary = compile_cubin(candidate.source(), part.target)
    assert binary.error is None, binary.error
    name, family = f"{each.group}: {each.name}", candidate.family.name
    return Form(name, family, words(launches), part.part, candidate.program, each.workload, binary.cubin)
