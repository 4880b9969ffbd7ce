"""Sliding windows: the base of depthwise convolution and the poolings.

Every output y[n, oh, ow, c] depends on the elements of x[n, ., ., c] at oh stride - pad + r dilation (and similarly
along w).  Axes are declared as (n, h, w, c), (n, oh, ow, c) and (r, s, c) for every layout: "nhwc" and "nchw" name the
axes of x and y from the outermost to the innermost in memory, "rsc" and "crs" the axes of a filter.  Strides, padding
and window are run-time arguments of a kernel, so that one binary serves all of them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.declaration.operator import Arrays, Bounded, Conditions, Operand, Operator
from gensor_kernels.operators.types import epilogue as epilogues
from gensor_kernels.operators.types.dtypes import ACCUMULATORS, decode, facts, round_to
from gensor_kernels.operators.types.epilogue import Step
from gensor_kernels.operators.types.geometry import Geometry, Strides
from gensor_kernels.operators.types.workload import View, Workload, alignment_class

from .sides import PADS, SIDES, STEPS, along, output_size

if TYPE_CHECKING:
    from gensor_kernels.operators.tolerance.base import Expected


#: Sizes that shape the declaration, with their default values.
DEFAULTS = {**STEPS, **PADS}
ONES: dict[str, int] = {**dict.fromkeys(("n", "h", "w", "c", "r", "s"), 1), **DEFAULTS}
#: Orders in memory of x and y, and of a filter, as places of the declared axes.
IMAGES: dict[str, tuple[int, ...]] = {"nhwc": (0, 1, 2, 3), "nchw": (0, 3, 1, 2)}
FILTERS: dict[str, tuple[int, ...]] = {"rsc": (0, 1, 2), "crs": (2, 0, 1)}
_TAIL = struct.Struct("<7q 18i")
#: Extents and offsets into an image are 32-bit in a kernel, with room for a tile beyond them.
LARGEST = 2**30


@dataclass(frozen=True)
class Side:
    """One side (h or w) of a call: positions of outputs and windows over the image.

    ``counted`` is the range of positions (from, to) that an average counts, with or without the padding.
    """

    extent: int
    output: int
    window: int
    stride: int
    dilation: int
    pad: int
    counted: tuple[int, int]

    def count(self) -> np.ndarray:
        """Return the number of counted positions in each output's window, int64 (output,)."""
        first = np.arange(self.output) * self.stride - self.pad
        low, high = self.counted
        return np.maximum(np.minimum(first + self.window, high) - np.maximum(first, low), 0)


def sides(sizes: Mapping[str, int]) -> tuple[Side, Side]:
    """Return the sides h and w of a call."""
    found = []
    for side in SIDES:
        extent, window, stride, dilation, before, after = along(sizes, side)
        counted = (-before, extent + after) if sizes.get("count_include_pad", 0) else (0, extent)
        found.append(Side(extent, output_size(sizes, side), window, stride, dilation, before, counted))
    return found[0], found[1]


