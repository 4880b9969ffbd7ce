"""Arrays in memory to the view of pointwise.py: axes in the order of the output's memory, merged where all allow it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.expression.program import CODES, STORED, TYPES, Program, parse
from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.types.geometry import Geometry
from gensor_kernels.operators.types.workload import View, Workload, alignment_class, contiguous

from .pointwise import AXES, OPERATORS

#: Maps strides of an array of the result's shape to strides along (i, j, k, l).
Declared = Callable[[tuple[int, ...]], tuple[int, ...]]


def workload(program: str, shapes: Sequence[Sequence[int]], alignment: int = 16) -> Workload:
    """Return the Workload of contiguous inputs of these shapes, which broadcast, and a contiguous output."""
    from numpy import broadcast_shapes

    found = parse(program)
    shape = broadcast_shapes(*map(tuple, shapes))

    def view(extents: Sequence[int], code: str) -> View:
        least = facts(STORED.get(TYPES[code], TYPES[code])).itemsize
        return contiguous(extents, TYPES[code], max(alignment, least))

    inputs = [view(each, code) for each, code in zip(shapes, found.inputs, strict=True)]
    results = () if len(found.outputs) == 1 else (len(found.outputs),)
    return workload_from_views(found, inputs, view((*results, *shape), found.result))[0]


def workload_from_views(program: Program, inputs: Sequence[View], out: View) -> tuple[Workload, Geometry]:
    """Return the Workload and the strides of arrays: the inputs broadcast to the shape of ``out``, or of its entries.

    UnsupportedError for more axes than kernels walk.
    """
    if [CODES.get(view.dtype) for view in (*inputs, out)] != [*program.inputs, program.result]:
        raise UnsupportedError(f"a program of {program.inputs} for {', '.join(view.dtype for view in inputs)}")
    count = int(len(program.outputs) > 1)  # axes of results
    result = out._replace(shape=out.shape[count:], strides=out.strides[count:])
    views = [*(_broadcast(view, result.shape) for view in inputs), result]
    axes = _merged(views, result)
    if len(axes) > len(AXES):
        raise UnsupportedError(f"{len(axes)} axes that do not merge into {len(AXES)}")
    axes = [(1, [0] * len(views))] * (len(AXES) - len(axes)) + (axes or [(1, [0] * len(views))])
    axes = axes[-len(AXES) :]
    used = next((place for place, (extent, _) in enumerate(axes) if extent != 1), len(AXES) - 1)
    names = (*(f"x{index}" for index in range(len(inputs))), "y")
    dtypes, layout, alignment, strides = {}, {}, {}, {}
    for number, (name, view) in enumerate(zip(names, views, strict=True)):
        own = [each[number] for _, each in axes]
        letters = AXES[used:] if name == "y" else "".join(
            axis for axis, (extent, _), stride in zip(AXES, axes, own, strict=True) if stride and extent > 1
        )  # fmt: skip
        apart = "l" in letters and own[-1] != 1 and axes[-1][0] > 1
        dtype = STORED.get(view.dtype, view.dtype)
        shape = tuple(extent if axis in letters else 1 for axis, (extent, _) in zip(AXES, axes, strict=True))
        if name == "y":
            shape, own = (*out.shape[:count], *shape), [*out.strides[:count], *own]
        unit = len(shape) - 1 if "l" in letters and not apart else None
        dtypes[name], layout[name] = dtype, (letters or "-") + "s" * apart
        alignment[name] = alignment_class(View(shape, tuple(own), dtype, view.alignment), unit)
        strides[name] = tuple(own)
    operator = OPERATORS[f"pointwise{len(inputs)}"]
    found = Workload(
        operator=operator.name,
        sizes=tuple((axis, extent) for axis, (extent, _) in zip(AXES, axes, strict=True)),
        dtypes=tuple(dtypes.items()),
        accumulator=program.accumulator,
        math="ieee",
        layout=tuple(layout.items()),
        alignment=tuple(alignment.items()),
        program=program.text,
    )
    return found, operator.geometry(found, strides)


def _broadcast(view: View, shape: tuple[int, ...]) -> View:
    """Return a view with a stride of 0 along the axes that it lacks or has one element of."""
    missing = len(shape) - len(view.shape)
    own = (0 if extent == 1 else stride for extent, stride in zip(view.shape, view.strides, strict=True))
    return View(shape, (*(0,) * missing, *own), view.dtype, view.alignment)


def _merged(views: Sequence[View], out: View) -> list[tuple[int, list[int]]]:
    """Return (extent, strides by operand) of axes, the outermost of the output first."""
    order = sorted(range(len(out.shape)), key=lambda axis: -abs(out.strides[axis]))
    merged: list[tuple[int, list[int]]] = []
    for axis in order:
        extent, strides = out.shape[axis], [view.strides[axis] for view in views]
        if extent == 1:
            continue
        if merged and all(far == near * extent for far, near in zip(merged[-1][1], strides, strict=True)):
            merged[-1] = (merged[-1][0] * extent, strides)
        else:
            merged.append((extent, strides))
    return merged
