"""Graph capture without a GPU: streams that record, memory that is reused at once, and whose it is at a replay.

Arrays are real `cupy.ndarray`s over addresses of nothing. What CuPy would launch for them is an operation that touches
their addresses, as a launch of ours touches those in its Params. A replay touches them again: memory that was freed
since belongs to whoever asked next, and to nobody once the pool is emptied.
"""

import ctypes
import struct
import threading
from collections import namedtuple
from dataclasses import replace
from types import SimpleNamespace

import cupy
import numpy as np

import gensor_kernels as gk
from gensor_kernels.devices import graphs, tensor_maps
from gensor_kernels.dispatch.selection import library
from gensor_kernels.dispatch.selection.predict import predict
from gensor_kernels.programs.core import params
from gensor_kernels.programs.registry import FAMILIES
from gensor_kernels.programs.space import Space

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


# ---- Calls of the public functions, to be captured, and kernels for whatever they ask for


class Stock(library.Library):
    """A kernel for every Workload: one that splits k or streams, if `wanted` says so, else one that needs least."""

    def __init__(self, arch, wanted):
        super().__init__(library.Contents())
        self.arch, self.wanted, self.made = arch, wanted, {}

    def record(self, workload):
        key = workload.key()
        if key not in self.made:
            self.made[key] = self._drawn(workload)
        return self.made[key]

    def _programs(self, workload):
        for each in Space(workload, self.arch).families:
            for program in each.family.starters(workload, self.arch):
                own = dict(program.values)
                yield from (program.replace(**{self.wanted: 4}) for _ in [0] if self.wanted in own)
                yield program

    def _drawn(self, workload):
        programs = dict.fromkeys(self._programs(workload))
        found = [library.generate(program, workload, self.arch) for program in programs]
        legal = [k for k, s in zip(found, predict(found, workload, self.arch), strict=True) if s != float("inf")]
        legal = [kernel for kernel in legal if kernel.fits_epilogue(workload)]

        def need(kernel):
            wants = dict(kernel.program.values).get(self.wanted, 0) > 1
            return wants, FAMILIES[kernel.program.family].workspace(kernel.program, workload)[0]

        best = (max if self.wanted else min)(legal, key=need)
        code = replace(best.code, cubin=b"\x7fELF")
        return library.Kernel(best.digest, best.program, workload, lambda: code)


def half(*shape):
    return Array(shape, np.float16)


def single(*shape):
    return Array(shape, np.float32)


class Numba:
    """An array of another library."""

    def __init__(self, array):
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "strides": array.strides,
            "typestr": array.dtype.str,
            "data": (array.data.ptr, False),
            "version": 2,
        }
        self.array = array


def matmul_over(wide):
    """A product into memory that it reads."""
    a, out, b = wide[:128], wide[64:192], half(128, 128)
    return lambda: gk.matmul(a, b, out=out)


def image():
    return half(2, 32, 14, 14)


def attention(queries, keys, *mask):
    q, k, v = half(1, 2, queries, 64), half(1, 2, keys, 64), half(1, 2, keys, 64)
    return lambda: gk.attention(q, k, v, *mask)


def of(function, *arrays, **keywords):
    return lambda: function(*arrays, **keywords)


