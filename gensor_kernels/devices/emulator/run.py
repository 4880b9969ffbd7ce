"""Runs a built kernel on the CPU and reports its event counts, or the rule it violated.

A fault raises KernelFault and leaves the process as it was.  Each library runs one launch at a time (its emulator is
global to it); different libraries run in parallel, since the interpreter's lock is released meanwhile.
"""

from __future__ import annotations

import ctypes
import struct
import sys
import threading
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from gensor_kernels import forking
from gensor_kernels.errors import GensorError
from gensor_kernels.families.core.family import Launch
from gensor_kernels.families.core.tensor_maps import (
    ALIGNMENT,
    MAP_BYTES,
    MAPS_OFFSET,
    STEP,
    Described,
    TensorMap,
    description,
)

from .build import Kept

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

#: Limits of every launch (CUDA C++ Programming Guide, compute capabilities): blocks, shared bytes of the parts with the
#: most, blocks of a portable cluster, and bytes of parameters, which all toolkits allow.
MOST_BLOCKS, MOST_SHARED, MOST_IN_CLUSTER, MOST_PARAMS = 2**31 - 1, 227 << 10, 8, 4096
#: Multiprocessors of the emulator: blocks that walk a grid have several tiles of small problems.
SMS = 2
#: Blocks of a launch that wait for one another: some tiles are shared by more than two.
TOGETHER = 5


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


class Buffer(NamedTuple):
    """Global memory of a launch: `bytes` from the kernel's `address` on, stored at the host address `host`."""

    address: int
    bytes: int
    writable: bool
    host: int


class AddressSpace:
    """Addresses far apart: an access beyond one buffer reaches no other buffer, for any layout in host memory."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []

    def place(self, host: int, size: int, writable: bool) -> int:
        """Return a kernel address for `size` bytes at `host`: equal modulo 4096, a terabyte from other buffers."""
        address = ((len(self.buffers) + 1) << 40) + host % 4096
        self.buffers.append(Buffer(address, size, writable, host))
        return address


class _Buffer(ctypes.Structure):
    _fields_ = [
        ("begin", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("host", ctypes.c_uint64),
        ("writable", ctypes.c_int),
    ]


class _Request(ctypes.Structure):
    _fields_ = [
        ("entry", ctypes.c_void_p),
        ("params", ctypes.c_void_p),
        ("grid", ctypes.c_int),
        ("block", ctypes.c_int),
        ("shared_bytes", ctypes.c_int),
        ("buffers", ctypes.POINTER(_Buffer)),
        ("buffer_count", ctypes.c_int),
        ("blocks", ctypes.POINTER(ctypes.c_int)),
        ("block_count", ctypes.c_int),
        ("order", ctypes.c_int),
        ("seed", ctypes.c_uint64),
        ("early", ctypes.c_int),
        ("races", ctypes.c_int),
        ("resident", ctypes.c_int),
        ("cluster", ctypes.c_int),
        ("dependent", ctypes.c_int),
        ("seconds", ctypes.c_double),
    ]


class _Report(ctypes.Structure):
    _fields_ = [
        ("counter", ctypes.c_uint64 * len(COUNTERS)),
        ("fault", ctypes.c_int),
        ("block", ctypes.c_int),
        ("thread", ctypes.c_int),
        ("message", ctypes.c_char * 1000),
    ]


class _Library:
    """A loaded library and the lock that admits one launch at a time."""

    def __init__(self, path: Path):
        self.lock = threading.Lock()
        self.handle = _load(path)
        self.handle.emulator_branch.restype = ctypes.c_char_p
        if self.handle.emulator_counters() != len(COUNTERS):
            raise GensorError(f"{path} was built for another version of the emulator; delete it")

    def entry(self, launch: Launch, params: bytes | bytearray) -> int:
        """Return the address of the launch's kernel. Raises ValueError if the launch does not fit it."""
        try:
            address = ctypes.cast(getattr(self.handle, f"emulator_entry_{launch.entry}"), ctypes.c_void_p).value
        except AttributeError:
            raise ValueError(f"the library has no kernel {launch.entry!r}") from None
        size = getattr(self.handle, f"emulator_params_{launch.entry}")()
        if size != len(params):
            raise ValueError(f"{launch.entry} takes {size} bytes of Params, not {len(params)}")
        if not 0 < launch.grid <= MOST_BLOCKS or launch.shared_bytes > MOST_SHARED or len(params) > MOST_PARAMS:
            raise ValueError(f"no device launches {launch} with {len(params)} bytes of Params")
        threads = getattr(self.handle, f"emulator_threads_{launch.entry}")()
        if not 0 < launch.block <= min(threads, 1024):
            raise ValueError(f"{launch.entry} is bound to {threads} threads, not {launch.block}")
        cluster = getattr(self.handle, f"emulator_cluster_{launch.entry}", lambda: 1)()
        if cluster != launch.cluster or launch.grid % cluster or cluster > MOST_IN_CLUSTER:
            raise ValueError(f"{launch.entry} runs in clusters of {cluster} blocks, not {launch.grid} blocks in others")
        return address or 0

    def branches(self) -> dict[str, int]:
        """Return the passes of each cover() name in the last launch."""
        counts: dict[str, int] = {}
        passed, i = ctypes.c_uint64(), 0
        while name := self.handle.emulator_branch(i, ctypes.byref(passed)):
            counts[name.decode()] = counts.get(name.decode(), 0) + passed.value
            i += 1
        return counts


