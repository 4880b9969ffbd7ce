"""One kernel on one workload at its real sizes: compared with float64 in parts, and with the library as a whole.

Parts of the output (output_blocks.py) are compared with the operator's own float64 reference on the host: the last
corner first, then the others in random order, until all parts or the item's time are done. The checked share is
recorded. The whole output is compared with the array library's float64 result of the same numbers, coarsely: a tile or
a row in the wrong place shows. Unwritten elements (the output begins as NaN) and writes into the red zones are searched
everywhere.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.gpu.harness.session import Session
from gensor_kernels.devices.agreement import near, widen
from gensor_kernels.devices.device import Code
from gensor_kernels.dispatch.calls.arguments import Operation
from gensor_kernels.dispatch.functions.vendor_call import library_call
from gensor_kernels.operators.products.quantised import Quantised
from gensor_kernels.operators.tolerance import base as tolerance_base
from gensor_kernels.operators.types.dtypes import EIGHT_BIT_FLOATS, decode, facts, float8_values
from gensor_kernels.operators.types.epilogue import Step
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.build.pool import Candidate
from gensor_tuner.measure.operands import POISON, Block, Noise, Operands

from .output_blocks import Part, cut, parts

RED_ZONE = 1 << 16  # bytes on both sides of each array: a whole tile row of most kernels
SECONDS = 1.0  # seconds of comparison per item
WHOLE_SECONDS = 0.5  # seconds that the library's float64 may take, at the arithmetic's peak
GROSS = 1 / 16  # tolerance of the whole output, relative to an element plus the root mean square

Change = Callable[[bytes], bytes]


def check(
    session: Session,
    noise: Noise,
    found: Candidate,
    code: Code,
    workload: Workload,
    change: Change | None = None,
    seconds: float | None = None,
) -> dict[str, Any]:
    """Return the outcome of one launch: `worst` error over its tolerance, `checked` share of the output after so many
    seconds (SECONDS by default), `whole`."""
    operands = Operands(session.device, workload, noise, guard=RED_ZONE, exact=True)
    before = [_sum(block) for block in operands.reads]
    launch = operands.launcher(found, code) if change is None else operands.launcher(found, code, change)
    launch()
    session.synchronize()
    sizes = {"sizes": dict(workload.sizes)}
    if not all(_intact(block) for block in (*operands.operands, operands.out)):
        return {"outcome": "wrong", "error": "a red zone was written", **sizes}
    if before != [_sum(block) for block in operands.reads]:
        return {"outcome": "wrong", "error": "an input was written", **sizes}
    unwritten = _unwritten(session.device.xp, operands.out)
    if unwritten:
        return {"outcome": "wrong", "error": f"{unwritten} elements of the result are NaN: not written", **sizes}
    compared = _compare(session, operands, found, SECONDS if seconds is None else seconds)
    if compared["outcome"] == "ok":
        compared |= whole(session, operands)
    return compared | sizes


def _compare(session: Session, operands: Operands, candidate: Candidate, seconds: float) -> dict[str, Any]:
    """Compare parts with the float64 reference."""
    xp, size = session.device.xp, math.prod(operands.out.shape)
    began, worst, checked = time.perf_counter(), 0.0, 0
    for part in parts(operands.workload):
        summed = candidate.family.summed_by(candidate.program, part.workload)
        for name, expected in _references(session, operands, part, summed).items():
            block = operands.blocks[name]
            result = host(session, cut(block.view(xp), part.slices[name]))
            found = tolerance_base.check(result, expected)
            worst = max(worst, found.ratio)
            checked += result.size * (block is operands.out)
            if not found.ok:
                where = f"part {dict(part.workload.sizes)} at {_place(part.slices[name])} of {name}"
                return {"outcome": "wrong", "error": f"{where}: {found.message}", "worst": worst}
        if time.perf_counter() - began > seconds:
            break
    return {"outcome": "ok", "worst": worst, "checked": round(checked / max(size, 1), 4)}


def _references(
    session: Session, operands: Operands, part: Part, workload: Workload
) -> dict[str, tolerance_base.Expected]:
    """Return the references of a part of the outputs, as `workload` sums it."""
    xp, name = session.device.xp, operands.operator.names[-1]
    arrays = {
        each: host(session, cut(block.view(xp), part.slices[each]))
        for each, block in operands.blocks.items()
        if block is not operands.out
    }
    steps = []
    for step, block, scalar in operands.steps:
        stored = None if block is None else host(session, cut(block.view(xp), part.slices[name]))
        kind = "" if block is None else "int8" if block.dtype == "bool" else block.dtype
        steps.append(Step(step, None if stored is None else decode(kind, stored), scalar))
    expected = operands.operator.expect(workload, arrays, steps, integer_steps=operands.integer_steps)
    return {name: expected, **operands.operator.expect_written(workload, arrays)}


def _place(slices: tuple[slice, ...]) -> str:
    return "[" + ", ".join(f"{each.start}:{each.stop}" if each.stop is not None else ":" for each in slices) + "]"


# ---- the whole output


def whole(session: Session, operands: Operands) -> dict[str, Any]:
    """Return {"whole": grossly wrong share of the output} against the library's float64, or why there is none."""
    workload, arch = operands.workload, session.arch
    if workload.flops() > WHOLE_SECONDS * arch.peak("float64"):
        return {"whole": "not compared: too much work in float64"}
    if facts(operands.out.dtype).is_integer and not facts(workload.accumulator).is_integer:
        return {"whole": "not compared: positions"}
    try:
        reference = wide_reference(session, operands)
        off = None if reference is None else grossly_off(session, operands.out, reference)
    except MemoryError:
        return {"whole": "not compared: it does not fit in memory"}
    if off is None:
        return {"whole": "not compared: the library has no such call"}
    found: dict[str, Any] = {"whole": off}
    return found if not off else found | {"outcome": "wrong", "error": f"{off:.3%} of the result is grossly wrong"}


