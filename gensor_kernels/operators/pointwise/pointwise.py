"""Element-wise operators: y = program(x0, x1, ...), with operands that broadcast along any axis.

Axes are (i, j, k, l), the innermost last.  The layout of y names the axes that a class has: "l", "kl", "jkl" or "ijkl".
That of an input names those along which it varies, "-" for none; where l is among them, "s" follows unless neighbours
along l are adjacent.  views.py finds this view of arrays in memory.  Several results are entries of y along another
axis, the first.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.declaration.operator import Arrays, Bounded, Conditions, Operand, Operator
from gensor_kernels.operators.expression.program import FLOATS, MAX_INPUTS, TYPES, Program, parse
from gensor_kernels.operators.types.dtypes import decode, facts
from gensor_kernels.operators.types.geometry import Geometry, Strides
from gensor_kernels.operators.types.workload import Workload

AXES = "ijkl"
#: Kernels count elements in 32 bits.
LARGEST = 2**31 - 1
#: Inputs after the third: address and strides along the axes, in the tail of Params.
_INPUT = struct.Struct("<Q 4i")
#: Share of special numbers among those that verify a kernel, and these.
SPECIAL, SPECIALS = 1 / 32, (0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0)
#: Sizes of l that portfolios are chosen for.
USUAL = tuple(4**power for power in range(6, 14))


def program_of(workload: Workload) -> Program:
    """Return the program of a Workload; UnsupportedError for a text that is none."""
    return parse(workload.program)


def layout_axes(workload: Workload, name: str) -> tuple[str, bool]:
    """Return the axes along which an operand varies, and whether neighbours along l are adjacent."""
    text = workload.layouts[name]
    axes = "" if text == "-" else text.removesuffix("s")
    if axes != "".join(axis for axis in AXES if axis in axes) or (text.endswith("s") and "l" not in axes):
        raise ValueError(f"'layout' of {name} is some of the axes {AXES}, not {text!r}")
    return axes, not text.endswith("s") and "l" in axes


def granule(workload: Workload) -> int:
    """Return the elements of which l is a multiple in this class: the most that every access may have."""
    adjacent = [name for name in workload.dtype if layout_axes(workload, name)[1]]
    widths = [max(1, workload.align[name] // facts(workload.dtype[name]).itemsize) for name in adjacent]
    return min(widths, default=1)


@dataclass(frozen=True)
class PointOperator(Operator):
    """Programs of a number of inputs.  The computation is the Workload's program; there is no declaration."""

    inputs: int = 1

    @property
    def names(self) -> tuple[str, ...]:
        """Operands: the inputs, then the output."""
        return (*(f"x{index}" for index in range(self.inputs)), "y")

    def operands(self, workload: Workload) -> tuple[Operand, ...]:
        """Return the inputs, with an extent of 1 along axes that they lack, and the output."""
        program, extents = program_of(workload), [workload.size[axis] for axis in AXES]
        whole, _ = layout_axes(workload, "y")
        if len(program.inputs) != self.inputs or not whole or not AXES.endswith(whole):
            raise ValueError(
                f"a program of {len(program.inputs)} inputs with the layout {workload.layouts['y']!r} of y"
            )
        if any(extent != 1 for axis, extent in zip(AXES, extents, strict=True) if axis not in whole):
            raise ValueError(f"the layout {whole!r} of y has no axis of {dict(workload.size)}")
        found = []
        for name in self.names:
            axes, adjacent = layout_axes(workload, name)
            if not set(axes) <= set(whole):
                raise ValueError(f"'layout' of {name} has axes that y lacks")
            shape = tuple(extent if axis in axes else 1 for axis, extent in zip(AXES, extents, strict=True))
            step = 2 if "l" in axes and not adjacent else 1
            if name == "y" and len(program.outputs) > 1:
                shape = (len(program.outputs), *shape)
            found.append(Operand(name, shape, tuple(range(len(shape))), 1, step))
        return tuple(found)

    def geometry(self, workload: Workload, strides: Mapping[str, tuple[int, ...]]) -> Geometry:
        """Return the strides of all operands along i, j, k (the batch) and l (the columns)."""
        *outer, inner = (workload.size[axis] for axis in AXES)
        if math.prod(outer) * inner > LARGEST:
            raise UnsupportedError(f"{math.prod(outer) * inner} elements: more than kernels count in 32 bits")

        def own(name: str) -> tuple[int, ...]:
            axes, _ = layout_axes(workload, name)
            last = strides[name][-len(AXES) :]
            return tuple(stride if axis in axes else 0 for axis, stride in zip(AXES, last, strict=True))

        def place(name: str) -> Strides:
            i, j, k, column = own(name)
            return Strides((i, j, k), strides[name][0] if len(strides[name]) > len(AXES) else 0, column)

        *inputs, output = self.names
        first, second, third, *_ = [place(name) for name in inputs[:3]] + [Strides()] * 2
        try:
            tail = b"".join(_INPUT.pack(0, *own(name)) for name in inputs[3:])
        except struct.error:
            raise UnsupportedError("strides of 2^31 elements or more: give smaller arrays") from None
        others = tuple(_INPUT.size * index for index in range(len(inputs[3:])))
        batch = (outer[0], outer[1], outer[2])
        return Geometry((1, inner, 1), batch, first, second, place(output), third, tail=tail, others=others)

    def output(self, workload: Workload, strides: tuple[int, ...]) -> Strides:
        """Refuse operands of an epilogue: they are inputs of the program."""
        raise UnsupportedError(f"{self.name} has no epilogue: its operations are steps of the program")

    def result_and_bound(self, workload: Workload, arrays: Arrays, conditions: Conditions) -> Bounded:
        """Return the program's result in float64, and the bound on a kernel's error; see Operator."""
        from gensor_kernels.operators.tolerance.pointwise import evaluate

        program = program_of(workload)
        given = [_numbers(code, arrays[name]) for code, name in zip(program.inputs, self.names, strict=False)]
        values, bound = evaluate(program, given)
        shape = self.operands(workload)[-1].shape
        return np.broadcast_to(values, shape), np.broadcast_to(bound, shape)

    def draw(
        self, workload: Workload, name: str, rng: np.random.Generator, shape: tuple[int, ...]
    ) -> np.ndarray | None:
        """Return numbers of all magnitudes, special ones among them; the output has none."""
        if name == "y":
            return None
        code = program_of(workload).inputs[int(name[1:])]
        if code == "b1":
            return rng.integers(0, 2, shape).astype(np.float64)
        if code in FLOATS:
            values = rng.standard_normal(shape)
            return np.where(rng.random(shape) < SPECIAL, rng.choice(SPECIALS, shape), values)
        bits = min(8 * np.dtype(TYPES[code]).itemsize, 40)
        return np.trunc(np.ldexp(rng.uniform(-1.0, 1.0, shape), rng.integers(0, bits, shape)))

    def resize(self, workload: Workload, wanted: Mapping[str, int]) -> Workload:
        """Return k elements along l, in whole accesses, m along k, batch along j and n along i; see Operator."""
        whole, _ = layout_axes(workload, "y")
        sizes = dict(zip(AXES, (wanted[name] for name in ("n", "batch", "m", "k")), strict=True))
        least = max(
            max(1, workload.align[name] // facts(workload.dtype[name]).itemsize)
            for name in workload.dtype
            if "l" in layout_axes(workload, name)[0] or name == "y"
        )
        sizes["l"] = -(-sizes["l"] // least) * least
        return workload.with_sizes(**{axis: extent if axis in whole else 1 for axis, extent in sizes.items()})

    def usual(self, workload: Workload) -> list[Workload]:
        """Return a few numbers of elements along l."""
        return [self.resize(workload, {"batch": 1, "m": 8, "n": 1, "k": count}) for count in USUAL]

    def peak_dtype(self, workload: Workload) -> str:
        """Return the type whose rate bounds the arithmetic: that of the CUDA cores."""
        return "float64" if workload.accumulator == "float64" else "float32"

    def flops(self, workload: Workload) -> int:
        """Return one operation per step and element."""
        return len(program_of(workload).operations) * math.prod(workload.size.values())

    def bytes_moved(self, workload: Workload) -> int:
        """Return the bytes of all operands."""
        return sum(
            math.prod(each.shape) * facts(workload.dtype[each.name]).itemsize for each in self.operands(workload)
        )


def _numbers(code: str, stored: np.ndarray) -> np.ndarray:
    """Return an input as float64, or int64 of integers and bool."""
    if code in FLOATS:
        return decode(TYPES[code], stored)
    whole = np.asarray(stored).astype(np.int64)
    return 1 * (whole != 0) if code == "b1" else whole.astype(TYPES[code]).astype(np.int64)


def _declare() -> tuple[()]:
    """Return nothing: a program is part of the Workload."""
    return ()


OPERATORS = {
    f"pointwise{count}": PointOperator(
        f"pointwise{count}", _declare, smallest=tuple((axis, 1) for axis in AXES), inputs=count
    )
    for count in range(1, MAX_INPUTS + 1)
}
