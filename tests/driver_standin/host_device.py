"""A CudaDevice whose memory is the host's: CuPy loads and launches, and the emulator executes what the driver got."""

import struct
import weakref
from dataclasses import replace
from operator import attrgetter
from typing import Any

import numpy as np

from gensor_kernels.devices import cuda
from gensor_kernels.devices.cuda import import_cupy
from gensor_kernels.devices.emulator.build import build
from gensor_kernels.devices.emulator.run import SMS, Buffer, KernelFault, encode, run
from gensor_kernels.machine.arch import lookup
from gensor_kernels.programs.core.params import SIZE
from gensor_kernels.programs.core.tensor_maps import MAP_BYTES, MAPS_OFFSET, Described, Pixels, described

from .library import Calls, become

#: EncodedMap of tensor_maps.h
_MAP = struct.Struct("<I6B5Bx3h3h4xQ5Q4Q5H6x")
_IM2COL = 0x4F434D49
#: by CUtensorMapDataType: bytes of an element, and whether copies round it to TF32
_ELEMENTS = {0: (1, False), 1: (2, False), 2: (4, False), 11: (4, True)}
#: no interleaving, a swizzle of 128 bytes, fetches of 256 bytes into the L2, zeros outside
_MODES = [0, 3, 3, 0]
ALIGNMENT = 512  # of CuPy's allocator


class PassedError(AssertionError):
    """What the driver was passed is not what the package packed."""


class Memory:
    """The part of an array library that the verifier needs, over host memory."""

    uint8 = np.uint8
    asarray = staticmethod(np.asarray)

    def __init__(self) -> None:
        self._arrays: list[weakref.ref[np.ndarray]] = []

    def full(self, size: int, value: int, dtype: Any) -> np.ndarray:
        """Return a new array, aligned as CuPy's allocator aligns."""
        raw = np.full(size * np.dtype(dtype).itemsize + ALIGNMENT, 0, np.uint8)
        array = raw[-raw.ctypes.data % ALIGNMENT :][: size * np.dtype(dtype).itemsize].view(dtype)
        array[...] = value
        self._arrays.append(weakref.ref(array))
        return array

    def buffers(self) -> list[Buffer]:
        """Return all memory that is alive."""
        alive = [array for each in self._arrays if (array := each()) is not None]
        return [Buffer(each.ctypes.data, each.nbytes, True, each.ctypes.data) for each in alive if each.nbytes]


class HostDevice(cuda.CudaDevice):
    """`synchronize` executes the launches that reached the driver since it was called last.

    `taken` counts the calls of each function of the driver. The part has as many multiprocessors as the
    emulator, so that blocks walk tiles.
    """

    def __init__(self, part: str, calls: Calls):
        self.cupy, self.xp = import_cupy(), Memory()
        self.arch, self.unsupported, self.number = replace(lookup(part), sms=SMS), "", 0
        become(self.arch)
        self._prepare(several=False)
        self.pointer = attrgetter("ctypes.data")
        self.faults = (*self.faults, KernelFault)
        self.taken: dict[str, int] = {}
        self._calls, self._packed = calls, b""
        calls.take()  # of earlier devices, and their modules, which are unloaded late

    def host(self, array: np.ndarray) -> np.ndarray:
        """Return a copy."""
        return array.copy()

    def load(self, code, launches):
        """Return a launcher that also keeps what it was called with, for `synchronize` to compare."""
        self._library, self._launches = build(code.source), launches
        launch = super().load(code, launches)

        def kept(arguments, arrays, steps, workspace):
            self._packed = bytes(arguments[0])
            launch(arguments, arrays, steps, workspace)

        return kept

    def synchronize(self) -> None:
        """Compare and execute; PassedError where a byte differs."""
        made = self._calls.take()
        for each in made:
            self.taken[each["call"]] = self.taken.get(each["call"], 0) + 1
        made = [each for each in made if "grid" in each and not each["result"]]
        if not made and not self._packed:
            return
        if [each["entry"] for each in made] != [each.entry for each in self._launches]:
            raise PassedError(f"launched: {[each['entry'] for each in made]}")
        for asked, launch in zip(made, self._launches, strict=True):
            passed = bytes.fromhex(asked["passed"])
            self._compare(asked, launch, passed)
            grid = asked["grid"][0]
            # Blocks, threads, bytes and attributes are as they reached the driver.
            as_passed = replace(
                launch, grid=grid, block=asked["block"][0], shared_bytes=asked["shared"], maps=(), per_sm=0,
                together=False, dependent=asked.get("attributes") == [6, 1],
            )  # fmt: skip
            resident = grid if launch.together else 1
            run(self._library, [as_passed], translated(passed), self.xp.buffers(), resident=resident)
        self._packed = b""

    def _compare(self, asked, launch, passed):
        dependent = "dependent_launch" in self.arch.features and launch.dependent
        wanted = ([launch.blocks(self.arch.sms), 1, 1], [launch.block, 1, 1], launch.shared_bytes, dependent)
        found = (asked["grid"], asked["block"], asked["shared"], asked.get("attributes") == [6, 1])
        if found != wanted:
            raise PassedError(f"{launch.entry} was launched as {found}, not {wanted}")
        size = MAPS_OFFSET + MAP_BYTES * len(launch.maps) if launch.maps else SIZE
        if len(passed) != size or passed[:SIZE] != self._packed:
            raise PassedError(f"{launch.entry} got other bytes than Params")
        maps = [_whole(described(self._packed, each)) for each in launch.maps]
        if launch.maps and maps_of(passed) != maps:
            raise PassedError(f"{launch.entry} got other tensor maps than {maps}")


def maps_of(passed: bytes) -> list[Described]:
    """Return the tensor maps behind Params, read from the stand-in's format."""
    return [_described(passed[at : at + MAP_BYTES]) for at in range(MAPS_OFFSET, len(passed), MAP_BYTES)]


def _whole(wanted: Described) -> Described:
    """Return a map with its box along all axes, as the driver is passed it; an image's box is channels and pixels."""
    missing = 0 if wanted.pixels else len(wanted.extents) - len(wanted.box)
    return replace(wanted, box=(*wanted.box, *(1 for _ in range(missing))))


def translated(passed: bytes) -> bytes:
    """Return a block of parameters with its tensor maps in the emulator's format."""
    if len(passed) == SIZE:
        return passed
    return passed[:MAPS_OFFSET] + b"".join(encode(each) for each in maps_of(passed))


def _described(encoded: bytes) -> Described:
    mark, kind, rank, *numbers = _MAP.unpack(encoded)
    modes, steps, lower, upper = numbers[:4], numbers[4 : 4 + rank], numbers[9:12], numbers[12:15]
    address, extents, strides = numbers[15], numbers[16 : 16 + rank], numbers[21 : 20 + rank]
    box, pixels = numbers[25 : 25 + rank], None
    if mark == _IM2COL:
        spatial = rank - 2
        pixels = Pixels(tuple(lower[:spatial]), tuple(upper[:spatial]), tuple(steps[1:-1]))
        steps, box = [steps[0], steps[-1]], box[:2]  # of channels and pixels
    if modes != _MODES or kind not in _ELEMENTS or any(each != 1 for each in steps):
        raise PassedError(f"a tensor map of type {kind} with modes {modes}, steps {steps}, box {box}")
    return Described(address, tuple(extents), tuple(strides), tuple(box), *_ELEMENTS[kind], pixels)
