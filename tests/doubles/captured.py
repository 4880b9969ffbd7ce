"""Graph capture without a GPU: streams that record, memory that is reused at once, and whose it is at a replay.

Arrays are real `cupy.ndarray`s over addresses of nothing. What CuPy would launch for them is an operation that touches
their addresses, as a launch of ours touches those in its Params. A replay touches them again: memory that was freed
since belongs to whoever asked next, and to nobody once the pool is emptied.
"""

import ctypes
import struct
import threading
from collections import namedtuple
from types import SimpleNamespace

import cupy

from gensor_kernels.devices import graphs, tensor_maps
from gensor_kernels.programs.core import params

from .fake_cuda import LOWEST, FakeCudaDevice, FakeFunction, FakeModule, address
from .touching import Array, Library

UNIT = 512


class Damage(AssertionError):
    """A replay touched memory that is somebody else's by now, or nobody's."""


Use = namedtuple("Use", "first size serial")


class Held:
    """What CuPy's memory refers to while it is in use."""

    def __init__(self, heap, use):
        self.heap, self.use = heap, use

    def __del__(self):
        self.heap.uses.pop(self.use.first)
        self.heap.free.append(self.use)


class Heap:
    """A pool that gives what was freed last to whoever asks next, where it is large enough. It never calls a driver."""

    def __init__(self):
        self.uses, self.free, self.top, self.serial = {}, [], LOWEST, 0

    def __call__(self, nbytes):
        nbytes = max(-(-nbytes // UNIT) * UNIT, UNIT)
        fitting = [place for place, each in enumerate(self.free) if each.size >= nbytes]
        self.serial += 1
        if fitting:
            use = self.free.pop(fitting[-1])._replace(serial=self.serial)
        else:
            use = Use(self.top, nbytes, self.serial)
            self.top += nbytes
        self.uses[use.first] = use
        return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(use.first, use.size, Held(self, use), 0), 0)

    def whose(self, place):
        """The allocation that an address lies in; None where there is none."""
        return next((use for use in list(self.uses.values()) if use.first <= place < use.first + use.size), None)

    def in_use(self):
        """Bytes."""
        return sum(use.size for use in self.uses.values())

    def addresses(self, words):
        """Those of some 64-bit words that are addresses here."""
        return [word for word in words if LOWEST <= word < self.top]


class Graph:
    """What a stream recorded: (name, the allocations it touched). `retained` are user objects of the driver's."""

    def __init__(self, number):
        self.number, self.operations, self.retained = number, [], []

    def replay(self, heap):
        """Raises Damage where an operation touches what it was not captured with."""
        for name, uses in self.operations:
            for use in uses:
                now = heap.whose(use.first)
                if now != use:
                    raise Damage(f"{name} touches {use}, which is {'freed' if now is None else f'{now} now'}")

    def destroy(self):
        """As the driver: destructors run in a thread of its own, which has never heard of Python."""
        for pointer, destructor in self.retained:
            ctypes.CFUNCTYPE(None, ctypes.c_void_p)(destructor)(pointer)  # without the interpreter's lock
        self.retained.clear()


class Stream:
    """As much of CuPy's stream as is asked for."""

    following = 0x100

    def __init__(self):
        Stream.following += 16
        self.ptr, self.graph = Stream.following, None

    def is_capturing(self):
        return self.graph is not None

    def __enter__(self):
        self.before, _current.stream = current(), self
        return self

    def __exit__(self, *_):
        _current.stream = self.before


class _Current(threading.local):
    stream = None


_current, _legacy = _Current(), SimpleNamespace(ptr=0, graph=None, is_capturing=lambda: False)


def current():
    """The calling thread's current stream."""
    return _current.stream or _legacy


class Driver:
    """What graphs.py asks of the driver library. `lacks` names functions that it has not got; `refuses`, that fail."""

    def __init__(self):
        self.graphs, self.streams, self.objects, self.lacks, self.refuses = 0, {}, {}, (), ()

    def __call__(self, name):
        if name in self.lacks:
            raise AttributeError(name)
        return (lambda *_: 1) if name in self.refuses else getattr(self, name)

    def begin(self, stream):
        """Capture in the thread's own stream."""
        self.graphs += 1
        stream.graph = self.streams[stream.ptr] = Graph(self.graphs)

    def end(self, stream):
        made, stream.graph = stream.graph, None
        del self.streams[stream.ptr]
        return made

    def cuStreamGetCaptureInfo_v2(self, stream, status, number, graph, nodes, count):
        found = self.streams.get(stream.value)
        status._obj.value = int(found is not None)
        if found is not None:
            number._obj.value, graph._obj.value = 1000 + found.number, 0x900000 + stream.value
            if nodes is not None:
                last = (ctypes.c_void_p * 1)(len(found.operations))
                nodes._obj.contents, count._obj.value = ctypes.cast(last, type(nodes._obj)).contents, 1
                self.keep = last
        return 0

    def cuUserObjectCreate(self, made, pointer, destructor, references, flags):
        assert (references.value, flags.value) == (1, 1)
        made._obj.value = 0xA000 + len(self.objects)
        self.objects[made._obj.value] = pointer.value, destructor.value
        return 0

    def cuGraphRetainUserObject(self, graph, made, references, flags):
        assert (references.value, flags.value) == (1, 1)  # moved: the graph has the only reference
        self.streams[graph.value - 0x900000].retained.append(self.objects[made.value])
        return 0


class Machine:
    """One device, its heap and its driver, under the public functions."""

    def __init__(self, monkeypatch):
        self.heap, self.driver = Heap(), Driver()
        monkeypatch.setattr(graphs, "driver_function", self.driver)
        monkeypatch.setattr(cupy.cuda, "get_current_stream", current)
        monkeypatch.setattr(cupy.cuda.function, "Module", FakeModule)
        monkeypatch.setattr(FakeFunction, "__call__", lambda function, *arguments: self._launch(function, *arguments))
        monkeypatch.setattr(tensor_maps, "_driver_function", lambda name: lambda place, *rest: 0)
        monkeypatch.setattr(Array, "did", self.did)
        cupy.cuda.set_allocator(self.heap)
        self.device = self.opened()

    def opened(self):
        """A device that asks its stream whether it records, and whose array library computes nothing."""
        return FakeCudaDevice(xp=Library(cuda=Cuda(self)), capturing=None)

    def _launch(self, function, grid, block, arguments, shared=0):
        (argument,) = arguments
        packed = ctypes.string_at(address(argument), params.SIZE)
        self.did(function.name, self.heap.addresses(struct.unpack(f"<{params.SIZE // 8}Q", packed)))

    def did(self, name, places):
        """An operation of the current stream on memory at some addresses."""
        uses = [self.heap.whose(place) for place in places]
        assert None not in uses, f"{name} touches memory that nobody has"
        if current().graph is not None:
            current().graph.operations.append((name, uses))

    def captured(self, call, stream=None):
        """(what a call gave, the graph that it was recorded into)."""
        with stream or Stream() as own:
            self.driver.begin(own)
            try:
                result = call()
            finally:
                graph = self.driver.end(own)
        return result, graph


class Pointer:
    """A MemoryPointer whose memset is an operation."""

    def __init__(self, machine, memory):
        self.machine, self.memory, self.ptr = machine, memory, memory.ptr

    def memset_async(self, value, size):
        self.machine.did("memset", [self.ptr])


class Cuda:
    def __init__(self, machine):
        self.alloc = lambda nbytes: Pointer(machine, cupy.cuda.alloc(nbytes))

    def __getattr__(self, name):
        return getattr(cupy.cuda, name)
