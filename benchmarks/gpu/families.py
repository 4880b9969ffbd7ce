"""Step 2: every family on every dtype and layout, at the verifier's own cases, on the device.

The host makes the data and the float64 reference (`gensor_tuner.problem`); buffers are copied to the device with
red zones around them, and come back for the comparison. A kernel's branches were counted on the emulator; here
counts what the hardware's own instructions compute.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from gensor_kernels.build.nvrtc import compile_many
from gensor_kernels.build.source import flatten
from gensor_kernels.devices.device import Code
from gensor_kernels.dispatch.library import code
from gensor_kernels.errors import BuildError, UnsupportedError
from gensor_kernels.operators import matmul
from gensor_kernels.operators.epilogue import join
from gensor_kernels.operators.workload import View, Workload
from gensor_kernels.programs.space import Space
from gensor_tuner.cases import cases, generic_epilogue
from gensor_tuner.pool import Candidate, candidate
from gensor_tuner.problem import Failure, Operand, Problem

from .session import Item, Session

STEP = "families"
RED_ZONE = 4096  # poisoned bytes on both sides of each buffer
TYPES = (
    ("float16", "float16", "ieee"),
    ("float32", "float32", "ieee"),
    ("bfloat16", "bfloat16", "ieee"),
    ("float32", "float32", "tf32"),
    ("int8", "int32", "ieee"),
    ("float64", "float64", "ieee"),
    ("float16", "float32", "ieee"),
    ("int8", "int8", "ieee"),
)
LAYOUTS = ("kn", "kk", "mn", "mk", "ss")  # unit-stride axes of a and b
CLASS_SIZE = 512
COMPILED_AHEAD = 32
REHEARSED = {("float16", "kn", "contraction_mma"), ("float32", "kn", "contraction_simt")}


def items(session: Session) -> Iterator[Item]:
    """One item per family, dtype, layout, alignment and starter: first starters of all classes first."""
    found = sorted(_candidates(session), key=lambda each: each[0])
    if session.emulate:
        found = [each for each in found if (each[2].dtype["a"], each[1], each[3].program.family) in REHEARSED][:2]
    done = session.journal.finished(STEP, session.since)
    todo = [each for each in found if _name(each) not in done and session.wants(_name(each))]
    for start in range(0, len(todo), COMPILED_AHEAD):
        batch = todo[start : start + COMPILED_AHEAD]
        codes = compiled(session, [each[3] for each in batch])
        for each, made in zip(batch, codes, strict=True):
            yield Item(_name(each), lambda w=each[2], c=each[3], m=made: verify(session, c, m, w))  # type: ignore[misc]


def _name(each: tuple[Any, str, Workload, Candidate]) -> str:
    (rank, *_), layout, workload, found = each
    types = "tf32" if workload.math == "tf32" else workload.dtype["a"]
    aligned = "/".join(map(str, workload.align.values()))
    return f"{found.program.family} {types}>{workload.dtype['c']} {layout} {aligned} starter {rank}"


def _candidates(session: Session) -> Iterator[tuple[Any, str, Workload, Candidate]]:
    """(order, layout, workload, candidate) of every starter of every class the device is served for."""
    for order, (types, layout, aligned) in enumerate(itertools.product(TYPES, LAYOUTS, (True, False))):
        if layout == "ss" and aligned:
            continue
        workload = class_workload(*types, layout, aligned)
        try:
            space = Space(workload, session.arch)
        except UnsupportedError:
            continue
        for served in space.families:
            family = served.family
            for rank, program in enumerate(family.starters(workload, session.arch)):
                place = (rank, not aligned, LAYOUTS.index(layout), order, family.name)
                yield place, layout, workload, candidate(family, program, workload)


def class_workload(dtype: str, out: str, math: str, layout: str, aligned: bool) -> Workload:
    """A workload of the class: 16-byte aligned, or with single elements only."""
    size = CLASS_SIZE if aligned else CLASS_SIZE - 1
    if layout != "ss":
        return matmul.workload(
            size, size, size, dtype=dtype, out=out, math=math, trans_a=layout[0] == "m", trans_b=layout[1] == "k"
        )
    stepped = (0, 2 * size, 2)
    a, b = (View((1, size, size), stepped, dtype) for _ in "ab")
    return matmul.workload_from_operands(a, b, View((1, size, size), stepped, out), math=math)


def compiled(session: Session, candidates: Sequence[Candidate]) -> list[Code | BuildError]:
    """What the device loads for each candidate; the emulator builds from the source when it loads."""
    sources = [flatten(each.family.source) for each in candidates]
    cubins: list[Any] = [None] * len(candidates)
    if not session.emulate:
        cubins = compile_many([(each.source(), session.arch.target) for each in candidates], session.jobs)
    made: list[Code | BuildError] = []
    for each, text, binary in zip(candidates, sources, cubins, strict=True):
        if binary is not None and binary.error is not None:
            made.append(BuildError("NVRTC refused the kernel", binary.error))
        else:
            cubin = binary.cubin if binary is not None else b""
            made.append(code(text, constants_of(each), session.arch.target, cubin))
    return made


def constants_of(found: Candidate) -> dict[str, int | str]:
    """The macros a candidate binds."""
    return dict(json.loads(found.constants))


def verify(session: Session, found: Candidate, made: Code | BuildError, workload: Workload) -> dict[str, Any]:
    """Every case of one kernel on the device: the outcome, the worst error over its tolerance, the sizes."""
    if isinstance(made, BuildError):
        return {"outcome": "failed", "error": f"{made}: {made.log[:2000]}"}
    worst, sizes = 0.0, []
    epilogue = workload.epilogue if constants_of(found)["EPILOGUE_CODES"] else generic_epilogue(workload)
    for seed, case in enumerate(cases(workload, found.family.tile(found.program), epilogue)):
        problem = DeviceProblem(case, workload, seed)
        sizes.append(asdict(case) | {"epilogue": join(case.epilogue)})
        try:
            worst = max(worst, problem.verify(session, found, made))
        except Failure as failure:
            return {"outcome": failure.outcome, "error": failure.detail, "worst": failure.worst, "cases": sizes}
    return {"worst": worst, "cases": sizes, "program": found.program.to_json()}


class DeviceProblem(Problem):
    """A verification case whose buffers live on a device."""

    def verify(self, session: Session, found: Candidate, made: Code) -> float:
        """Run once on fresh poisoned memory; the largest error over its tolerance. Raises Failure."""
        device, xp = session.device, session.device.xp
        out = self.operands["c"]
        out.buffer.view(np.uint8)[...] = 0x7F if out.buffer.itemsize == 1 else 0xFF
        placed = {id(each): Placed(session, each) for each in (*self.reads, out)}
        size, zero = found.family.workspace(found.program, self.workload)
        zone = xp.full(size + 2 * RED_ZONE, 0 if zero else 0xFF, np.uint8)
        workspace = zone[RED_ZONE : RED_ZONE + size]
        packed = self.params(
            found, device.pointer(workspace) if size else 0, address=lambda each: placed[id(each)].address
        )
        launch = device.load(made, found.family.launches(found.program, self.workload))
        arguments = device.local.arguments
        arguments[0][:] = packed
        touched = (placed[id(out)].body, *(placed[id(each)].body for each in self.reads))
        launch(arguments, touched, (), workspace if size else None)
        session.synchronize()
        for each in self.reads:
            if not placed[id(each)].unchanged(each):
                raise Failure("wrong", "an input, or the red zone around it, was written")
        zones = (zone[:RED_ZONE], zone[RED_ZONE + size :])
        if not placed[id(out)].intact() or not all(bool((each == zone[0]).all()) for each in zones):
            raise Failure("wrong", "the red zone around C or the workspace was written")
        out.buffer.view(np.uint8)[...] = placed[id(out)].host()
        return self.check()


class Placed:
    """A copy of an operand's buffer on the device, at the same offset to 64 bytes, between red zones."""

    def __init__(self, session: Session, operand: Operand):
        self.xp, xp = session.device.xp, session.device.xp
        raw = operand.buffer.view(np.uint8)
        self.memory = xp.full(raw.size + 2 * RED_ZONE + 64, 0xFF, np.uint8)
        first = session.device.pointer(self.memory) + RED_ZONE
        self.start = RED_ZONE + (raw.ctypes.data - first) % 64
        self.size = raw.size
        self.memory[self.start : self.start + raw.size] = xp.asarray(raw)
        self.address = session.device.pointer(self.memory) + self.start + operand.base * operand.buffer.itemsize
        begin = self.start + operand.base * operand.buffer.itemsize
        last = sum((extent - 1) * stride for extent, stride in zip(operand.shape, operand.strides, strict=True))
        length = 0 if 0 in operand.shape else (last + 1) * operand.buffer.itemsize
        self.body = self.memory[begin : begin + length]  # what a kernel may touch

    def host(self) -> np.ndarray:
        """The buffer's bytes as they are now."""
        return _to_host(self.memory[self.start : self.start + self.size])

    def intact(self) -> bool:
        """Whether the red zones hold what they were filled with."""
        before, behind = self.memory[: self.start], self.memory[self.start + self.size :]
        return bool((before == 0xFF).all()) and bool((behind == 0xFF).all())

    def unchanged(self, operand: Operand) -> bool:
        """Whether nothing in or around the buffer was written."""
        return self.intact() and np.array_equal(self.host(), operand.buffer.view(np.uint8))


def _to_host(array: Any) -> np.ndarray:
    return array if isinstance(array, np.ndarray) else array.get()
