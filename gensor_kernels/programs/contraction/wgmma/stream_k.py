"""Streams of contraction_wgmma: contraction/stream_k.py, where warps pass their own sums on (wgmma_stream.cuh)."""

from __future__ import annotations

from typing import Any

from gensor_kernels.machine.arch import Arch
from gensor_kernels.programs.contraction import stream_k
from gensor_kernels.programs.contraction.problem import Extents
from gensor_kernels.programs.core.family import Columns, Coordinate
from gensor_kernels.programs.core.program import Program

from .cluster import ALONE
from .cost import GROUP_THREADS, WALKING

#: Bytes of a warp's flag.
FLAG_BYTES = 8


def coordinate(e: Extents) -> tuple[Coordinate, ...]:
    """That of stream_k; steps of an image are those of taps, which streams do not count."""
    return () if e.window else stream_k.coordinate(e)


def legal(c: Columns, arch: Arch) -> Any:
    """A stream's blocks walk, each by itself."""
    blocks = c.get(stream_k.NAME)
    if blocks is None:
        return True
    return stream_k.legal(c, arch) & ((blocks == 0) | ((c["persistent"] == WALKING) & (c["cluster"] == ALONE)))


def workspace_bytes(program: Program, e: Extents) -> int:
    """Bytes beside those that stream_k counts: room of the threads that do not multiply, and flags of warps."""
    blocks, threads = stream_k.blocks_of(program), GROUP_THREADS * (program["consumers"] + 1)
    idle = program["block_m"] * program["block_n"] * e.bytes_acc // program["consumers"]
    return blocks * (idle + FLAG_BYTES * threads // 32)
