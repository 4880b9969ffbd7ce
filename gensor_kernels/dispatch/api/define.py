"""Operators of the user's own: sums of products with a fused epilogue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gensor_kernels.dispatch.calls.arguments import Operation
from gensor_kernels.operators.types.epilogue import MAX_STEPS, OPERATIONS, PROLOGUES
from gensor_kernels.shown import shown

from .current import current_runtime
from .interop import adopting
from .prologue import check, contract

if TYPE_CHECKING:
    from gensor_kernels.arrays import ArrayLike
    from gensor_kernels.dispatch.calls.array import DeviceArray

Labels = tuple[int, ...]


class Defined:
    """An operator that `define` made: call it with its arrays.

    Attributes
    ----------
    expression : str
        The expression given to `define`.
    operands : int
        Number of arrays after the two operands: those of the prologue, then those of
        the epilogue.
    """

    def __init__(self, expression: str, epilogue: Sequence[Any], prologue: Sequence[Any] = ()):
        if not isinstance(expression, str):
            raise TypeError(f"define takes a string such as 'ij,jk->ik', not {shown(expression)}")
        self.expression = expression
        left, arrow, right = expression.partition("->")
        words = [_words(part) for part in (*left.split(","), *([right] if arrow else []))]
        if not arrow or len(words) != 3:
            raise ValueError(f"define takes 'axes of a, axes of b -> axes of the result', not {shown(expression)}")
        numbers: dict[str, int] = {}
        for word in (word for part in words for word in part):
            numbers.setdefault(word, len(numbers))
        first, second, output = (tuple(numbers[word] for word in part) for part in words)
        unknown = [word for word in words[2] if word not in words[0] + words[1]]
        if unknown or len(set(output)) != len(output):
            raise ValueError(f"{expression!r}: the result's axes are some of the operands', each once")
        self.form = ("labels", first, second, output, (False, False))
        self.steps = tuple(_step(item, numbers, output, "the result") for item in epilogue)
        self.before = tuple(_step(item, numbers, first, "the first operand", PROLOGUES) for item in prologue)
        if len(self.steps) > MAX_STEPS:
            raise ValueError(f"an epilogue has at most {MAX_STEPS} operations, not {len(self.steps)}")
        self.operands = sum(labels is not None for _, _, labels in self.before + self.steps)

    @adopting
    def __call__(self, a: ArrayLike, b: ArrayLike, *operands: ArrayLike) -> DeviceArray:
        """Compute the operator.

        Parameters
        ----------
        a, b : array
            Operands, with the axes of the expression.
        *operands : array
            Arrays of the prologue, then arrays of the epilogue, each with the axes that
            its operation names.

        Returns
        -------
        array
            A new array, or a transposed view of a new array.
        """
        if len(operands) != self.operands:
            raise TypeError(f"{self.expression!r} takes 2 + {self.operands} arrays, {2 + len(operands)} are given")
        runtime = current_runtime()
        runtime.check(a, b, None, tuple(Operation("add", each) for each in operands), None)
        rest = iter(operands)
        before = _operations(self.before, self.form[1], rest)
        steps = _operations(self.steps, self.form[3], rest)
        if not before:
            return runtime.contract(self.form, a, b, None, None, steps)
        check(runtime, a, before)
        return contract(runtime, self.form, a, b, before, steps)


def _words(part: str) -> list[str]:
    part = part.strip()
    words = part.split() if " " in part else list(part)
    if not all(word.isidentifier() for word in words):
        raise ValueError(f"axes are words or letters, not {part!r}")
    return words


def _step(
    item: Any, numbers: dict[str, int], output: Labels, of: str, known: Sequence[str] = tuple(OPERATIONS)
) -> tuple[str, float, Labels | None]:
    """Return (operation, scalar, labels of its array's axes or None) of one on an array `of` these axes."""
    name, *rest = (item,) if isinstance(item, str) else tuple(item)
    if name not in known:
        raise ValueError(f"{name!r} is not one of {', '.join(known)}")
    operation = OPERATIONS[name]
    labels = None
    if operation.takes_operand:
        axes = _words(rest.pop(0)) if rest and isinstance(rest[0], str) else None
        if axes is None or any(numbers.get(word) not in output for word in axes) or len(set(axes)) != len(axes):
            raise ValueError(f"{name!r} needs the axes of its array, some of {of}'s, as ({name!r}, 'i j')")
        labels = tuple(numbers[word] for word in axes)
    if len(rest) != operation.takes_scalar:
        raise ValueError(f"{name!r} takes {'a number' if operation.takes_scalar else 'no number'}: {shown(item)}")
    return name, float(rest[0]) if rest else 0.0, labels


def _operations(
    steps: Sequence[tuple[str, float, Labels | None]], axes: Labels, arrays: Iterator[DeviceArray]
) -> tuple[Operation, ...]:
    """Return operations on an array with these axes, with the next ones of `arrays`."""
    return tuple(
        Operation(name, None if labels is None else _broadcast(next(arrays), labels, axes), scalar)
        for name, scalar, labels in steps
    )


def _broadcast(array: DeviceArray, labels: Labels, axes: Labels) -> DeviceArray:
    """Return an operation's array as it broadcasts to an array with these axes."""
    if array.ndim != len(labels):
        raise ValueError(f"an array of shape {tuple(array.shape)} where {len(labels)} axes are named")
    turned = array.transpose([labels.index(label) for label in dict.fromkeys(axes) if label in labels])
    extents = iter(turned.shape)
    firsts = [axes.index(label) == place for place, label in enumerate(axes)]
    return turned.reshape([next(extents) if own and x in labels else 1 for own, x in zip(firsts, axes, strict=True)])
