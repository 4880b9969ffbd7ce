"""One verification problem: arrays inside poisoned buffers, runs of a kernel over them, and the comparison."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path

import numpy as np

from gensor_kernels.devices.emulator.run import AddressSpace, Counters, KernelFault, run
from gensor_kernels.errors import GensorError
from gensor_kernels.families.core.cases import Case
from gensor_kernels.families.core.params import Step
from gensor_kernels.operators import operator
from gensor_kernels.operators.declaration.operator import Operand
from gensor_kernels.operators.tolerance import base as tolerance_base
from gensor_kernels.operators.types import epilogue
from gensor_kernels.operators.types.dtypes import encode, facts, join_parts, round_to
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.build.pool import Candidate

INTEGER_OPERATIONS = frozenset({"bias", "add", "mul", "relu"})
PADDING = 3  # vectors added after each row, so that the end of a row is not the start of the next row


class Failure(GensorError):
    """A run that failed or computed wrong numbers: the outcome, the reason, and the error over the tolerance."""

    def __init__(self, outcome: str, detail: str, worst: float = 0.0):
        super().__init__(detail)
        self.outcome, self.detail, self.worst = outcome, detail, worst


@dataclass
class Placed:
    """An array inside a larger poisoned buffer; `base` and `strides` (by declared axis) count elements."""

    name: str
    buffer: np.ndarray
    base: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    values: np.ndarray  # float64 or complex128
    dtype: str

    @property
    def address(self) -> int:
        """Address in bytes of the element with all indices 0."""
        return self.buffer.ctypes.data + self.base * self.buffer.itemsize

    def view(self) -> np.ndarray:
        """Return the array as the kernel sees it, in storage type."""
        size = self.buffer.itemsize
        return np.lib.stride_tricks.as_strided(
            self.buffer[self.base :], self.shape, tuple(stride * size for stride in self.strides)
        )

    @property
    def poison(self) -> int:
        """The byte that fills a buffer before a run: of floats a NaN."""
        return 0x7F if self.buffer.itemsize == 1 else 0xFF

    @property
    def extent(self) -> tuple[int, int]:
        """(address, bytes) from the first to the last element; accesses beyond either end are out of bounds."""
        if 0 in self.shape:
            return self.address, 0
        last = sum((extent - 1) * stride for extent, stride in zip(self.shape, self.strides, strict=True))
        return self.address, (last + 1) * self.buffer.itemsize


def place(values: np.ndarray, dtype: str, operand: Operand, alignment: int, *, dense: bool = False) -> Placed:
    """Place `values` in a poisoned buffer with the layout of `operand`, with padded rows unless `dense`.

    The pitch is the smallest beyond the row that the alignment class allows, so it is not a multiple of a larger
    vector. Everything around the elements is NaN (or 0x55). The first element is aligned to exactly `alignment` bytes.
    """
    kind = encode(dtype, np.zeros(1)).dtype  # bfloat16 is stored as its 16 bits
    size = kind.itemsize
    vector = max(1, alignment // size)
    strides = operand.strides(vector, 0 if dense else PADDING if vector * size < 16 else 1)
    span = 1 + sum(max(extent - 1, 0) * stride for extent, stride in zip(operand.shape, strides, strict=True))
    raw = np.full((span + 64) * size + 64, 0x7F if size == 1 else 0xFF, np.uint8)
    lead = (-raw.ctypes.data) % 64 + (alignment if alignment < 16 else 64)
    usable = (len(raw) - lead) // size * size
    placed = Placed(operand.name, raw[lead : lead + usable].view(kind), 0, values.shape, strides, values, dtype)
    placed.view()[...] = encode(dtype, values)
    return placed


def draw(rng: np.random.Generator, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Draw random values of dtype `name` as float64 or complex128: standard normal, or integers over their range."""
    if facts(name).is_integer:
        span = 128 if name == "int8" else 1 << 20
        return rng.integers(-span, span, shape).astype(np.float64)
    if facts(name).is_complex:
        return round_to(name, join_parts(rng.standard_normal((*shape, 2))))
    return round_to(name, rng.standard_normal(shape))


def exact_steps(workload: Workload, out: str) -> int:
    """Return the number of leading epilogue steps that an integer accumulator computes exactly for dtype `out`."""
    if workload.accumulator != "int32":
        return 0
    able = {name for name in INTEGER_OPERATIONS if facts(out).is_integer or not epilogue.OPERATIONS[name].takes_operand}
    return len(list(takewhile(able.__contains__, workload.epilogue)))


