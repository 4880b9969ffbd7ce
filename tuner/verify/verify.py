"""Verification on the emulator: a Program, its integers unreduced, is executed and compared with float64.

Each case runs with asynchronous copies delivered late and early, warps in both orders and in seeded random orders,
poisoned shared memory, a race detector, and every global access checked against the operands' extents. A branch of the
Program that no case takes is a failure, like a wrong number.
"""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from gensor_kernels.build import nvrtc
from gensor_kernels.config import cache_dir
from gensor_kernels.devices.emulator.build import build, cache_errors, compiler, library_digest, usable_folder
from gensor_kernels.devices.emulator.run import Counters
from gensor_kernels.errors import BuildError, MachineError
from gensor_kernels.families.core.cases import Case, generic_epilogue
from gensor_kernels.families.registry import program_from_json
from gensor_kernels.families.validation import workload_of
from gensor_kernels.operators.types.epilogue import join
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.build.pool import Candidate
from gensor_tuner.tasks.task import Task, from_plain

from .problem import Failure, Problem

VERSION = 7  # of problems, references and tolerances: part of every verdict's identity
#: Bytes of address space that this process and NVRTC reserve: 0.9 GB with 2 jobs, more than that with 8.
ADDRESSES, ADDRESSES_PER_JOB = 1 << 30, 192 << 20
OUTCOMES = ("ok", "not_compiled", "wrong", "failed", "timeout")


def check_compilers(verify: str, jobs: int) -> None:
    """Raise a GensorError where compilers, `jobs` times their memory, or the cache folder cannot be used."""
    needed = ADDRESSES + jobs * ADDRESSES_PER_JOB
    if 0 <= _allowed() < needed:
        have = f"this process may use {_allowed() >> 20} MiB of memory (ulimit -v)"
        need = f"compilers need {needed >> 20} MiB with --jobs {jobs}"
        raise MachineError(f"{have}, and {need}: allow more, or fewer jobs")
    nvrtc.toolchain()
    if verify != "none":
        compiler()
        with cache_errors(), tempfile.TemporaryFile(dir=usable_folder()):
            pass


def _allowed() -> int:
    """Return the bytes of address space that this process may use; -1 where nothing limits them."""
    try:
        import resource
    except ImportError:  # Windows
        return -1
    limits = (resource.getrlimit(each)[0] for each in (resource.RLIMIT_AS, resource.RLIMIT_DATA))
    return min((each for each in limits if each != resource.RLIM_INFINITY), default=-1)


@dataclass(frozen=True)
class Verdict:
    """The result of executing a Program. `worst` is the largest error over its tolerance: above 1 is wrong."""

    outcome: str  # one of OUTCOMES
    detail: str = ""
    worst: float = 0.0
    sizes: list[dict[str, int | str]] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)
    branches: dict[str, int] = field(default_factory=dict)
    runs: int = 0
    seconds: float = field(default=0.0, compare=False)
    method: str = "emulator"  # or device
    part: str = ""  # of the device

    def to_json(self) -> str:
        """Return canonical JSON without the elapsed time."""
        kept = {name: value for name, value in asdict(self).items() if name != "seconds"}
        return json.dumps(kept, sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True)
class Execute(Task[Verdict]):
    """A candidate to execute on the emulator, for the class and epilogue of a workload; `anew` even if cached."""

    kind: ClassVar[str] = "verify"
    answer: ClassVar[type] = Verdict

    candidate: Candidate
    workload: Workload
    anew: bool = False

    def run(self) -> Verdict:
        """Execute."""
        return verify(self.candidate, self.workload, **({"use_cache": False} if self.anew else {}))

    def lost(self, reason: str) -> Verdict:
        """Return a verdict that says nothing about the candidate."""
        return Verdict("timeout", reason)

    def arguments(self) -> dict[str, str]:
        """Return the Program and its constants; the family and its source are everywhere."""
        program = self.candidate.program.to_json()
        return {"program": program, "constants": self.candidate.constants, "workload": self.workload.key()}

    @classmethod
    def from_arguments(cls, plain: dict[str, Any]) -> Execute:
        """Return the task with these arguments."""
        program = program_from_json(plain["program"])
        return cls(Candidate(program, plain["constants"]), workload_of(plain["workload"]))

    def check(self, result: Verdict) -> None:
        """Raise ValueError unless this is a verdict of the emulator, a good one with all cases and branches."""
        cases = check_verdict(result, "emulator", "", self.candidate, self.workload)
        if result.outcome == "ok":
            taken = {name for name, count in result.branches.items() if count}
            missing = self.candidate.family.branches(self.candidate.program, self.workload) - taken
            if missing or result.runs != sum(len(case.schedule) for case in cases):
                raise ValueError("a good verdict without all cases and branches")