def wide_reference(session: Session, operands: Operands) -> Any:
    """Return the array library's float64 result of the same numbers, or None where it has no such call."""
    xp, out = session.device.xp, operands.out
    kind = np.complex128 if facts(out.dtype).is_complex else np.float64
    stored = _in_blocks(operands)
    arrays = {
        name: block.view(xp) if name in stored else _wide(xp, block)
        for name, block in operands.blocks.items()
        if block is not out
    }
    arrays[operands.operator.names[-1]] = xp.empty(out.shape, kind)
    steps = [
        Operation(name, None if block is None else _wide(xp, block), scalar) for name, block, scalar in operands.steps
    ]
    call = library_call(session.device, operands.workload, arrays, steps)
    found = None if call is None else call()
    return xp.stack(found) if isinstance(found, tuple) else found


def _in_blocks(operands: Operands) -> str:
    """Return the operands in a block-scaled format: the library's call reads their bytes, and makes them float64."""
    declared = operands.operator
    if not isinstance(declared, Quantised) or not declared.format:
        return ""
    return "abde" if declared.both else "bd"


def grossly_off(session: Session, out: Block, reference: Any) -> float:
    """Return the share of elements far from the reference; NaN and infinities count where the reference has none."""
    xp = session.device.xp
    reference, kind = reference.reshape(out.shape), facts(out.dtype)
    values = _wide(xp, out)
    if kind.is_integer:  # results wrap around as those of wider integers do
        reference = xp.trunc(reference).astype(np.int64).astype(out.storage).astype(np.float64)
    right = near(xp, values, reference, GROSS) | (xp.abs(reference) > kind.maximum)
    return round(float(1 - xp.mean(right)), 6)


def _wide(xp: ModuleType, block: Block) -> Any:
    """Return an array as float64 or complex128, contiguous."""
    if block.dtype in EIGHT_BIT_FLOATS:
        return xp.asarray(float8_values(block.dtype))[block.view(xp)]
    return widen(block.view(xp), block.dtype)


def host(session: Session, array: Any) -> np.ndarray:
    """Return a contiguous copy in the host's memory."""
    return np.ascontiguousarray(session.device.host(array))


# ---- memory that a kernel may not touch


def _intact(block: Block) -> bool:
    return all(bool((zone == POISON).all()) for zone in block.around())


def _sum(block: Block) -> int:
    """Return a checksum of an array's bytes, which almost any changed element changes."""
    words = block.flat.view(np.uint8)
    usable = words.size // 4 * 4
    head = words[:usable].view(np.uint32) if block.start % 4 == 0 else words[:usable]
    return int(head.sum(dtype=np.uint64)) + int(words[usable:].sum(dtype=np.uint64))


def _unwritten(xp: ModuleType, out: Block) -> int:
    """Return the number of elements that are still poison; integers have no such value."""
    if facts(out.dtype).is_integer:
        return 0
    bits = out.view(xp)
    if out.dtype == "bfloat16":
        return int(((bits & np.uint16(0x7FFF)) > np.uint16(0x7F80)).sum())
    return int(xp.isnan(bits).sum())
