"""One Program in which the mutator runs its mutants, and the sites that run in it."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from gensor_kernels.families.core.source import bind
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.build.pool import Candidate, candidate
from gensor_tuner.verify.verify import Verdict, verify

from . import mutations
from .mutations import Site


@dataclass(frozen=True)
class Changed(Candidate):
    """A candidate whose flattened source goes through `edit` first."""

    edit: Callable[[str], str] = field(compare=False, repr=False, default=str)

    def source(self) -> str:
        return bind(self.edit(self.family.text), json.loads(self.constants))


@dataclass(frozen=True)
class Configuration:
    """A small Program that makes some of the sites run."""

    name: str
    group: str
    arch: str
    workload: Workload
    values: dict[str, int] = field(hash=False)

    @property
    def family(self) -> str:
        kind = self.group.split()[0]
        return f"contraction_{kind}" if f"contraction_{kind}" in FAMILIES else kind

    @cached_property
    def candidate(self) -> Candidate:
        """The family's first starter with `values`; ValueError where that is not legal."""
        family, arch = FAMILIES[self.family], lookup(self.arch)
        program = family.starters(self.workload, arch)[0].replace(**self.values)
        space = Space(self.workload, arch).family(self.family)
        if not space.legal(space.point(program)[None])[0]:
            raise ValueError(f"{self.name}: not a legal Program: {program.to_json()}")
        return candidate(family, program, self.workload)

    def verify(self, edit: Callable[[str], str]) -> Verdict:
        """Return the verifier's verdict on the edited source."""
        each = self.candidate
        changed = Changed(each.program, each.constants, edit)
        return verify(changed, self.workload, use_cache=False)

    def live(self) -> list[Site]:
        """Return the sites that run in this Program. The unmodified Program must pass."""
        every: list[Site] = []

        def edit(text: str) -> str:
            instrumented, found = mutations.instrument(text)
            every[:] = found
            return instrumented

        verdict = self.verify(edit)
        if verdict.outcome != "ok":
            raise AssertionError(f"{self.name} fails unmodified: {verdict.outcome}, {verdict.detail}")
        return [site for i, site in enumerate(every) if verdict.branches.get(f"site {i}")]
