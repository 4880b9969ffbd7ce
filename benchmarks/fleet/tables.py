"""The tables of docs/fleet.md, from the figures of results/fleet.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import model

SHAPES, ARCHS = 10_000, 8
CORES = (1, 16, 256, 4096)
NAMES = {"walk": "first walk", "again": "second walk", "compile": "compile", "verify": "verify"}


def every(results: Mapping[str, Any]) -> dict[str, str]:
    """Return each table as Markdown, by its name."""
    costs = model.measured(results)
    found = {"tasks": tasks(costs, results), "client": client(costs, results), "limits": limits(costs)}
    found["predicted"] = predicted(costs)
    if "thousands" in results:
        found["thousands"] = thousands(results["thousands"])
    return found


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table whose columns but the first are aligned to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def tasks(costs: model.Costs, results: Mapping[str, Any]) -> str:
    """Return tasks per row and class, their seconds and their bytes."""
    rows = [
        [
            *(NAMES[name], f"{kind.per_row:.2f}", f"{kind.per_row / costs.classes:.1f}", f"{kind.seconds:.2f}"),
            *(f"{kind.per_row * kind.seconds:.2f}", kilobytes(kind.asked), kilobytes(kind.result)),
        ]
        for name, kind in costs.kinds.items()
    ]
    total = ["all", f"{costs.tasks:.2f}", f"{costs.tasks / costs.classes:.1f}", f"{costs.work / costs.tasks:.2f}"]
    sides = [sum(k.per_row * b for k, b in pairs) / costs.tasks for pairs in _both(costs)]
    rows.append([*total, f"{costs.work:.2f}", *map(kilobytes, sides)])
    head = ["task", "a row", "a class", "seconds each", "seconds a row", "kB there", "kB back"]
    return table(head, rows)


def _both(costs: model.Costs) -> list[list[tuple[model.Kind, float]]]:
    kinds = costs.kinds.values()
    return [[(kind, kind.asked) for kind in kinds], [(kind, kind.result) for kind in kinds]]


def client(costs: model.Costs, results: Mapping[str, Any]) -> str:
    """Return what the processes beside the workers spend on a row."""
    told = results["tasks"]
    rows = sum(each["stands_for"] * each["workloads"] for each in told["sample"])

    def part(name: str) -> float:
        return sum(each["stands_for"] * each["client"].get(name, 0.0) for each in told["sample"]) / rows

    asking, checking, storing = map(part, ("asking", "checking", "storing"))
    lines = [
        ("client: potentials, covers, choices", costs.client - asking - checking - storing),
        ("client: checking results", checking),
        ("client: writing messages", asking),
        ("client: rows and SQLite", storing),
        ("client: Dask", costs.tasks * costs.client_per_task),
        ("scheduler", costs.tasks * costs.scheduler_per_task),
        ("worker: Dask", costs.tasks * costs.worker_per_task),
    ]
    return table(["seconds", "ms a row"], [[name, f"{1e3 * seconds:.1f}"] for name, seconds in lines])


def limits(costs: model.Costs) -> str:
    """Return how many rows per second each part allows, and the cores that ask for as many."""
    rows = []
    for part in (model.CLASSES, model.CLIENT, model.WRITER, model.SCHEDULER):
        rate = model.rates(costs, model.MOST)[part]
        rows.append([part, f"{rate:.1f}", f"{model.saturation(costs, part):.0f}"])
    return table(["part", "rows a second", "cores at work"], rows)


def predicted(costs: model.Costs, shapes: int = SHAPES, archs: int = ARCHS) -> str:
    """Return how long a fleet takes with one client, and with as many clients as keep its cores at work."""
    rows = []
    for cores in CORES:
        clients = model.clients_for(costs, cores)
        row = [f"{cores:,}"]
        for count in (1, clients):
            taken = model.seconds(costs, shapes * archs, cores, count)
            share = model.efficiency(costs, shapes * archs, cores, count)
            row += [f"{count:,}", duration(taken), f"{share:.0%}", model.limit(costs, cores, count)]
        rows.append(row[:1] + row[2:])
    head = ["cores", "one client", "at work", "slowest part", "clients", "with as many", "at work", "slowest part"]
    return table(head, rows)


def thousands(told: Mapping[str, Any]) -> str:
    """Return the replay's measured efficiency beside the predicted one."""
    rows = []
    for run in told["runs"]:
        each = [f"{1e3 * run[f'{side}_s'] / run['tasks']:.1f}" for side in ("client", "scheduler", "workers")]
        share = [f"{run[name]:.0%}" for name in ("efficiency", "predicted")]
        rows.append([str(run["workers"]), f"{run['tasks']:,}", f"{run['seconds']:.0f}", *share, run["limit"], *each])
    head = ["workers", "tasks", "seconds", "at work", "predicted", "slowest part"]
    return table([*head, "client, ms a task", "scheduler", "workers"], rows)


def kilobytes(count: float) -> str:
    """Return bytes in kilobytes."""
    return f"{count / 1e3:.1f}"


def duration(seconds: float) -> str:
    """Return seconds in the largest unit of which there are two or more."""
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} seconds"
