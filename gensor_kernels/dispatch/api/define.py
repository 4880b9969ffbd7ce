"""Operators of the user's own: sums of products with a fused epilogue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gensor_kernels.dispatch.calls.arguments import Operation
from gensor_kernels.dispatch.contractions.axes import Window, strides_of
from gensor_kernels.dispatch.contractions.lowering import Study, is_staged, stage, staged_form, study, views, window
from gensor_kernels.dispatch.functions.prologue_contraction import behind
from gensor_kernels.dispatch.functions.prologue_matmul import checked, computed
from gensor_kernels.dispatch.observe import record as observe_record
from gensor_kernels.dispatch.observe.dry_run import product
from gensor_kernels.dispatch.plans import recorded as plans_recorded
from gensor_kernels.dispatch.plans.runtime import Runtime
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.types.epilogue import MAX_STEPS, OPERATIONS, PROLOGUES

from .current import current_runtime
from .interop import adopting

Labels = tuple[int, ...]


class Defined:
    """An operator that `define` made: call it with its arrays.

    Attributes
    ----------
    expression : str
        The expression given to `define`.
    operands : int
        Number of arrays behind the two operands: the arrays of the prologue, then the
        arrays of the epilogue.
    """

    def __init__(self, expression: str, epilogue: Sequence[Any], prologue: Sequence[Any] = ()):
        self.expression = expression
        left, arrow, right = expression.partition("->")
        words = [_words(part) for part in (*left.split(","), *([right] if arrow else []))]
        if not arrow or len(words) != 3:
            raise ValueError(f"define takes 'axes of a, axes of b -> axes of the result', not {expression!r}")
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
    def __call__(self, a: Any, b: Any, *operands: Any) -> Any:
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
        if not self.before:
            return self._run(runtime, self.form, a, b, operands, None)
        return self._behind(runtime, a, b, operands)

    def _behind(self, runtime: Runtime, a: Any, b: Any, operands: Sequence[Any]) -> Any:
        """Behind the prologue, whose arrays come first."""
        rest = iter(operands)
        before = [
            Operation(name, None if labels is None else _placed(next(rest), labels, self.form[1]), scalar)
            for name, scalar, labels in self.before
        ]
        left = tuple(rest)
        checked(runtime, a, before)
        found = behind(runtime, self.form, a, b, before)
        if found is None:
            a = a.astype(np.promote_types(a.dtype, b.dtype), copy=False) if a.dtype.kind != "c" else a
            return self._run(runtime, self.form, computed(runtime, a, before), b, left, None)
        return found.run(runtime, a, b, before, self._arranged(runtime, found.study, left))

    def _arranged(self, runtime: Runtime, found: Study, operands: Sequence[Any]) -> tuple[Operation, ...]:
        """The epilogue, its arrays as windows with the axes of the product's result."""
        rest = iter(operands)
        return tuple(
            Operation(name, None if labels is None else _arranged(runtime, found, labels, next(rest)), scalar)
            for name, scalar, labels in self.steps
        )

    def _run(self, runtime: Runtime, form: Any, a: Any, b: Any, operands: Sequence[Any], dtype: Any) -> Any:
        found = study(runtime, form, a, b, None, dtype)
        if found.layout is None:
            if not found.reason and 0 not in found.shape:  # nothing is summed: one product of zeros in its place
                a, b = (runtime.device.xp.zeros([extent or 1 for extent in x.shape], x.dtype) for x in (a, b))
                return self._run(runtime, form, a, b, operands, dtype)
            return self._without_kernel(runtime, found, a, b, operands)
        if is_staged(found):
            inner, dtype = staged_form(found)
            first, second = (stage(runtime, found, number, each) for number, each in enumerate((a, b)))
            result = self._run(runtime, inner, first, second, operands, dtype)
            return result.astype(found.dtype, copy=False)
        layout = found.layout
        result = runtime.device.empty(layout.allocated, found.dtype)
        x, y, z = views(runtime, found, a, b, result)
        product(runtime, x, y, z, self._arranged(runtime, found, operands), None, None)
        return result if layout.order is None else result.transpose(layout.order)

    def _without_kernel(self, runtime: Runtime, found: Study, a: Any, b: Any, operands: Sequence[Any]) -> Any:
        """The library's einsum and the epilogue on its result, or a result without elements."""
        from gensor_kernels.dispatch.calls.fallback import apply_steps

        device = runtime.device
        if not found.reason:
            return device.empty(found.shape, found.dtype)
        if device.emulated:
            raise UnsupportedError(f"no kernel serves this call: {found.reason}")
        if observe_record.active:
            shown = tuple(Operation(name) for name, _, _ in self.steps)
            observe_record.count(plans_recorded.unsupported(runtime, "einsum", (a, b), shown, found.reason))
        _, first, second, output, _ = found.form
        value = device.xp.einsum(a, list(first), b, list(second), list(output))
        rest, steps = iter(operands), []
        for name, scalar, labels in self.steps:
            operand = None if labels is None else _broadcast(device.xp, found, labels, next(rest))
            steps.append(Operation(name, operand, scalar))
        return apply_steps(device, value, steps, found.dtype, value.dtype)