@dataclass(frozen=True)
class Sliding(Operator):
    """An operator over a sliding window, for tuner and dispatch; ``kind`` is the kernel's operation in the window."""

    kind: str = ""

    @property
    def filtered(self) -> bool:
        """Whether there is a filter, the operand w."""
        return self.kind == "multiply"

    def window(self, workload: Workload) -> dict[str, int]:
        """Return all sizes of a call: the Workload's and the window's."""
        return {**DEFAULTS, **workload.size}

    def sides(self, workload: Workload) -> tuple[Side, Side]:
        """Return the sides h and w of a call."""
        return sides(self.window(workload))

    def operands(self, workload: Workload) -> tuple[Operand, ...]:
        """Return x, the filter if any, and y; the innermost axis is dense."""
        size, layouts = self.window(workload), workload.layouts
        high, wide = self.sides(workload)
        shapes = {
            "x": (size["n"], size["h"], size["w"], size["c"]),
            **({"w": (size["r"], size["s"], size["c"])} if self.filtered else {}),
            "y": (size["n"], high.output, wide.output, size["c"]),
        }
        found = []
        for name, shape in shapes.items():
            orders = FILTERS if name == "w" else IMAGES
            if layouts[name] not in orders:
                raise ValueError(f"'layout' of {name} is one of {', '.join(orders)}, not {layouts[name]!r}")
            found.append(Operand(name, shape, orders[layouts[name]]))
        return tuple(found)

    def geometry(self, workload: Workload, strides: Mapping[str, tuple[int, ...]]) -> Geometry:
        """Return the kernel's view: rows and columns are the innermost of (ow, c) or (oh, ow), the batch all other
        axes."""
        size = self.window(workload)
        high, wide = self.sides(workload)
        n, c = size["n"], size["c"]
        last = workload.layouts["x"] == "nhwc"
        largest = max(side.stride * side.output + side.dilation * side.window + side.extent for side in (high, wide))
        if max(largest, n, c) >= LARGEST or n * c >= 2**31:
            raise UnsupportedError(f"images of {n} x {high.extent} x {wide.extent} x {c} are too large for a kernel")
        image, row, column, channel = strides["x"]
        pairs = list(zip(side_fields(high), side_fields(wide), strict=True))
        tail = _TAIL.pack(
            *(image, row, column, channel),
            *(strides["w"] if self.filtered else (0, 0, 0)),
            *(number for pair in pairs[:-2] for number in pair),
            *(n, c),
            *(number for pair in pairs[-2:] for number in pair),
        )
        return Geometry(
            (wide.output, c, 1) if last else (high.output, wide.output, 1),
            (1, n, high.output) if last else (1, n, c),
            c=self.output(workload, strides["y"]),
            tail=tail,
        )

    def output(self, workload: Workload, strides: tuple[int, ...]) -> Strides:
        """Return batch, row and column strides of the output's axes (n, oh, ow, c)."""
        image, row, column, channel = strides
        if workload.layouts["y"] == "nhwc":
            return Strides((0, image, row), column, channel)
        return Strides((0, image, channel), row, column)

    def usual(self, workload: Workload) -> list[Workload]:
        """Return images of a network's stages, under this window."""
        stages = ((112, 64), (56, 128), (28, 256), (14, 512), (7, 1024))
        made = (workload.with_sizes(n=n, h=side, w=side, c=c) for n in (1, 16) for side, c in stages)
        return [each for each in made if not self.empty(each)]

    def result_and_bound(self, workload: Workload, arrays: Arrays, conditions: Conditions) -> Bounded:
        """Return the declaration's values in float64; see Operator.

        A maximum is exact.  Sums err as accumulation_bound says; an average is a sum times the rounded reciprocal of
        its count, two roundings more.
        """
        plain = {name: decode(workload.dtype[name], array) for name, array in arrays.items()}
        size, kind = self.window(workload), facts(workload.accumulator)
        with np.errstate(all="ignore"):
            values = self.reference(plain, size)
            if self.kind == "maximum":
                # A window inside the padding has the least value of its type.
                values = np.maximum(values, -128.0) if kind.is_integer else values
                return values, np.zeros_like(values)
            values, bound = self._sum_and_bound(workload, plain, values, conditions.structured)
            if conditions.away is not None:
                bound = bound + self.reference({**plain, "x": conditions.away, "w": np.abs(plain["w"])}, size)
                bound = np.where(np.isnan(bound), np.inf, bound)
        return values, bound

    def _sum_and_bound(
        self, workload: Workload, plain: Mapping[str, np.ndarray], values: np.ndarray, structured: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return sums of products, or averages, and the bound on a kernel's error."""
        from gensor_kernels.operators.tolerance.base import Magnitude, accumulation_bound

        size, kind = self.window(workload), facts(workload.accumulator)
        if kind.is_integer:
            values = round_to(workload.accumulator, values)
            return values, np.zeros_like(values)
        high, wide = self.sides(workload)
        count = np.ones(())
        if self.kind == "average":
            count = np.maximum(np.multiply.outer(high.count(), wide.count()), 1)[None, :, :, None]
        total = self.reference({name: np.abs(array) for name, array in plain.items()}, size) * count
        squares = self.reference({name: array * array for name, array in plain.items()}, size) * count
        terms = high.window * wide.window
        bound = accumulation_bound(
            values * count,
            Magnitude(total, np.clip(np.sqrt(squares), total / np.sqrt(terms), total)),
            terms,
            dtype=workload.accumulator,  # products on the CUDA cores: nothing is truncated
            accumulator=workload.accumulator,
            structured=structured,
        )
        if self.kind == "average":
            bound = bound / count + 2.0 * kind.unit_roundoff * np.abs(values) + kind.smallest_subnormal
            bound = np.where(np.isfinite(values), bound, 0.0)
        return values, bound

    def expect(
        self,
        workload: Workload,
        arrays: Mapping[str, np.ndarray],
        steps: Sequence[Step] = (),
        *,
        structured: bool = False,
        integer_steps: int = 0,
    ) -> Expected:
        """Return the result a kernel should store; a maximum of unchanged dtype without an epilogue is exact."""
        found = super().expect(workload, arrays, steps, structured=structured, integer_steps=integer_steps)
        exact = self.kind == "maximum" and not steps and workload.dtype["x"] == workload.dtype["y"]
        return found._replace(bound=np.zeros_like(found.values)) if exact else found


def side_fields(side: Side) -> tuple[int, ...]:
    """Return the numbers of one side in the order of ``Sliding`` in params.cuh."""
    return side.extent, side.output, side.window, side.stride, side.dilation, side.pad, *side.counted


def contiguous(shape: Sequence[int], order: Sequence[int], dtype: str) -> View:
    """Return the View of a gapless 16-byte aligned array whose axes are in ``order``."""
    operand = Operand("", tuple(shape), tuple(order))
    return View(operand.shape, operand.strides(), dtype)


def workload_of(
    declared: Sliding,
    sizes: Mapping[str, int],
    views: Mapping[str, View],
    layouts: Mapping[str, str],
    epilogue: str | Iterable[str],
) -> Workload:
    """Return the Workload of arrays in memory, in axes as declared.

    ValueError if their shapes do not fit the sizes, UnsupportedError for types that are not served and for an innermost
    axis without stride 1.
    """
    dtype = views["x"].dtype
    if dtype not in ACCUMULATORS or any(views[name].dtype != dtype for name in views if name != "y"):
        given = " and ".join(dict.fromkeys(view.dtype for name, view in views.items() if name != "y"))
        raise UnsupportedError(f"{declared.name} takes one dtype of {', '.join(ACCUMULATORS)}, got {given}: cast")
    facts(views["y"].dtype)
    if layouts["x"] != layouts["y"]:
        raise UnsupportedError(f"{declared.name} from {layouts['x']} into {layouts['y']}: kernels keep the layout")
    made = Workload(
        operator=declared.name,
        sizes=tuple(sizes.items()),
        dtypes=tuple((name, view.dtype) for name, view in views.items()),
        accumulator=ACCUMULATORS[dtype],
        math="ieee",
        layout=tuple(layouts.items()),
        alignment=tuple((name, _alignment(view, layouts[name], name)) for name, view in views.items()),
        epilogue=epilogues.parse(epilogue) if isinstance(epilogue, str) else tuple(epilogue),
    )
    for operand in declared.operands(made):
        if operand.shape != views[operand.name].shape:
            shape = views[operand.name].shape
            raise ValueError(f"{declared.name}: {operand.name} has the shape {shape}, expected is {operand.shape}")
    return made


def _alignment(view: View, layout: str, name: str) -> int:
    """Return the alignment class along the innermost axis; adjacent columns of x and of a filter are read one by
    one."""
    unit = (FILTERS if name == "w" else IMAGES)[layout][-1]
    if view.shape[unit] > 1 and view.strides[unit] != 1:
        raise UnsupportedError(f"{name} has the stride {view.strides[unit]} along its innermost axis, not 1")
    found = alignment_class(view, unit)
    return found if layout[-1] == "c" or name == "y" else facts(view.dtype).itemsize
