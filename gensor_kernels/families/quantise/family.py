"""quantise: rounding to block-scaled formats in one launch (quantise.cu)."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from gensor_kernels.families.core.family import Launch, operators
from gensor_kernels.families.core.macros import macro_token
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.pointwise.family import PointwiseFamily
from gensor_kernels.families.pointwise.shape import QUANTISERS
from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.pointwise.block_formats import DIGITS, LARGEST

from . import rules

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload


class Quantise(PointwiseFamily):
    """The rounding to a block-scaled format: a thread computes some blocks."""

    name = "quantise"
    source = "quantise.cu"
    rules = rules.RULES
    unbound = MappingProxyType({"vector": 1, "min_blocks": 0})
    needs = (operators(QUANTISERS, "is no rounding to blocks"),)

    def refusal(self, workload: Workload, arch: Arch) -> str | None:
        """Take no epilogue."""
        return f"{workload.operator} has no epilogue" if workload.epilogue else None

    def constants(self, program: Program, workload: Workload) -> dict[str, int | str]:
        """Return the macro bindings of quantise.cu."""
        declared = QUANTISERS[workload.operator]
        form = declared.form
        return {
            "IN_TYPE": macro_token(workload.dtype["a"]),
            "GROUP": form.group,
            "BITS": form.bits,
            "DIGITS": DIGITS[form.element][0],
            "EMAX": declared.emax,
            "LARGEST": int(LARGEST[form.element]),
            "TENSOR": int("b" in declared.names),
            "A_VECTOR": workload.align["a"],
            "C_VECTOR": workload.align["c"],
            **{name.upper(): program[name] for name in ("threads", "items", "min_blocks")},
        }

    def launches(self, program: Program, workload: Workload) -> tuple[Launch, ...]:
        """Return the one launch, which writes the scales."""
        (launch,) = super().launches(program, workload)
        return (replace(launch, writes=(QUANTISERS[workload.operator].names.index("l"),)),)
