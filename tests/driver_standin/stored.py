"""Kernels of the shipped databases with their cubins, which need no compiler."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gensor_database.record import Kernel
from gensor_database.store import Store
from gensor_kernels.devices.device import Code
from gensor_kernels.dispatch.selection import library
from gensor_kernels.families.core.family import Launch
from gensor_kernels.families.registry import FAMILIES
from gensor_tuner.store.check import derive

DATABASES = Path(__file__).resolve().parents[2] / "database" / "pretuned"


@dataclass(frozen=True)
class Stored:
    family: str
    code: Code
    launches: tuple[Launch, ...]


def stored(arch: str, family: str = "") -> Iterator[Stored]:
    """Yield the kernels of a shipped database, or those of one family, in the order of their digests."""
    with Store.open(DATABASES / f"{arch}.db", readonly=True, immutable=True) as store:
        chosen = (each for each in store.rows(Kernel) if family in ("", each.family))
        for kernel in sorted(chosen, key=lambda each: each.digest):
            binary = store.binary(kernel)
            candidate, workload = derive(FAMILIES[kernel.family], kernel, binary)
            code = library.code(binary.source_digest, {"constants": binary.constants}, binary.target, binary.cubin)
            yield Stored(kernel.family, code, candidate.family.launches(candidate.program, workload))
