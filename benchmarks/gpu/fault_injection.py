"""Launches with damaged Params, which the checks must notice, and an undamaged launch at the end.

A null pointer makes the kernel write to address 0: on a GPU that destroys the context, and the run has to continue in a
fresh process.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from gensor_kernels.families.space import Space
from gensor_kernels.operators.products import matmul
from gensor_tuner.build.pool import candidate
from gensor_tuner.measure.operands import Noise

from .families import class_workload, compile_all
from .harness.session import Item, Session
from .kernels.real_size import check

STEP = "fault_injection"
C_POINTER, M_EXTENT, K_EXTENT = 16, 200, 208  # offsets in Params


class UnnoticedError(Exception):
    """A planted fault was not noticed."""


def items(session: Session) -> Iterator[Item]:
    """Yield wrong numbers, a write past the end, a lost context; then an undamaged launch in the remaining process."""
    plants: dict[str, Callable[[bytes], bytes]] = {
        "sum cut short": partial(_add, K_EXTENT, -16),
        "rows behind the end": partial(_add, M_EXTENT, 8),
        "null pointer": _null_c,
    }
    for name, change in plants.items():
        yield Item(name, partial(plant, session, change))
    yield Item("right launch after these", lambda: launch(session, None))


def _add(offset: int, amount: int, packed: bytes) -> bytes:
    damaged = bytearray(packed)
    (value,) = struct.unpack_from("<i", packed, offset)
    struct.pack_into("<i", damaged, offset, value + amount)
    return bytes(damaged)


def _null_c(packed: bytes) -> bytes:
    damaged = bytearray(packed)
    struct.pack_into("<Q", damaged, C_POINTER, 0)
    return bytes(damaged)


def launch(session: Session, change: Callable[[bytes], bytes] | None) -> dict[str, Any]:
    """Launch a float16 kernel with changed Params."""
    workload = class_workload("float16", "float16", "ieee", "kn", True)
    family = Space(workload, session.arch).families[0].family
    kernel = candidate(family, family.starters(workload, session.arch)[0], workload)
    (made,) = compile_all(session, [kernel])
    if isinstance(made, Exception):
        raise made
    small = matmul.workload(96, 128, 64, dtype="float16")
    return check(session, Noise(session.device), kernel, made, small, change)


def plant(session: Session, change: Callable[[bytes], bytes]) -> dict[str, Any]:
    """Succeed where the damage was noticed: by the comparison, a red zone, or the device itself."""
    try:
        found = launch(session, change)
    except Exception as error:  # the driver's and the emulator's errors have no common base
        if not session.is_fault(error):
            raise
        return {"noticed": f"{type(error).__name__}: {error}"}
    if found["outcome"] == "ok":
        raise UnnoticedError(f"a damaged launch passed: {found}")
    return {"noticed": found["error"]}
