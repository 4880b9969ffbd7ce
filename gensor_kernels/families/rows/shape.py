"""The numbers of a rows Workload as the vectorised code needs them, and the operations of rows_fold.cuh."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from gensor_kernels.operators import operator
from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.types.epilogue import OPERATIONS as STEPS

if TYPE_CHECKING:
    from gensor_kernels.operators.declaration.lowered import Rows
    from gensor_kernels.operators.types.workload import Workload

#: Bytes of a thread's elements of one step.
HELD_BYTES = 256
#: RowOperation of rows_fold.cuh.
OPERATIONS = {
    name: code
    for code, name in enumerate(
        [
            *("copy", "sum", "mean", "max", "min", "prod", "argmax", "argmin", "l2_norm", "var", "logsumexp"),
            *("softmax", "log_softmax", "layernorm", "rmsnorm", "cumsum", "cumprod"),
        ]
    )
}
#: Operations whose fold needs the result of another fold: one pass with states that carry it, or two passes.
TWO_FORMS = frozenset({"var", "logsumexp", "softmax", "log_softmax", "layernorm"})
#: Maps of an element and those before it, which a launch makes of x alone.
SCANS = frozenset({"cumsum", "cumprod"})
#: Rows of a thread that its block stages in shared memory; 0 where rows are read one access after another.
STAGED = (0, 1, 2, 4, 8, 16)
#: Forms of a Program, fixed by its class: reductions and maps of rows and of columns, and no fold at all.
REDUCE_ROWS, MAP_ROWS, REDUCE_COLUMNS, MAP_COLUMNS, COPY = range(5)


@dataclass(frozen=True)
class View:
    """Sizes and bytes: ``lines`` x ``columns`` rows of ``k`` elements of ``bytes_a``, folded in ``bytes_acc``.

    ``outputs`` and ``extra`` are elements of C and bytes of epilogue operands; ``align_a`` and ``align_c`` bytes.
    """

    rows: Rows
    form: int
    lines: int
    columns: int
    k: int
    bytes_a: int
    bytes_c: int
    bytes_acc: int
    align_a: int
    align_c: int
    outputs: int
    extra: int
    steps: int
    real: bool

    @property
    def by_columns(self) -> bool:
        """Whether rows are adjacent columns."""
        return self.form in (REDUCE_COLUMNS, MAP_COLUMNS)

    @property
    def maps(self) -> bool:
        """Whether there is an output per element."""
        return self.form in (MAP_ROWS, MAP_COLUMNS, COPY)

    def words(self, online: bool) -> tuple[int, int]:
        """Return the words of ACC_TYPE in the states of the first and the second pass (0: there is none)."""
        operation = self.rows.operation
        if operation in TWO_FORMS and not online:
            return 1, 1
        if operation in ("var", "layernorm"):
            return 3, 0
        return (2 if operation in TWO_FORMS or operation in ("argmax", "argmin") else 1), 0

    @property
    def epilogue(self) -> bool:
        """Whether results pass through an epilogue: integers and positions do not."""
        return self.real and self.rows.operation not in ("argmax", "argmin")

    @property
    def staged(self) -> bool:
        """Whether rows can be staged: contiguous ones, and mapped ones whose outputs have the size of x's elements."""
        along = self.rows.along == "k" and self.rows.digits == 1 and self.form != COPY
        return along and (not self.maps or self.bytes_a == self.bytes_c)

    @property
    def scans(self) -> bool:
        """Whether each element is mapped with those before it in its row."""
        return self.rows.operation in SCANS

    @property
    def many_passes(self) -> bool:
        """Whether rows may be needed again after a pass, and k is one axis, so that it has one size to be kept at."""
        again = self.form != COPY and not self.scans and (self.maps or self.rows.operation in TWO_FORMS)
        return again and self.rows.digits == 1


@lru_cache(maxsize=4096)
def view(workload: Workload) -> View:
    """Return the View of a Workload that operators see as rows."""
    rows = operator(workload.operator).rows(workload)
    assert rows is not None
    columns = rows.along == "n"
    form = COPY if rows.operation == "copy" else 2 * columns + rows.maps
    lines, width, k = max(rows.lines, 1), max(rows.columns, 1), max(rows.k, 1)
    outputs = lines * width * (k if rows.maps else 1)
    size = {side: facts(each.dtype).itemsize for side, each in (("a", rows.a), ("c", rows.c))}
    extra = 0
    for name in workload.epilogue:
        count = {"": 0, "n": k if rows.maps else lines, "mn": outputs}[STEPS[name].operand]
        extra += count * (1 if name == "mask" else size["c"])
    return View(
        *(rows, form, lines, width, k, size["a"], size["c"], facts(workload.accumulator).itemsize),
        *(rows.a.align, rows.c.align, outputs, extra, len(workload.epilogue)),
        real=not facts(workload.accumulator).is_integer,
    )
