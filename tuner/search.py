"""Walks for many workloads, in this process or in several; the result does not depend on which."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.workload import Workload
from gensor_kernels.programs.families import FAMILIES
from gensor_kernels.programs.program import Program
from gensor_kernels.programs.space import Space

from .trail import Trail
from .walk import walk

KEEP = 12  # Programs a walk hands on; the cover of a run chooses among them
CHAINS, STEPS = 48, 200  # of the first walk
AGAIN_CHAINS = 32  # of the walk after the compiler's feedback: 16,000 steps in all
PARALLEL_FROM = 6  # below this many walks, starting processes costs more than it saves


@dataclass(frozen=True)
class Facts:
    """What the compiler said of one Program: registers per thread, spilled bytes, and the instructions of one
    iteration of the main loop by opcode (empty where it was not disassembled)."""

    program: Program
    registers: int
    spill_bytes: int
    hot_loop: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Request:
    """One walk to take; `start` and `feedback` are empty for the first one."""

    workload: Workload
    arch: Arch
    seed: int
    graph: str
    feedback: tuple[Facts, ...] = ()
    start: tuple[Program, ...] = ()


@dataclass(frozen=True)
class Found:
    """What a walk brought home: Programs with different main loops, best first, each with its trail."""

    best: tuple[tuple[Program, float], ...]
    trails: tuple[Trail, ...]
    evaluations: int
    seconds: float = field(compare=False)


def walk_seed(seed: int, workload: Workload) -> int:
    """A seed of its own for each workload, the same whatever else a run tunes and in whatever order."""
    digest = hashlib.sha256(f"{seed}:{workload.key()}".encode()).digest()
    return int.from_bytes(digest[:8], "little")


def learn(space: Space, facts: Facts) -> None:
    """Fold what the compiler said of a Program into the potential of a space."""
    # A compile-time epilogue's binary is none of a workload without one: not on its lattice.
    with suppress(KeyError, ValueError):
        space.family(facts.program.family).add_feedback(
            facts.program, facts.registers, facts.spill_bytes, dict(facts.hot_loop)
        )


def space_for(workload: Workload, arch: Arch, feedback: Sequence[Facts] = ()) -> Space:
    """The space of a workload with the compiler's facts folded in."""
    space = Space(workload, arch)
    for facts in feedback:
        learn(space, facts)
    return space


def search(request: Request) -> Found:
    """Take one walk."""
    began = time.perf_counter()
    space = space_for(request.workload, request.arch, request.feedback)
    taken = walk(
        space,
        seed=walk_seed(request.seed, request.workload),
        chains=AGAIN_CHAINS if request.start else CHAINS,
        steps=STEPS,
        graph=request.graph,
        start=request.start or None,
        keep=KEEP,
        traced=KEEP,
        alike=lambda program: FAMILIES[program.family].main_loop(program),
    )
    trails = tuple(trail.within(request.workload) for trail in taken.trails)
    return Found(tuple(taken.best), trails, taken.evaluations, time.perf_counter() - began)


class Searcher:
    """Runs walks, in order of the requests; a context manager that owns the worker processes."""

    def __init__(self, jobs: int):
        self.jobs = jobs
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Searcher:
        return self

    def __exit__(self, *reason: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def run(self, requests: Sequence[Request]) -> Iterator[Found]:
        """One Found per Request."""
        if self.jobs == 1 or len(requests) < PARALLEL_FROM:
            return map(search, requests)
        if self._pool is None:
            # spawn: forking a process that runs NVRTC's threads is undefined.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self.jobs, context, initializer=_end_with_parent)
        return self._pool.map(search, requests, chunksize=max(1, len(requests) // (8 * self.jobs)))


def _end_with_parent() -> None:
    """Ends this process when the one that started it has ended in any way: its pipe does not say so by itself."""

    def watch() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
