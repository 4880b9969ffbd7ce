"""Operator: a name and its expressions, from which work, traffic and reference follow.

A subclass adds the memory layout of its operands and the kernel's view of them (Geometry, Product or Rows).  Tuner,
store and dispatch use operators by this interface alone.  Expressions are imported where they are used, so that the
look-up of a stored kernel does not load them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypeAlias

import numpy as np

from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.types.epilogue import OPERATIONS, Step
from gensor_kernels.operators.types.geometry import Geometry, Strides
from gensor_kernels.operators.types.workload import Workload

from .lowered import Product, Rows

if TYPE_CHECKING:
    from gensor_kernels.operators.expression.expression import Expression
    from gensor_kernels.operators.tolerance.base import Expected


#: Arrays by operand name; values with the bound on a kernel's error.
Arrays: TypeAlias = "Mapping[str, np.ndarray]"
Bounded: TypeAlias = "tuple[np.ndarray, np.ndarray]"


#: Makes the expressions of an operator from its parameters; the last one gives the output.
Declare: TypeAlias = "Callable[..., Expression | Sequence[Expression]]"


class Conditions(NamedTuple):
    """Conditions under which a kernel's error is bounded."""

    #: whether the bound holds for data of any order, not only for independent random numbers
    structured: bool = False
    #: operations of the epilogue before a norm
    steps: Sequence[Step] = ()
    #: largest distance of a kernel's first operand from the given one, element by element (prologues)
    away: np.ndarray | None = None


def grid(workload: Workload, **axes: Sequence[int]) -> list[Workload]:
    """Return the Workload at every combination of these sizes."""
    return [workload.with_sizes(**dict(zip(axes, sizes, strict=True))) for sizes in product(*axes.values())]


def even(count: int, least: Sequence[int], most: Sequence[int]) -> np.ndarray:
    """Return points (count, axes) that fill a box evenly in logarithms, from 2**least to 2**most on each axis."""
    # The additive recurrence of the root of x^(d + 1) = x + 1 has low discrepancy in d dimensions
    # (M. Roberts, "The unreasonable effectiveness of quasirandom sequences", 2018).
    axes, root = len(least), 2.0
    for _ in range(64):
        root = (1.0 + root) ** (1 / (axes + 1))
    places = (0.5 + np.arange(1, count + 1)[:, None] * root ** -np.arange(1, axes + 1)) % 1.0
    exponents: np.ndarray = least + np.subtract(most, least) * places
    return 2**exponents


@lru_cache(maxsize=1024)
def _stages(declare: Declare, parameters: tuple[tuple[str, int], ...]) -> tuple[Expression, ...]:
    from gensor_kernels.operators.expression.expression import Expression

    declared = declare(**dict(parameters))
    return (declared,) if isinstance(declared, Expression) else tuple(declared)


