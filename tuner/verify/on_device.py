"""Verification of a kernel on a device, with the same cases as on the emulator, against float64.

The host makes operands and reference (`problem`). Buffers are copied to the device at the same offset modulo 64 bytes,
between guard zones, and copied back after the launch. Besides wrong numbers this detects writes between the elements
of C, after any buffer, or into an operand. Branches are not counted: the emulator has done that, and the purpose here
is to check the results of the hardware's own instructions.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from gensor_kernels.arrays import DeviceArray
from gensor_kernels.devices.device import Code, Device
from gensor_kernels.errors import BuildError
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.build.pool import Candidate

from .problem import Failure, Problem
from .problem import Placed as Operand
from .verify import Verdict, describe_case, verified_epilogue

GUARD = 4096  # poisoned bytes on both sides of each buffer
POISON = 0xFF  # a NaN in every floating-point type


def verify_on(device: Device, candidate: Candidate, code: Code, workload: Workload) -> Verdict:
    """Execute a compiled candidate on an open device, at the sizes of the verification cases, and return the verdict.

    It is "not_compiled" where the device refuses to load the code, "failed" where it faults; the device's context is
    lost then. Other errors of device or host, such as too little memory, are raised.
    """
    worst, sizes = 0.0, []
    made = partial(Verdict, method="device", part=device.arch.part if device.arch is not None else "")
    cases = candidate.family.cases(candidate.program, workload, verified_epilogue(candidate, workload))
    try:
        for seed, case in enumerate(cases):
            sizes.append(describe_case(case))
            worst = max(worst, DeviceProblem(case, seed).check_on(device, candidate, code))
    except BuildError as error:
        detail = f"{error}: {error.log[:2000]}" if error.log else str(error)
        return made("not_compiled", detail, worst)
    except Failure as failure:
        detail = f"{failure.detail} (case {sizes[-1]})"
        return made(failure.outcome, detail, failure.worst, sizes, runs=len(sizes))
    return made("ok", "", worst, sizes, runs=len(sizes))


class DeviceProblem(Problem):
    """A verification case with buffers on a device."""

    def check_on(self, device: Device, candidate: Candidate, code: Code) -> float:
        """Run once on poisoned memory; return the largest error over its tolerance. Raises Failure, BuildError."""
        self.poison()
        placed = {id(each): Placed(device, each) for each in (*self.reads, *self.written)}
        workspace = Workspace(device, *candidate.family.workspace(candidate.program, self.workload))
        launch = device.load(code, candidate.family.launches(candidate.program, self.workload))
        arguments = device.local.arguments
        arguments[0][:] = self.params(candidate, workspace.address, lambda each: placed[id(each)].address)
        touched = (placed[id(self.out)].body, *(placed[id(each)].body for each in self.operands))
        device.synchronize()  # raises errors of earlier work before the kernel could be blamed
        try:
            launch(arguments, touched, (), workspace.body)
            device.synchronize()
        except device.faults as error:
            raise Failure("failed", f"{type(error).__name__}: {error}") from None
        for each in self.reads:
            if not placed[id(each)].unchanged(each):
                raise Failure("wrong", "an operand, or the guard zone around it, was written")
        for each in self.written:
            if not placed[id(each)].intact():
                raise Failure("wrong", f"the guard zone around {each.name.upper()} was written")
            each.buffer.view(np.uint8)[...] = placed[id(each)].host()
        if not workspace.intact():
            raise Failure("wrong", "the guard zone around the workspace was written")
        return self.check()


class Placed:
    """A copy of an operand's buffer on the device, at the same offset modulo 64 bytes, between guard zones."""

    def __init__(self, device: Device, operand: Operand):
        self.device, xp = device, device.xp
        raw = operand.buffer.view(np.uint8)
        self.memory: DeviceArray = xp.full(raw.size + 2 * GUARD + 64, POISON, np.uint8)
        first = device.pointer(self.memory) + GUARD
        self.start = GUARD + (raw.ctypes.data - first) % 64
        self.size = raw.size
        self.memory[self.start : self.start + raw.size] = xp.asarray(raw)
        begin = self.start + operand.base * operand.buffer.itemsize
        self.address = device.pointer(self.memory) + begin
        self.body = self.memory[begin : begin + operand.extent[1]]  # the bytes that a kernel may touch

    def host(self) -> np.ndarray:
        """Return the buffer's current bytes."""
        return self.device.host(self.memory[self.start : self.start + self.size])

    def intact(self) -> bool:
        """Whether the guard zones still hold the poison."""
        return poisoned(self.memory[: self.start]) and poisoned(self.memory[self.start + self.size :])

    def unchanged(self, operand: Operand) -> bool:
        """Whether nothing in or around the buffer was written."""
        return self.intact() and np.array_equal(self.host(), operand.buffer.view(np.uint8))


class Workspace:
    """A kernel's temporary memory between guard zones, zeroed or poisoned; `body` is None where it needs none."""

    def __init__(self, device: Device, size: int, zero: bool):
        self.memory: DeviceArray = device.xp.full(size + 2 * GUARD, POISON, np.uint8)
        self.size = size
        self.body = self.memory[GUARD : GUARD + size] if size else None
        self.address = device.pointer(self.memory) + GUARD if size else 0
        if self.body is not None and zero:
            self.body[...] = 0

    def intact(self) -> bool:
        """Whether the guard zones still hold the poison."""
        return poisoned(self.memory[:GUARD]) and poisoned(self.memory[GUARD + self.size :])


def poisoned(zone: DeviceArray) -> bool:
    """Return whether a zone of bytes was not written."""
    return bool((zone == POISON).all())
