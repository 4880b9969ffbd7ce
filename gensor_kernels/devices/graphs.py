"""Memory of captured graphs: it belongs to a graph until the driver has destroyed that graph.

The launches of a graph keep the addresses of their capture, and can be replayed without this package's knowledge.
During capture, memory for a call therefore comes from a GraphMemory.  Memory dropped within the capture serves later
calls of the same capture, in the order of their stream, and no other call while the graph lives.

The driver reports the end of a graph (CUDA 11.3 and later; NCCL relies on the same calls): the graph being captured
retains a user object, as does every executable graph made from it, and the last of them releases it after its last
launch.  The destructor of a user object runs in a thread of the driver, which may call neither CUDA nor Python.
CPython's PyThread_release_lock does neither: it releases a lock, which is polled later.

Parts of CuPy used here, read in 13.3 to 14.2: `using_allocator` sets the allocator of the calling thread, an allocator
is any function of a number of bytes, `UnownedMemory` keeps its owner alive, and CuPy collects garbage before it raises
OutOfMemoryError.
"""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import NamedTuple
from weakref import WeakSet, ref

from gensor_kernels import forking

from .cupy_internals import Memory
from .driver import driver_function, relaxed_capture
from .lending import LendingAllocator

#: Values in the driver's enumerations (cuda.h).
CAPTURE_ACTIVE, NO_DESTRUCTOR_SYNC, MOVE = 1, 1, 1
#: Bytes that sizes are rounded up to, as in CuPy's pool.
UNIT = 512
#: Largest ratio of a reused block's size to the requested size.
MOST_WASTE = 2

_allocate_lock = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("PyThread_allocate_lock", ctypes.pythonapi))
_acquire_lock = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)(
    ("PyThread_acquire_lock", ctypes.pythonapi)
)
_RELEASE_LOCK = ctypes.cast(ctypes.pythonapi.PyThread_release_lock, ctypes.c_void_p)

Allocator = Callable[[int], Memory]


class Capture(NamedTuple):
    """The target of a capturing stream: the capture's number, unique in this process, and the graph.

    `nodes` are those on which the next captured node depends.
    """

    number: int
    graph: int
    nodes: tuple[int, ...] = ()


def capture_of(stream: int) -> Capture | None:
    """Return the capture of a stream, or None if it is not capturing.

    Raises OSError or AttributeError without a driver that can report it.
    """
    status, number, graph = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_void_p()
    nodes, count = ctypes.POINTER(ctypes.c_void_p)(), ctypes.c_size_t()
    reported = (ctypes.byref(each) for each in (status, number, graph, nodes, count))
    refused = driver_function("cuStreamGetCaptureInfo_v2")(ctypes.c_void_p(stream), *reported)
    if refused or status.value != CAPTURE_ACTIVE or not graph.value:
        return None
    return Capture(number.value, graph.value, tuple(nodes[index] or 0 for index in range(count.value)))


def captured_dependencies(stream: int) -> tuple[int, ...] | None:
    """Return the nodes on which the next captured node of a stream depends; None if the driver does not report them."""
    try:
        capture = capture_of(stream)
    except (OSError, AttributeError):
        return None
    return None if capture is None else capture.nodes


class End:
    """The end of a graph: a C lock that the driver releases.

    It is never freed, since its releaser may still be inside the release.
    """

    def __init__(self, graph: int):
        """Raise OSError if the graph refuses the user object."""
        self._lock = _allocate_lock()
        if not self._lock or not _acquire_lock(self._lock, 0):
            raise OSError("no lock for the end of a graph")
        made = ctypes.c_void_p()
        status = driver_function("cuUserObjectCreate")(
            *(ctypes.byref(made), ctypes.c_void_p(self._lock), _RELEASE_LOCK),
            *(ctypes.c_uint(1), ctypes.c_uint(NO_DESTRUCTOR_SYNC)),
        )
        status = status or driver_function("cuGraphRetainUserObject")(
            *(ctypes.c_void_p(graph), made, ctypes.c_uint(1), ctypes.c_uint(MOVE))
        )
        if status:
            raise OSError(f"the driver does not say when a graph ends (CUresult {status})")
        self.has_come = False

    def came(self) -> bool:
        """Return whether the graph and all executable graphs are gone."""
        self.has_come = self.has_come or bool(_acquire_lock(self._lock, 0))
        return self.has_come


