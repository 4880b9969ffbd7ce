"""The driver library as ctypes loads it: functions of C over a System, each after its page of the CUDA Driver API.

The package calls those that CuPy does not offer; an unchanged CuPy calls the others (tests/driver_standin).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from gensor_kernels.devices.emulator.run import encode
from gensor_kernels.programs.core.tensor_maps import MAP_BYTES, Described, Pixels

from . import elf
from .launches import Function
from .results import NAMES as RESULTS
from .results import Status, UndefinedError

if TYPE_CHECKING:
    from .context import Context
    from .system import System

NAMES = ("libcuda.so.1", "nvcuda.dll")
INT, UINT, POINTER, SIZE = ctypes.c_int, ctypes.c_uint, ctypes.c_void_p, ctypes.c_size_t
#: Attributes of a launch (CUlaunchAttributeID): cooperative, programmatic stream serialization.
COOPERATIVE, SERIALIZATION = 2, 6
#: Bytes of an element by CUtensorMapDataType; 11 rounds float32 to TF32.
ELEMENTS, ROUNDED = {0: 1, 1: 2, 2: 4, 6: 2, 7: 4, 9: 2, 11: 4}, 11
HOPPER = (9, 0)


def library(system: System, lacks: tuple[str, ...] = ()) -> SimpleNamespace:
    """Return the driver library of a System; functions in `lacks` are missing, in `system.refuses` fail."""
    own = Library(system)
    made = {}
    for name, function, *types in (
        ("cuDriverGetVersion", own.version, POINTER),
        ("cuGetErrorName", own.error_name, INT, POINTER),
        ("cuGetErrorString", own.error_name, INT, POINTER),
        ("cuModuleLoadData", own.load, POINTER, POINTER),
        ("cuModuleUnload", own.unload, POINTER),
        ("cuModuleGetFunction", own.function, POINTER, POINTER, POINTER),
        ("cuFuncSetAttribute", own.attribute, POINTER, INT, INT),
        ("cuLaunchKernel", own.launch, POINTER, *[UINT] * 7, POINTER, POINTER, POINTER),
        ("cuLaunchKernelEx", own.launch_with_attributes, *[POINTER] * 4),
        ("cuStreamGetCaptureInfo_v2", own.capture, *[POINTER] * 6),
        ("cuUserObjectCreate", own.create, *[POINTER] * 3, UINT, UINT),
        ("cuGraphRetainUserObject", own.retain, POINTER, POINTER, UINT, UINT),
        ("cuThreadExchangeStreamCaptureMode", own.exchange, POINTER),
        ("cuTensorMapEncodeTiled", own.tiled, POINTER, INT, UINT, *[POINTER] * 5, *[INT] * 4),
        ("cuTensorMapEncodeIm2col", own.image, POINTER, INT, UINT, *[POINTER] * 5, UINT, UINT, POINTER, *[INT] * 4),
    ):
        if name not in lacks:
            made[name] = ctypes.CFUNCTYPE(INT, *types)(_status(system, name, function))
    return SimpleNamespace(**made)


def _status(system: System, name: str, function: Callable[..., int | None]) -> Callable[..., int]:
    def result(arguments: tuple[Any, ...]) -> int:
        if name in system.refuses:
            return system.refuses[name]
        try:
            return function(*arguments) or 0
        except Status as status:
            return status.number
        except UndefinedError as error:  # a callback of ctypes cannot raise
            system.undefined.append(str(error))
            return 719

    def called(*arguments: Any) -> int:
        number = result(arguments)
        system.called.append((name, number))
        return number

    return called


def _given(*places: int | None) -> None:
    if not all(places):
        raise Status(1, "a null pointer")


class Library:
    """The functions of the driver library."""

    def __init__(self, system: System):
        self.system = system
        self._texts = {number: ctypes.c_char_p(f"CUDA_ERROR_{name}".encode()) for number, name in RESULTS.items()}

    @property
    def context(self) -> Context:
        """The current device's context."""
        return self.system.context()

    def version(self, place: int) -> None:
        """cuDriverGetVersion."""
        INT.from_address(place).value = self.system.version

    def error_name(self, number: int, place: int) -> None:
        """cuGetErrorName, and cuGetErrorString."""
        if number not in self._texts:
            raise Status(1, f"error {number}")
        POINTER.from_address(place).value = ctypes.cast(self._texts[number], POINTER).value

    # ---- modules

    def load(self, place: int | None, image: int | None) -> None:
        """cuModuleLoadData."""
        _given(place, image)
        POINTER.from_address(place).value = self.context.load(elf.image_at(image)).handle

    def unload(self, handle: int | None) -> None:
        """cuModuleUnload: its kernels are gone."""
        self.context.module(handle or 0).loaded = False

    def function(self, place: int | None, handle: int | None, name: int | None) -> None:
        """cuModuleGetFunction."""
        module = self.context.module(handle or 0)
        _given(place, name)
        POINTER.from_address(place).value = self.context.function(module, ctypes.string_at(name).decode()).handle

    def attribute(self, handle: int | None, attribute: int, value: int) -> None:
        """cuFuncSetAttribute."""
        self.context.allow(handle or 0, attribute, value)

    # ---- launches

    def launch(self, handle: int | None, *numbers: int | None) -> None:
        """cuLaunchKernel."""
        grid, block, (shared, stream, arguments, extra) = numbers[:3], numbers[3:6], numbers[6:]
        function = self.context.found(handle or 0)
        self.system.launch(function, grid, block, shared, stream or 0, _pointers(function, arguments, extra))

    def launch_with_attributes(self, config: int, handle: int | None, arguments: int | None, extra: int | None) -> None:
        """cuLaunchKernelEx: the attributes of programmatic serialization and of cooperation."""
        grid, block = (tuple((UINT * 3).from_address(config + offset)) for offset in (0, 12))
        stream, attributes = (POINTER.from_address(config + offset).value or 0 for offset in (32, 40))
        chosen, count = {}, UINT.from_address(config + 48).value
        if count:
            _given(attributes)
        for index in range(count):
            at = attributes + 72 * index
            chosen[INT.from_address(at).value] = INT.from_address(at + 8).value
        if not set(chosen) <= {COOPERATIVE, SERIALIZATION} or not set(chosen.values()) <= {0, 1}:
            raise Status(1, f"attributes {chosen}")
        if SERIALIZATION in chosen and self.context.part.capability < HOPPER:
            raise Status(801, "dependent launches begin with Hopper")
        function = self.context.found(handle or 0)
        self.system.launch(
            function,
            grid,
            block,
            UINT.from_address(config + 24).value,
            stream,
            _pointers(function, arguments, extra),
            dependent=bool(chosen.get(SERIALIZATION)),
            cooperative=bool(chosen.get(COOPERATIVE)),
        )

    # ---- captures

    def capture(self, stream: int, status: int, number: int, graph: int, nodes: int, count: int) -> None:
        """cuStreamGetCaptureInfo_v2: only the status, unless the stream is captured."""
        found = self.context.stream(stream or 0)
        INT.from_address(status).value = self.context.capturing(found)
        if found.capture is None:
            return
        for place, kind, value in (
            (number, ctypes.c_uint64, 1000 + found.capture.graph.number),
            (graph, ctypes.c_void_p, found.capture.graph.handle),
        ):
            if place:
                kind.from_address(place).value = value
        tip = sorted(found.capture.tip(found))
        found.capture.nodes = (POINTER * max(len(tip), 1))(*tip)  # the driver's memory, until the next call
        if nodes:
            POINTER.from_address(nodes).value = ctypes.addressof(found.capture.nodes)
        if count:
            SIZE.from_address(count).value = len(tip)

    def create(self, made: int, pointer: int, destructor: int, references: int, flags: int) -> None:
        """cuUserObjectCreate: its only flag, by which no call waits for the destructor, is compulsory."""
        if (references, flags) != (1, 1):
            raise Status(1, f"{references} references, flags {flags}")
        handle = self.context.handle()
        self.context.objects[handle] = pointer, destructor
        POINTER.from_address(made).value = handle

    def retain(self, graph: int, made: int, references: int, flags: int) -> None:
        """cuGraphRetainUserObject, by which the graph takes the caller's reference (flag 1)."""
        found = [each.graph for each in self.context.captures if each.graph.handle == graph]
        if not found or (references, flags) != (1, 1):
            raise Status(1, f"graph {graph:#x}, {references} references, flags {flags}")
        found[0].retained.append(self.context.objects.pop(made))

    def exchange(self, place: int) -> None:
        """cuThreadExchangeStreamCaptureMode."""
        modes = self.context.modes
        wanted = INT.from_address(place)
        if wanted.value not in range(3):
            raise Status(1, f"capture mode {wanted.value}")
        wanted.value, modes.mode = getattr(modes, "mode", 0), wanted.value

    # ---- tensor maps: the driver does not document their 128 bytes, which are in the emulator's format here

    def tiled(self, place, kind, rank, address, extents, strides, box, steps, *modes) -> None:
        """cuTensorMapEncodeTiled."""
        box, steps = (list((UINT * min(rank, 5)).from_address(at)) for at in (box, steps))
        if any(not 1 <= each <= 256 for each in box) or any(each != 1 for each in steps):
            raise Status(1, f"a box of {box} by steps of {steps}")
        self._encode(place, kind, rank, address, extents, strides, tuple(box), None, modes)

    def image(
        self, place, kind, rank, address, extents, strides, lower, upper, channels, pixels, steps, *modes
    ) -> None:
        """cuTensorMapEncodeIm2col: of an image of three to five axes."""
        if not 3 <= rank <= 5 or not 1 <= channels <= 256 or not 1 <= pixels <= 1024:
            raise Status(1, f"{channels} channels of {pixels} pixels in {rank} axes")
        corners = [tuple((INT * (rank - 2)).from_address(at)) for at in (lower, upper)]
        steps = list((UINT * rank).from_address(steps))
        if steps[0] != 1 or steps[-1] != 1 or any(not 1 <= each <= 8 for each in steps):
            raise Status(1, f"steps of {steps}")
        least = -(1 << 16 // (rank - 2) - 1)
        if any(not least <= each < -least for corner in corners for each in corner):
            raise Status(1, f"corners {corners}")
        window = Pixels(*corners, tuple(steps[1:-1]))
        self._encode(place, kind, rank, address, extents, strides, (channels, pixels), window, modes)

    def _encode(self, place, kind, rank, address, extents, strides, box, pixels, modes) -> None:
        if self.context.part.capability < HOPPER:
            raise Status(801, "tensor maps begin with Hopper")
        interleave, swizzle, promotion, fill = modes
        if not place or place % 64 or kind not in ELEMENTS or not 1 <= rank <= 5:
            raise Status(1, f"kind {kind}, rank {rank}, at {place}")
        if (interleave, swizzle, fill) != (0, 3, 0) or promotion not in range(4):  # the driver has more modes
            raise Status(1, f"modes {modes}")
        extents = tuple((ctypes.c_uint64 * rank).from_address(extents))
        strides = tuple((ctypes.c_uint64 * (rank - 1)).from_address(strides))
        rows_fit = (box[0] * ELEMENTS[kind]) % 16 == 0 and box[0] * ELEMENTS[kind] <= 128
        address = address or 0  # CUTLASS makes maps of null pointers, which no kernel reads through
        if address % 16 or any(not 1 <= each <= 1 << 32 for each in extents) or not rows_fit:
            raise Status(1, f"address {address:#x}, extents {extents}, rows of {box[0]}")
        if any(each % 16 or not 0 < each < 1 << 40 for each in strides):
            raise Status(1, f"strides {strides}")
        wanted = Described(address, extents, strides, box, ELEMENTS[kind], kind == ROUNDED, pixels)
        ctypes.memmove(place, encode(wanted), MAP_BYTES)


def _pointers(function: Function, arguments: int | None, extra: int | None) -> list[int]:
    """Return the addresses of a launch's parameters, as many as the kernel has."""
    count = len(function.entry.parameters)
    pointers = list((POINTER * count).from_address(arguments)) if arguments else []
    if extra or len(pointers) < count or not all(pointers):
        raise Status(1, f"{function.name} takes {count} parameters, none of which is null")
    return pointers
