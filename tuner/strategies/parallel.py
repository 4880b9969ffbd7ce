"""Walks for many workloads, in this process or in several; the result does not depend on which."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.residual import Learnt
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.programs.core.program import Program
from gensor_kernels.programs.registry import FAMILIES
from gensor_kernels.programs.space import Space
from gensor_tuner.parent_watch import follow
from gensor_tuner.search.trace import Trail

from . import Search, strategy

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
    """One walk to take; `start` and `feedback` are empty for the first one. `learnt`: what timings said before."""

    workload: Workload
    arch: Arch
    seed: int
    graph: str
    feedback: tuple[Facts, ...] = ()
    start: tuple[Program, ...] = ()
    learnt: Learnt | None = None
    strategy: str = "walk"
    evaluations: int | None = None


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


def space_for(workload: Workload, arch: Arch, feedback: Sequence[Facts] = (), learnt: Learnt | None = None) -> Space:
    """The space of a workload with the compiler's facts, and what timings taught, folded in."""
    space = Space(workload, arch, learnt=learnt)
    for facts in feedback:
        learn(space, facts)
    return space


def search(request: Request) -> Found:
    """Take one walk, or whatever the request's strategy does in its place."""
    began = time.perf_counter()
    space = space_for(request.workload, request.arch, request.feedback, request.learnt)
    asked = Search(
        space,
        seed=walk_seed(request.seed, request.workload),
        chains=AGAIN_CHAINS if request.start else CHAINS,
        steps=STEPS,
        start=request.start or None,
        evaluations=request.evaluations,
        keep=KEEP,
        traced=KEEP,
        alike=lambda program: FAMILIES[program.family].main_loop(program),
    )
    taken = strategy("paper" if request.graph == "paper" else request.strategy)(asked)
    trails = tuple(trail.within(request.workload) for trail in taken.trails)
    return Found(tuple(taken.best), trails, taken.evaluations, time.perf_counter() - began)


class Searcher:
    """Runs walks, in order of the requests; a context manager that owns the worker processes."""

    def __init__(self, jobs: int):
        self.jobs = jobs
        self._pool: ProcessPoolExecutor | None = None
        self._processes: list[multiprocessing.process.BaseProcess] = []

    def __enter__(self) -> Searcher:
        return self

    def __exit__(self, *reason: object) -> None:
        if reason[0] is not None:  # nobody wants what they would still find
            for process in self._processes:
                process.kill()
        if self._pool is not None:
            self._pool.shutdown()  # cancels nothing: Python 3.11 cannot end a pool that was killed then

    def run(self, requests: Sequence[Request]) -> Iterator[Found]:
        """One Found per Request."""
        if self.jobs == 1 or len(requests) < PARALLEL_FROM:
            return map(search, requests)
        return self._parallel(requests)

    def _parallel(self, requests: Sequence[Request]) -> Iterator[Found]:
        """In processes; what they do not bring home, this one finds: where none can be started, or one was killed."""
        count = 0
        try:
            for future in self._submitted(requests):
                yield future.result()
                count += 1
        except (OSError, ImportError, BrokenProcessPool) as error:
            print(f"gensor-tune: walks go on in one process: {error}", file=sys.stderr)
            self.jobs = 1
            yield from map(search, requests[count:])

    def _submitted(self, requests: Sequence[Request]) -> list[Future[Found]]:
        if self._pool is None:
            # spawn: forking a process that runs NVRTC's threads is undefined.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self.jobs, context, follow, (os.getpid(),))
        before = multiprocessing.active_children()
        with _without_interrupts():  # which processes started now inherit: Ctrl-C is for this one
            futures = [self._pool.submit(search, request) for request in requests]
            self._processes += [each for each in multiprocessing.active_children() if each not in before]
        return futures


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Within it, SIGINT waits, in processes that are started too; where the system has no masks, nothing changes."""
    if not hasattr(signal, "pthread_sigmask") or threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[Any] = []
    # The mask is what children inherit; other threads of this process have their own, so a handler waits as well.
    handler = signal.signal(signal.SIGINT, lambda *signal_and_frame: came.append(signal_and_frame))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        signal.signal(signal.SIGINT, handler)
        if came and callable(handler):
            handler(*came[0])