@dataclass(frozen=True)
class Operand:
    """An operand of a Workload: its shape in the declared order of axes, and its memory layout."""

    #: name in the declaration.  The last Operand of an operator is its output.
    name: str
    #: extents of the declared axes
    shape: tuple[int, ...]
    #: axes from the outermost to the innermost in memory
    order: tuple[int, ...]
    #: number of innermost axes without gaps between them
    dense: int = 1
    #: stride of the innermost axis: 1, or more where the layout promises no unit stride
    step: int = 1
    #: whether an int8 operand is compared with 0 only
    boolean: bool = False

    def strides(self, vector: int = 1, gap: int = 0) -> tuple[int, ...]:
        """Return strides in elements by declared axis, with ``gap`` vectors of padding before the ``dense``
        axes."""
        strides, pitch = [0] * len(self.shape), self.step
        for place, axis in enumerate(reversed(self.order)):
            if place == self.dense and gap:
                pitch = (-(-pitch // vector) + gap) * vector
            strides[axis] = pitch
            # Rows without a unit stride end in a gap, so that their pitch is no multiple of a vector.
            pitch = pitch * max(self.shape[axis], 1) + (self.step > 1 and place == 0)
        return tuple(strides)


@dataclass(frozen=True)
class Operator:
    """A named computation: ``declare(**parameters)`` returns its chain of expressions.

    Attributes
    ----------
    name : str
        Operator name in keys of records.
    declare : Callable
        Function that makes the expressions; the last one gives the output.  Names of tensors and of the last expression
        are the operand names of a Workload.
    parameters : tuple[str, ...]
        Sizes of a Workload that are no axes but shape the declaration, such as strides and padding.
    smallest : tuple[tuple[str, int], ...]
        Sizes of a Workload that stands for its class.
    columns : int
        Number of trailing output axes along which a vector operand of the epilogue, such as a bias, runs.
    """

    name: str
    declare: Declare
    parameters: tuple[str, ...] = ()
    smallest: tuple[tuple[str, int], ...] = ()
    columns = 1
    #: sizes whose combinations `usual` returns
    usual_sizes: ClassVar[Mapping[str, Sequence[int]]] = MappingProxyType({})

    # ---- methods of each operator

    def operands(self, workload: Workload) -> tuple[Operand, ...]:
        """Return the inputs, then the output."""
        raise NotImplementedError

    def geometry(self, workload: Workload, strides: Mapping[str, tuple[int, ...]]) -> Geometry:
        """Return the kernel's view of arrays with these strides (in elements, by operand and declared axis).

        Raises UnsupportedError if no kernel takes such strides.
        """
        raise NotImplementedError

    def output(self, workload: Workload, strides: tuple[int, ...]) -> Strides:
        """Return the Strides of an epilogue operand from its strides along the axes of the output's shape."""
        raise NotImplementedError

    def result_and_bound(self, workload: Workload, arrays: Arrays, conditions: Conditions) -> Bounded:
        """Return the float64 result before the epilogue, and the bound on a kernel's error in it.

        ``arrays`` are the inputs by operand name, stored as ``dtypes.encode`` stores them.
        """
        raise NotImplementedError

    def expect_written(self, workload: Workload, arrays: Arrays, *, structured: bool = False) -> Mapping[str, Expected]:
        """Return what a kernel should store in the operands ``written``, by name, as `expect` does for the output."""
        return {}

    def product(self, workload: Workload) -> Product | None:
        """Return the matrix product this Workload is, or None."""
        return None

    def rows(self, workload: Workload) -> Rows | None:
        """Return the rows this Workload reduces or maps, or None."""
        return None

    def draw(
        self, workload: Workload, name: str, rng: np.random.Generator, shape: tuple[int, ...]
    ) -> np.ndarray | None:
        """Return float64 values to verify operand ``name`` with; None: standard normal, or integers of any size."""
        return None

    def unused_slices(self, workload: Workload, name: str) -> tuple[slice, ...]:
        """Return the elements of operand ``name`` on which no result depends while others are as `draw` returns them.

        Kernels are verified with NaN there. () is none.
        """
        return ()

    def resize(self, workload: Workload, wanted: Mapping[str, int]) -> Workload:
        """Return a Workload of this class with about the ``wanted`` batch, m, n and k, for the verification of kernels.

        Sizes are at least the wanted sizes, and multiples of the alignment class.
        """
        raise NotImplementedError

    def of_class(self, workload: Workload) -> Workload:
        """Return the Workload with the sizes that its class determines."""
        return workload

    def usual(self, workload: Workload) -> list[Workload]:
        """Return further sizes that a portfolio of this Workload's class should serve."""
        return grid(workload, **self.usual_sizes) if self.usual_sizes else []

    def peak_dtype(self, workload: Workload) -> str:
        """Return the element type whose peak rate bounds this Workload, in the words of Arch.peak."""
        return workload.dtype[self.names[0]]

    def empty(self, workload: Workload) -> bool:
        """Return whether the output has no elements."""
        return 0 in self.operands(workload)[-1].shape

    # ---- derived from the declaration

    @property
    def size_names(self) -> tuple[str, ...]:
        """Names of a Workload's sizes."""
        return tuple(name for name, _ in self.smallest)

    def vector_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a vector operand of the epilogue, broadcastable to the output's ``shape``."""
        return (*(1 for _ in shape[: -self.columns]), *shape[len(shape) - self.columns :])

    @property
    def names(self) -> tuple[str, ...]:
        """Operand names: inputs in the order of their first read, then the output."""
        stages = self.stages(dict(self.smallest))
        made = {stage.name for stage in stages}
        inputs = (item.name for stage in stages for item in stage.tensors if item.name not in made)
        return (*dict.fromkeys(inputs), stages[-1].name)

    @property
    def written(self) -> tuple[str, ...]:
        """Operands among the inputs that kernels write, and do not read."""
        return ()

    def stages(self, sizes: Mapping[str, int]) -> tuple[Expression, ...]:
        """Return the expressions for the parameters found in ``sizes``."""
        return _stages(self.declare, tuple((name, sizes[name]) for name in self.parameters))

    def flops(self, workload: Workload) -> int:
        """Return the operations of all stages without the epilogue.

        A multiply-add counts as two; a complex one counts as eight: four multiplications and two additions for the
        product, two additions for the sum.
        """
        each = 4 if facts(workload.accumulator).is_complex else 1
        return each * sum(stage.operations(workload.size) for stage in self.stages(workload.size))

    def bytes_moved(self, workload: Workload) -> int:
        """Return the least traffic in bytes: inputs and epilogue operands read once, the output written once.

        A bias counts as one row over the output's columns, a mask as one byte per element, every other epilogue operand
        as the output.
        """
        stages, sizes = self.stages(workload.size), workload.size
        made = {stage.name for stage in stages}
        inputs = {item.name: item for stage in stages for item in stage.tensors if item.name not in made}
        output = stages[-1].output
        total = sum(
            math.prod(item.shape(sizes)) * facts(workload.dtype[item.name]).itemsize
            for item in (*inputs.values(), output)
        )
        columns = math.prod(output.shape(sizes)[-self.columns :])
        for name in workload.epilogue:
            count = {"": 0, "n": columns, "mn": math.prod(output.shape(sizes))}[OPERATIONS[name].operand]
            total += count * (1 if name == "mask" else facts(workload.dtype[output.name]).itemsize)
        return total

    def inner_steps(self, workload: Workload) -> int:
        """Return how many epilogue operations ``result_and_bound`` applies itself: those before a norm."""
        return 0

    def expect(
        self,
        workload: Workload,
        arrays: Mapping[str, np.ndarray],
        steps: Sequence[Step] = (),
        *,
        structured: bool = False,
        integer_steps: int = 0,
    ) -> Expected:
        """Return the result a kernel should store, with the bound on the error of each element.

        ``arrays`` are the inputs by operand name, stored as ``dtypes.encode`` stores them; ``steps`` are the epilogue
        with its operands and scalars, of which the first ``integer_steps`` after an int32 accumulator are exact;
        ``structured`` is that of Conditions.
        """
        from gensor_kernels.operators.tolerance.base import expect

        inner = self.inner_steps(workload)
        values, bound = self.result_and_bound(workload, arrays, Conditions(structured, steps[:inner]))
        return expect(
            values,
            bound,
            steps[inner:],
            accumulator=workload.accumulator,
            output=workload.dtype[self.names[-1]],
            integer_steps=integer_steps,
            math=workload.math,
        )

    def reference(
        self, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int] | None = None, steps: Sequence[Step] = ()
    ) -> np.ndarray:
        """Return the declaration evaluated in float64: slow, and the definition of the operator."""
        from gensor_kernels.operators.expression.evaluate import evaluate

        return evaluate(self.stages(sizes or {}), arrays, sizes=sizes, steps=steps)
