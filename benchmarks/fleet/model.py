"""How long a fleet takes: rows per second that each part of it allows, from measured costs; the slowest part decides.

A row is a shape on one arch. Its tasks need seconds of cores. Beside them, each task costs the client and the scheduler
seconds, which one process each spends: Python's lock leaves the client one core, and Dask's scheduler is one thread.
The database takes rows one commit at a time. A class is a chain of stages (walk, compile, walk, compile, verify), and a
client has at most `many.MOST` classes in progress.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gensor_tuner.run.many import CLASSES_PER_JOB, FEWEST, MOST

#: Kinds of tasks in the order of a class's stages; "again" is the second walk.
KINDS = ("walk", "again", "compile", "verify")
#: Parts of a fleet that may be the slowest.
CORES, CLIENT, SCHEDULER, WRITER, CLASSES = "cores", "client", "scheduler", "database", "classes in progress"
#: Of a replay, whose client, scheduler and workers share a machine.
MACHINE = "this machine"


@dataclass(frozen=True)
class Kind:
    """Tasks of a kind: how many a row needs, and of each its seconds and its bytes there and back."""

    per_row: float
    seconds: float
    asked: float
    result: float


@dataclass(frozen=True)
class Costs:
    """The costs of a row.

    Attributes
    ----------
    kinds : dict
        The tasks.
    classes : float
        Classes per row.
    chain : float
        Seconds of a class if every stage took as long as its longest task.
    client : float
        Seconds of the client for a row, without those of sending tasks.
    client_per_task, scheduler_per_task, worker_per_task : float
        Seconds of each process for a task, beside the task's own.
    commit : float
        Seconds of the database for a row.
    """

    kinds: Mapping[str, Kind]
    classes: float
    chain: float
    client: float
    client_per_task: float
    scheduler_per_task: float
    worker_per_task: float
    commit: float

    @property
    def tasks(self) -> float:
        """Tasks per row."""
        return sum(kind.per_row for kind in self.kinds.values())

    @property
    def work(self) -> float:
        """Seconds of cores that the tasks of a row need."""
        return sum(kind.per_row * kind.seconds for kind in self.kinds.values())

    @property
    def bytes(self) -> float:
        """Bytes of a row's tasks, there and back."""
        return sum(kind.per_row * (kind.asked + kind.result) for kind in self.kinds.values())


def in_progress(cores: int) -> int:
    """Return how many classes a client with so many workers has in progress."""
    return min(max(CLASSES_PER_JOB * cores, FEWEST), MOST)


