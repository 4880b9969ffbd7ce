"""Calls of row operators on NumPy arrays of any layout, through workload_from_views and the emulator."""

from dataclasses import dataclass, field

import numpy as np

from gensor_kernels.build.source import bind, flatten
from gensor_kernels.devices.emulator import build
from gensor_kernels.devices.emulator.run import AddressSpace, Counters, run
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.rows.views import RowPlan, workload_from_views
from gensor_kernels.operators.types import epilogue as epilogues
from gensor_kernels.operators.types.dtypes import decode, encode
from gensor_kernels.operators.types.workload import View
from gensor_kernels.programs.core import params
from gensor_kernels.programs.core.program import Program
from gensor_kernels.programs.registry import FAMILIES

ROWS = FAMILIES["rows"]
POISON = 0xFF


def view_of(array: np.ndarray, dtype: str) -> View:
    """The View of an array; bfloat16 is held as uint16."""
    address = array.__array_interface__["data"][0]
    alignment = min(16, address & -address) if address else 16
    return View(array.shape, tuple(s // array.itemsize for s in array.strides), dtype, alignment)


@dataclass
class Call:
    """One operator on one array: ``steps`` are (name, operand array or None, scalar), operands in C's dtype."""

    name: str
    x: np.ndarray
    axes: tuple[int, ...]
    dtype: str
    out: str
    steps: list[tuple[str, np.ndarray | None, float]] = field(default_factory=list)
    ddof: int = 0

    def __post_init__(self) -> None:
        kept = [extent for axis, extent in enumerate(self.x.shape) if self.name == "softmax" or axis not in self.axes]
        kind = encode(self.out, np.zeros(1)).dtype
        self.c = np.full(int(np.prod(kept)) * kind.itemsize, POISON, np.uint8).view(kind).reshape(kept)

    def plan(self) -> RowPlan:
        operands = [np.broadcast_to(o, self.c.shape) for _, o, _ in self.steps if o is not None]
        strides = [tuple(s // o.itemsize for s in o.strides) for o in operands]
        return workload_from_views(
            *(self.name, view_of(self.x, self.dtype), view_of(self.c, self.out), self.axes, strides),
            epilogue=[name for name, _, _ in self.steps], ddof=self.ddof,
        )  # fmt: skip

    def run(self, program: Program | None = None, which: int = 0) -> tuple[np.ndarray, Counters]:
        """C in float64 after a run of ``program``, by default starter number ``which`` modulo their count."""
        plan = self.plan()
        if program is None:
            starters = ROWS.starters(plan.workload, lookup("sm_87"))
            program = starters[which % len(starters)]
        library = build(bind(flatten(ROWS.source), ROWS.constants(program, plan.workload)))
        space = AddressSpace()
        size, _ = ROWS.workspace(program, plan.workload)
        scratch = np.full(size + 64, POISON, np.uint8)
        base = scratch.ctypes.data + -scratch.ctypes.data % 64
        addresses = [_place(space, self.x, False)], _place(space, self.c, True)
        pointers = params.pointers(plan.geometry, *addresses, space.place(base, size, True) if size else 0)
        packed = params.pack(
            plan.geometry, ROWS.tiling(program, plan.geometry), steps=self._steps(plan, space), pointers=pointers
        )
        buffers = [each for each in space.buffers if each.bytes]
        counters = run(library, ROWS.launches(program, plan.workload), packed, buffers, order=which)
        return decode(self.out, self.c), counters

    def _steps(self, plan: RowPlan, space: AddressSpace) -> list[params.Step]:
        where, found = iter(plan.operands), []
        for name, operand, scalar in self.steps:
            code = epilogues.OPERATIONS[name].code
            if operand is None:
                found.append(params.Step(code, scalar))
            else:
                found.append(params.Step(code, scalar, self.out, next(where), _place(space, operand, False)))
        return found


def _place(space: AddressSpace, array: np.ndarray, writable: bool) -> int:
    """Address of the element with all indices 0, of an array with any strides."""
    first = array.__array_interface__["data"][0]
    reach = [(extent - 1) * stride for extent, stride in zip(array.shape, array.strides, strict=True)]
    low, high = sum(min(r, 0) for r in reach), sum(max(r, 0) for r in reach) + array.itemsize
    return space.place(first + low, high - low, writable) - low