#: Name -> a function that makes the call's arrays and gives the call.
CALLS = {
    "matmul": lambda: of(gk.matmul, half(64, 1024), half(1024, 64)),
    "float32": lambda: of(gk.matmul, single(128, 256), single(256, 128)),
    "out": lambda: of(gk.matmul, half(64, 1024), half(1024, 64), out=half(64, 64)),
    "one row": lambda: of(gk.matmul, half(1, 1024), half(1024, 256)),
    "integers": lambda: of(gk.matmul, Array((128, 128), np.int8), Array((128, 128), np.int8), dtype="int32"),
    "converted": lambda: of(gk.matmul, single(128, 256), half(256, 128)),
    "wider out": lambda: of(gk.matmul, half(128, 256), half(256, 128), out=Array((128, 128), np.float64)),
    "overlap": lambda: matmul_over(half(256, 128)),
    "unaligned": lambda: of(gk.matmul, half(128 * 256 + 1)[1:].reshape(128, 256), half(256, 128)),
    "bias and gelu": lambda: of(gk.matmul, half(64, 1024), half(1024, 64), bias=half(64), activation="gelu"),
    "double bias": lambda: of(gk.matmul, half(64, 256), half(256, 64), bias=Array((64,), np.float64)),
    "long epilogue": lambda: of(gk.matmul, half(64, 256), half(256, 64), epilogue=["relu", "tanh"] * 4),
    "gate": lambda: of(gk.matmul, half(128, 256), half(256, 256), activation="swiglu"),
    "norm": lambda: of(gk.matmul, half(128, 256), half(256, 128), epilogue=["rmsnorm"]),
    "prologue": lambda: of(gk.matmul, half(128, 256), half(256, 128), prologue=["gelu"]),
    "matrix in front": lambda: of(gk.matmul, half(64, 256), half(256, 64), prologue=[("bias", half(64, 256))]),
    "double in front": lambda: of(
        gk.matmul, half(64, 256), half(256, 64), prologue=[("mul", Array((256,), np.float64))]
    ),
    "another library's": lambda: of(gk.matmul, Numba(half(64, 1024)), Numba(half(1024, 64))),
    "linear": lambda: of(gk.linear, half(128, 256), half(512, 256), half(512), "relu"),
    "quantised": lambda: of(gk.linear, half(128, 256), Array((512, 256), np.int8), scales=half(512)),
    "grouped": lambda: of(gk.grouped_matmul, half(128, 256), half(4, 256, 128), sizes=Array((4,), np.int32)),
    "einsum": lambda: of(gk.einsum, "ij,jk->ki", half(128, 256), half(256, 128)),
    "einsum of three": lambda: of(gk.einsum, "ij,jk,kl->il", half(64, 256), half(256, 128), half(128, 64)),
    "summed first": lambda: of(gk.einsum, "ijx,jk->ik", half(128, 256, 8), half(256, 128)),
    "too many axes": lambda: of(
        gk.einsum, "abcdefx,fedcbay->xy", half(4, 4, 4, 4, 4, 4, 16), half(4, 4, 4, 4, 4, 4, 16)
    ),
    "einsum prologue": lambda: of(gk.einsum, "ij,jk->ik", half(128, 256), half(256, 128), prologue=["relu"]),
    "tensordot": lambda: of(gk.tensordot, half(128, 256), half(256, 128), 1),
    "dot": lambda: of(gk.dot, half(128, 256), half(256, 128)),
    "inner": lambda: of(gk.inner, half(128, 256), half(64, 256)),
    "vdot": lambda: of(gk.vdot, half(128, 256), half(128, 256)),
    "define": lambda: of(gk.define("ij,jk->ik", epilogue=["relu"]), half(128, 256), half(256, 128)),
    "conv2d": lambda: of(gk.conv2d, image(), half(32, 32, 3, 3), padding=1),
    "conv2d float32": lambda: of(gk.conv2d, single(2, 32, 14, 14), single(32, 32, 3, 3), padding=1),
    "conv2d NHWC": lambda: of(gk.conv2d, half(2, 14, 14, 32), half(32, 3, 3, 32), half(32), layout="NHWC"),
    "conv2d 1x1": lambda: of(gk.conv2d, image(), half(32, 32, 1, 1)),
    "conv2d prologue": lambda: of(gk.conv2d, image(), half(32, 32, 3, 3), prologue=["relu"]),
    "depthwise": lambda: of(gk.conv2d, image(), half(32, 1, 3, 3), groups=32),
    "conv1d": lambda: of(gk.conv1d, half(2, 32, 100), half(32, 32, 3), padding=1),
    "transposed": lambda: of(gk.conv_transpose2d, image(), half(32, 32, 3, 3), stride=2),
    "max_pool2d": lambda: of(gk.max_pool2d, image(), 2),
    "global_avg_pool2d": lambda: of(gk.global_avg_pool2d, image()),
    "sum": lambda: of(gk.sum, single(64, 4096), axis=1),
    "whole sum": lambda: of(gk.sum, single(64, 4096)),
    "var": lambda: of(gk.var, single(64, 4096), axis=0),
    "logsumexp": lambda: of(gk.logsumexp, single(64, 4096), axis=1),
    "softmax": lambda: of(gk.softmax, single(64, 4096)),
    "softmax of columns": lambda: of(gk.softmax, single(64, 4096), axis=0),
    "rms_norm": lambda: of(gk.rms_norm, single(64, 4096), (4096,), weight=single(4096)),
    "attention": lambda: attention(128, 128),
    "attention split": lambda: attention(1, 4096),
    "attention mask": lambda: attention(128, 128, half(1, 2, 128, 128)),
    "prepack": lambda: of(gk.prepack, half(257, 129)),
}
#: What the double has not got of CuPy: calls the library alone cannot serve over it.
UNSERVED = {"quantised", "grouped", "conv2d", "conv2d float32", "conv2d NHWC", "conv2d 1x1", "conv2d prologue"}
UNSERVED |= {"depthwise", "conv1d", "transposed", "attention", "attention split", "attention mask", "define"}