def rates(costs: Costs, cores: int, clients: int = 1) -> dict[str, float]:
    """Return the rows per second that each part of a fleet allows.

    Parameters
    ----------
    costs : Costs
        Of a row.
    cores : int
        Workers of one thread, of all clients together.
    clients : int
        Clients with a shard of the classes, a scheduler and a database each.
    """
    classes = in_progress(max(1, cores // clients))
    return {
        CORES: cores / (costs.work + costs.tasks * costs.worker_per_task),
        CLIENT: clients / (costs.client + costs.tasks * costs.client_per_task),
        SCHEDULER: clients / (costs.tasks * costs.scheduler_per_task),
        WRITER: clients / costs.commit,
        CLASSES: clients * classes / (costs.classes * costs.chain),
    }


def machine_rate(costs: Costs, cores: int) -> float:
    """Return the rows per second of a replay that a machine allows: its workers are threads of one process."""
    each = costs.client_per_task, costs.scheduler_per_task, costs.worker_per_task
    return 1 / (costs.client + costs.tasks * max(costs.worker_per_task, sum(each) / cores))


def limit(costs: Costs, cores: int, clients: int = 1) -> str:
    """Return the part of a fleet that allows the fewest rows per second."""
    found = rates(costs, cores, clients)
    return min(found, key=found.__getitem__)


def seconds(costs: Costs, rows: float, cores: int, clients: int = 1) -> float:
    """Return the seconds that rows take: those of the slowest part, and at least those of one class."""
    return max(rows / min(rates(costs, cores, clients).values()), costs.chain)


def efficiency(costs: Costs, rows: float, cores: int, clients: int = 1) -> float:
    """Return the share of time in which the cores are at tasks."""
    return rows * costs.work / (cores * seconds(costs, rows, cores, clients))


def saturation(costs: Costs, part: str) -> float:
    """Return the number of cores from which on a part allows fewer rows per second than the cores do, for a client."""
    return rates(costs, MOST)[part] / rates(costs, 1)[CORES]


def clients_for(costs: Costs, cores: int, share: float = 0.9) -> int:
    """Return the fewest clients with which the cores are at tasks for this share of their time."""
    clients = 1
    while clients < cores and min(rates(costs, cores, clients).values()) * costs.work < share * cores:
        clients += 1
    return clients


# ---- from measured figures


def per_class(told: Mapping[str, Any]) -> dict[str, float]:
    """Return the sums over a measured class: its tasks' seconds, its chain and its tasks."""
    stages = told["stages"]
    return {
        "work": sum(sum(each["seconds"]) for each in stages),
        "chain": told["client_s"] + sum(max(each["seconds"], default=0.0) for each in stages),
        "tasks": sum(len(each["seconds"]) for each in stages),
    }


def kinds_of(stages: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the kind of each stage: walks after a compilation are second ones.

    Verification ends a run; a class that any size may ask for has a run for the usual sizes before its own.
    """
    found = []
    compiled = False
    for each in stages:
        compiled = each["kind"] == "compile" or (compiled and each["kind"] != "verify")
        found.append("again" if each["kind"] == "walk" and compiled else each["kind"])
    return found


def measured(results: Mapping[str, Any]) -> Costs:
    """Return the costs of a row of the sampled file, each class counted as often as it stands for others."""
    told = results["tasks"]
    sample: Sequence[Mapping[str, Any]] = told["sample"]
    rows = sum(each["stands_for"] * each["workloads"] for each in sample)
    sums = {kind: dict.fromkeys(("tasks", "seconds", "asked", "result"), 0.0) for kind in KINDS}
    for each in sample:
        for kind, stage in zip(kinds_of(each["stages"]), each["stages"], strict=True):
            found, weight = sums[kind], each["stands_for"]
            found["tasks"] += weight * len(stage["seconds"])
            found["seconds"] += weight * sum(stage["seconds"])
            found["asked"] += weight * stage["asked"]
            found["result"] += weight * stage["result"]
    classes = sum(each["stands_for"] for each in sample)
    overhead = results["overhead"]["median"]
    return Costs(
        kinds={
            kind: Kind(each["tasks"] / rows, *(each[name] / each["tasks"] for name in ("seconds", "asked", "result")))
            for kind, each in sums.items()
        },
        classes=classes / rows,
        chain=sum(each["stands_for"] * per_class(each)["chain"] for each in sample) / classes,
        client=told["known_s_per_workload"] + sum(each["stands_for"] * each["client_s"] for each in sample) / rows,
        client_per_task=overhead["client_ms"] / 1e3,
        scheduler_per_task=overhead["scheduler_ms"] / 1e3,
        worker_per_task=overhead["workers_ms"] / 1e3,
        commit=1 / results["writer"]["median"]["records_per_s"],
    )


def replay_costs(costs: Costs, classes: Sequence[Mapping[str, Any]], scale: float) -> Costs:
    """Return the costs of replayed classes, with one class as a row: its tasks sleep for `scale` of their seconds.

    Messages have the bytes of the real ones. A worker reads one and writes one for each task, as the client does.
    """
    count = len(classes)
    sums = [per_class(each) for each in classes]
    tasks, work = (sum(each[name] for each in sums) for name in ("tasks", "work"))
    chain = sum(max(stage["seconds"], default=0.0) for each in classes for stage in each["stages"]) / count
    messages = sum(each["client"].get(name, 0.0) for each in classes for name in ("asking", "checking"))
    return replace(
        costs,
        kinds={"sleep": Kind(tasks / count, scale * work / tasks, 0.0, 0.0)},
        classes=1.0,
        chain=scale * chain,
        client=messages / count,
        worker_per_task=costs.worker_per_task + messages / tasks,
        commit=1e-9,
    )
