"""A stored kernel derived again from its Program: constants and source, on request the cubin, and its execution."""

from __future__ import annotations

import json
from dataclasses import dataclass

from gensor_database.digest import canonical
from gensor_database.record import Binary, Kernel
from gensor_database.store import Store
from gensor_kernels.build.nvrtc import compile_cubin, toolchain
from gensor_kernels.build.source import digest, flatten
from gensor_kernels.dispatch.selection.load import class_workload
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.types.epilogue import OPERATIONS
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.programs.core.family import Family
from gensor_kernels.programs.core.program import Program
from gensor_kernels.programs.registry import FAMILIES
from gensor_kernels.programs.validation import MALFORMED
from gensor_tuner.build.pool import Candidate, candidate
from gensor_tuner.verify.verify import verify

#: Statuses of rows that must not be trusted; the others are no fault of the file.
BAD = ("damaged", "differs", "wrong")


@dataclass(frozen=True)
class Finding:
    """What is known of one row: "ok", one of BAD, "outdated" (another ABI version), "incomplete" (no binary), or
    "orphan" (what it names is not in this file, or nothing names it)."""

    table: str
    digest: str
    status: str
    reason: str | None = None


def check(store: Store, kernel: Kernel, compiled: bool = False, executed: bool = False) -> Finding:
    """Derive a kernel's constants and source again, compare, and where asked compile and execute it again."""

    def found(status: str, reason: str | None = None) -> Finding:
        return Finding(kernel.TABLE, kernel.digest, status, reason)

    family, binary = FAMILIES.get(kernel.family), store.binary(kernel)
    if family is None or family.abi != kernel.abi:
        return found("outdated", f"this version has no {kernel.family} with ABI {kernel.abi}")
    if binary is None:
        return found("incomplete", "its binary is damaged, or missing as after a merge without --binaries")
    try:
        derived, workload = derive(family, kernel, binary)
        target = lookup(kernel.arch).target
    except MALFORMED as error:
        return found("differs", f"its Program is none of this version: {error}")
    if derived.constants != binary.constants:
        return found("differs", "its constants are not those of its Program")
    if digest(flatten(family.source)) != binary.source_digest:
        return found("differs", "its source differs from this version's")
    if binary.target != target:
        return found("differs", f"it was compiled for {binary.target}, not for {target}")
    problem = rebuilt(binary, derived) if compiled else None
    if problem is not None:
        return found("differs", problem)
    if executed:
        verdict = verify(derived, workload, use_cache=False)
        if verdict.outcome != "ok":
            return found("wrong", f"{verdict.outcome}: {verdict.detail}")
    return found("ok")


def derive(family: Family, kernel: Kernel, binary: Binary) -> tuple[Candidate, Workload]:
    """The candidate that a kernel's Program is, and a Workload of its class with the epilogue compiled into it."""
    epilogue = _fixed_epilogue(json.loads(binary.constants)["EPILOGUE_CODES"])
    workload = class_workload(kernel.class_key).with_epilogue(epilogue)
    made = candidate(family, Program.from_json(kernel.program), workload)
    return Candidate(made.program, family, canonical(json.loads(made.constants))), workload


def rebuilt(binary: Binary, derived: Candidate) -> str | None:
    """What differs from the cubin compiled here; None too where this machine's compiler is not the one that made it."""
    if binary.toolchain != toolchain():
        return None
    made = compile_cubin(derived.source(), binary.target)
    return None if made.cubin == binary.cubin else made.error or "its cubin differs from the one compiled here"


def _fixed_epilogue(codes: int) -> tuple[str, ...]:
    """Operation names of a compile-time epilogue: five bits per operation, the first lowest; 31 is none."""
    names = {operation.code: name for name, operation in OPERATIONS.items()}
    found = []
    while codes > 0:  # below it shifting has no end
        if codes & 31 in names:
            found.append(names[codes & 31])
        codes >>= 5
    return tuple(found)
