"""Kernels of a database: their own source, constants and cubin."""

from __future__ import annotations

import json
from dataclasses import dataclass

from gensor_database.record import Kernel
from gensor_database.store import Store
from gensor_kernels.devices.device import Code
from gensor_kernels.dispatch.selection.library import code
from gensor_kernels.families.registry import current_family, program_from_json
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.build.pool import Candidate


@dataclass(frozen=True)
class Stored:
    """A kernel of the database, ready to be loaded, and a workload that it is recorded for."""

    digest: str
    candidate: Candidate
    code: Code
    workload: Workload

    @property
    def name(self) -> str:
        """The item's name: the kernel's short name and the workload."""
        sizes = "x".join(str(size) for _, size in self.workload.sizes)
        return f"{self.short} {sizes} {'_'.join(self.workload.epilogue) or 'none'}"

    @property
    def short(self) -> str:
        """The first digits of the digest."""
        return self.digest[:16]


def load(store: Store, kernel: Kernel, workload: Workload) -> Stored | None:
    """Return a kernel with its own source, constants and cubin, or None where this version cannot launch it."""
    binary = store.binary(kernel)
    source = store.source(binary) if binary is not None else None
    if current_family(kernel.family, kernel.abi) is None or binary is None or source is None:
        return None
    made = code(source.text.decode("utf-8"), json.loads(binary.constants), binary.target, binary.cubin)
    return Stored(kernel.digest, Candidate(program_from_json(kernel.program), binary.constants), made, workload)
