"""One verification problem: its arrays inside poisoned buffers, a run of a kernel over them, and the comparison."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gensor_kernels.devices.emulator.run import AddressSpace, Counters, KernelFault, run
from gensor_kernels.operators import epilogue, matmul, tolerance
from gensor_kernels.operators.dtypes import encode, facts, round_to
from gensor_kernels.operators.workload import Workload
from gensor_kernels.programs import params

from .cases import Case
from .pool import Candidate

INTEGER_OPERATIONS = frozenset({"bias", "add", "mul", "relu"})
PADDING = 3  # vectors added behind each row, so that a row's end is not the next row's start


class Failure(Exception):
    """A run that did not end with the right numbers: its outcome, why, and the error over the tolerance."""

    def __init__(self, outcome: str, detail: str, worst: float = 0.0):
        super().__init__(detail)
        self.outcome, self.detail, self.worst = outcome, detail, worst


@dataclass
class Operand:
    """An array inside a larger poisoned buffer: `base` in elements, `strides` in elements (batch, row, column)."""

    buffer: np.ndarray
    base: int
    shape: tuple[int, int, int]
    strides: tuple[int, int, int]
    values: np.ndarray  # float64, shape (batch, rows, columns)
    dtype: str

    @property
    def address(self) -> int:
        """Address in bytes of element (0, 0, 0)."""
        return self.buffer.ctypes.data + self.base * self.buffer.itemsize

    def view(self) -> np.ndarray:
        """The array as the kernel sees it, in storage type."""
        size = self.buffer.itemsize
        return np.lib.stride_tricks.as_strided(
            self.buffer[self.base :], self.shape, tuple(stride * size for stride in self.strides)
        )


def place(values: np.ndarray, name: str, unit: int | None, alignment: int) -> Operand:
    """`values` (batch, rows, columns) in a buffer with padded rows, axis `unit` (1 or 2) of unit stride.

    The pitch is the smallest that the alignment class allows beyond the row, so it is not a multiple of a larger
    vector; `unit` None gives both axes a stride above 1. Everything around the elements is NaN (or 0x55), and the
    first element is aligned to `alignment` bytes and no more.
    """
    batch, rows, columns = values.shape
    kind = encode(name, np.zeros(1)).dtype  # bfloat16 is held as its 16 bits
    size = kind.itemsize
    vector = max(1, alignment // size)
    inner = {2: columns, 1: rows, None: 2 * columns + 1}[unit]
    pitch = -(-inner // vector) * vector + (PADDING * vector if vector * size < 16 else vector)
    outer = (columns if unit == 1 else rows) * pitch + vector
    strides = {2: (outer, pitch, 1), 1: (outer, 1, pitch), None: (outer, pitch, 2)}[unit]
    raw = np.full((batch * outer + pitch + 64) * size + 64, 0x7F if size == 1 else 0xFF, np.uint8)
    lead = (-raw.ctypes.data) % 64 + (alignment if alignment < 16 else 64)
    usable = (len(raw) - lead) // size * size
    operand = Operand(raw[lead : lead + usable].view(kind), 0, values.shape, strides, values, name)
    operand.view()[...] = encode(name, values)
    return operand


def draw(rng: np.random.Generator, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Random values of dtype `name` as float64: standard normal, or integers over the whole of int8."""
    if facts(name).is_integer:
        span = 128 if name == "int8" else 1 << 20
        return rng.integers(-span, span, shape).astype(np.float64)
    return round_to(name, rng.standard_normal(shape))


