"""Kernels for a capability that no database has any for, from the Programs another one's database holds."""

from __future__ import annotations

import numpy as np

from gensor_database.record import Kernel, Record
from gensor_database.store import Store
from gensor_kernels.build.nvrtc import compile_many
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.machine.roofline import bound_us
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.programs.core.program import Program
from gensor_kernels.programs.registry import FAMILIES, program_from_json
from gensor_kernels.programs.space import Space
from gensor_tuner.build.cover import assign, cover
from gensor_tuner.build.pool import Pool
from gensor_tuner.store.kernel_rows import kernel_rows

from .harness.session import Session


def adopt(session: Session, other: Store, store: Store) -> int:
    """Re-legalise and compile the Programs of `other` for this capability; how many kernels that gave."""
    programs: dict[str, list[Program]] = {}
    for kernel in other.rows(Kernel):
        if kernel.family in FAMILIES and FAMILIES[kernel.family].abi == kernel.abi:
            programs.setdefault(kernel.class_key, []).append(program_from_json(kernel.program))
    workloads: dict[str, dict[str, Workload]] = {}
    for record in other.rows(Record):
        workload = Workload.from_json(record.key)
        workloads.setdefault(workload.class_key(), {})[record.key] = workload
    return sum(
        _adopt_class(session, store, list(found.values()), programs.get(class_key, []))
        for class_key, found in sorted(workloads.items())
    )


def adopt_starters(session: Session, workloads: list[Workload], store: Store) -> int:
    """The families' default Programs for workloads, compiled for this capability; how many kernels that gave."""
    made = 0
    for workload in workloads:
        served = Space(workload, session.arch).families
        programs = [family.family.starters(workload, session.arch)[0] for family in served]
        made += _adopt_class(session, store, [workload], programs)
    return made


def _adopt_class(session: Session, store: Store, workloads: list[Workload], programs: list[Program]) -> int:
    arch = session.arch
    try:
        spaces = [Space(workload, arch) for workload in workloads]
    except UnsupportedError:
        return 0
    served = {space.family.name for space in spaces[0].families}
    pool = Pool(workloads)
    for space in spaces:
        pool.add(space, (program for program in programs if program.family in served))
    if not pool.candidates:
        return 0
    seconds = pool.seconds(spaces)
    picks = assign(seconds, cover(seconds, pool.names), pool.names)
    columns = sorted({int(column) for column in picks if column >= 0})
    requests = [(pool.candidates[column].source(), arch.target) for column in columns]
    binaries = dict(zip(columns, compile_many(requests, session.jobs), strict=True))
    digests = set()
    for row, (workload, column) in enumerate(zip(workloads, picks.tolist(), strict=True)):
        if column < 0 or binaries[column].error is not None:
            continue
        parts = kernel_rows(pool.candidates[column], binaries[column], workload, arch)
        digests.add(parts[-1].digest)
        predicted = float(seconds[row, column]) * 1e6 if np.isfinite(seconds[row, column]) else None
        abi, bound = parts[-1].abi, bound_us(workload, arch)
        store.add(*parts, Record(workload.key(), arch.name, arch.part, abi, parts[-1].digest, predicted, bound, "ok"))
    return len(digests)
