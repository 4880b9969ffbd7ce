"""CuPy's memory over a System: its pool, and operations on memory (cupy/cuda/memory.pyx of CuPy 13.3 to 14.2)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import cupy

from .launches import Fault
from .memory import UNIT, Arena, Block
from .results import Status
from .stream_objects import OF_RUNTIME, Stream, current_stream
from .system import System


class _Held:
    """What CuPy's memory refers to while it is in use."""

    def __init__(self, arena: Arena, block: Block):
        self._given = arena, block

    def __del__(self) -> None:
        arena, block = self._given
        arena.ended.append((arena, block))  # from wherever Python drops it: without a lock


class Pool:
    """CuPy's memory pool at its worst: memory that is freed goes to the next call of its stream at once.

    A pool has an arena for each stream, and memory goes back to the arena that it came from.
    """

    def __init__(self, system: System, pointer: Any):
        self.system, self._pointer = system, pointer
        self._arenas: dict[tuple[int, Any], Arena] = {}

    def __call__(self, nbytes: int) -> Any:
        number, context = self.system.current.number, self.system.context()
        with context.lock, OF_RUNTIME():
            context.reap()
            stream = context.stream(current_stream(self.system).ptr)
            arena = self._arenas.get((number, stream))
            if arena is None or arena.memory is not context.memory:
                arena = self._arenas[number, stream] = Arena(context.memory, stream, context.ended)
            size = max(-(-nbytes // UNIT), 1) * UNIT
            place = arena.take(size)
            block = context.use_again(stream, *place) if place else self._malloc(context, size)
            return self._pointer(cupy.cuda.UnownedMemory(block.first, block.size, _Held(arena, block), number), 0)

    def _malloc(self, context: Any, size: int) -> Block:
        try:
            return context.malloc(size)
        except Status as status:
            if status.number != 2:
                raise
            self.free_all_blocks()
            return context.malloc(size)

    def free_all_blocks(self) -> None:
        with OF_RUNTIME():
            for (number, _), arena in self._arenas.items():
                context = self.system.context(number)
                with context.lock:
                    context.reap()
                    while arena.free:
                        context.free(*arena.free.pop())

    def free_bytes(self) -> int:
        return sum(size for arena in self._arenas.values() for _, size in arena.free)

    def get_limit(self) -> int:
        return 0

    def everything(self) -> list[Any]:
        """Allocate all free memory, as calls of others may at any time."""
        taken = []
        for (number, stream), arena in self._arenas.items():
            context = self.system.context(number)
            with context.lock:
                context.reap()
                while arena.free:
                    block = context.use_again(stream, *arena.free.pop())
                    taken.append((arena, _Held(arena, block)))
        return taken

    def in_use(self) -> int:
        context = self.system.context()
        with context.lock:
            context.reap()
            return sum(each.size for each in context.memory.by_host.values())


def pointer_type(system: System) -> type:
    """Return CuPy's MemoryPointer with copies and fills that are operations of the current stream."""

    class Pointer(cupy.cuda.MemoryPointer):
        def memset_async(self, value: int, size: int, stream: Stream | None = None) -> None:
            place = self.ptr
            enqueue(system, "memset", [place], lambda: ctypes.memset(place, value, size) and None, stream)

        def copy_from_device_async(self, src: Any, size: int, stream: Stream | None = None) -> None:
            here, there = self.ptr, src.ptr
            enqueue(system, "copy", [here, there], lambda: ctypes.memmove(here, there, size) and None, stream)

    return Pointer


def enqueue(
    system: System, name: str, places: list[int], work: Callable[[], Any], stream: Stream | None = None
) -> None:
    """Put work on memory at some addresses at the end of a stream; it is a fault if that memory is not its own then."""
    context = system.context()

    def checked() -> None:
        damage = context.memory.damage(uses)
        if damage:
            raise Fault(700, f"{name}: {damage}")
        work()

    with context.lock, OF_RUNTIME():
        context.reap()
        uses = context.memory.uses(places)
        context.enqueue(context.stream((stream or current_stream(system)).ptr), name, checked, uses)
