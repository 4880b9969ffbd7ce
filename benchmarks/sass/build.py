"""A compiled kernel to compare, and the folder that keeps compiled kernels for the next run."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import resource
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from gensor_kernels.build.instruction import Instruction
from gensor_kernels.build.resources import instructions

LANES = 32
INSTRUCTION_FIELDS = " ".join(Instruction._fields)


@dataclass(frozen=True)
class Build:
    """A compiled kernel, and what only its maker knows of it.

    Attributes
    ----------
    maker, configuration : str
        "ours", and its choices in words, such as "128x256x32 s3 w8".
    cubin, target, entry : bytes, str, str
        The file, its compile target and the function that computes.
    threads, consumers : int
        Of a block; `consumers` are the threads that compute: all, but for a specialised producer.
    shared_bytes : int
        Of a block, static and dynamic.
    tile : tuple of int
        Rows and columns of results of a block, and the depth of one step; zeros where there is none.
    stages : int
        Of the ring of operand tiles; 1 where there is none.
    step_bytes : float
        Operand bytes that a block receives for one step.
    element_bytes, result_bytes : float
        Of one element of what is read, and of the result.
    multiplicity : int
        Products for each multiply-add of m x n x k: 3 for float32 by TF32, 6 by bfloat16, 2 in attention.
    l2_share : float
        Share of these bytes that L2 delivers to each block of a cluster, whose blocks fetch tiles for each other.
    row : int
        Elements of a row that a block reduces (softmax, norms), else 0; `row_threads` threads share it.
    seconds : float
        CPU time of the compilation.
    refused : str
        Why there is no kernel; "" where there is one.
    """

    maker: str
    configuration: str
    cubin: bytes = field(default=b"", repr=False)
    target: str = ""
    entry: str = ""
    threads: int = 0
    consumers: int = 0
    shared_bytes: int = 0
    tile: tuple[int, int, int] = (0, 0, 0)
    stages: int = 1
    step_bytes: float = 0.0
    element_bytes: float = 2.0
    result_bytes: float = 2.0
    multiplicity: int = 1
    l2_share: float = 1.0
    row: int = 0
    row_threads: int = 0
    seconds: float = 0.0
    refused: str = ""

    def to_json(self) -> str:
        """Return the kernel as text."""
        return json.dumps(asdict(self) | {"cubin": base64.b64encode(self.cubin).decode("ascii")})

    @classmethod
    def from_json(cls, text: str) -> Build:
        """Return the kernel that `to_json` wrote."""
        values = json.loads(text)
        values |= {"cubin": base64.b64decode(values["cubin"]), "tile": tuple(values["tile"])}
        return cls(**values)


@dataclass(frozen=True)
class Cache:
    """Results by digests: of kernels by source, options and compiler; of listings by cubin; of figures."""

    folder: Path

    def get(self, key: str, compile_it: Callable[[], Build]) -> Build:
        """Return the kernel under a key, compiled now if it is new."""
        return Build.from_json(self.text(f"build\0{key}", lambda: compile_it().to_json()))

    def _file(self, key: str) -> Path:
        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()}.z"

    def text(self, key: str, make: Callable[[], str]) -> str:
        """Return the text under a key, made now if it is new or its file is damaged."""
        file = self._file(key)
        with suppress(OSError, zlib.error, UnicodeDecodeError):
            return zlib.decompress(file.read_bytes()).decode("utf-8")
        made = make()
        self.folder.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_suffix(f".{os.getpid()}")
        unfinished.write_bytes(zlib.compress(made.encode("utf-8"), 6))
        unfinished.replace(file)
        return made

    def code(self, build: Build) -> tuple[Instruction, ...] | None:
        """Return the instructions of a kernel's entry, or None where nvdisasm does not read them."""
        digest = hashlib.sha256(build.cubin).hexdigest()
        key = f"code\0{build.target}\0{build.entry}\0{digest}\0{INSTRUCTION_FIELDS}"
        listed = json.loads(self.text(key, partial(_list, build)))
        return None if listed is None else tuple(Instruction(*each[:-1], tuple(each[-1])) for each in listed)


def _list(build: Build) -> str:
    """Return the instructions of a kernel's entry as JSON."""
    return json.dumps((instructions([build.cubin], build.target)[0] or {}).get(build.entry))


def cpu_seconds() -> float:
    """Return the CPU time of this process and of the compilers that it has started and waited for."""
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)
