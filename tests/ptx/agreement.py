"""A Program's PTX at the verifier's cases: against the float64 reference, and bit by bit against the emulator."""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from gensor_kernels.devices.emulator.build import build
from gensor_kernels.devices.ptx.translation.parse import NotExecutedError, PtxError
from gensor_kernels.errors import BuildError
from gensor_kernels.families.core.cases import Case
from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.build.pool import Candidate
from gensor_tuner.verify.problem import Failure, Placed, Problem
from gensor_tuner.verify.verify import describe_case, verified_epilogue
from tests.ptx.causes import causes, plain, unfused
from tests.ptx.execute import Kernel, Memory, PtxFault


def launch_form(candidate: Candidate, workload: Workload) -> str:
    """Return how a Program is launched: the words that apply, "plain" where none does."""
    program = dict(candidate.program.values)
    launches = candidate.family.launches(candidate.program, workload)
    words = {
        "split": program.get("split_k", 1) > 1,
        "stream": any(each.together for each in launches),
        "walking": any(each.per_sm for each in launches),
        "dependent": any(each.dependent for each in launches),
        "cluster": any(each.cluster > 1 for each in launches),
        "staged": program.get("epilogue_staged", 0) > 0,
    }
    return " ".join(word for word, applies in words.items() if applies) or "plain"


def dtype_of(workload: Workload) -> str:
    """Return the dtypes of a Workload in the order of its operands, each once."""
    return " ".join(dict.fromkeys(name for _, name in workload.dtypes))


@dataclass(frozen=True)
class Replaced:
    """Replacements that separate causes of different bits (causes.py).

    `unfused` products and sums are two instructions, whose results no compiler rounds at once; `plain` takes functions
    away from the source of both, so that results are not checked; `truncated` sums of tensor cores are cut as the
    emulator's are, by the executor's model of them.
    """

    unfused: bool = False
    plain: bool = False
    truncated: bool = False

    @property
    def name(self) -> str:
        """The names of what is replaced, empty for nothing."""
        return " ".join(name for name, on in asdict(self).items() if on)


@dataclass
class Agreement:
    """The result of executing a Program's PTX; `worst` is the largest error over its bound: above 1 is wrong."""

    outcome: str = "ok"  # ok | wrong | fault | not executed | not translated
    detail: str = ""
    cases: int = 0
    runs: int = 0
    worst: float = 0.0
    elements: int = 0  # of the outputs, each case once
    equal: int = 0  # of them, with the emulator's bits
    causes: dict[str, list[int]] = field(default_factory=dict)  # elements and equal ones by what may differ
    opcodes: list[str] = field(default_factory=list)

    def to_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps(asdict(self), sort_keys=True)


NOTHING = Replaced()


def agree(
    candidate: Candidate,
    workload: Workload,
    target: str,
    *,
    source: str | None = None,
    emulated: bool = True,
    replaced: Replaced = NOTHING,
    chosen: Callable[[list[Case]], Iterable[Case]] = lambda cases: cases,
) -> Agreement:
    """Execute a candidate's PTX at its verification cases.

    Parameters
    ----------
    candidate : Candidate
        The Program and its constants.
    workload : Workload
        Gives class and epilogue; the sizes are the cases'.
    target : str
        What NVRTC compiles for, such as "sm_87".
    source : str, optional
        The bound source in place of the candidate's own.
    emulated : bool
        Whether the emulator runs each case too, and bits are compared.
    replaced : Replaced
        Replacements that separate causes of different bits.
    chosen : callable
        Which of the cases are run.

    Returns
    -------
    Agreement
        The outcome; a fault or a wrong number ends it at once.
    """
    found = Agreement()
    try:
        texts = [source or candidate.source(), candidate.source()]
        ours, theirs = (plain(each) if replaced.plain else each for each in texts)
        kernel = Kernel.of(ours, target, fused=not replaced.unfused, truncated=replaced.truncated)
        found.opcodes = sorted(kernel.opcodes)
        library = build(unfused(theirs) if replaced.unfused else theirs) if emulated else None
        epilogue = verified_epilogue(candidate, workload)
        cases = candidate.family.cases(candidate.program, workload, epilogue)
        for case in chosen(list(cases)):
            found.detail = f"case {describe_case(case)}"
            _run_case(found, candidate, kernel, library, case, found.runs, checked=not replaced.plain)
        found.detail = ""
    except NotExecutedError as missing:
        found.outcome, found.detail = "not executed", str(missing)
    except (BuildError, PtxError) as error:
        found.outcome, found.detail = "not translated", str(error)
    except PtxFault as fault:
        found.outcome, found.detail = "fault", f"{fault} ({found.detail})"
    except Failure as failure:
        found.outcome, found.detail = "wrong", f"{failure.detail} ({found.detail})"
        found.worst = max(found.worst, failure.worst)
    return found


