"""Operands of epilogue operations: every dtype, contiguous axis and way to broadcast, against float64."""

import pytest

from gensor_kernels.devices.emulator import build
from gensor_kernels.operators.types import epilogue
from gensor_kernels.operators.types.dtypes import facts
from tests.programs.workloads.contraction_harness import Case, Problem, draw, mma, place

KERNELS = {
    "staged": mma(),  # groups of eight columns
    "direct": mma(EPILOGUE_STAGED=0),  # of two
    "odd": mma(A_VECTOR=4, C_VECTOR=2),  # of one
}
SHAPES = {
    "full": lambda c: (*c.batch, c.m, c.n),
    "rows": lambda c: (1, 1, 1, c.m, 1),
    "columns": lambda c: (c.batch[0], 1, 1, 1, c.n),
    "one": lambda c: (1, 1, c.batch[2], 1, 1),
}


class OperandProblem(Problem):
    """One `add` whose operand has a given dtype, contiguous axis and shape; extents of one are broadcast."""

    operand = ("float32", "n", "full")

    def _step(self, rng, name):
        dtype, unit, shape = self.operand
        stored = "int8" if dtype == "bool" else dtype
        values = draw(rng, SHAPES[shape](self.case), stored)
        values = (values > 0).astype(float) if dtype == "bool" else values
        array = place(values, stored, unit, "mn", 16 if unit == "n" else facts(stored).itemsize)
        array.dtype = dtype
        array.strides = tuple(0 if n == 1 else s for n, s in zip(values.shape, array.strides, strict=True))
        return epilogue.Step(name, values, 0.0), array


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int8", "int32", "bool"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_operands(kernel, dtype):
    library = build(KERNELS[kernel].source())
    for unit in "nms":
        for shape in SHAPES:
            kind = type("Kind", (OperandProblem,), {"operand": (dtype, unit, shape)})
            problem = kind(KERNELS[kernel], Case(35, 72, 40, batch=(2, 1, 2), epilogue=("add",)))
            problem.run(library)
            verdict = problem.check()
            assert verdict.ok, (unit, shape, verdict.message)
