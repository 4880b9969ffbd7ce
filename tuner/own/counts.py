"""Counts of what a kernel does: chosen blocks are executed from machine code (machine/machine.cpp).

One library executes every kernel. Arrays are this machine's; addresses that a kernel sees are its own, a terabyte
apart, so that an access outside an argument is found.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from gensor_kernels.build.elf import attributes, entry_usage, headers, sections
from gensor_kernels.build.instruction import Instruction
from gensor_kernels.devices.emulator.build import build_host, fma_flags
from gensor_kernels.errors import GensorError, UnsupportedError
from gensor_kernels.machine.arch import Arch

from .decode import decode
from .operands import Coded, enumerations

MACHINE = Path(__file__).resolve().parent / "machine" / "machine.cpp"
FLAGS = ("-std=c++20", "-O3", "-ffp-contract=off", "-w")
#: Instructions of one warp at most: those of the examples take a tenth at their largest sizes.
MOST_STEPS = 4_000_000
#: Clocks from a load to its number where the L1 has it, and of shared memory (Luo et al., arXiv 2402.13499).
NEAR, SHARED = 34, 24
_VARIABLES = ".nv.constant3"  # the section of __constant__ variables
_CBANK, _PARAMETER = 0x0A, 0x17  # kinds of attributes in .nv.info
_SYMBOL = struct.Struct("<IBBHQQ")  # name, kind, visibility, section, place, bytes
SECTOR = 32
_ENDLESS = 2  # of count_block
_BANK = 4096  # bytes of the bank of parameters beyond them
#: Bytes of block and grid extents, and of the stack pointer, in the bank of parameters, from this capability on.
_PLACES = {100: (0x360, 0x370, 0x37C), 0: (0x0, 0xC, 0x28)}


class Fault(GensorError):
    """A fault of the counted kernel, such as an access outside an argument."""


class EndlessFault(Fault):
    """More instructions of a warp than MOST_STEPS; the message has the loop."""


class _Buffer(ctypes.Structure):
    _fields_ = [
        ("address", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("host", ctypes.c_void_p),
        ("seen", ctypes.c_void_p),
        ("writable", ctypes.c_uint32),
        ("padding", ctypes.c_uint32),
    ]


class _Launch(ctypes.Structure):
    _fields_ = [
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        *((name, ctypes.c_uint32) for name in ("shared_bytes", "local_bytes", "buffers", "instructions")),
        *((name, ctypes.c_uint32) for name in ("latency_shared", "latency_near")),
        ("latency_far", ctypes.c_uint32 * 2),
        ("most_steps", ctypes.c_uint32),
        ("buffer", ctypes.POINTER(_Buffer)),
        ("code", ctypes.POINTER(Coded)),
        ("bank", ctypes.c_char_p * 5),
        ("bank_bytes", ctypes.c_uint32 * 5),
    ]


_BY_INSTRUCTION = ("issued", "lanes", "sectors", "lines", "wavefronts")
_OF_BLOCKS = ("read", "written", "clocks", "clocks_from_dram")


class _Counts(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in _BY_INSTRUCTION),
        *((name, ctypes.c_uint64) for name in _OF_BLOCKS),
    ]


@cache
def _machine() -> ctypes.CDLL:
    text = MACHINE.read_text()
    head, mark, rest = text.partition("struct Operand")
    return ctypes.CDLL(str(build_host(f"{head}{enumerations()}{mark}{rest}", (*FLAGS, *fma_flags()))))


@dataclass(frozen=True)
class Entry:
    """A kernel of a cubin: its instructions, constants by bank, bytes of static shared memory and of a thread's stack,
    and (offset, bytes) of each parameter."""

    name: str
    code: tuple[Instruction, ...]
    banks: tuple[bytes, ...]
    symbols: Mapping[str, tuple[int, int]]
    shared_bytes: int
    stack_bytes: int
    parameters: tuple[tuple[int, int], ...]
    first: int  # where parameters begin in their bank


def read_entry(cubin: bytes, name: str, code: tuple[Instruction, ...]) -> Entry:
    """Return an entry of a cubin that `build.resources.instructions` has read; UnsupportedError names what cannot be
    executed here."""
    held, extents = sections(cubin), [(section, size) for section, _, _, size in headers(cubin)]
    strings = held[".strtab"]
    symbols = [
        (strings[first : strings.index(b"\0", first)].decode(), *row)
        for first, *row in _SYMBOL.iter_unpack(held[".symtab"])
    ]
    places = [section for section, _ in extents]
    number = places.index(_VARIABLES) if _VARIABLES in places else -1
    variables = {
        symbol: (at, size) for symbol, kind, _, place, at, size in symbols if place == number and kind & 15 == 1
    }
    parameters: dict[int, tuple[int, int]] = {}
    first = 0
    for kind, value in attributes(held.get(f".nv.info.{name}", b"")):
        if kind == _CBANK:
            _, first, _ = struct.unpack("<IHH", value[:8])
        elif kind == _PARAMETER:
            _, ordinal, offset, size = struct.unpack("<IHHI", value[:12])
            parameters[ordinal] = offset, size >> 18
    if any(symbol == "vprintf" for symbol, *_ in symbols):
        raise UnsupportedError(f"{name} calls printf, which is not counted: compile without it")
    if any("c[0x4]" in each.operands for each in code):  # the bank of addresses of variables
        raise UnsupportedError(f"{name} reads or writes __device__ variables, which are not counted")
    return Entry(
        name,
        code,
        banks=(b"", b"", held.get(f".nv.constant2.{name}", b""), held.get(_VARIABLES, b""), b""),
        symbols=variables,
        shared_bytes=dict(extents).get(f".nv.shared.{name}", 0),
        stack_bytes=entry_usage(cubin)[name][1],
        parameters=tuple(parameters[ordinal] for ordinal in sorted(parameters)),
        first=first,
    )


@dataclass(frozen=True)
class Counts:
    """Counts of executed blocks, each with the number of blocks that it stands for.

    By instruction, float64: how often warps issue it, active lanes, 32-byte sectors and 128-byte lines of global
    memory, passes of shared memory; all blocks together. `read` and `written` are sectors that all blocks read (each
    block its own once) and write; `clocks` is the mean of blocks, each alone on a multiprocessor, where the first read
    of a line waits for the L2, and `clocks_from_dram` where it waits for DRAM. `alike`: all executed blocks did the
    same.
    """

    blocks: int
    issued: np.ndarray
    lanes: np.ndarray
    sectors: np.ndarray
    lines: np.ndarray
    wavefronts: np.ndarray
    read: float
    written: float
    clocks: float
    clocks_from_dram: float
    alike: bool = True

    def plus(self, other: Counts, share: float) -> Counts:
        """Return the sum with a share of others, which may be negative; nothing falls below zero."""
        names = (*_BY_INSTRUCTION, *_OF_BLOCKS)
        sums = {name: np.maximum(getattr(self, name) + share * getattr(other, name), 0.0) for name in names}
        return replace(self, **sums)

    def at(self, blocks: int) -> Counts:
        """Return the counts of a grid of another number of blocks like these."""
        ratio = blocks / self.blocks
        scaled = {name: getattr(self, name) * ratio for name in (*_BY_INSTRUCTION, "read", "written")}
        return replace(self, blocks=blocks, **scaled)


Extent = tuple[int, int, int]


def sampled(grid: Extent) -> dict[int, float]:
    """Return the numbers of the blocks that are executed, the first, a middle and the last one along each axis, and how
    many blocks each stands for."""
    found = {0: 1.0}
    stride = 1
    for extent in grid:
        places = {0: 1.0} if extent == 1 else {0: 1.0, extent - 1: 1.0}
        if extent > 2:
            places[extent // 2] = extent - 2.0
        found = {
            number + stride * place: share * many for number, share in found.items() for place, many in places.items()
        }
        stride *= extent
    return found


class Prepared:
    """An entry that is ready to be executed on arrays.

    Parameters
    ----------
    entry : Entry
        The kernel.
    arch : Arch
        Gives latencies; its capability the places of the launch's extents.
    """

    def __init__(self, entry: Entry, arch: Arch):
        self.entry, self.arch = entry, arch
        self._code = decode(entry.code)

    def count(
        self,
        grid: Extent,
        block: Extent,
        arguments: Sequence[np.ndarray | bytes],
        constants: Mapping[str, np.ndarray],
        shared_bytes: int = 0,
        chosen: Mapping[int, float] | None = None,
    ) -> Counts:
        """Execute chosen blocks, by default those of `sampled`, and return what the grid does.

        `arguments` are arrays, which blocks read and write, and the bytes of numbers. `shared_bytes` are dynamic. Fault
        where a block cannot continue.
        """
        chosen = sampled(grid) if chosen is None else chosen
        first: object = None
        alike = True
        held, buffers = self._place(arguments)
        launch = self._launch(grid, block, arguments, constants, shared_bytes, buffers)
        size = len(self.entry.code)
        totals = {name: np.zeros(size) for name in _BY_INSTRUCTION}
        sums = dict.fromkeys(_OF_BLOCKS, 0.0)
        message = ctypes.create_string_buffer(400)
        for number, share in chosen.items():
            arrays = {name: np.zeros(size, np.uint64) for name in _BY_INSTRUCTION}
            counts = _Counts(*(arrays[name].ctypes.data for name in _BY_INSTRUCTION))
            failed = _machine().count_block(ctypes.byref(launch), number, ctypes.byref(counts), message, len(message))
            if failed == _ENDLESS:
                raise EndlessFault(f"{message.value.decode()}, {self._loop(arrays['issued'])}")
            if failed:
                raise Fault(message.value.decode())
            for name, array in arrays.items():
                totals[name] += share * array
            for name in _OF_BLOCKS:
                sums[name] += share * getattr(counts, name)
            found = *(array.tobytes() for array in arrays.values()), *(getattr(counts, name) for name in _OF_BLOCKS)
            first = first or found
            alike &= found == first
        del held
        for name in ("clocks", "clocks_from_dram"):
            sums[name] /= sum(chosen.values())
        made: dict[str, Any] = {**totals, **sums}
        return Counts(int(np.prod(grid)), **made, alike=alike)

    def _loop(self, issued: np.ndarray) -> str:
        """Return a description of the instructions that were executed most often."""
        often = np.flatnonzero(issued >= issued.max() / 2)
        names = " ".join(dict.fromkeys(self.entry.code[each].name for each in often))
        many = int(issued[often].sum())
        return (
            f"{many} of them in a loop of {len(often)} ({names}): it never ends, or is to be counted at smaller sizes "
            "(count_at)"
        )

    def _place(self, arguments: Sequence[np.ndarray | bytes]) -> tuple[list[np.ndarray], ctypes.Array[_Buffer]]:
        arrays = [each for each in arguments if isinstance(each, np.ndarray)]
        held = [np.zeros(each.nbytes // SECTOR + 2, np.uint32) for each in arrays]
        buffers = (_Buffer * max(len(arrays), 1))()
        for number, (array, seen) in enumerate(zip(arrays, held, strict=True)):
            buffers[number] = _Buffer(_address(number), array.nbytes, array.ctypes.data, seen.ctypes.data, 1, 0)
        return held, buffers

    def _launch(
        self,
        grid: Extent,
        block: Extent,
        arguments: Sequence[np.ndarray | bytes],
        constants: Mapping[str, np.ndarray],
        shared_bytes: int,
        buffers: ctypes.Array[_Buffer],
    ) -> _Launch:
        entry, arch = self.entry, self.arch
        values, number = [], 0
        for each in arguments:
            values.append(struct.pack("<Q", _address(number)) if isinstance(each, np.ndarray) else each)
            number += isinstance(each, np.ndarray)
        if len(values) != len(entry.parameters):
            raise Fault(f"{entry.name} has {len(entry.parameters)} parameters: {len(values)} are given")
        end = max((offset + size for offset, size in entry.parameters), default=0)
        bank = bytearray(entry.first + end + _BANK)
        for value, (offset, size) in zip(values, entry.parameters, strict=True):
            if len(value) != size:
                raise Fault(f"{entry.name} has a parameter of {size} bytes: one of {len(value)} is given")
            bank[entry.first + offset : entry.first + offset + size] = value
        major = 10 * arch.capability[0]
        of_block, of_grid, of_stack = next(places for least, places in _PLACES.items() if major >= least)
        local = -(-entry.stack_bytes // 16) * 16 + 16
        # Where capabilities differ: parameters may be where others have extents.
        for place, numbers in ((of_block, block), (of_grid, grid), (of_stack, (local,))):
            struct.pack_into(f"<{len(numbers)}I", bank, place, *numbers)
        banks = [bytes(bank), *entry.banks[1:]]
        banks[3] = self._constants(constants)
        self._banks = banks  # the launch has their addresses
        return _Launch(
            grid=(ctypes.c_uint32 * 3)(*grid),
            block=(ctypes.c_uint32 * 3)(*block),
            shared_bytes=entry.shared_bytes + shared_bytes,
            local_bytes=local,
            buffers=sum(isinstance(each, np.ndarray) for each in arguments),
            instructions=len(entry.code),
            latency_shared=SHARED,
            latency_near=NEAR,
            latency_far=(int(arch.l2_latency), int(arch.dram_latency)),
            most_steps=MOST_STEPS,
            buffer=buffers,
            code=self._code,
            bank=(ctypes.c_char_p * 5)(*banks),
            bank_bytes=(ctypes.c_uint32 * 5)(*map(len, banks)),
        )

    def _constants(self, constants: Mapping[str, np.ndarray]) -> bytes:
        """Return the bank of __constant__ variables with the caller's arrays in it."""
        bank = bytearray(self.entry.banks[3])
        for name, array in constants.items():
            place = self.entry.symbols.get(name)
            if place is None:
                continue  # the compiler removed what the kernel never reads
            offset, size = place
            if array.nbytes > size:
                raise Fault(f"the constant {name} has {size} bytes: {array.nbytes} are given")
            bank[offset : offset + array.nbytes] = array.tobytes()
        return bytes(bank)


def _address(number: int) -> int:
    return (number + 1 << 40) + (1 << 20)
