"""Tensor copies (TMA): which operands in memory they can read, and launches with the tensor maps of operands."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from gensor_kernels.families.contraction import stream_k
from gensor_kernels.families.contraction.base import class_launches
from gensor_kernels.families.contraction.problem import Extents, extents
from gensor_kernels.families.core.family import Launch
from gensor_kernels.families.core.params import ragged_tiles
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.core.tensor_maps import TensorMap, operand_extents, readable
from gensor_kernels.operators.types.geometry import Geometry
from gensor_kernels.operators.types.workload import Workload

from . import cost, store

#: The axis of an operand's rows.
ROW_AXIS = {"a": "m", "b": "k"}


def reads(workload: Workload, geometry: Geometry, copied: Collection[str] = ()) -> bool:
    """Return whether tensor copies can read the operands of a plain product, except the ``copied`` ones."""
    e, sizes = extents(workload), operand_extents(geometry)
    return all(
        operand in copied or readable(where, sizes[operand], e.unit[operand] == ROW_AXIS[operand], e.bytes_a)
        for operand, where in (("a", geometry.a), ("b", geometry.b))
    )


def rows(p: Mapping[str, int], e: Extents) -> tuple[tuple[str, int], ...]:
    """Return the rows of both operands' boxes: of M or N where an operand is K-contiguous, else of k."""
    return tuple((x, p[f"block_{axis}"] if e.unit[x] == "k" else p["block_k"]) for x, axis in (("a", "m"), ("b", "n")))


def launches(
    program: Program,
    workload: Workload,
    entry: str,
    tile: Mapping[str, int],
    memory: int,
    fetched: Mapping[str, int],
    blocks: int,
) -> tuple[Launch, ...]:
    """Return the product, in tiles of ``tile`` rows and columns (a cluster's), and for a split the reduction.

    A cluster has ``blocks``, each with ``memory`` bytes of shared memory. ``fetched`` are the rows of operands' boxes.
    """
    p, e = program.by_name, extents(workload)
    threads = cost.GROUP_THREADS * (p["consumers"] + 1)
    main, *rest = class_launches(program, workload, entry, threads, memory)
    a, b = (_map(operand, fetched[operand], workload) for operand in "ab")
    maps = (a, b, *([replace(b, other=True)] if e.gate else []), *store.maps(p, e))
    walking = p["min_blocks"] if p["persistent"] else 0
    down = ragged_tiles(e.rows, e.batch, tile["m"]) if e.rows else e.batch * p["split_k"] * -(-e.m // tile["m"])
    grid = stream_k.blocks_of(program) or down * -(-e.n // tile["n"]) * blocks
    return (replace(main, grid=grid, maps=maps, per_sm=walking, cluster=blocks), *rest)


def _map(operand: str, rows: int, workload: Workload) -> TensorMap:
    """Return the tensor map of an operand's boxes, which have these rows."""
    e, kind = extents(workload), cost.kind(workload)
    along_rows, rounded = e.unit[operand] == ROW_AXIS[operand], workload.math == "tf32"
    window = ("image" if operand == e.window else "filters") if e.window else ""
    if kind is None:  # numbers of four bits, two of which are an element
        return TensorMap(operand, along_rows, e.bytes_a, rows)
    return TensorMap(operand, along_rows, kind.element, rows, rounded, window, parts=kind.parts)
