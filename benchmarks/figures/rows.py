"""Figures about tuned rows: time over the bound and what it hangs on, kernels per class, regret of a single one."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from gensor_database.record import Kernel, Verification
from gensor_database.store import Store
from gensor_kernels.machine import roofline
from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.programs.contraction.wgmma.store import COPIED
from gensor_kernels.programs.core.program import Program
from gensor_kernels.programs.registry import program_from_json
from gensor_tuner.build.cover import assign, single_kernel_regret
from gensor_tuner.build.pool import Pool
from gensor_tuner.output import class_text, sizes_text
from gensor_tuner.run.result import NEAR_BOUND, Result
from gensor_tuner.shapes.reader import Row
from gensor_tuner.strategies.parallel import Facts, space_for

#: Terms that say where a Program runs, not what it waits for.
SHAPE_TERMS = {"blocks", "residents", "warps", "iterations", "registers", "shared_bytes", "in_flight", "exposed"}


@dataclass(frozen=True)
class Tuned:
    """A row of a file and what became of it."""

    row: Row
    result: Result
    file: str = ""


def facts_of(store: Store) -> dict[str, list[Facts]]:
    """What the compiler said of every stored kernel, by class: the feedback its predictions were made with."""
    found: dict[str, list[Facts]] = {}
    for kernel in store.rows(Kernel):
        binary = store.binary(kernel)
        entry = json.loads(binary.facts).get(kernel.family) if binary is not None else None
        if entry is not None:
            loop = tuple(sorted(entry.get("hot_loop", {}).items()))
            program = program_from_json(kernel.program)
            known = Facts(program, entry["registers"], entry["spill_bytes"], loop)
            found.setdefault(kernel.class_key, []).append(known)
    return found


def half_figures(store: Store) -> dict[str, Any]:
    """Kernels of aligned float16 and bfloat16 classes: how many spill, have bank conflicts, or move less than 16 bytes,
    and which.

    Copies into shared memory and stores of results count, tensor copies as wide ones; epilogue operands are read as
    their own layout allows. Not gemv's: its results are few and leave one by one, its vector is shared as it comes.
    """
    found: dict[str, Any] = {"kernels": 0, "spilling": 0, "conflicting": 0, "narrow": 0, "unread": 0, "which": []}
    for kernel in store.rows(Kernel):
        workload, binary = json.loads(kernel.class_key), store.binary(kernel)
        half = set(workload["dtypes"].values()) <= {"float16", "bfloat16"}
        if binary is None or not half or set(workload["alignment"].values()) != {16} or kernel.family == "gemv":
            continue
        accesses = json.loads(binary.facts)[kernel.family].get("accesses")
        widths = {width for opcode in ("LDGSTS", "STG") for width in (accesses or {}).get(opcode, {})}
        flags = {"8"} if json.loads(kernel.program).get("stream") else set()  # by which a stream's blocks meet
        by_tensor = json.loads(kernel.program).get("epilogue_staged") == COPIED
        wide = widths - flags == {"16"} or (by_tensor and not widths)
        counters = [json.loads(row.counters) for row in store.rows(Verification, kernel_digest=kernel.digest)]
        faults = {
            "spilling": binary.spill_bytes > 0,
            "conflicting": any(each["counters"].get("bank_conflicts", 0) for each in counters),
            "narrow": accesses is not None and not wide,
            "unread": accesses is None,
        }
        found["kernels"] += 1
        for name, there in faults.items():
            found[name] += there
        if names := [name for name, there in faults.items() if there]:
            found["which"].append(f"{' and '.join(names)}: {workload['operator']} {kernel.program}")
    return found


def by_class(served: Sequence[Tuned]) -> dict[str, list[Tuned]]:
    """Served rows by the classes of their workloads."""
    return _grouped(served, lambda each: each.row.workload.class_key() if each.row.workload else "")


def near_by(served: Sequence[Tuned], group: Callable[[Tuned], str]) -> dict[str, dict[str, Any]]:
    """How many rows of each group are within twice their bound."""
    return {name: _near([ratio(each.result) for each in rows]) for name, rows in _grouped(served, group).items()}


def _grouped(served: Sequence[Tuned], group: Callable[[Tuned], str]) -> dict[str, list[Tuned]]:
    groups: dict[str, list[Tuned]] = {}
    for each in served:
        groups.setdefault(group(each), []).append(each)
    return groups


def _near(ratios: Sequence[float]) -> dict[str, Any]:
    within = sum(value <= NEAR_BOUND for value in ratios)
    return {
        "within": within,
        "of": len(ratios),
        "fraction": within / len(ratios) if ratios else None,
        "median": float(np.median(ratios)) if ratios else None,
        "worst": max(ratios, default=None),
    }


def bound_figures(arch: Arch, served: Sequence[Tuned], feedback: dict[str, list[Facts]]) -> dict[str, Any]:
    """Predicted time over the bound: how many rows are within twice of it, and why the others are not."""
    ratios = [ratio(each.result) for each in served]
    far = [each for each, value in zip(served, ratios, strict=True) if value > NEAR_BOUND]
    return _near(ratios) | {
        "far": [explained(arch, each, feedback) for each in sorted(far, key=lambda each: -ratio(each.result))]
    }


def ratio(result: Result) -> float:
    """Predicted time over the bound."""
    assert result.predicted_us is not None and result.bound_us is not None
    return result.predicted_us / result.bound_us


def explained(arch: Arch, each: Tuned, feedback: dict[str, list[Facts]]) -> dict[str, Any]:
    """A row with the terms its predicted time hangs on."""
    workload, result = each.result.workload, each.result
    assert workload is not None and result.family is not None
    space = space_for(workload, arch, feedback.get(workload.class_key(), ())).family(result.family)
    terms = space.explain(space.point(program_of(result)))
    waves = terms["blocks"] / (terms["residents"] * arch.sms)
    return {
        "name": each.row.name,
        "file": each.file,
        "line": each.row.line,
        "sizes": sizes_text(workload),
        "operator": workload.operator,
        "dtype": workload.kind,
        "epilogue": list(workload.epilogue),
        "ratio": round(ratio(result), 3),
        "predicted_us": result.predicted_us,
        "bound_us": result.bound_us,
        "waves": round(waves, 2),
        "limits": limits(terms, arch),
    }


def limits(terms: dict[str, float], arch: Arch) -> dict[str, float]:
    """Share of the predicted time that would be saved if a term were (almost) nothing, the largest first."""
    names = [each.name for each in fields(roofline.Terms)]
    whole = roofline.Terms(**{name: np.array([terms[name]], np.float32) for name in names})
    before = float(roofline.seconds(whole, arch)[0])
    saved = {}
    for name in names:
        if name not in SHAPE_TERMS:
            without: Any = {name: getattr(whole, name) * np.float32(1e-3)}
            saved[name] = 1 - float(roofline.seconds(replace(whole, **without), arch)[0]) / before
    best = sorted(saved.items(), key=lambda pair: -pair[1])
    return {name: round(share, 3) for name, share in best[:3] if share > 0.01}


def program_of(result: Result) -> Program:
    """The Program a result names."""
    assert result.family is not None
    return Program(result.family, tuple(result.program.items()))


def class_figures(arch: Arch, group: Sequence[Tuned], feedback: Sequence[Facts]) -> dict[str, Any]:
    """Kernels of one class, and the predicted regret of its most used one on every row."""
    unique = {each.result.workload.key(): each.result for each in group if each.result.workload is not None}
    workloads: list[Workload] = [each.workload for each in unique.values() if each.workload is not None]
    spaces = [space_for(workload, arch, feedback) for workload in workloads]
    pool = Pool(workloads)
    for space, result in zip(spaces, unique.values(), strict=True):
        pool.add(space, [program_of(result)])
    seconds = pool.seconds(spaces)
    picks = assign(seconds, range(len(pool.candidates)), pool.names)
    _, regrets = single_kernel_regret(seconds, picks)
    finite = regrets[np.isfinite(regrets)]
    sample = workloads[0]
    return {
        "class": class_text(sample),
        "rows": len(group),
        "workloads": len(workloads),
        "kernels": len({result.kernel for result in unique.values()}),
        "single_kernel_regret_median": float(np.median(finite)) if len(finite) else None,
        "single_kernel_regret_worst": float(finite.max()) if len(finite) else None,
        "single_kernel_cannot_serve": int(len(regrets) - len(finite)),
    }
