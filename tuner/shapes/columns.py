"""What readers of shapes files share: element types, accumulators and epilogues as their columns name them."""

from __future__ import annotations

from dataclasses import dataclass

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators import shape_row
from gensor_kernels.operators.declaration import prologue
from gensor_kernels.operators.products import gated
from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.types.epilogue import NORMS, PROLOGUES
from gensor_kernels.operators.types.workload import Workload

from . import layouts
from .cells import Line
from .dtype_names import ACCUMULATORS, DTYPES, FOREIGN, OUTPUTS

#: What is no operation of an epilogue in this version, but is known; matrix products read gates and norms themselves.
FOREIGN_EPILOGUES = (*gated.GATES, *NORMS, "softmax")


@dataclass(frozen=True)
class Read:
    """A row's workload, or why this version has none; and how often one call of the row runs it."""

    workload: Workload | None = None
    unsupported: str | None = None
    repeats: int = 1


@dataclass(frozen=True)
class Element:
    """What the columns dtype, acc and out say; `out` is None where the row leaves it to the operator."""

    name: str
    dtype: str
    out: str | None
    math: str
    accumulator: str

    def accumulated(self, workload: Workload) -> Workload:
        """The workload, where its accumulator is at least the one asked for."""
        found = facts(workload.accumulator).part or workload.accumulator
        if found != self.accumulator and self.accumulator != "float32":
            raise UnsupportedError(f"no kernel family of this version accumulates {self.name} in {self.accumulator}")
        return workload


def element(line: Line) -> Element:
    """The element types of a row; UnsupportedError for those that no family has."""
    name = line.choice("dtype", DTYPES, "fp32", FOREIGN)
    if name in FOREIGN:
        raise UnsupportedError(f"no kernel family of this version serves {name} operands")
    dtype, math = DTYPES[name]
    outputs = OUTPUTS | {name: dtype}
    out = outputs[line.choice("out", outputs, None)] if line.text("out", "") else None
    # `acc` is a minimum: fp32 accumulation serves acc=fp16, and nothing serves acc=fp64 on fp16 operands. Of a complex
    # type, it is that of its parts.
    usual = {"float64": "fp64", "int8": "int32"}.get(dtype, dtype if facts(dtype).is_complex else "fp32")
    return Element(name, dtype, out, math, ACCUMULATORS[line.choice("acc", ACCUMULATORS, usual)])


def second(line: Line, types: Element) -> str:
    """The element type of b: that of a, or the column `dtype_b`."""
    return DTYPES[line.choice("dtype_b", DTYPES, types.name)][0]


def before(line: Line) -> tuple[str, ...]:
    """Operation names of the `prologue` column, written as epilogues are; UnsupportedError for one beyond kernels."""
    try:
        names = shape_row.split(line.text("prologue", "none"))
    except UnsupportedError as error:
        raise line.fail("prologue", error.reason) from None
    foreign = [name for name in names if name not in PROLOGUES]
    if foreign:
        raise line.fail("prologue", f"'{foreign[0]}' is not one of {', '.join(PROLOGUES)}")
    if names:
        prologue.suffix(names)
    return names


def steps(line: Line) -> tuple[str, ...]:
    """Operation names of the `epilogue` column; UnsupportedError for a known one that this version lacks."""
    text = line.text("epilogue", "none")
    foreign = [word for word in FOREIGN_EPILOGUES if word in text.split("_")]
    if foreign:
        raise UnsupportedError(f"no operator of this version declares the epilogue '{foreign[0]}'")
    try:
        return layouts.operations(text)
    except UnsupportedError as error:
        raise line.fail("epilogue", error.reason) from None
