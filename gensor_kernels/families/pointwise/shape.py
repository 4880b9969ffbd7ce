"""A Workload as the pointwise family sees it: operands with their forms, and the work of one element."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from gensor_kernels.operators import operator
from gensor_kernels.operators.expression.program import parse
from gensor_kernels.operators.pointwise.block_formats import OPERATORS as QUANTISERS
from gensor_kernels.operators.pointwise.pointwise import granule, layout_axes, program_of
from gensor_kernels.operators.types.dtypes import facts

if TYPE_CHECKING:
    from gensor_kernels.operators.expression.program import Program
    from gensor_kernels.operators.types.workload import Workload

#: How an operand is read along l (pointwise.cu).
BROADCAST, ADJACENT, APART = range(3)
#: Instructions of an operation of floats, estimated; of doubles as many times more.
COSTS: dict[str, float] = {
    **dict.fromkeys(("sqrt", "rsqrt", "recip", "div", "sigmoid", "exp2", "log2"), 10.0),
    "exp": 6.0,
    **dict.fromkeys(("log", "log10", "tanh", "expm1", "log1p", "atan", "sinh", "cosh"), 16.0),
    **dict.fromkeys(("erf", "asin", "acos", "asinh", "acosh", "atanh", "sin", "cos", "tan", "atan2"), 24.0),
    **dict.fromkeys(("mod", "fmod", "floordiv", "truncdiv"), 30.0),
    "pow": 60.0,
}
#: The same of operations on doubles that are no sum, product or comparison.
DOUBLE = 4.0
#: Instructions of any other operation, and of a number that is rounded to an MX format: counted in SASS.
PLAIN, ROUNDING = 1.0, 24.0


class Array(NamedTuple):
    """Operand: how it is read along l, bytes per element, and its elements."""

    form: int
    bytes: int
    elements: int


class View(NamedTuple):
    """A Workload's operands (y last), axes, extents of l and of all axes, program, instructions per element, and the
    elements of which l is a multiple."""

    arrays: tuple[Array, ...]
    rank: int
    row: int
    elements: int
    program: Program
    work: float
    granule: int

    @property
    def forms(self) -> int:
        """The forms of all operands, two bits each."""
        return sum(each.form << 2 * place for place, each in enumerate(self.arrays))


@lru_cache(maxsize=4096)
def view(workload: Workload) -> View:
    """Return the View of a Workload."""
    if workload.operator in QUANTISERS:
        return _blocks(workload)
    program, found = program_of(workload), []
    for each in operator(workload.operator).operands(workload):
        axes, adjacent = layout_axes(workload, each.name)
        form = BROADCAST if "l" not in axes else ADJACENT if adjacent else APART
        found.append(Array(form, facts(workload.dtype[each.name]).itemsize, math.prod(each.shape)))
    rank = len(layout_axes(workload, "y")[0])
    work = sum(cost(step.name, step.dtype) for step in program.operations)
    size = workload.size
    return View(tuple(found), rank, size["l"], math.prod(size.values()), program, work, granule(workload))


def _blocks(workload: Workload) -> View:
    """Return the View of a rounding to a block-scaled format, whose blocks are its elements."""
    declared, count = QUANTISERS[workload.operator], workload.size["batch"]
    found = []
    for each in declared.operands(workload):
        size = facts(workload.dtype[each.name]).itemsize
        found.append(
            Array(BROADCAST, size, 1)
            if each.name == "b"
            else Array(ADJACENT, math.prod(each.shape[1:]) * size, math.prod(each.shape[:1]))
        )
    work = (ROUNDING + COSTS["div"] * ("b" in declared.names)) * declared.form.group
    return View(tuple(found), 1, count, count, parse("in_f4__out_0"), work, 1)


def cost(name: str, dtype: str) -> float:
    """Return the instructions of an operation on a type."""
    plain = COSTS.get(name, PLAIN)
    return plain * (DOUBLE if plain > PLAIN and dtype == "f8" else 1.0)
