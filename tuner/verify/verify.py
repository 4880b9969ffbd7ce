"""Verified means executed: a Program, its integers unreduced, runs on the emulator and is compared with float64.

Each case of `cases` runs with asynchronous copies delivered late and early, warps in both orders and in seeded
random ones, shared memory poisoned, a race detector on, and every global access checked against the operands'
extents. A branch that the Program has and no case took is a failure as much as a wrong number.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from gensor_kernels.build import nvrtc
from gensor_kernels.config import cache_dir
from gensor_kernels.devices.emulator.build import build, compiler, library_digest
from gensor_kernels.devices.emulator.run import Counters
from gensor_kernels.errors import BuildError
from gensor_kernels.operators.types.epilogue import join
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.programs.core.cases import Case, generic_epilogue
from gensor_tuner.build.pool import Candidate

from .problem import Failure, Problem

VERSION = 6  # of cases and schedules: part of every verdict's identity


def check_compilers(verify: str) -> None:
    """ToolMissingError, with the sentence that says what to install, where a compiler is missing; ConfigError where
    the folder for what it builds cannot be used."""
    nvrtc.toolchain()
    if verify != "none":
        compiler()
        cache_dir()


@dataclass(frozen=True)
class Verdict:
    """What executing a Program showed. `worst` is the largest error over its tolerance: above 1 is wrong."""

    outcome: str  # ok | not_compiled | wrong | failed | timeout
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
        """Canonical JSON without the time it took."""
        kept = {name: value for name, value in asdict(self).items() if name != "seconds"}
        return json.dumps(kept, sort_keys=True, separators=(",", ":"))


def verify(candidate: Candidate, workload: Workload, *, use_cache: bool = True) -> Verdict:
    """Execute `candidate` as the kernel of `workload`'s class (and epilogue) and say what came of it.

    Verdicts are cached by the host source, the emulator and the Program, so archs whose sources agree share them.
    """
    began = time.perf_counter()
    path = _verdict_path(candidate, workload)
    if use_cache and path.is_file():
        try:
            return Verdict(**json.loads(path.read_text()))
        except (ValueError, TypeError):  # half a file, or one of another version
            path.unlink(missing_ok=True)
    try:
        library = build(candidate.source())
    except BuildError as error:
        return Verdict("not_compiled", str(error), seconds=time.perf_counter() - began)
    verdict = _execute(candidate, workload, library)
    verdict = Verdict(**{**asdict(verdict), "seconds": time.perf_counter() - began})
    if use_cache:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f"{path.name}.{time.monotonic_ns()}")
        scratch.write_text(verdict.to_json())
        scratch.replace(path)
    return verdict


def _verdict_path(candidate: Candidate, workload: Workload) -> Path:
    parts = (
        VERSION,
        library_digest(candidate.source()),
        candidate.program.to_json(),
        workload.class_key(),
        verified_epilogue(candidate, workload),
    )
    return cache_dir() / "verdicts" / f"{hashlib.sha256(repr(parts).encode()).hexdigest()}.json"


def _execute(candidate: Candidate, workload: Workload, library: Path) -> Verdict:
    total = Counters()
    worst, runs, sizes = 0.0, 0, []
    epilogue = verified_epilogue(candidate, workload)
    try:
        for case in candidate.family.cases(candidate.program, workload, epilogue):
            problem = Problem(case, seed=runs)
            sizes.append(told(case))
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
    missing = sorted(
        candidate.family.branches(candidate.program, workload) - {name for name, count in branches.items() if count}
    )
    if missing:
        detail = f"branches never taken: {', '.join(missing)}"
        return Verdict("failed", detail, worst, sizes, counters, branches, runs)
    return Verdict("ok", "", worst, sizes, counters, branches, runs)


def _expected(case: Case, found: Counters) -> None:
    """Failure where a run went a way that it had no cause for."""
    taken = sorted(name for name in case.needless if found.branches.get(name))
    if taken:
        raise Failure("failed", f"branches taken without cause: {', '.join(taken)}")


def told(case: Case) -> dict[str, int | str]:
    """A case as a verdict records it."""
    return {"name": case.name, **case.workload.size, "epilogue": join(case.workload.epilogue)}


def verified_epilogue(candidate: Candidate, workload: Workload) -> tuple[str, ...]:
    """The epilogue compiled into the binary, or the generic one where it comes as data."""
    return workload.epilogue if candidate.fixes_epilogue else generic_epilogue(workload)
