"""One kernel on one workload at its real sizes, compared with float64 products computed on the device itself.

The output is checked block by block in random order (the last corner first) until all of it, or the time for one
item, is done; the part that was checked is recorded. Unwritten elements (the output begins as NaN) and writes into
the red zones are looked for everywhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gensor_kernels.devices.device import Code
from gensor_kernels.operators import tolerance
from gensor_kernels.operators.dtypes import facts, round_to
from gensor_kernels.operators.epilogue import Step
from gensor_kernels.operators.tolerance import Magnitude
from gensor_kernels.operators.workload import Workload
from gensor_tuner.operands import POISON, Block, Noise, Operands
from gensor_tuner.pool import Candidate

from .session import Session

RED_ZONE = 1 << 16  # bytes on both sides of each array: a whole tile row of most kernels
BLOCK_ELEMENTS = 1 << 20  # of the output, compared on the host at a time
PANEL_BYTES = 1 << 30  # of B in float64 on the device at a time
SECONDS = 4.0  # of comparison per item

Change = Callable[[bytes], bytes]


def check(
    session: Session, noise: Noise, found: Candidate, code: Code, workload: Workload, change: Change | None = None
) -> dict[str, Any]:
    """The outcome of one launch: `worst` error over its tolerance, `checked` share of the output."""
    operands = Operands(session.device, workload, noise, guard=RED_ZONE, exact=True)
    before = [_sum(session, block) for block in operands.reads]
    launch = operands.launcher(found, code) if change is None else operands.launcher(found, code, change)
    launch()
    session.synchronize()
    out = operands.blocks["c"]
    sizes = {"sizes": dict(workload.sizes)}
    if not all(_intact(block) for block in (*operands.reads, out)):
        return {"outcome": "wrong", "error": "a red zone was written", **sizes}
    if before != [_sum(session, block) for block in operands.reads]:
        return {"outcome": "wrong", "error": "an input was written", **sizes}
    unwritten = _unwritten(session.device.xp, out)
    if unwritten:
        return {"outcome": "wrong", "error": f"{unwritten} elements of C are NaN: not written", **sizes}
    return _compare(session, operands) | sizes


def _compare(session: Session, operands: Operands) -> dict[str, Any]:
    xp, out = session.device.xp, operands.blocks["c"]
    began, worst, checked = time.perf_counter(), 0.0, 0
    view = out.view(xp)
    for place in _places(operands):
        found = tolerance.check(_host(view[place]), _expected(xp, operands, place))
        worst = max(worst, found.ratio)
        checked += int(np.prod(view[place].shape))
        if not found.ok:
            batch, rows, columns = place
            where = f"block [{batch}, {rows.start}:{rows.stop}, {columns.start}:{columns.stop}]"
            return {"outcome": "wrong", "error": f"{where}: {found.message}", "worst": worst}
        if time.perf_counter() - began > SECONDS:
            break
    return {"outcome": "ok", "worst": worst, "checked": round(checked / max(int(np.prod(out.shape)), 1), 4)}


def _places(operands: Operands) -> Iterator[tuple[int, slice, slice]]:
    """(batch, rows, columns) of blocks that cover C, the last one first, the others in random order."""
    batch, m, n = operands.blocks["c"].shape
    k = operands.blocks["a"].shape[2]
    columns = max(1, min(n, PANEL_BYTES // (24 * max(k, 1)), BLOCK_ELEMENTS))
    rows = max(1, min(m, BLOCK_ELEMENTS // columns))
    places = [
        (index, slice(row, min(row + rows, m)), slice(column, min(column + columns, n)))
        for index in range(batch)
        for row in range(0, m, rows)
        for column in range(0, n, columns)
    ]
    yield places.pop()
    yield from (places[index] for index in np.random.default_rng(0).permutation(len(places)))


def _expected(xp: Any, operands: Operands, place: tuple[int, slice, slice]) -> tolerance.Expected:
    """The float64 reference of a block of C and its bound; the products are the device's, the rest the host's."""
    workload, (batch, rows, columns) = operands.workload, place
    a = _float64(xp, operands.blocks["a"].view(xp)[batch, rows], workload.dtype["a"])
    b = _float64(xp, operands.blocks["b"].view(xp)[batch, :, columns], workload.dtype["b"])
    product, total = _host(xp.matmul(a, b)), _host(xp.matmul(abs(a), abs(b)))
    norm = np.sqrt(_host(xp.matmul(a * a, b * b)))
    if workload.accumulator == "int32":
        product = round_to("int32", product)
    bound = tolerance.accumulation_bound(
        product,
        Magnitude(total, np.clip(norm, total / np.sqrt(max(a.shape[-1], 1)), total)),
        a.shape[-1],
        dtype=workload.dtype["a"],
        accumulator=workload.accumulator,
        math=workload.math,
    )
    steps = [Step(name, _part(xp, block, place), scalar) for name, block, scalar in operands.steps]
    return tolerance.expect(
        product,
        bound,
        steps,
        accumulator=workload.accumulator,
        output=workload.dtype["c"],
        integer_steps=operands.integer_steps,
    )


def _part(xp: Any, block: Block | None, place: tuple[int, slice, slice]) -> np.ndarray | None:
    """The part of an epilogue operand that belongs to a block of C, float64."""
    if block is None:
        return None
    batch, rows, columns = place
    view = block.view(xp)
    part = view[0, 0, columns] if block.shape[1] == 1 != rows.stop - rows.start else view[batch, rows, columns]
    return _host(_float64(xp, part, block.dtype))


def _float64(xp: Any, array: Any, dtype: str) -> Any:
    if dtype == "bfloat16":  # held as its bits, so that no array library needs to know the type
        array = (array.astype(np.uint32, order="C") << np.uint32(16)).view(np.float32)
    return array.astype(np.float64, order="C")


def _host(array: Any) -> np.ndarray:
    return array if isinstance(array, np.ndarray) else array.get()


def _intact(block: Block) -> bool:
    return all(bool((zone == POISON).all()) for zone in block.around())


def _sum(session: Session, block: Block) -> int:
    """A checksum of an array's bytes: a changed element changes it, but for a freak."""
    words = block.flat.view(np.uint8)
    usable = words.size // 4 * 4
    head = words[:usable].view(np.uint32) if block.start % 4 == 0 else words[:usable]
    return int(head.sum(dtype=np.uint64)) + int(words[usable:].sum(dtype=np.uint64))


