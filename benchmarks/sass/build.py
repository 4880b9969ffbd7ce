"""A compiled kernel to compare, and the folder that keeps figures for the next run."""

from __future__ import annotations

import hashlib
import os
import resource
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from gensor_kernels.build.instruction import Instruction
from gensor_kernels.build.resources import instructions

LANES = 32


@dataclass(frozen=True)
class Build:
    """A compiled kernel, and what only its maker knows of it."""

    maker: str
    configuration: str  # its choices in words, such as "128x256x32 s3 w8"
    cubin: bytes = field(default=b"", repr=False)
    target: str = ""
    entry: str = ""  # the function that computes
    threads: int = 0  # of a block
    consumers: int = 0  # the threads that compute: all, but for a specialised producer; a warp where one thread issues
    storing: int = 0  # the threads that store results, where others compute
    product: int = 0  # multiply-adds of a multiprocessor by one product in tensor memory
    sums: int = 1  # tiles whose sums have room at once
    shared_bytes: int = 0  # of a block, static and dynamic
    tile: tuple[int, int, int] = (0, 0, 0)  # rows and columns of a block's results, depth of a step; or zeros
    stages: int = 1  # of the ring of operand tiles
    step_bytes: float = 0.0  # of operands that a block receives for one step
    element_bytes: float = 2.0  # of what is read
    result_bytes: float = 2.0
    multiplicity: int = 1  # products per multiply-add: 3 for float32 by TF32, 6 by bfloat16, 2 in attention
    l2_share: float = 1.0  # of step_bytes that L2 delivers: blocks of a cluster fetch tiles for each other
    row: int = 0  # elements of a row that a block reduces (softmax, norms), shared by `row_threads`
    row_threads: int = 0
    seconds: float = 0.0  # CPU time of the compilation
    refused: str = ""  # why there is no kernel

    def code(self) -> tuple[Instruction, ...] | None:
        """Return the instructions of the entry, or None where nvdisasm does not read them."""
        return (instructions([self.cubin], self.target)[0] or {}).get(self.entry)


def cached(folder: Path, key: str, make: Callable[[], str]) -> str:
    """Return the text under a key, made now if it is new or its file is damaged."""
    file = folder / f"{hashlib.sha256(key.encode()).hexdigest()}.z"
    with suppress(OSError, zlib.error, UnicodeDecodeError):
        return zlib.decompress(file.read_bytes()).decode("utf-8")
    made = make()
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(f".{os.getpid()}")
    unfinished.write_bytes(zlib.compress(made.encode("utf-8"), 6))
    unfinished.replace(file)
    return made


def cpu_seconds() -> float:
    """Return the CPU time of this process and of the compilers that it has started and waited for."""
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)
