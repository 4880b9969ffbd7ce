"""Results of a run on the emulator: counters, or the violated rule."""

from __future__ import annotations

from typing import Any

from gensor_kernels.errors import GensorError

FAULTS = (
    "none",
    "out_of_bounds",  # outside every buffer or the shared memory, or a store to a read-only buffer
    "misaligned",
    "race",
    "uninitialised",  # shared memory read before anything was written there
    "divergent",  # lanes of one warp at different collective instructions
    "deadlock",
    "timeout",
    "stack",  # a thread's local arrays overflowed its stack
    "invalid",
)
_WIDTHS = (1, 2, 4, 8, 16)
COUNTERS = (
    "blocks",
    "switches",
    "barriers",
    "warp_barriers",
    "shuffles",
    "matrix_multiplies",
    "matrix_loads",
    "shared_loads",
    "shared_stores",
    "shared_copies",
    "conflicts_matrix_load",
    "conflicts_load",
    "conflicts_store",
    "conflicts_copy",
    "copies_zeroed",
    "tensor_copies",
    "tensor_stores",
    "mbarrier_waits",
    "group_multiplies",
    *(f"{kind}_{width}" for kind in ("global_load", "global_store", "copy") for width in _WIDTHS),
)


class KernelFault(GensorError):
    """A violated rule. `kind` is one of FAULTS, `message` names kernel, block, thread and source line."""

    def __init__(self, kind: str, message: str):
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message


class Counters(dict[str, int]):
    """Event counts of launches by name; missing names count 0.

    Shared accesses (`shared_loads`, `shared_stores`, `shared_copies`, `matrix_loads`) and barriers count instructions
    of a warp or block, `global_load_16` and similar names accesses of a thread by bytes.  `conflicts_*` are shared-
    memory passes beyond the first of each phase.  `branches` counts the passes of threads through each name given to
    `cover`.
    """

    def __init__(self, counts: Any = (), branches: dict[str, int] | None = None):
        super().__init__(counts)
        self.branches: dict[str, int] = dict(branches or {})

    def __missing__(self, name: str) -> int:
        return 0

    @property
    def bank_conflicts(self) -> int:
        """Conflicts of all kinds of shared-memory access."""
        return sum(count for name, count in self.items() if name.startswith("conflicts_"))

    def global_widths(self, kind: str | None = None) -> dict[int, int]:
        """Return accesses to global memory by bytes, of `kind` "global_load", "global_store" or "copy", or of all."""
        kinds = (kind,) if kind else ("global_load", "global_store", "copy")
        sums = {width: sum(self[f"{each}_{width}"] for each in kinds) for width in _WIDTHS}
        return {width: count for width, count in sums.items() if count}

    def add(self, other: Counters) -> None:
        """Add the counts of another run."""
        for name, count in other.items():
            self[name] += count
        for name, count in other.branches.items():
            self.branches[name] = self.branches.get(name, 0) + count
