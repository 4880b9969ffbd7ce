"""Database rows of a kernel (source, binary, Program) and of its verification."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, replace

from gensor_database.record import Binary, Kernel, Row, Source, Verification, canonical
from gensor_kernels.build import resources
from gensor_kernels.build.nvrtc import Binary as Compiled
from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.build.pool import Candidate
from gensor_tuner.verify.verify import VERSION, Verdict


def kernel_rows(chosen: Candidate, compiled: Compiled, workload: Workload, arch: Arch) -> tuple[Source, Binary, Kernel]:
    """Return the rows of a kernel, which depend only on source, constants, target, toolchain and Program."""
    source = Source.of(chosen.family.code)
    usage = (compiled.registers, compiled.spill_bytes, compiled.stack_bytes, compiled.shared_bytes)
    code = (chosen.constants, compiled.target, compiled.cubin)
    binary = Binary(source.digest, *code, *usage, _facts(compiled), compiled.toolchain)
    family, program = chosen.family, chosen.program.to_json()
    kernel = Kernel(family.name, family.abi, workload.class_key(), program, arch.name, binary.digest)
    return source, binary, kernel


def _facts(compiled: Compiled) -> str:
    sass = resources.disassemble(compiled.cubin, compiled.target) or {}  # already cached by the class's run
    facts: dict[str, dict[str, object]] = {}
    for name, entry in compiled.entries.items():
        facts[name] = {"registers": entry.registers, "spill_bytes": entry.spill_bytes, "stack_bytes": entry.stack_bytes}
        if (read := sass.get(name)) is not None:
            facts[name] |= {"hot_loop": read.hot_loop, "accesses": read.accesses, "steady": asdict(read.steady)}
    return canonical(facts)


def compiled_of(row: Binary) -> Compiled:
    """Return the compiler's result that a stored binary was made from."""
    entries = {
        name: resources.EntryResources(
            each["registers"], each["stack_bytes"], spill_stores=each["spill_bytes"], shared_bytes=row.shared_bytes
        )
        for name, each in json.loads(row.facts).items()
    }
    return Compiled(row.target, row.cubin, entries, toolchain=row.toolchain)


def verification_row(kernel: Kernel, verdict: Verdict) -> Verification:
    """Return the row of a verdict, from the emulator or a device."""
    provenance = {"schedule": VERSION} if verdict.method == "emulator" else {"part": verdict.part}
    counters = {"counters": verdict.counters, "branches": verdict.branches, "runs": verdict.runs}
    found = (verdict.method, verdict.outcome, verdict.detail or None, verdict.worst)
    return Verification(kernel.digest, *found, *map(canonical, (verdict.sizes, counters, provenance)))


def is_current(row: Verification) -> bool:
    """Return whether a verification is a device's, or the emulator's by the present schedule of cases."""
    return row.method != "emulator" or json.loads(row.provenance).get("schedule") == VERSION


def verdict_of(row: Verification) -> Verdict:
    """Return the verdict that a stored verification was made from."""
    counted, provenance = json.loads(row.counters), json.loads(row.provenance)
    more = counted["counters"], counted["branches"], counted["runs"]
    found = Verdict(row.outcome, row.error or "", row.worst or 0.0, json.loads(row.cases), *more, method=row.method)
    return replace(found, part=provenance.get("part", ""))


def executed_rows(
    chosen: Candidate, compiled: Compiled, workload: Workload, verdicts: Iterable[Verdict], arch: Arch
) -> list[Row]:
    """Return the rows of a kernel and of its verdicts."""
    parts = kernel_rows(chosen, compiled, workload, arch)
    return [*parts, *(verification_row(parts[-1], verdict) for verdict in verdicts)]
