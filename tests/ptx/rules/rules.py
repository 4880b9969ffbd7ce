"""The rules that have a kernel, and how both twins of one are run by the emulator and by the executor of PTX."""

import functools
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gensor_kernels.devices.emulator import AddressSpace, KernelFault, build, run
from gensor_kernels.families.core import params
from gensor_kernels.families.core.family import Launch
from gensor_kernels.families.core.params import Tiling
from gensor_kernels.families.core.source import SOURCES, bind, flatten
from gensor_kernels.families.core.tensor_maps import TensorMap
from gensor_kernels.operators.types.geometry import Geometry, Strides
from tests.ptx.execute import Kernel, Memory, PtxFault

HERE = Path(__file__).resolve().parent
#: Bytes of a, of c, of the workspace and of shared memory (rules.cuh).
BYTES, SHARED = 8192, 32768
EXTENT = BYTES // 128  # rows and columns of a, b and c, of 16 bits
MAPS = tuple(TensorMap(operand, operand == "b", 2, EXTENT) for operand in "abc")
#: Deliveries of asynchronous copies and products, and orders of threads; a broken rule must show in one of them.
SCHEDULE = (("late", "forward"), ("early", "reverse"), ("late", 3))

#: Outcomes that are not faults: different results, or nothing visible (docs/internals/verification.md says why).
VALUES, UNSEEN = "results", "unseen"


@dataclass(frozen=True)
class Rule:
    """A rule with kernels `name`_wrong and `name`_right in a source, and what emulator and executor call the wrong."""

    name: str
    source: str
    emulator: str
    executor: str
    blocks: int = 1
    threads: int = 32
    front: bool = False  # a launch in front, on which this one depends
    wrong_threads: int = 0
    together: bool = True  # several blocks without maps are resident together; with maps they are a cluster

    def launches(self, twin: str) -> tuple[Launch, ...]:
        """Return the launches of a twin, "wrong" or "right"."""
        maps = () if self.source == "classic.cu" else MAPS
        threads = self.wrong_threads if self.wrong_threads and twin == "wrong" else self.threads
        together, cluster = self.together and self.blocks > 1 and not maps, self.blocks if maps else 1
        own = Launch(
            f"{self.name}_{twin}", self.blocks, threads, SHARED, maps, together=together, cluster=cluster,
            dependent=self.front,
        )  # fmt: skip
        return (Launch("in_front", 1, 32, SHARED), own) if self.front else (own,)


BLOCKS = {"": 1, "PAIR_": 2, "PAIRS_": 4}
#: A kernel's head: its name, threads, the faults by emulator and executor, and further fields of a Rule.
HEAD = re.compile(r'^(PAIRS?_)?RULE\((\w+), (\d+), "(.*?)", "(.*?)"(.*)\) {$', re.MULTILINE)


def _rules() -> Iterator[Rule]:
    for path in sorted(HERE.glob("*.cu")):
        for pair, name, threads, emulator, executor, more in HEAD.findall(path.read_text(encoding="utf-8")):
            fields = {"blocks": BLOCKS[pair], "threads": int(threads)}
            fields |= {key: int(value) for key, value in re.findall(r"(\w+) = (\d+)", more)}
            yield Rule(name, path.name, emulator, executor, **fields)


RULES = tuple(_rules())


@functools.cache
def source(name: str) -> str:
    """Return the text of a file of kernels with all that it includes."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(SOURCES, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
        for each in (*HERE.glob("*.cuh"), HERE / name):
            shutil.copy(each, folder)
        return bind(flatten(name, Path(folder)), {})


@functools.cache
def _kernel(name: str) -> Kernel:
    return Kernel.of(source(name), "sm_100a" if name.startswith("tensor_") else "sm_90a")


class _Operands:
    """a, b, c and the workspace of a run, and Params with their addresses."""

    def __init__(self) -> None:
        numbers = np.random.default_rng(7).integers(-4, 5, BYTES // 2).astype(np.float16)
        self.a, self.b, self.c, self.workspace = (_aligned_bytes(BYTES) for _ in range(4))
        self.a[:] = self.b[:] = numbers.view(np.uint8)

    def packed(self, space: "AddressSpace | Memory") -> bytes:
        """Place the operands and return the Params of a launch."""
        arrays = (self.a, self.b, self.c, self.workspace)
        places = [space.place(each.ctypes.data, each.nbytes, i > 1) for i, each in enumerate(arrays)]
        rows, columns = Strides((0, 0, 0), EXTENT, 1), Strides((0, 0, 0), 1, EXTENT)
        geometry = Geometry((EXTENT,) * 3, a=rows, b=columns, c=rows)
        return params.pack(geometry, Tiling(1, 1, 1, EXTENT, 1), pointers=tuple(places))


def _aligned_bytes(size: int) -> np.ndarray:
    raw = np.zeros(size + 256, np.uint8)
    start = -raw.ctypes.data % 256
    return raw[start : start + size]


def emulated(rule: Rule, twin: str, copies: str, order: str | int) -> bytes:
    """Return what a twin leaves in c; KernelFault."""
    operands, space = _Operands(), AddressSpace()
    packed = operands.packed(space)
    run(build(source(rule.source)), rule.launches(twin), packed, space.buffers, order=order, copies=copies, seconds=20)
    return operands.c.tobytes()


def executed(rule: Rule, twin: str, copies: str, order: str | int) -> bytes:
    """Return what a twin's PTX leaves in c; PtxFault."""
    operands, memory = _Operands(), Memory()
    packed = operands.packed(memory)
    _kernel(rule.source).run(rule.launches(twin), packed, memory, late=copies == "late", order=order, ordered=True)
    return operands.c.tobytes()


def found(rule: Rule, twin: str, by: str) -> tuple[str, set[bytes]]:
    """Return kind and text of the first fault in the schedule, "" where there is none, and the results by then."""
    results = set()
    for copies, order in SCHEDULE:
        try:
            results.add((emulated if by == "emulator" else executed)(rule, twin, copies, order))
        except (KernelFault, PtxFault) as fault:
            return str(fault), results
    return "", results