class Problem:
    """The arrays of one case, and the runs over them."""

    def __init__(self, case: Case, workload: Workload, seed: int):
        self.case = case
        self.workload = workload.with_sizes(batch=case.batch, m=case.m, n=case.n, k=case.k).with_epilogue(case.epilogue)
        rng = np.random.Generator(np.random.PCG64(seed))
        layouts, types, align = workload.layouts, workload.dtype, workload.align
        unit = {"a": {"k": 2, "m": 1}, "b": {"n": 2, "k": 1}, "c": {"n": 2}}
        shape = {"a": (case.m, case.k), "b": (case.k, case.n), "c": (case.m, case.n)}
        self.operands: dict[str, Operand] = {
            name: place(
                draw(rng, (case.batch, *shape[name]), types[name]),
                types[name],
                unit[name].get(layouts[name]),
                align[name],
            )
            for name in "abc"
        }
        self.steps = [self._step(rng, name) for name in case.epilogue]
        # Operands of an int32 result's leading exact steps are int32 too.
        self.integer_steps = self._integer_steps()
        self._expected: tolerance.Expected | None = None

    def _step(self, rng: np.random.Generator, name: str) -> tuple[epilogue.Step, Operand | None]:
        operation, case = epilogue.OPERATIONS[name], self.case
        scalar = -1.25 if name == "mask" else 0.75
        if not operation.takes_operand:
            return epilogue.Step(name, None, scalar), None
        rows = 1 if operation.operand == "n" else case.m
        out = self.workload.dtype["c"]
        if name == "mask":
            values = rng.integers(0, 2, (case.batch, rows, case.n)).astype(np.float64)
            out = "int8"
        else:
            values = draw(rng, (case.batch, rows, case.n), out)
        placed = place(values, out, 2, 16)
        return epilogue.Step(name, values, scalar), placed

    def _integer_steps(self) -> int:
        if self.workload.accumulator != "int32":
            return 0
        exact = [name in INTEGER_OPERATIONS for name in self.case.epilogue]
        return exact.index(False) if False in exact else len(exact)

    @property
    def reads(self) -> list[Operand]:
        """Every array a kernel reads."""
        return [self.operands["a"], self.operands["b"], *(placed for _, placed in self.steps if placed)]

    def params(
        self, candidate: Candidate, workspace: int, address: Callable[[Operand], int] = lambda each: each.address
    ) -> bytes:
        """The packed Params of a launch; `address` tells where a copy of an operand lies."""
        case = self.case
        a, b, c = (address(self.operands[name]) for name in "abc")
        return params.pack(
            **{name: _strides(self.operands[name]) for name in "abc"},
            sizes=(case.m, case.n, case.k),
            batch=(1, 1, case.batch),
            tiles=params.tiling(candidate.family.tile(candidate.program), case.m, case.n, case.k),
            steps=[_packed(step, placed, address) for step, placed in self.steps],
            integer_steps=self.integer_steps,
            pointers=(a, b, c, workspace),
        )

    def run(self, candidate: Candidate, library: Path, *, copies: str, order: str | int) -> Counters:
        """One run with a poisoned output; the emulator's counters. Raises on any fault."""
        family, program = candidate.family, candidate.program
        out = self.operands["c"]
        out.buffer.view(np.uint8)[...] = 0x7F if out.buffer.itemsize == 1 else 0xFF
        size, zero = family.workspace(program, self.workload)
        workspace = np.full(size + 64, 0 if zero else 0xFF, np.uint8)
        base = -workspace.ctypes.data % 64 + workspace.ctypes.data
        space = AddressSpace()
        addresses = {id(each): space.place(*_extent(each), each is out) for each in (*self.reads, out)}
        packed = self.params(candidate, space.place(base, size, True) if size else 0, lambda each: addresses[id(each)])
        try:
            return run(
                library,
                family.launches(program, self.workload),
                packed,
                [each for each in space.buffers if each.bytes],
                order=order,
                copies=copies,
                races=True,
            )
        except KernelFault as fault:
            raise Failure("timeout" if fault.kind == "timeout" else "failed", str(fault)) from None

    def check(self) -> float:
        """Largest error over its tolerance; raises where it is above 1 or an element around C was touched."""
        out = self.operands["c"]
        if self._expected is None:
            a, b = (self.operands[name].view() for name in "ab")
            steps = [step for step, _ in self.steps]
            self._expected = matmul.expect(a, b, self.workload, steps, integer_steps=self.integer_steps)
        found = tolerance.check(out.view(), self._expected)
        if not found.ok:
            raise Failure("wrong", found.message, found.ratio)
        written = np.zeros(out.buffer.shape, bool)
        np.lib.stride_tricks.as_strided(written[out.base :], out.shape, out.strides)[...] = True
        poison = np.uint8(0x7F if out.buffer.itemsize == 1 else 0xFF)
        around = out.buffer[~written].view(np.uint8)
        if (around != poison).any():
            raise Failure("wrong", "wrote between the elements of C")
        return found.ratio


def _strides(operand: Operand) -> params.Strides:
    batch, row, column = operand.strides
    return params.Strides((0, 0, batch), row, column)


def _packed(step: epilogue.Step, placed: Operand | None, address: Callable[[Operand], int]) -> params.Step:
    code = epilogue.OPERATIONS[step.name].code
    if placed is None:
        return params.Step(code, step.scalar)
    batch, row, column = placed.strides
    where = params.Strides((0, 0, batch), 0 if placed.shape[1] == 1 else row, column)
    return params.Step(code, step.scalar, str(placed.dtype), where, address(placed))


def _extent(operand: Operand) -> tuple[int, int]:
    """(address, bytes) from the first to the last element: an access beyond either end is out of bounds."""
    last = sum((extent - 1) * stride for extent, stride in zip(operand.shape, operand.strides, strict=True))
    if 0 in operand.shape:
        return operand.address, 0
    return operand.address, (last + 1) * operand.buffer.itemsize