class GraphMemory:
    """Memory of one graph: its free blocks by stream, the smallest fitting block first, and other owners of memory."""

    def __init__(self) -> None:
        self._owners: dict[int, object] = {}
        self._free: dict[int, list[tuple[int, Memory]]] = {}
        self._lock = threading.Lock()

    def take(self, stream: int, nbytes: int) -> tuple[int, Memory] | None:
        """Return (size, memory) that earlier calls on this stream have dropped, or None if no block fits."""
        free = self._free.setdefault(stream, [])
        with self._lock:
            fitting = [(size, place) for place, (size, _) in enumerate(free) if nbytes <= size <= MOST_WASTE * nbytes]
            return free.pop(min(fitting)[1]) if fitting else None

    def keep(self, owners: Iterable[object]) -> None:
        """Keep objects that hold memory which the graph reads."""
        self._owners.update((id(each), each) for each in owners)

    def give(self, stream: int, size: int, memory: Memory) -> None:
        """Take memory back, without a lock: garbage may be collected anywhere."""
        self._free.setdefault(stream, []).append((size, memory))


class Lent:
    """Memory in use by an array or a call: it goes back to its graph with the last reference."""

    def __init__(self, owner: GraphMemory, stream: int, size: int, memory: Memory):
        self._owner, self._given = ref(owner), (stream, size, memory)

    def __del__(self) -> None:
        owner = self._owner()
        if owner is not None:
            owner.give(*self._given)


class GraphAllocator:
    """CuPy's allocator within a captured call. `base` is the caller's, `stream` returns the current stream's
    address."""

    def __init__(self, cuda: ModuleType, memory: GraphMemory, base: Allocator, stream: Callable[[], int]):
        self._cuda, self.memory, self._base, self._stream = cuda, memory, base, stream

    def __call__(self, nbytes: int) -> Memory:
        """Return memory of the graph."""
        if nbytes == 0:
            return self._base(0)
        stream, nbytes = self._stream(), -(-nbytes // UNIT) * UNIT
        size, memory = self.memory.take(stream, nbytes) or (nbytes, None)
        if memory is None:
            before = captured_dependencies(stream)
            with relaxed_capture():  # for any capture mode: PyTorch's mode forbids cudaMalloc
                memory = self._base(size)
            if captured_dependencies(stream) != before:
                return memory  # allocated in stream order, by a node of the graph: it belongs to the graph already
        lent = Lent(self.memory, stream, size, memory)
        return self._cuda.MemoryPointer(self._cuda.UnownedMemory(memory.ptr, size, lent, memory.device_id), 0)


class Graphs:
    """The graphs captured on one device, and their memory."""

    def __init__(self) -> None:
        self._living: dict[int, tuple[GraphMemory, End]] = {}
        self._kept: dict[int, GraphMemory] = {}
        self._lock = forking.lock(self, "_lock", threading.Lock)
        _all.add(self)

    def lasting(self, cuda: ModuleType, stream: Callable[[], int], *owners: object) -> AbstractContextManager[None]:
        """Return a context in which CuPy's allocations of this thread live as long as the graph being captured; so
        do `owners`."""
        base = cuda.get_allocator()
        if isinstance(base, LendingAllocator):  # memory of a model
            return nullcontext()
        within = isinstance(base, GraphAllocator)  # a call within a call
        memory = base.memory if within else self._memory(stream())
        if memory is not None:
            memory.keep(owners)
        if memory is None or within:
            return nullcontext()
        context: AbstractContextManager[None] = cuda.using_allocator(GraphAllocator(cuda, memory, base, stream))
        return context

    def _memory(self, stream: int) -> GraphMemory | None:
        """Return the memory of the graph being captured; it is kept forever if the driver does not report the graph's
        end."""
        self.tidy()
        try:
            capture = capture_of(stream)
        except (OSError, AttributeError):  # calls may belong to different graphs: they share no memory
            memory = GraphMemory()
            self._kept[-1 - len(self._kept)] = memory
            return memory
        if capture is None:
            return None
        with self._lock:
            if capture.number in self._living:
                return self._living[capture.number][0]
            memory = self._kept.get(capture.number) or GraphMemory()
            if capture.number not in self._kept:
                try:
                    self._living[capture.number] = memory, End(capture.graph)
                except (OSError, AttributeError):
                    self._kept[capture.number] = memory
            return memory

    def tidy(self) -> None:
        """Free the memory of graphs that are gone. Waits for no other thread."""
        if not self._living or not self._lock.acquire(blocking=False):
            return
        try:
            gone = [number for number, (_, end) in self._living.items() if end.came()]
            given_back = [self._living.pop(number) for number in gone]
        finally:
            self._lock.release()
        if given_back:
            with relaxed_capture():  # an allocator without a pool frees, which a graph being captured would not survive
                given_back.clear()


_all: WeakSet[Graphs] = WeakSet()


def _on_collection(phase: str, info: dict[str, int]) -> None:
    """At every full garbage collection, which CuPy also makes before it reports a lack of memory."""
    if phase == "start" and info["generation"] == 2:
        for each in list(_all):
            each.tidy()


gc.callbacks.append(_on_collection)