_libraries: dict[str, _Library] = {}  # by name, which is a digest of all that went into it
_loading = forking.lock(sys.modules[__name__], "_loading", threading.Lock)


class DamagedError(GensorError):
    """A library that is damaged, not the user's own, or refused by the system; it has to be built again."""


def _load(path: Path) -> ctypes.CDLL:
    """Load the library from the folder that was checked, even if its name now leads elsewhere."""
    with Kept(path.parent) as folder:
        if not folder.has(path.name):
            raise DamagedError(f"{path} is no whole library of this user's own: it has to be built again")
        try:
            return ctypes.CDLL(folder.where(path.name))
        except OSError as error:
            folder.remove(path.name)
            raise DamagedError(f"{path} was not loaded ({error}) and deleted: it has to be built again") from error


def _library(path: Path) -> _Library:
    with _loading:  # two objects for one library would mean two locks
        return _libraries.get(path.name) or _libraries.setdefault(path.name, _Library(path))


@forking.in_child
def _after_fork() -> None:
    _libraries.clear()  # a thread of the parent may have been running one, with its lock


def _order(order: str | int) -> tuple[int, int]:
    if isinstance(order, str):
        if order not in ("forward", "reverse"):
            raise ValueError(f"order is 'forward', 'reverse' or a seed, not {order!r}")
        return ("forward", "reverse").index(order), 0
    return 2, int(order) % 2**64