def _words(part: str) -> list[str]:
    part = part.strip()
    words = part.split() if " " in part else list(part)
    if not all(word.isidentifier() for word in words):
        raise ValueError(f"axes are words or letters, not {part!r}")
    return words


def _step(
    item: Any, numbers: dict[str, int], output: Labels, of: str, known: Sequence[str] = tuple(OPERATIONS)
) -> tuple[str, float, Labels | None]:
    """(operation, scalar, labels of its array's axes or None) of one that is applied to an array `of` these axes."""
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
        raise ValueError(f"{name!r} takes {'a number' if operation.takes_scalar else 'no number'}: {item!r}")
    return name, float(rest[0]) if rest else 0.0, labels


def _placed(array: Any, labels: Labels, axes: Labels) -> Any:
    """A prologue's array as it broadcasts to an operand with these axes."""
    if array.ndim != len(labels):
        raise ValueError(f"an array of shape {tuple(array.shape)} where {len(labels)} axes are named")
    turned = array.transpose([labels.index(label) for label in dict.fromkeys(axes) if label in labels])
    extents = iter(turned.shape)
    firsts = [axes.index(label) == place for place, label in enumerate(axes)]
    return turned.reshape([next(extents) if own and x in labels else 1 for own, x in zip(firsts, axes, strict=True)])


def _broadcast(xp: Any, found: Study, labels: Labels, array: Any) -> Any:
    """An epilogue's array with all axes of the result, in their order."""
    if array.ndim != len(labels):
        raise ValueError(f"an array of shape {tuple(array.shape)} where {len(labels)} axes are named")
    output = found.subscripts.output
    placed = array.transpose([labels.index(label) for label in output if label in labels])
    shape = [array.shape[labels.index(label)] if label in labels else 1 for label in output]
    return xp.broadcast_to(placed.reshape(shape), found.shape)


def _arranged(runtime: Runtime, found: Study, labels: Labels, array: Any) -> Any:
    """An epilogue's array as a window with the axes of the product's result; copied where it has gaps there."""
    xp, layout = runtime.device.xp, found.layout
    assert layout is not None and layout.c is not None
    full = _broadcast(xp, found, labels, array)
    strides = strides_of(found.subscripts.output, full.shape, full.strides)
    axes = [_axis(run, strides, found.extents) for run in layout.labels]
    if all(stride is not None for stride in axes):
        return window(xp, full, Window(layout.c.shape, tuple(stride or 0 for stride in axes)))
    order = layout.order or tuple(range(len(layout.allocated)))
    inverse = np.argsort(order)
    compact = xp.ascontiguousarray(full.transpose([int(axis) for axis in inverse]))
    scale = array.dtype.itemsize / found.dtype.itemsize
    return window(xp, compact, Window(layout.c.shape, tuple(int(stride * scale) for stride in layout.c.strides)))


def _axis(run: Labels, strides: dict[int, int], extents: dict[int, int]) -> int | None:
    """The stride of several labels seen as one axis; None where they are not."""
    found, reach = None, 1
    for label in reversed([each for each in run if extents[each] != 1]):
        stride = strides.get(label, 0)
        if found is None:
            found = stride
        elif stride != found * reach:
            return None
        reach *= extents[label]
    return found or 0
