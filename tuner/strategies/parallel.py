"""Walks for many workloads, in this process or several; the result does not depend on the number."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import metadata
from itertools import islice
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

KEEP = 12  # Programs returned per walk, as candidates for the cover of a run
CHAINS, STEPS = 48, 200  # of the first walk
AGAIN_CHAINS = 32  # of the walk with compiler feedback
PARALLEL_FROM = 6  # with fewer walks, starting processes costs more than it saves
AHEAD = 8  # walks per process that may be taken before they are asked for: walks asked for meanwhile wait behind them


@dataclass(frozen=True)
class Facts:
    """The compiler's report on one Program.

    Registers per thread, spilled bytes, and of the main loop its instructions by opcode, and the stall counts and
    products of the path of whole steps (empty and 0 without a disassembler).
    """

    program: Program
    registers: int
    spill_bytes: int
    hot_loop: tuple[tuple[str, int], ...] = ()
    stalls: int = 0
    products: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, program: Program, facts: Mapping[str, Any]) -> Facts:
        """Return what a stored binary's facts (JSON, see store/kernel_rows.py) say of its main kernel."""
        steady = facts.get("steady", {})
        return cls(
            program,
            facts["registers"],
            facts["spill_bytes"],
            tuple(sorted(facts.get("hot_loop", {}).items())),
            steady.get("stalls", 0),
            tuple(sorted(steady.get("products", {}).items())),
        )


@dataclass(frozen=True)
class Request:
    """One walk to take; `start` and `feedback` are empty for the first walk. `learnt`: residuals from timings."""

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
    """The result of a walk: Programs with different main loops, best first, each with its trail."""

    best: tuple[tuple[Program, float], ...]
    trails: tuple[Trail, ...]
    evaluations: int
    seconds: float = field(compare=False)


def walk_seed(seed: int, workload: Workload) -> int:
    """Return a seed for a workload that does not depend on a run's other workloads or their order."""
    digest = hashlib.sha256(f"{seed}:{workload.key()}".encode()).digest()
    return int.from_bytes(digest[:8], "little")


def learn(space: Space, facts: Facts) -> None:
    """Add the compiler's report on a Program to the potential of a space."""
    # A binary with a compile-time epilogue is not on the lattice of a workload without it.
    with suppress(KeyError, ValueError):
        space.family(facts.program.family).add_feedback(
            *(facts.program, facts.registers, facts.spill_bytes),
            *(dict(facts.hot_loop), facts.stalls, dict(facts.products)),
        )


def space_for(workload: Workload, arch: Arch, feedback: Sequence[Facts] = (), learnt: Learnt | None = None) -> Space:
    """Return the space of a workload, with compiler feedback and learnt residuals in its potential."""
    space = Space(workload, arch, learnt=learnt)
    for facts in feedback:
        learn(space, facts)
    return space


def search(request: Request) -> Found:
    """Run the request's strategy, by default a walk, in this process."""
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


def walk_key(request: Request) -> str:
    """Return a digest of everything that a walk follows from: the request and the version of this package."""
    learnt = request.learnt and (request.learnt.model.to_json(), request.learnt.conditions)
    parts = (metadata.version("gensor-kernels"), request.workload.key(), learnt, replace(request, learnt=None))
    return hashlib.sha256(repr(parts).encode()).hexdigest()


class Searcher:
    """Runs walks in the order of requests; a context manager that owns the worker processes.

    `kept` maps `walk_key` to the results of walks that need not be taken again; finished walks are added to it.
    """

    def __init__(self, jobs: int, kept: MutableMapping[str, Found] | None = None):
        self.jobs, self.kept = jobs, kept
        self._pool: ProcessPoolExecutor | None = None
        self._expected: tuple[Request, ...] = ()
        self._ahead: dict[str, tuple[Request, Future[Found]]] = {}  # by workload
        self._processes: list[multiprocessing.process.BaseProcess] = []

    def __enter__(self) -> Searcher:
        return self

    def __exit__(self, *reason: object) -> None:
        if reason[0] is not None:  # their results are not needed
            for process in self._processes:
                process.kill()
        if self._pool is not None:
            self._pool.shutdown()  # without cancel_futures: Python 3.11 hangs if a worker was killed then

    def expect(self, requests: Sequence[Request]) -> None:
        """Let processes that have nothing else to do take some of these walks, which later calls of `run` ask for."""
        missing = (each for each in requests if self.kept is None or walk_key(each) not in self.kept)
        self._expected = tuple(islice(missing, AHEAD * self.jobs))

    def run(self, requests: Sequence[Request]) -> Iterator[Found]:
        """Yield one Found per Request."""
        if self.kept is None:
            yield from self._taken(requests)
            return
        known = [self.kept.get(walk_key(request)) for request in requests]
        taken = self._taken([request for request, found in zip(requests, known, strict=True) if found is None])
        for found in known:
            yield next(taken) if found is None else found

    def _taken(self, requests: Sequence[Request]) -> Iterator[Found]:
        """Yield the results of walks that are taken now."""
        if self.jobs == 1 or (self._pool is None and len(requests) < PARALLEL_FROM):
            return map(self._search, requests)
        return self._parallel(requests)

    def _search(self, request: Request) -> Found:
        found = search(request)
        self._keep(request, found)
        return found

    def _keep(self, request: Request, found: Found) -> None:
        if self.kept is not None:
            self.kept[walk_key(request)] = found

    def _keep_result(self, request: Request, future: Future[Found]) -> None:
        if not future.cancelled() and future.exception() is None:
            self._keep(request, future.result())

    def _parallel(self, requests: Sequence[Request]) -> Iterator[Found]:
        """Run in processes; if they cannot be started or one is killed, this process runs the remaining walks."""
        count = 0
        try:
            for future in self._submitted(requests):
                yield future.result()
                count += 1
        except (OSError, ImportError, BrokenProcessPool) as error:
            print(f"gensor-tune: walks go on in one process: {error}", file=sys.stderr)
            self.jobs = 1
            self._ahead.clear()
            yield from map(self._search, requests[count:])

    def _submitted(self, requests: Sequence[Request]) -> list[Future[Found]]:
        if self._pool is None:
            # spawn: forking a process with NVRTC's threads is undefined.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self.jobs, context, follow, (os.getpid(),))
        before = multiprocessing.active_children()
        with _without_interrupts():  # inherited by processes started now: this process handles Ctrl-C
            futures = [self._future(self._pool, request) for request in requests]
            for request in self._expected:
                self._ahead[request.workload.key()] = request, self._future(self._pool, request)
            self._expected = ()
            self._processes += [each for each in multiprocessing.active_children() if each not in before]
        return futures

    def _future(self, pool: ProcessPoolExecutor, request: Request) -> Future[Found]:
        """Return the walk of a request: the one that was taken ahead, or a new one."""
        if self._ahead and self._ahead.get(request.workload.key(), (None,))[0] == request:
            return self._ahead.pop(request.workload.key())[1]
        future = pool.submit(search, request)
        if self.kept is not None:
            future.add_done_callback(partial(self._keep_result, request))  # results that are never asked for, too
        return future


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Defer SIGINT within the block, also in processes started there; without signal masks, do nothing."""
    if not hasattr(signal, "pthread_sigmask") or threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[Any] = []
    # Children inherit the mask. Other threads of this process have their own masks, so a handler defers as well.
    handler = signal.signal(signal.SIGINT, lambda *signal_and_frame: came.append(signal_and_frame))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        signal.signal(signal.SIGINT, handler)
        if came and callable(handler):
            handler(*came[0])