def _run_case(
    found: Agreement,
    candidate: Candidate,
    kernel: Kernel,
    library: Path | None,
    case: Case,
    seed: int,
    *,
    checked: bool,
) -> None:
    problem = Problem(case, seed)
    for turn, (copies, order) in enumerate(case.schedule):
        run(problem, candidate, kernel, late=copies == "late", order=order, ordered=not turn)
        if checked:
            found.worst = max(found.worst, problem.check())
        found.runs += 1
    found.cases += 1
    if library is not None:
        ours = problem.out.view().copy()
        copies, order = case.schedule[0]
        problem.run(candidate, library, copies=copies, order=order)
        equal = int(equal_bits(ours, problem.out.view(), problem.out.dtype).sum())
        found.elements += ours.size
        found.equal += equal
        why = causes(case.workload, kernel.opcodes)
        sums = found.causes.setdefault(why, [0, 0])
        sums[:] = sums[0] + ours.size, sums[1] + equal


def run(
    problem: Problem, candidate: Candidate, kernel: Kernel, *, late: bool, order: str | int, ordered: bool = True
) -> None:
    """Run a problem's launches once, over a poisoned output and workspace."""
    family, program = candidate.family, candidate.program
    problem.poison()
    size, zero = family.workspace(program, problem.workload)
    workspace = np.full(size + 256, 0 if zero else 0xFF, np.uint8)
    base = -workspace.ctypes.data % 256 + workspace.ctypes.data
    memory = Memory()
    addresses = {id(each): memory.place(*each.extent, False) for each in problem.reads}
    addresses |= {id(each): memory.place(*each.extent, True) for each in problem.written}
    behind = memory.place(base, size, True) if size else 0

    def address(each: Placed) -> int:
        return addresses[id(each)]

    params = problem.params(candidate, behind, address)
    kernel.run(family.launches(program, problem.workload), params, memory, late=late, order=order, ordered=ordered)


def equal_bits(ours: np.ndarray, theirs: np.ndarray, dtype: str) -> np.ndarray:
    """Return where two arrays of storage type have equal bits; NaN equals NaN, whatever its payload."""
    same = ours == theirs if dtype == "bfloat16" or facts(dtype).is_integer else _words(ours) == _words(theirs)
    if dtype == "bfloat16":  # stored as its 16 bits
        return same | (((ours & 0x7FFF) > 0x7F80) & ((theirs & 0x7FFF) > 0x7F80))
    if facts(dtype).is_integer:
        return same
    if same.ndim > ours.ndim:
        same = same.all(axis=-1)
    return same | (np.isnan(ours) & np.isnan(theirs))


def _words(values: np.ndarray) -> np.ndarray:
    """The bits of floats; of complex numbers both parts, on a last axis."""
    values = np.ascontiguousarray(values)
    size = values.itemsize // (2 if values.dtype.kind == "c" else 1)
    words = values.view(f"u{size}")
    return words.reshape(*values.shape, 2) if values.dtype.kind == "c" else words.reshape(values.shape)
