"""The launch that copies what tensor copies cannot read (cuda/contraction_aligned.cu): what, how, and its cost."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ..machine.arch import Arch
from .contraction_kernel import workspace_bytes
from .extents import Extents, extents
from .family import Launch
from .front import cost_of_front
from .wgmma_parts import kind

if TYPE_CHECKING:
    from ..operators.workload import Workload
    from .program import Program

#: Bytes of an access of tensor copies, and of a store of the copying launch; threads of a block, and its stores.
CHUNK, THREADS, BLOCK_CHUNKS = 16, 256, 1024
SECTOR = 32
#: Instructions of a thread per store beside its loads, and those that each load comes with: of the SASS.
ITEM_ISSUE, LOAD_ISSUE = 75.0, 7.0
#: Chunks of an entry are counted in 32 bits.
MOST_CHUNKS = 2**31
#: The other axis of an operand.
ACROSS = {"a": {"m": "k", "k": "m"}, "b": {"n": "k", "k": "n"}}


class Copy(NamedTuple):
    """An operand that is copied: into lines along ``unit``, by loads of ``piece`` bytes; ``turned``: neighbours in a
    line are none in the operand. ``element`` are the bytes of an element."""

    operand: str
    unit: str
    piece: int
    turned: bool
    element: int

    def lines(self, e: Extents) -> tuple[int, int]:
        """(elements of a line, lines of a batch entry)."""
        sizes = {"m": e.m, "n": e.n, "k": e.k}
        return sizes[self.unit], sizes[ACROSS[self.operand][self.unit]]

    def chunks(self, e: Extents) -> int:
        """Stores of a batch entry."""
        length, count = self.lines(e)
        return -(-length * self.element // CHUNK) * count

    def issue(self, e: Extents) -> float:
        """Instructions of its warps."""
        return e.batch * self.chunks(e) / 32 * (ITEM_ISSUE + LOAD_ISSUE * CHUNK / self.piece)

    def read(self, e: Extents) -> float:
        """Bytes that come from DRAM: whole sectors of an operand without neighbours."""
        length, count = self.lines(e)
        return float(e.batch * length * count * (SECTOR if e.unit[self.operand] == "s" else self.element))


@lru_cache(maxsize=4096)
def copies(workload: Workload) -> tuple[Copy, ...]:
    """The operands of a product that tensor copies cannot read as they lie; () where its type has no such products."""
    own, e = kind(workload), extents(workload)
    if own is None:
        return ()
    found = []
    for operand, width in (("a", e.bytes_a), ("b", int(e.bytes_b))):
        unit, align = e.unit[operand], e.align[operand]
        wanted = "k" if own.k_contiguous or unit == "s" else unit
        if unit != wanted or align < CHUNK:
            turned = unit != wanted
            found.append(Copy(operand, wanted, width if turned else align, turned, width))
    return tuple(found)


def aligned(workload: Workload) -> Workload:
    """The same product of the copies."""
    units = {copy.operand: copy.unit for copy in copies(workload)}
    return replace(
        workload,
        layout=tuple((name, units.get(name, layout)) for name, layout in workload.layout),
        alignment=tuple((name, CHUNK if name in units else given) for name, given in workload.alignment),
    )


def too_large(workload: Workload) -> str | None:
    """Why operands cannot be copied; None where they can."""
    e = extents(workload)
    large = any(copy.chunks(e) >= MOST_CHUNKS for copy in copies(workload))
    return "an operand has too many elements to count its copy in 32 bits" if large else None


def constants(workload: Workload) -> dict[str, int | str]:
    """The macros of the copying launch."""
    return {
        f"{copy.operand.upper()}_{name}": value
        for copy in copies(workload)
        for name, value in (("PIECE", copy.piece), ("TURNED", int(copy.turned)))
    }


def launch(workload: Workload) -> Launch:
    """The copying launch."""
    e = extents(workload)
    blocks = sum(e.batch * -(-copy.chunks(e) // BLOCK_CHUNKS) for copy in copies(workload))
    return Launch("contraction_align", blocks, THREADS, 0)


def offsets(program: Program, workload: Workload) -> tuple[dict[str, int], int]:
    """Where in the workspace the copies lie, behind a split's partial sums, by operand; and its bytes."""
    e, end, found = extents(workload), workspace_bytes(program, workload), {}
    for copy in copies(workload):
        found[copy.operand] = end
        end += e.batch * copy.chunks(e) * CHUNK
    return found, end


def cost(workload: Workload, arch: Arch) -> tuple[float, float]:
    """(microseconds of the launch, bytes of the copies that the next launch finds in the L2)."""
    e, found = extents(workload), copies(workload)
    written = float(sum(e.batch * copy.chunks(e) * CHUNK for copy in found))
    issue = sum(each.issue(e) for each in found)
    return cost_of_front(sum(each.read(e) for each in found), written, issue, arch, dependent=True)
