"""The launch that copies operands of a product into the workspace (operand_copies.cuh): its grid and cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from gensor_kernels.families.contraction.base import workspace_bytes
from gensor_kernels.families.contraction.problem import Extents, extents
from gensor_kernels.families.core.family import Launch
from gensor_kernels.families.core.program import Program
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import first_launch_cost
from gensor_kernels.operators.types.workload import Workload

from .base import Constants, Rewritten

#: Bytes of an access of tensor copies, and of a store of the copying launch; threads of a block, and its stores.
CHUNK, THREADS, BLOCK_CHUNKS = 16, 256, 1024
#: The least lines of a block's tile of a transposed operand.
TILE_LINES = 64
SECTOR = 32
#: Instructions per load, from the SASS.
LOAD_ISSUE = 7.0
#: Chunks of an entry are counted in 32 bits.
MOST_CHUNKS = 2**31
#: The other axis of an operand.
ACROSS = {"a": {"m": "k", "k": "m"}, "b": {"n": "k", "k": "n"}}


class Copy(NamedTuple):
    """A copy of an operand, written in lines along one axis."""

    #: its name, "a" or "b"
    operand: str
    #: axis of the lines
    unit: str
    #: bytes of a load
    piece: int
    #: whether elements of a line are not adjacent in the operand
    turned: bool
    #: bytes of an element of the copy
    element: int
    #: instructions of a thread for a chunk, without its loads
    issue: float
    #: bytes of an element of the operand; 0 for those of the copy
    read: int = 0
    #: number of elements that are written for one that is read, each into lines of its own part
    parts: int = 1
    #: bytes of which a line is a multiple
    whole: int = CHUNK
    #: (elements of a line, lines) of a convolution's operand
    shape: tuple[int, int] | None = None

    def lines(self, e: Extents) -> tuple[int, int]:
        """Return (elements of a line, lines of an entry)."""
        if self.shape:
            return self.shape
        sizes = {"m": e.m, "n": e.n, "k": e.k}
        return sizes[self.unit], sizes[ACROSS[self.operand][self.unit]]

    def entries(self, e: Extents) -> int:
        """Return the number of batch entries; the images of a convolution are lines of one."""
        return 1 if self.shape else e.batch

    def line_chunks(self, e: Extents) -> int:
        """Return the number of stores of a line of one part."""
        return -(-self.lines(e)[0] * self.element // self.whole) * (self.whole // CHUNK)

    def chunks(self, e: Extents) -> int:
        """Return the number of stores of an entry of one part."""
        return self.line_chunks(e) * self.lines(e)[1]

    def blocks(self, e: Extents) -> int:
        """Return the number of blocks of the launch."""
        if self.turned:
            lines = max(TILE_LINES, 8 * self.piece // self.element)
            of_entry = -(-self.lines(e)[1] // lines) * -(-self.line_chunks(e) // (BLOCK_CHUNKS // lines))
        else:
            of_entry = -(-self.chunks(e) // BLOCK_CHUNKS)
        return self.entries(e) * of_entry

    @property
    def shared(self) -> int:
        """Shared memory of a block in bytes."""
        return BLOCK_CHUNKS * (CHUNK // self.element) * self._width if self.turned else 0

    def bytes(self, e: Extents) -> int:
        """Return the bytes of the copy."""
        return self.entries(e) * self.parts * self.chunks(e) * CHUNK

    def warp_issue(self, e: Extents) -> float:
        """Return the instructions that warps issue."""
        loads = CHUNK / self.element * self._width / self.piece
        return self.entries(e) * self.chunks(e) / 32 * (self.issue + LOAD_ISSUE * loads)

    def dram_bytes(self, e: Extents) -> float:
        """Return the bytes that come from DRAM: a whole sector per element if no elements are adjacent."""
        length, count = self.lines(e)
        return float(self.entries(e) * length * count * (SECTOR if e.unit[self.operand] == "s" else self._width))

    @property
    def _width(self) -> int:
        return self.read or self.element


def too_large(copies: Sequence[Copy], workload: Workload) -> str | None:
    """Return why operands cannot be copied, or None."""
    e = extents(workload)
    large = any(copy.chunks(e) >= MOST_CHUNKS for copy in copies)
    return "an operand has too many elements to count its copy in 32 bits" if large else None


def macros(copies: Sequence[Copy]) -> dict[str, int | str]:
    """Return the macros of the copying launch."""
    return {
        f"{copy.operand.upper()}_{name}": value
        for copy in copies
        for name, value in (("PIECE", copy.piece), ("TURNED", int(copy.turned)))
    }


def copy_launch(entry: str, copies: Sequence[Copy], workload: Workload) -> Launch:
    """Return the copying launch."""
    e = extents(workload)
    shared = max((copy.shared for copy in copies), default=0)
    return Launch(entry, sum(copy.blocks(e) for copy in copies), THREADS, shared)


def offsets(copies: Sequence[Copy], program: Program, workload: Workload) -> tuple[dict[str, int], int]:
    """Return the copies' offsets in the workspace by operand, after a split's partial sums, and its size in bytes."""
    e, end, starts = extents(workload), workspace_bytes(program, workload), {}
    for copy in copies:
        starts[copy.operand] = end
        end += copy.bytes(e)
    return starts, end


class CopyOperands(Rewritten):
    """Copies of operands before a product that reads them by tensor copies.

    ``entry`` is the kernel that makes the ``copies``.
    """

    entry: str
    copies: Callable[[Workload], tuple[Copy, ...]]

    def cost(self, workload: Workload, arch: Arch) -> tuple[float, float]:
        """Return the cost of the copies."""
        e, copies = extents(workload), self.copies(workload)
        written = float(sum(copy.bytes(e) for copy in copies))
        issue = sum(copy.warp_issue(e) for copy in copies)
        return first_launch_cost(sum(copy.dram_bytes(e) for copy in copies), written, issue, arch)

    def constants(self, program: Program, workload: Workload) -> Constants:
        """Add the macros of the copying launch."""
        return super().constants(program, workload) | macros(self.copies(workload))

    def launches(self, program: Program, workload: Workload) -> tuple[Launch, ...]:
        """Put the copying launch before the product, whose tensor maps describe the copies."""
        main, *rest = super().launches(program, workload)
        copies = self.copies(workload)
        starts, _ = offsets(copies, program, workload)
        maps = tuple(replace(each, copied_at=starts.get(each.operand)) for each in main.maps)
        first = copy_launch(self.entry, copies, workload)
        return (first, replace(main, maps=maps, dependent=True), *rest)

    def workspace(self, program: Program, workload: Workload) -> tuple[int, bool]:
        """Add the copies."""
        return offsets(self.copies(workload), program, workload)[1], False

    def branches(self, program: Program, workload: Workload) -> frozenset[str]:
        """Return the coverage names of the product and of the copies."""
        copied = {f"copied_{copy.operand}" for copy in self.copies(workload)}
        return self.main.branches(program, workload) | copied | {"nothing_to_copy"}
