"""The launch that copies operands of a product into the workspace (operand_copies.cuh): its grid and cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import cost_of_front
from gensor_kernels.programs.contraction.base import ContractionFamily, workspace_bytes
from gensor_kernels.programs.contraction.problem import Extents, extents
from gensor_kernels.programs.core.family import Launch

from .base import Constants, Rewrite

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload
    from gensor_kernels.programs.core.program import Program

#: Bytes of an access of tensor copies, and of a store of the copying launch; threads of a block, and its stores.
CHUNK, THREADS, BLOCK_CHUNKS = 16, 256, 1024
#: Lines and chunks of a block's tile of a turned operand.
TILE_LINES, TILE_CHUNKS = 64, 16
SECTOR = 32
#: Instructions that a load comes with: of the SASS.
LOAD_ISSUE = 7.0
#: Chunks of an entry are counted in 32 bits.
MOST_CHUNKS = 2**31
#: The other axis of an operand.
ACROSS = {"a": {"m": "k", "k": "m"}, "b": {"n": "k", "k": "n"}}


class Copy(NamedTuple):
    """An operand that is copied: into lines along ``unit``, by loads of ``piece`` bytes; ``turned``: neighbours in a
    line are none in the operand. ``element`` are the bytes of an element, ``issue`` the instructions of a thread for a
    chunk without its loads. ``parts``: how many of ``element`` bytes are written of an element of ``read`` bytes, each
    in lines of whole ``whole`` bytes.  ``shape``: of a convolution, elements of a line and lines.
    """

    operand: str
    unit: str
    piece: int
    turned: bool
    element: int
    issue: float
    read: int = 0
    parts: int = 1
    whole: int = CHUNK
    shape: tuple[int, int] | None = None

    def lines(self, e: Extents) -> tuple[int, int]:
        """(elements of a line, lines of an entry)."""
        if self.shape:
            return self.shape
        sizes = {"m": e.m, "n": e.n, "k": e.k}
        return sizes[self.unit], sizes[ACROSS[self.operand][self.unit]]

    def entries(self, e: Extents) -> int:
        """Batch entries that are copied one by one; images are lines of one."""
        return 1 if self.shape else e.batch

    def line_chunks(self, e: Extents) -> int:
        """Stores of a line, of one part."""
        return -(-self.lines(e)[0] * self.element // self.whole) * (self.whole // CHUNK)

    def chunks(self, e: Extents) -> int:
        """Stores of an entry, of one part."""
        return self.line_chunks(e) * self.lines(e)[1]

    def blocks(self, e: Extents) -> int:
        """Blocks of the launch."""
        if self.turned:
            of_entry = -(-self.lines(e)[1] // TILE_LINES) * -(-self.line_chunks(e) // TILE_CHUNKS)
        else:
            of_entry = -(-self.chunks(e) // BLOCK_CHUNKS)
        return self.entries(e) * of_entry

    @property
    def shared(self) -> int:
        """Bytes of shared memory of a block."""
        return BLOCK_CHUNKS * (CHUNK // self.element) * self._width if self.turned else 0

    def bytes(self, e: Extents) -> int:
        """Bytes of the copy."""
        return self.entries(e) * self.parts * self.chunks(e) * CHUNK

    def warp_issue(self, e: Extents) -> float:
        """Return the instructions of its warps."""
        loads = CHUNK / self.element * self._width / self.piece
        return self.entries(e) * self.chunks(e) / 32 * (self.issue + LOAD_ISSUE * loads)

    def dram_bytes(self, e: Extents) -> float:
        """Bytes that come from DRAM: whole sectors of an operand without neighbours."""
        length, count = self.lines(e)
        return float(self.entries(e) * length * count * (SECTOR if e.unit[self.operand] == "s" else self._width))

    @property
    def _width(self) -> int:
        return self.read or self.element


def too_large(copies: Sequence[Copy], workload: Workload) -> str | None:
    """Why operands cannot be copied, or None."""
    e = extents(workload)
    large = any(copy.chunks(e) >= MOST_CHUNKS for copy in copies)
    return "an operand has too many elements to count its copy in 32 bits" if large else None


def constants(copies: Sequence[Copy]) -> dict[str, int | str]:
    """The macros of the copying launch."""
    return {
        f"{copy.operand.upper()}_{name}": value
        for copy in copies
        for name, value in (("PIECE", copy.piece), ("TURNED", int(copy.turned)))
    }


def launch(entry: str, copies: Sequence[Copy], workload: Workload) -> Launch:
    """The copying launch."""
    e = extents(workload)
    shared = max((copy.shared for copy in copies), default=0)
    return Launch(entry, sum(copy.blocks(e) for copy in copies), THREADS, shared)


def offsets(copies: Sequence[Copy], program: Program, workload: Workload) -> tuple[dict[str, int], int]:
    """Return the copies' offsets in the workspace by operand, after a split's partial sums, and its size in bytes."""
    e, end, found = extents(workload), workspace_bytes(program, workload), {}
    for copy in copies:
        found[copy.operand] = end
        end += copy.bytes(e)
    return found, end


def in_front(
    entry: str, copies: Sequence[Copy], program: Program, workload: Workload, launches: Sequence[Launch]
) -> tuple[Launch, ...]:
    """The launches of a product that reads copies, after the one that makes them."""
    main, *rest = launches
    places, _ = offsets(copies, program, workload)
    maps = tuple(replace(each, copied_at=places.get(each.operand)) for each in main.maps)
    return (launch(entry, copies, workload), replace(main, maps=maps, dependent=True), *rest)


def cost(copies: Sequence[Copy], workload: Workload, arch: Arch) -> tuple[float, float]:
    """(microseconds of the launch, bytes of the copies that the next launch finds in the L2)."""
    e = extents(workload)
    written = float(sum(copy.bytes(e) for copy in copies))
    issue = sum(each.warp_issue(e) for each in copies)
    return cost_of_front(sum(each.dram_bytes(e) for each in copies), written, issue, arch)


def branches(copies: Sequence[Copy]) -> frozenset[str]:
    """Return the coverage names of the copying launch."""
    return frozenset({f"copied_{copy.operand}" for copy in copies} | {"nothing_to_copy"})


class CopyOperands(Rewrite):
    """Copies of operands before a product that reads them by tensor copies.

    ``entry`` is the kernel that makes the ``copies``.
    """

    def __init__(self, entry: str, copies: Callable[[Workload], tuple[Copy, ...]]) -> None:
        self._entry, self._copies = entry, copies

    def cost(self, workload: Workload, arch: Arch) -> tuple[float, float]:
        """Return the cost of the copies."""
        return cost(self._copies(workload), workload, arch)

    def constants(self, found: Constants, workload: Workload) -> Constants:
        """Add the macros of the copying launch."""
        return found | constants(self._copies(workload))

    def launches(self, found: Sequence[Launch], program: Program, workload: Workload) -> tuple[Launch, ...]:
        """Put the copying launch before the product."""
        return in_front(self._entry, self._copies(workload), program, workload, found)

    def workspace(self, found: int, program: Program, workload: Workload) -> int:
        """Add the copies."""
        return offsets(self._copies(workload), program, workload)[1]

    def branches(self, program: Program, workload: Workload, main: ContractionFamily) -> frozenset[str]:
        """Return the coverage names of the product and of the copies."""
        return main.branches(program, workload) | branches(self._copies(workload))
