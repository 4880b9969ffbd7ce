"""Time saved by dependent launches, which start while the launch in front drains: the same kernels with and without."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from gensor_kernels.devices.dependent import FEATURE
from gensor_kernels.machine.roofline import HIDDEN_US
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.operators.windows import conv
from gensor_kernels.programs.core.family import Family, Launch
from gensor_kernels.programs.core.program import Program
from gensor_kernels.programs.registry import FAMILIES
from gensor_tuner.build.pool import candidate
from gensor_tuner.measure.timer import CudaClock, HostClock, Timer

from .families import compiled
from .harness.session import Item, Session

#: Families and small problems, in whose time a launch is a large part.
IMAGE = {"n": 1, "h": 14, "w": 14, "c": 256, "k_out": 256, "r": 3, "s": 3, "pad_top": 1, "pad_left": 1}
IMAGE |= {"pad_bottom": 1, "pad_right": 1}
SMALL = (
    ("contraction_packed", conv.workload(**IMAGE, layout="nchw", dtype="float16")),  # type: ignore[arg-type]
    ("contraction_mma", matmul.workload(64, 512, 8192, dtype="float16", trans_b=True)),
    ("contraction_wgmma", matmul.workload(64, 512, 8192, dtype="float16", trans_b=True)),
)


class Ordinary:
    """A family whose launches all wait for the end of the launch in front."""

    def __init__(self, family: Family):
        self._family = family

    def __getattr__(self, name: str) -> Any:
        return getattr(self._family, name)

    def launches(self, program: Program, workload: Workload) -> tuple[Launch, ...]:
        """Return the launches of the family, none of them dependent."""
        return tuple(replace(each, dependent=False) for each in self._family.launches(program, workload))


def items(session: Session) -> Iterator[Item]:
    """Yield one item per family with dependent launches, if the part has them."""
    if FEATURE in session.arch.features:
        for name, workload in SMALL:
            yield Item(f"dependent launch {name}", partial(compared, session, FAMILIES[name], workload))


def compared(session: Session, family: Family, workload: Workload) -> dict[str, Any]:
    """Return the median microseconds of the first dependent starter, both ways, and the predicted saving."""
    if session.emulate:
        workload = tiny(workload)
    program = next(each for each in family.starters(workload, session.arch) if _waiting(family, each, workload))
    made = candidate(family, program, workload)
    (code,) = compiled(session, [made])
    if isinstance(code, Exception):
        raise code
    other: Any = Ordinary(family)
    timer = Timer(session.device, HostClock() if session.emulate else CudaClock(session.device))
    (early, late), _ = timer.beside(workload, [(made, code), (replace(made, family=other), code)], {})
    return {
        "key": workload.key(),
        "program": program.to_json(),
        "dependent_us": early.median_us,
        "ordinary_us": late.median_us,
        "expected_us": HIDDEN_US * _waiting(family, program, workload),
    }


def tiny(workload: Workload) -> Workload:
    """Return the workload of a rehearsal."""
    return workload.with_sizes(**({"c": 16, "k_out": 16} if "c" in workload.size else {"n": 64, "k": 512}))


def _waiting(family: Family, program: Program, workload: Workload) -> int:
    """Return the number of dependent launches of a call."""
    return sum(launch.dependent for launch in family.launches(program, workload))