def _unwritten(xp: Any, out: Block) -> int:
    """Elements that are still poison; integers have none that a result could not be."""
    if facts(out.dtype).is_integer:
        return 0
    bits = out.view(xp)
    if out.dtype == "bfloat16":
        return int(((bits & np.uint16(0x7FFF)) > np.uint16(0x7F80)).sum())
    return int(xp.isnan(bits).sum())


def shrunk(workload: Workload, limit: int) -> Workload:
    """The same class with every extent at most `limit` + 15, each the same multiple of 16 apart as before."""
    sizes = {name: size - -(-max(0, size - limit) // 16) * 16 for name, size in workload.sizes if name != "batch"}
    return workload.with_sizes(batch=min(workload.size["batch"], 2), **{k: max(1, v) for k, v in sizes.items()})


def fitting(session: Session, workload: Workload) -> Workload:
    """The workload at its real sizes, or as much of it as a third of the free memory holds; tiny in a rehearsal."""
    if session.emulate:
        return shrunk(workload, 40)
    free, _ = session.device.xp.cuda.runtime.memGetInfo()
    while workload.bytes_moved() > free / 3:
        name = "batch" if workload.size["batch"] > 1 else max("mnk", key=lambda axis: workload.size[axis])
        half = workload.size[name] // 2
        workload = workload.with_sizes(**{name: half if name == "batch" else max(16, half // 16 * 16)})
    return workload
