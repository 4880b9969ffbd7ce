"""The driver library as ctypes loads it: functions of C over a System, for the calls that CuPy does not offer."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from gensor_kernels.devices.emulator.run import encode
from gensor_kernels.programs.core.tensor_maps import MAP_BYTES, Described, Pixels

from .results import Status, UndefinedError

if TYPE_CHECKING:
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
        ("cuLaunchKernelEx", own.launch, *[POINTER] * 4),
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
    def called(*arguments: Any) -> int:
        if name in system.refuses:
            return system.refuses[name]
        try:
            return function(*arguments) or 0
        except Status as status:
            return status.number
        except UndefinedError as error:  # a callback of ctypes cannot raise
            system.undefined.append(str(error))
            return 719

    return called


class Library:
    """The functions, each after its page of the CUDA Driver API."""

    def __init__(self, system: System):
        self.system = system

    def version(self, place: int) -> None:
        """cuDriverGetVersion."""
        INT.from_address(place).value = self.system.version

    def launch(self, config: int, handle: int, arguments: int, extra: int) -> None:
        """cuLaunchKernelEx: the attributes of programmatic serialization and of cooperation."""
        grid, block = (tuple((UINT * 3).from_address(config + offset)) for offset in (0, 12))
        stream = POINTER.from_address(config + 32).value or 0
        attributes = POINTER.from_address(config + 40).value or 0
        given = {}
        for index in range(UINT.from_address(config + 48).value):
            at = attributes + 72 * index
            given[INT.from_address(at).value] = INT.from_address(at + 8).value
        if extra or not set(given) <= {COOPERATIVE, SERIALIZATION}:
            raise Status(1, f"attributes {given}")
        context = self.system.context()
        if SERIALIZATION in given and context.part.capability < HOPPER:
            raise Status(801, "dependent launches begin with Hopper")
        pointers = (POINTER * 1).from_address(arguments)
        self.system.launch(
            context.found(handle),
            grid,
            block,
            UINT.from_address(config + 24).value,
            stream,
            pointers,
            dependent=bool(given.get(SERIALIZATION)),
            cooperative=bool(given.get(COOPERATIVE)),
        )

    def capture(self, stream: int, status: int, number: int, graph: int, nodes: int, count: int) -> None:
        """cuStreamGetCaptureInfo_v2: of a stream that is not captured, only its status is told."""
        context = self.system.context()
        found = context.stream(stream or 0)
        INT.from_address(status).value = context.capturing(found)
        if found.capture is None:
            return
        for place, kind, value in (
            (number, ctypes.c_uint64, 1000 + found.capture.graph.number),
            (graph, ctypes.c_void_p, found.capture.graph.handle),
        ):
            if place:
                kind.from_address(place).value = value
        tip = sorted(found.capture.tip(found))
        found.capture.told = (POINTER * max(len(tip), 1))(*tip)  # the driver's own, until the next call
        if nodes:
            POINTER.from_address(nodes).value = ctypes.addressof(found.capture.told)
        if count:
            SIZE.from_address(count).value = len(tip)

    def create(self, made: int, pointer: int, destructor: int, references: int, flags: int) -> None:
        """cuUserObjectCreate: the only flag says that nobody waits for the destructor, and has to be given."""
        if (references, flags) != (1, 1):
            raise Status(1, f"{references} references, flags {flags}")
        context = self.system.context()
        handle = context.handle()
        context.objects[handle] = pointer, destructor
        POINTER.from_address(made).value = handle

    def retain(self, graph: int, made: int, references: int, flags: int) -> None:
        """cuGraphRetainUserObject, by which the graph takes the caller's reference (flag 1)."""
        context = self.system.context()
        found = [each.graph for each in context.captures if each.graph.handle == graph]
        if not found or (references, flags) != (1, 1):
            raise Status(1, f"graph {graph:#x}, {references} references, flags {flags}")
        found[0].retained.append(context.objects.pop(made))

    def exchange(self, place: int) -> None:
        """cuThreadExchangeStreamCaptureMode."""
        modes = self.system.context().modes
        wanted = INT.from_address(place)
        if wanted.value not in range(3):
            raise Status(1, f"capture mode {wanted.value}")
        wanted.value, modes.mode = getattr(modes, "mode", 0), wanted.value

    # ---- tensor maps, which the emulator reads: their 128 bytes are the driver's own affair

    def tiled(self, place, kind, rank, address, extents, strides, box, steps, *modes) -> None:
        """cuTensorMapEncodeTiled."""
        box, steps = (list((UINT * rank).from_address(at)) for at in (box, steps))
        if any(not 1 <= each <= 256 for each in box) or any(each != 1 for each in steps):
            raise Status(1, f"a box of {box} by steps of {steps}")
        self._encode(place, kind, rank, address, extents, strides, tuple(box[:2]), None, modes)

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
        if self.system.context().part.capability < HOPPER:
            raise Status(801, "tensor maps begin with Hopper")
        if place % 64 or kind not in ELEMENTS or not 1 <= rank <= 5 or modes[:2] != (0, 3) or modes[3] != 0:
            raise Status(1, f"kind {kind}, rank {rank}, modes {modes}, at {place:#x}")
        extents = tuple((ctypes.c_uint64 * rank).from_address(extents))
        strides = tuple((ctypes.c_uint64 * (rank - 1)).from_address(strides))
        rows_fit = (box[0] * ELEMENTS[kind]) % 16 == 0 and box[0] * ELEMENTS[kind] <= 128
        if address % 16 or any(not 1 <= each <= 1 << 32 for each in extents) or not rows_fit:
            raise Status(1, f"address {address:#x}, extents {extents}, rows of {box[0]}")
        if any(each % 16 or each >= 1 << 40 for each in strides):
            raise Status(1, f"strides {strides}")
        wanted = Described(address, extents, strides, box, ELEMENTS[kind], kind == ROUNDED, pixels)
        ctypes.memmove(place, encode(wanted), MAP_BYTES)
