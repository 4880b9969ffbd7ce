"""A compiled kernel's PTX, run over buffers on this machine's CPU."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass, field

from gensor_database.lazy import cached_property
from gensor_kernels.errors import GensorError

from .compile import library, machine, ptx_of
from .translation.fusion import fused as fuse
from .translation.parse import Entry, Instruction, parse
from .translation.translate import translate


class PtxFault(GensorError):
    """The fault that ended a run: its kind, and where."""


class _Buffer(ctypes.Structure):
    _fields_ = [
        ("address", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("host", ctypes.c_void_p),
        ("writable", ctypes.c_uint32),
    ]


class _Launch(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_uint32) for name in ("grid", "threads", "shared_bytes", "late", "order", "together")),
        *((name, ctypes.c_uint32) for name in ("params_bytes", "buffers", "sm", "cluster", "dependent")),
        *((name, ctypes.c_uint32) for name in ("truncated", "ordered", "living")),
        *((name, ctypes.c_uint32) for name in ("block_x", "block_y", "grid_x", "grid_y", "constant_bytes")),
        ("params", ctypes.c_char_p),
        ("constants", ctypes.c_char_p),
        ("buffer", ctypes.POINTER(_Buffer)),
    ]


class _Entry(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("step", ctypes.c_void_p),
        ("register_bytes", ctypes.c_uint64),
        *((name, ctypes.c_uint32) for name in ("local_bytes", "static_shared", "sites", "params_bytes", "watched")),
        *((name, ctypes.c_uint32) for name in ("asynchronous", "cluster", "registers", "accesses")),
        ("site", ctypes.c_void_p),
        ("access", ctypes.c_void_p),
    ]


class Memory:
    """Global memory: buffers of this process at other addresses, a terabyte apart."""

    def __init__(self) -> None:
        self.buffers: list[_Buffer] = []

    def place(self, address: int, size: int, writable: bool) -> int:
        """Return the address at which a kernel sees a buffer; it is aligned as the buffer is, up to a page."""
        seen = (len(self.buffers) + 1 << 40) + (1 << 20) + address % 4096
        self.buffers.append(_Buffer(seen, size, address, writable))
        return seen


@dataclass(frozen=True)
class Run:
    """How an entry is launched: extents along x, y and z, bytes of dynamic shared memory and of constants.

    Copies arrive `late` or when they are issued; `order` is that of blocks, warps and lanes: "forward", "reverse", or a
    seed. With `ordered`, races and loads of unwritten memory are faults in any order. Blocks that wait for one another
    are `together`; `cluster` of them reach each other's shared memory. `dependent`: the launch may begin before what it
    depends on has ended.
    """

    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    params: bytes = field(repr=False)
    constants: bytes = field(default=b"", repr=False)
    shared_bytes: int = 0
    late: bool = False
    order: str | int = "forward"
    ordered: bool = True
    together: bool = False
    cluster: int = 1
    dependent: bool = False


class Module:
    """The PTX of one source for one target; compiled by g++ when it runs first."""

    def __init__(self, text: str, *, fused: bool = True, truncated: bool = False):
        self._truncated = truncated
        self.module = parse(text)
        self._text = translate(fuse(self.module) if fused else self.module)

    @classmethod
    def of(cls, source: str, target: str, *, fused: bool = True, truncated: bool = False) -> Module:
        """Return what NVRTC makes of a bound source.

        `fused`: with the products that NVRTC and ptxas fuse; `truncated`: tensor cores cut sums of floats
        (machine/sums.h).
        """
        return cls(ptx_of(source, target, fused=fused), fused=fused, truncated=truncated)

    @property
    def opcodes(self) -> set[str]:
        """The opcodes, with all qualifiers, of all entries."""
        return {i.opcode for entry in self.module.entries for i in entry.body if isinstance(i, Instruction)}

    @property
    def sm(self) -> int:
        """The target's capability as one number, such as 87."""
        return int(self.module.target.strip("sm_af"))

    def entry(self, name: str) -> Entry:
        """Return the entry of this name; KeyError without one."""
        return next(each for each in self.module.entries if each.name == name)

    @cached_property
    def _entries(self) -> dict[str, _Entry]:
        found = (_Entry * (len(self.module.entries) + 1)).in_dll(library(self._text), "entries")
        return {entry.name.decode(): entry for entry in found if entry.name}

    def execute(self, run: Run, memory: Memory) -> None:
        """Run one launch; PtxFault where a rule of the ISA is broken, or memory is none of the buffers'."""
        buffers = (_Buffer * max(len(memory.buffers), 1))(*memory.buffers)
        living = math.prod(run.block)
        held, constants = (ctypes.create_string_buffer(each, len(each) + 1) for each in (run.params, run.constants))
        described = _Launch(
            grid=math.prod(run.grid),
            threads=-(-living // 32) * 32,
            living=living,
            shared_bytes=run.shared_bytes,
            late=run.late,
            order={"forward": 0, "reverse": 1}.get(run.order, 0) if isinstance(run.order, str) else run.order + 2,
            together=run.together,
            params_bytes=len(run.params),
            buffers=len(memory.buffers),
            sm=self.sm,
            cluster=run.cluster,
            dependent=run.dependent,
            truncated=self._truncated,
            ordered=run.ordered,
            block_x=run.block[0],
            block_y=run.block[1],
            grid_x=run.grid[0],
            grid_y=run.grid[1],
            constant_bytes=len(run.constants),
            params=ctypes.cast(held, ctypes.c_char_p),
            constants=ctypes.cast(constants, ctypes.c_char_p),
            buffer=buffers,
        )
        entry, message = self._entries[run.entry], ctypes.create_string_buffer(700)
        if machine().run_entry(ctypes.byref(entry), ctypes.byref(described), message, len(message)):
            raise PtxFault(message.value.decode())
