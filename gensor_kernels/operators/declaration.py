"""Operator: a name and its expressions, from which work, traffic and reference follow.

Expressions are imported where they are used, so that looking up a stored kernel doesn't load them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from .dtypes import facts
from .epilogue import OPERATIONS, Step
from .workload import Workload

if TYPE_CHECKING:
    import numpy as np

    from .expression import Expression


@lru_cache(maxsize=1024)
def _stages(
    declare: Callable[..., Expression | Sequence[Expression]], parameters: tuple[tuple[str, int], ...]
) -> tuple[Expression, ...]:
    from .expression import Expression

    declared = declare(**dict(parameters))
    return (declared,) if isinstance(declared, Expression) else tuple(declared)


@dataclass(frozen=True)
class Operator:
    """What is computed: ``declare(**parameters)`` gives the chain of expressions, the last one's output last.

    ``parameters`` are names among a Workload's sizes that are no axes but shape the declaration, such as
    strides and padding.  The names of tensors and of the last expression are those of a Workload's operands.
    """

    name: str
    declare: Callable[..., Expression | Sequence[Expression]]
    parameters: tuple[str, ...] = ()

    def stages(self, sizes: Mapping[str, int]) -> tuple[Expression, ...]:
        """The expressions under the parameters found in ``sizes``."""
        return _stages(self.declare, tuple((name, sizes[name]) for name in self.parameters))

    def flops(self, workload: Workload) -> int:
        """Operations of all stages (without the epilogue), a multiply-add counting as two."""
        return sum(stage.operations(workload.size) for stage in self.stages(workload.size))

    def bytes_moved(self, workload: Workload) -> int:
        """Least bytes to move: inputs and epilogue operands read once, the output written once.

        A bias counts as one row over the output's columns, a mask as one byte per element, other epilogue
        operands as the output.
        """
        from .contraction import contraction

        stages, sizes = self.stages(workload.size), workload.size
        made = {stage.name for stage in stages}
        inputs = {item.name: item for stage in stages for item in stage.tensors if item.name not in made}
        output = stages[-1].output
        total = sum(
            math.prod(item.shape(sizes)) * facts(workload.dtype[item.name]).itemsize
            for item in (*inputs.values(), output)
        )
        view = contraction(stages[-1])
        columns = view.extents(sizes)["n"] if view else stages[-1].axes[-1].size(sizes)
        for name in workload.epilogue:
            count = {"": 0, "n": columns, "mn": math.prod(output.shape(sizes))}[OPERATIONS[name].operand]
            total += count * (1 if name == "mask" else facts(workload.dtype[output.name]).itemsize)
        return total

    def reference(
        self, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int] | None = None, steps: Sequence[Step] = ()
    ) -> np.ndarray:
        """The declaration evaluated in float64: slow, and the last word on what an operator means."""
        from .evaluate import evaluate

        return evaluate(self.stages(sizes or {}), arrays, sizes=sizes, steps=steps)