def run(
    library: str | PathLike[str],
    launches: Iterable[Launch],
    params: bytes | bytearray,
    buffers: Sequence[Buffer],
    *,
    order: str | int = "forward",
    copies: str = "late",
    races: bool = True,
    blocks: Sequence[int] | None = None,
    resident: int = 1,
    seconds: float = 600.0,
) -> Counters:
    """Execute launches one after the other.

    Parameters
    ----------
    library : path
        A library of `build`.
    launches : Iterable[Launch]
        Launches in order.  Threads of a dependent launch must wait for the previous launch before they touch global
        memory, and before they end.
    params : bytes
        The packed struct that every launch gets.
    buffers : Sequence[Buffer]
        All global memory that the kernel may touch.
    order : str or int
        Order of warps: "forward", "reverse", or the seed of a random order.
    copies : str
        Delivery of asynchronous copies: "late" (when waited for) or "early" (at issue).
    races : bool
        Whether the race detector is on, which also finds reads of unwritten shared memory and bytes of a buffer stored
        twice.
    blocks : Sequence[int], optional
        Block indices to run; all by default.
    resident : int
        Number of blocks that take turns at a time.
    seconds : float
        Limit of a launch, after which it counts as hanging.

    Returns
    -------
    Counters
        Sums over all launches.

    Raises
    ------
    KernelFault
        If a kernel violates a rule.
    ValueError
        For a launch or argument that does not fit.
    DamagedError
        For a library that has to be built again.
    """
    if copies not in ("late", "early"):
        raise ValueError(f"copies is 'late' or 'early', not {copies!r}")
    loaded = _library(Path(library))
    areas = (_Buffer * len(buffers))(*(_Buffer(each.address, each.bytes, each.host, each.writable) for each in buffers))
    mode, seed = _order(order)
    total = Counters()
    for launch in launches:
        packed = Packed(params, launch.maps)
        entry = loaded.entry(launch, packed.bytes)
        walks = launch.together and launch.per_sm
        grid = min(launch.grid, TOGETHER) if walks else launch.blocks(SMS)
        chosen = range(grid) if blocks is None else [b for b in blocks if 0 <= b < grid]
        indices = (ctypes.c_int * len(chosen))(*chosen)
        request = _Request(
            entry, packed.address, grid, launch.block, launch.shared_bytes,
            areas, len(buffers), indices, len(chosen), mode, seed, copies == "early", races,
            grid if launch.together else -(-resident // launch.cluster) * launch.cluster, launch.cluster,
            launch.dependent, seconds,
        )  # fmt: skip
        total.add(_launch(loaded, launch, request))
    return total


def _launch(library: _Library, launch: Launch, request: _Request) -> Counters:
    report = _Report()
    with library.lock:
        outcome = library.handle.emulator_run(ctypes.byref(request), ctypes.byref(report))
        branches = library.branches()
    if outcome < 0:
        raise MemoryError(f"no memory for the stacks of {launch.block} threads")
    if outcome:
        where = f"{launch.entry}, block {report.block}, thread {report.thread}"
        raise KernelFault(FAULTS[outcome], f"{where}: {report.message.decode(errors='replace')}")
    return Counters(zip(COUNTERS, report.counter, strict=True), branches)


_MAP = struct.Struct("<Q 4Q 5I 5I 3I 6h")
_MAGIC, _MAGIC_OF_PIXELS = 0x70616D74, 0x6C657870


def encode(wanted: Described) -> bytes:
    """Return the 128 bytes of a map."""
    missing = 5 - len(wanted.extents)
    box, extents = (*wanted.box, 1, 1, 1)[:5], (*wanted.extents, *(1 for _ in range(missing)))
    strides = (*wanted.strides, *(STEP for _ in range(missing)))
    corners, magic = (0,) * 6, _MAGIC
    if wanted.pixels:
        corners, magic = (*wanted.pixels.lower, *wanted.pixels.upper, *wanted.pixels.step), _MAGIC_OF_PIXELS
    body = (wanted.address, *strides, *extents, *box, wanted.element, wanted.rounded, magic, *corners)
    return _MAP.pack(*body).ljust(MAP_BYTES, b"\0")


class Packed:
    """The argument of a launch, at an `address` that is a multiple of 64 for as long as this object lives."""

    def __init__(self, params: bytes | bytearray, maps: tuple[TensorMap, ...]):
        self.bytes = bytes(params)
        if maps:
            self.bytes = self.bytes.ljust(MAPS_OFFSET, b"\0") + b"".join(
                encode(description(params, each)) for each in maps
            )
        self._buffer = ctypes.create_string_buffer(len(self.bytes) + ALIGNMENT)
        self.address = -(-ctypes.addressof(self._buffer) // ALIGNMENT) * ALIGNMENT
        ctypes.memmove(self.address, self.bytes, len(self.bytes))
