"""Any sum of products of two tensors: memory layout and kernel's view, from the expression alone.

Layouts name the axis of stride 1 of an operand; its other axes are in the declared order.  A group of axes (see
expression/contraction.py) that is one axis in memory is one axis of the product; up to three batch axes may be apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.declaration.lowered import Product, Side
from gensor_kernels.operators.declaration.operator import Arrays, Bounded, Conditions, Operand, Operator
from gensor_kernels.operators.types.dtypes import ACCUMULATORS, decode, facts
from gensor_kernels.operators.types.geometry import BATCH_AXES, Geometry, Strides, flat_stride
from gensor_kernels.operators.types.workload import Workload, alignment_class, contiguous

from .matmul import product_and_bound

if TYPE_CHECKING:
    from gensor_kernels.operators.expression.affine import Axis
    from gensor_kernels.operators.expression.contraction import Access, Contraction


@dataclass(frozen=True)
class SumOfProducts(Operator):
    """An operator whose declaration is one sum of the product of two reads, with a plain axis as each index."""

    def view(self, workload: Workload) -> Contraction:
        """Return the groups of axes; UnsupportedError if the expression is no such sum."""
        from gensor_kernels.operators.expression.contraction import contraction

        (stage,) = self.stages(workload.size)
        view = contraction(stage)
        plain = view is not None and all(
            len(index.terms) == 1 and index.terms[0][1] == 1 and not index.constant
            for access in (view.a, view.b)
            for index in access.indices
        )
        if view is None or not plain or len(view.batch) > BATCH_AXES:
            raise UnsupportedError(f"{self.name} is no sum of products of two tensors that kernels take")
        return view

    def workload(self, sizes: Mapping[str, int], dtype: str, out: str | None = None, math: str = "ieee") -> Workload:
        """Return the Workload of contiguous operands at 16-byte aligned addresses."""
        if dtype not in ACCUMULATORS:
            raise UnsupportedError(f"dtype {dtype!r} is not one of {', '.join(ACCUMULATORS)}")
        (stage,) = self.stages(sizes)
        tensors = (*stage.tensors, stage.output)
        types = dict.fromkeys((tensor.name for tensor in stage.tensors), dtype)
        types[stage.name] = out or ("int32" if dtype == "int8" else dtype)
        shapes = {tensor.name: tensor.shape(sizes) for tensor in tensors}
        return Workload(
            operator=self.name,
            sizes=tuple(sizes.items()),
            dtypes=tuple(types.items()),
            accumulator=ACCUMULATORS[dtype],
            math=math,
            layout=tuple((tensor.name, str(tensor.extents[-1])) for tensor in tensors),
            alignment=tuple((n, alignment_class(contiguous(s, types[n]), -1)) for n, s in shapes.items()),
        )

    def operands(self, workload: Workload) -> tuple[Operand, ...]:
        """Return both tensors and the result, in the declared order of axes."""
        (stage,) = self.stages(workload.size)
        groups = self._groups(self.view(workload))
        single = all(len(axes) <= 1 for name, axes in groups.items() if name != "batch")
        found = []
        for tensor in (*stage.tensors, stage.output):
            names = [str(extent) for extent in tensor.extents]
            unit = workload.layouts[tensor.name]
            if unit not in names:
                raise ValueError(f"'layout' of {tensor.name} is one of {', '.join(names)}, not {unit!r}")
            order = sorted(range(len(names)), key=lambda axis: (names[axis] == unit, axis))
            shape = tensor.shape(workload.size)
            found.append(Operand(tensor.name, shape, tuple(order), 1 if single else max(len(shape), 1)))
        return tuple(found)

    def geometry(self, workload: Workload, strides: Mapping[str, tuple[int, ...]]) -> Geometry:
        """Return the product's strides; UnsupportedError where a group of axes is not one axis in memory."""
        view, size, swapped = self.view(workload), workload.size, self._swaps_sides(workload)
        m, n = (view.n, view.m) if swapped else (view.m, view.n)
        first, second = (view.b, view.a) if swapped else (view.a, view.b)

        def strides_of(access: Access, rows: Sequence[Axis], columns: Sequence[Axis]) -> Strides:
            own = strides[access.tensor.name]

            def one(axes: Sequence[Axis]) -> int:
                return flat_stride(
                    [(a.size(size), access.stride(a, own)) for a in axes], f"axes of {access.tensor.name}"
                )

            batch = [access.stride(axis, own) for axis in view.batch]
            lead = (0,) * (BATCH_AXES - len(batch)) + tuple(batch)
            return Strides((lead[0], lead[1], lead[2]), one(rows), one(columns))

        extents = [axis.size(size) for axis in view.batch]
        lead = (1,) * (BATCH_AXES - len(extents)) + tuple(extents)
        sizes = tuple(math.prod(axis.size(size) for axis in axes) for axes in (m, n, view.k))
        return Geometry(
            (sizes[0], sizes[1], sizes[2]),
            (lead[0], lead[1], lead[2]),
            strides_of(first, m, view.k),
            strides_of(second, view.k, n),
            strides_of(view.c, m, n),
            swapped=swapped,
        )

    def output(self, workload: Workload, strides: tuple[int, ...]) -> Strides:
        """Return the result's own strides by group."""
        operands = self.operands(workload)
        own = {each.name: each.strides() for each in operands} | {operands[-1].name: strides}
        return self.geometry(workload, own).c

    def product(self, workload: Workload) -> Product | None:
        """Return sizes and sides of the product, or None if the expression is no product."""
        try:
            view = self.view(workload)
        except UnsupportedError:
            return None
        swapped, extents = self._swaps_sides(workload), view.extents(workload.size)
        groups = self._groups(view)
        if swapped:
            groups["m"], groups["n"] = groups["n"], groups["m"]
            extents["m"], extents["n"] = extents["n"], extents["m"]

        def side(access: Access) -> Side:
            name = access.tensor.name
            unit = workload.layouts[name]
            group = next((group for group, axes in groups.items() if axes and axes[-1] == unit), "s")
            unit, align = (group, workload.align[name]) if group != "batch" else ("s", 0)
            dtype = workload.dtype[name]
            width = align if unit != "s" else facts(dtype).itemsize
            return Side(dtype, unit, width, None, access.conjugated and workload.is_complex)

        first, second = (view.b, view.a) if swapped else (view.a, view.b)
        a, b, c = (side(access) for access in (first, second, view.c))
        return Product(extents["batch"], extents["m"], extents["n"], extents["k"], a, b, c)

    def resize(self, workload: Workload, wanted: Mapping[str, int]) -> Workload:
        """Return a Workload in which groups of several axes have extent 3 in all but the last axis."""
        groups = self._groups(self.view(workload))
        if self._swaps_sides(workload):
            groups["m"], groups["n"] = groups["n"], groups["m"]
        whole: dict[str, int] = {}
        for name, unit in workload.layout:
            whole[unit] = max(whole.get(unit, 1), workload.align[name] // facts(workload.dtype[name]).itemsize)
        sizes: dict[str, int] = {}
        for group, axes in groups.items():
            for axis in axes[:-1]:
                sizes[axis] = 3 * whole.get(axis, 1)
            if axes:
                least = -(-wanted[group] // math.prod(sizes[axis] for axis in axes[:-1]))
                sizes[axes[-1]] = -(-least // whole.get(axes[-1], 1)) * whole.get(axes[-1], 1)
        return workload.with_sizes(**sizes)

    def result_and_bound(self, workload: Workload, arrays: Arrays, conditions: Conditions) -> Bounded:
        """Return the product of both tensors, their axes in groups, in float64; see Operator."""
        view, size = self.view(workload), workload.size
        names = [access.tensor.name for access in (view.a, view.b)]
        first, second = (decode(workload.dtype[name], arrays[name]) for name in names)

        def matrix(access: Access, array: np.ndarray, *groups: Sequence[Axis]) -> np.ndarray:
            axes = [index.terms[0][0] for index in access.indices]
            missing = [axis for group in groups for axis in group if axis not in axes]
            array = array.reshape(*array.shape, *(1 for _ in missing))
            array = np.conj(array) if access.conjugated else array
            order = [[*axes, *missing].index(axis) for group in groups for axis in group]
            full = [axis.size(size) for group in groups for axis in group]
            shape = [math.prod(axis.size(size) for axis in group) for group in groups]
            return np.broadcast_to(array.transpose(order), full).reshape(shape)

        a = matrix(view.a, first, view.batch, view.m, view.k)
        b = matrix(view.b, second, view.batch, view.k, view.n)
        found = product_and_bound(a, b, workload, workload.dtype[names[0]], structured=conditions.structured)
        axes = (*view.batch, *view.m, *view.n)
        order = [axes.index(axis) for axis in self.stages(size)[0].axes]
        shape = [axis.size(size) for axis in axes]
        product, bound = (np.broadcast_to(v, (*a.shape[:2], b.shape[2])).reshape(shape).transpose(order) for v in found)
        return product, bound

    def _groups(self, view: Contraction) -> dict[str, tuple[str, ...]]:
        groups = {"batch": view.batch, "m": view.m, "n": view.n, "k": view.k}
        return {name: tuple(axis.name for axis in axes) for name, axes in groups.items()}

    def _swaps_sides(self, workload: Workload) -> bool:
        """Return whether the result's unit-stride axis is an axis of the first tensor, which is then the product's
        b."""
        return workload.layouts[self.names[-1]] in self._groups(self.view(workload))["m"]
