"""`gensor-tune verify`: every kernel of a database rebuilt from its Program and executed again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from gensor_database.record import Kernel
from gensor_database.store import Store
from gensor_kernels.build.nvrtc import compile_cubin, toolchain
from gensor_kernels.build.source import bind, digest, flatten
from gensor_kernels.dispatch.stored import class_workload
from gensor_kernels.operators.workload import Workload
from gensor_kernels.programs.families import FAMILIES
from gensor_kernels.programs.program import Program

from .pool import Candidate
from .verify import verify


def workload_of(class_key: str, epilogue: tuple[str, ...] = ()) -> Workload:
    """A workload of a class, at sizes that stand for none in particular."""
    return class_workload(class_key).with_epilogue(epilogue)


def rebuild(store: Store, kernel: Kernel) -> str | None:
    """Rebuild a kernel from its stored Program: None where source and cubin are identical, else what differs.

    A cubin is compared only where this machine's compiler is the one that made it.
    """
    family = FAMILIES.get(kernel.family)
    binary = store.binary(kernel)
    if family is None or family.abi != kernel.abi:
        return f"this version has no {kernel.family} with ABI {kernel.abi}"
    if binary is None:
        return "its binary is damaged, or missing as after a merge without --binaries"
    text = flatten(family.source)
    if digest(text) != binary.source_digest:
        return "its source differs from this version's"
    if binary.toolchain != toolchain():
        return None
    made = compile_cubin(bind(text, json.loads(binary.constants)), binary.target)
    return None if made.cubin == binary.cubin else made.error or "its cubin differs from the one compiled here"


def recheck(store: Store, arch: str | None, jobs: int) -> Iterator[tuple[str, str | None]]:
    """(digest, problem or None) of each kernel."""
    kernels = list(store.rows(Kernel, **({"arch": arch} if arch else {})))

    def one(kernel: Kernel) -> str | None:
        problem = rebuild(store, kernel)
        if problem is not None:
            return problem
        binary = store.binary(kernel)
        assert binary is not None
        epilogue = _fixed_epilogue(json.loads(binary.constants)["EPILOGUE_CODES"])
        candidate = Candidate(Program.from_json(kernel.program), FAMILIES[kernel.family], binary.constants)
        verdict = verify(candidate, workload_of(kernel.class_key, epilogue), use_cache=False)
        return None if verdict.outcome == "ok" else f"{verdict.outcome}: {verdict.detail}"

    with ThreadPoolExecutor(jobs) as threads:
        yield from zip((kernel.digest for kernel in kernels), threads.map(one, kernels), strict=True)


def _fixed_epilogue(codes: int) -> tuple[str, ...]:
    """Operation names of a compile-time epilogue: five bits per operation, the first lowest; 31 is none."""
    from gensor_kernels.operators.epilogue import OPERATIONS

    names = {operation.code: name for name, operation in OPERATIONS.items()}
    found = []
    while codes:
        if codes & 31 in names:
            found.append(names[codes & 31])
        codes >>= 5
    return tuple(found)
