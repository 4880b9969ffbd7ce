"""The driver library as ctypes loads it: functions of C over a System, each after its page of the CUDA Driver API.

The package calls those that CuPy does not offer; an unchanged CuPy calls the others (tests/driver_standin).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from gensor_kernels.devices.emulator.run import encode
from gensor_kernels.families.core.tensor_maps import MAP_BYTES, Described, Pixels

from . import elf, tensor_maps
from .launches import Function
from .results import NAMES as RESULTS
from .results import Status, UndefinedError

if TYPE_CHECKING:
    from .context import Context
    from .system import System

NAMES = ("libcuda.so.1", "nvcuda.dll")
INT, UINT, POINTER, SIZE = ctypes.c_int, ctypes.c_uint, ctypes.c_void_p, ctypes.c_size_t
#: The attributes of a launch (CUlaunchAttributeID) that the package sets: cooperative, programmatic stream
#: serialization.
COOPERATIVE, SERIALIZATION = 2, 6
#: The CUtensorMapDataType that is rounded to TF32, and the modes of the emulator: interleaving, swizzle, filling.
TFLOAT32, SWIZZLE_128 = 11, (0, 3, 0)
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
        ("cuTensorMapEncodeTiled", own.tiled, *tensor_maps.TILED_TYPES),
        ("cuTensorMapEncodeIm2col", own.image, *tensor_maps.IM2COL_TYPES),
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
    def __init__(self, system: System):
        self.system = system
        self._texts = {number: ctypes.c_char_p(f"CUDA_ERROR_{name}".encode()) for number, name in RESULTS.items()}

    @property
    def context(self) -> Context:
        return self.system.context()

    def version(self, place: int) -> None:
        INT.from_address(place).value = self.system.version

    def error_name(self, number: int, place: int) -> None:
        if number not in self._texts:
            raise Status(1, f"error {number}")
        POINTER.from_address(place).value = ctypes.cast(self._texts[number], POINTER).value

    def load(self, place: int | None, image: int | None) -> None:
        _given(place, image)
        POINTER.from_address(place).value = self.context.load(elf.image_at(image)).handle

    def unload(self, handle: int | None) -> None:
        self.context.module(handle or 0).loaded = False

    def function(self, place: int | None, handle: int | None, name: int | None) -> None:
        module = self.context.module(handle or 0)
        _given(place, name)
        POINTER.from_address(place).value = self.context.function(module, ctypes.string_at(name).decode()).handle

    def attribute(self, handle: int | None, attribute: int, value: int) -> None:
        self.context.allow(handle or 0, attribute, value)

    def launch(self, handle: int | None, *numbers: int | None) -> None:
        grid, block, (shared, stream, arguments, extra) = numbers[:3], numbers[3:6], numbers[6:]
        function = self.context.found(handle or 0)
        self.system.launch(function, grid, block, shared, stream or 0, _pointers(function, arguments, extra))

    def launch_with_attributes(self, config: int, handle: int | None, arguments: int | None, extra: int | None) -> None:
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
            together=bool(chosen.get(COOPERATIVE)),
        )

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
        modes = self.context.modes
        wanted = INT.from_address(place)
        if wanted.value not in range(3):
            raise Status(1, f"capture mode {wanted.value}")
        wanted.value, modes.mode = getattr(modes, "mode", 0), wanted.value

    def tiled(self, place: int | None, *arguments: Any) -> None:
        self._encode(tensor_maps.tiled, place, arguments)

    def image(self, place: int | None, *arguments: Any) -> None:
        self._encode(tensor_maps.im2col, place, arguments)

    def _encode(self, encoder: Callable[..., bytes], place: int | None, arguments: tuple[Any, ...]) -> None:
        """Write a map in the emulator's format, which lacks some modes: the driver does not document its 128 bytes."""
        if self.context.part.capability < HOPPER:
            raise Status(801, "tensor maps begin with Hopper")
        kind, rank, address, *others = arguments
        try:  # CUTLASS makes maps of null pointers, which no kernel reads through
            found = tensor_maps.fields(encoder(place or 0, kind, rank, address or 0, *others))
        except tensor_maps.RefusedError as rule:
            raise Status(1, str(rule)) from rule
        steps, corners, box, pixels = found["steps"], found["corners"], found["box"], None
        if corners:
            pixels, box, steps = Pixels(*corners, steps[1:-1]), box[:2], (steps[0], steps[-1])
        if found["modes"] != SWIZZLE_128 or {*steps} != {1}:
            raise Status(1, f"modes {found['modes']}, steps {steps}")
        sizes = found["address"], found["extents"], found["strides"], box
        ctypes.memmove(place, encode(Described(*sizes, found["element"], kind == TFLOAT32, pixels)), MAP_BYTES)


def _pointers(function: Function, arguments: int | None, extra: int | None) -> list[int]:
    count = len(function.entry.parameters)
    pointers = list((POINTER * count).from_address(arguments)) if arguments else []
    if extra or len(pointers) < count or not all(pointers):
        raise Status(1, f"{function.name} takes {count} parameters, none of which is null")
    return pointers