def check_verdict(found: Verdict, method: str, part: str, candidate: Candidate, workload: Workload) -> list[Case]:
    """Return a candidate's cases; ValueError where another machine's verdict cannot be one on it by `method`."""
    if found.outcome not in OUTCOMES or (found.method, found.part) != (method, part):
        raise ValueError(f"a verdict {found.outcome!r} by {found.method!r} of {found.part!r}")
    if not found.seconds < math.inf:
        raise ValueError(f"a verdict after {found.seconds} seconds")
    cases = list(candidate.family.cases(candidate.program, workload, verified_epilogue(candidate, workload)))
    sizes = [describe_case(case) for case in cases]
    if found.outcome == "ok" and (found.sizes != sizes or not found.worst <= 1 or not found.runs):
        raise ValueError("a good verdict without all cases")
    return cases


def verify(candidate: Candidate, workload: Workload, *, use_cache: bool = True) -> Verdict:
    """Execute a candidate on the emulator at the verification cases; `use_cache` keeps verdicts for all archs."""
    began = time.perf_counter()
    path = _verdict_path(candidate, workload)
    if use_cache and path.is_file():
        try:
            return from_plain(Verdict, json.loads(path.read_text()))
        except ValueError:  # a truncated file, or a file of another version
            path.unlink(missing_ok=True)
    try:
        library = build(candidate.source())
    except BuildError as error:
        return Verdict("not_compiled", str(error), seconds=time.perf_counter() - began)
    verdict = _execute(candidate, workload, library)
    verdict = Verdict(**{**asdict(verdict), "seconds": time.perf_counter() - began})
    if use_cache:
        with cache_errors():
            path.parent.mkdir(parents=True, exist_ok=True)
            scratch = path.with_name(f"{path.name}.{time.monotonic_ns()}")
            scratch.write_text(verdict.to_json())
            scratch.replace(path)
    return verdict


def _verdict_path(candidate: Candidate, workload: Workload) -> Path:
    source, program = library_digest(candidate.source()), candidate.program.to_json()
    cases = candidate.family.cases(candidate.program, workload, verified_epilogue(candidate, workload))
    asked = [(replace(case, needless=frozenset()), sorted(case.needless)) for case in cases]
    branches = sorted(candidate.family.branches(candidate.program, workload))
    parts = (VERSION, source, program, workload.class_key(), asked, branches)
    return cache_dir() / "verdicts" / f"{hashlib.sha256(repr(parts).encode()).hexdigest()}.json"


def _execute(candidate: Candidate, workload: Workload, library: Path) -> Verdict:
    total = Counters()
    worst, runs, sizes = 0.0, 0, []
    epilogue = verified_epilogue(candidate, workload)
    try:
        for case in candidate.family.cases(candidate.program, workload, epilogue):
            problem = Problem(case, seed=runs)
            sizes.append(describe_case(case))
            for copies, order in case.schedule:
                found = problem.run(candidate, library, copies=copies, order=order)
                worst = max(worst, problem.check())
                _expected(case, found)
                total.add(found)
                runs += 1
    except Failure as failure:
        detail = f"{failure.detail} (case {sizes[-1] if sizes else '?'}, run {runs})"
        return Verdict(failure.outcome, detail, failure.worst, sizes, runs=runs)
    counters = {name: count for name, count in sorted(total.items()) if count}
    counters["bank_conflicts"] = total.bank_conflicts
    branches = dict(sorted(total.branches.items()))
    missing = candidate.family.branches(candidate.program, workload) - {name for name, n in branches.items() if n}
    if missing:
        detail = f"branches never taken: {', '.join(sorted(missing))}"
        return Verdict("failed", detail, worst, sizes, counters, branches, runs)
    return Verdict("ok", "", worst, sizes, counters, branches, runs)


def _expected(case: Case, found: Counters) -> None:
    """Raise Failure if a run took a branch that the case gives no cause for."""
    taken = sorted(name for name in case.needless if found.branches.get(name))
    if taken:
        raise Failure("failed", f"branches taken without cause: {', '.join(taken)}")


def describe_case(case: Case) -> dict[str, int | str]:
    """Return a case as a verdict records it."""
    return {"name": case.name, **case.workload.size, "epilogue": join(case.workload.epilogue)}


def verified_epilogue(candidate: Candidate, workload: Workload) -> tuple[str, ...]:
    """Return the epilogue compiled into the binary, or the generic epilogue where it is data."""
    return workload.epilogue if candidate.fixes_epilogue else generic_epilogue(workload)