class Problem:
    """The arrays of one verification case, and the runs over them."""

    def __init__(self, case: Case, seed: int):
        self.case, self.workload = case, case.workload
        self.operator = operator(self.workload.operator)
        rng = np.random.Generator(np.random.PCG64(seed))
        types, align = self.workload.dtype, dict(self.workload.align)
        *inputs, output = self.operator.operands(self.workload)
        dense = (inputs[:1] if case.dense else []) + [output] * case.dense_output
        align |= {each.name: case.dense for each in dense}
        self.inputs = {
            each.name: place(self._draw(rng, each), types[each.name], each, align[each.name], dense=each in dense)
            for each in inputs
        }
        self.output = output
        zeros = np.zeros(output.shape)
        self.out = place(zeros, types[output.name], output, align[output.name], dense=case.dense_output)
        #: the output, and what else a kernel writes
        self.written = [self.out, *(self.inputs[name] for name in self.operator.written)]
        self.steps = [self._step(rng, name) for name in self.workload.epilogue]
        self.integer_steps = exact_steps(self.workload, self.out.dtype)
        self._expected: list[tolerance_base.Expected] = []

    def _draw(self, rng: np.random.Generator, operand: Operand) -> np.ndarray:
        name = self.workload.dtype[operand.name]
        if operand.boolean:
            return rng.integers(0, 2, operand.shape).astype(np.float64)
        own = self.operator.draw(self.workload, operand.name, rng, operand.shape)
        drawn = draw(rng, operand.shape, name) if own is None else round_to(name, own)
        drawn = np.ldexp(drawn, self.case.magnitude) if self.case.magnitude else drawn
        spread = self.case.spread
        drawn = np.ldexp(drawn, rng.integers(-spread, spread + 1, drawn.shape)) if spread else drawn
        if unused := self.operator.unused_slices(self.workload, operand.name):
            drawn[unused] = np.nan
        return drawn

    def _step(self, rng: np.random.Generator, name: str) -> tuple[epilogue.Step, Placed | None]:
        operation, shape = epilogue.OPERATIONS[name], self.out.shape
        scalar: complex = -1.25 if name == "mask" else 0.75
        if name == "scale" and facts(self.out.dtype).is_complex:
            scalar = 0.75 - 0.5j
        if not operation.takes_operand:
            return epilogue.Step(name, None, scalar), None
        if operation.operand == "n":
            shape = self.operator.vector_shape(shape)
        dtype = "int8" if name == "mask" else self.out.dtype
        values = rng.integers(0, 2, shape).astype(np.float64) if name == "mask" else draw(rng, shape, dtype)
        operand = replace(self.output, name=name, shape=shape, step=1)  # in the memory order of the output
        return epilogue.Step(name, values, scalar), place(values, dtype, operand, 16)

    @property
    def reads(self) -> list[Placed]:
        """Every array that a kernel reads."""
        return [each for each in self.operands if each.name not in self.operator.written]

    @property
    def operands(self) -> list[Placed]:
        """Every array of a launch but the output, in the order of its arguments."""
        return [*self.inputs.values(), *(placed for _, placed in self.steps if placed)]

    def poison(self) -> None:
        """Fill what a kernel writes with a pattern that no result has."""
        for each in self.written:
            each.buffer.view(np.uint8)[...] = each.poison

    def params(
        self, candidate: Candidate, workspace: int, address: Callable[[Placed], int] = lambda each: each.address
    ) -> bytes:
        """Return the packed Params of a launch; `address` returns the address of an operand's copy."""
        strides = {each.name: each.strides for each in (*self.inputs.values(), self.out)}
        addresses = [address(each) for each in (*self.inputs.values(), self.out)]
        steps = [self._packed(step, placed, address) for step, placed in self.steps]
        return candidate.params(self.workload, strides, addresses, workspace, steps, self.integer_steps)

    def _packed(self, step: epilogue.Step, placed: Placed | None, address: Callable[[Placed], int]) -> Step:
        code = epilogue.OPERATIONS[step.name].code
        if placed is None:
            return Step(code, step.scalar)
        strides = tuple(0 if extent == 1 else s for extent, s in zip(placed.shape, placed.strides, strict=True))
        where = self.operator.output(self.workload, strides)
        return Step(code, step.scalar, str(placed.dtype), where, address(placed))

    def run(self, candidate: Candidate, library: Path, *, copies: str, order: str | int) -> Counters:
        """Run once with poisoned outputs and return the emulator's counters; raise Failure on any fault."""
        family, program = candidate.family, candidate.program
        self.poison()
        size, zero = family.workspace(program, self.workload)
        workspace = np.full(size + 64, 0 if zero else 0xFF, np.uint8)
        base = -workspace.ctypes.data % 64 + workspace.ctypes.data
        space = AddressSpace()
        addresses = {id(each): space.place(*each.extent, False) for each in self.reads}
        addresses |= {id(each): space.place(*each.extent, True) for each in self.written}
        packed = self.params(candidate, space.place(base, size, True) if size else 0, lambda each: addresses[id(each)])
        buffers = [each for each in space.buffers if each.bytes]
        try:
            launches = family.launches(program, self.workload)
            return run(library, launches, packed, buffers, order=order, copies=copies, races=True)
        except KernelFault as fault:
            raise Failure("timeout" if fault.kind == "timeout" else "failed", str(fault)) from None

    def check(self) -> float:
        """Return the largest error over its tolerance; raise Failure above 1, or if memory around an output was
        written."""
        if not self._expected:
            arrays = {name: each.view() for name, each in self.inputs.items()}
            steps = [step for step, _ in self.steps]
            others = self.operator.expect_written(self.workload, arrays)
            self._expected = [
                self.operator.expect(self.workload, arrays, steps, integer_steps=self.integer_steps),
                *(others[name] for name in self.operator.written),
            ]
        return max(self._check(out, expected) for out, expected in zip(self.written, self._expected, strict=True))

    def _check(self, out: Placed, expected: tolerance_base.Expected) -> float:
        found, of = tolerance_base.check(out.view(), expected), "" if out is self.out else f"{out.name} "
        if not found.ok:
            raise Failure("wrong", of + found.message, found.ratio)
        written = np.zeros(out.buffer.shape, bool)
        np.lib.stride_tricks.as_strided(written[out.base :], out.shape, out.strides)[...] = True
        around = out.buffer[~written].view(np.uint8)
        if (around != out.poison).any():
            raise Failure("wrong", f"wrote between the elements of {out.name.upper()}")
        return found.ratio
