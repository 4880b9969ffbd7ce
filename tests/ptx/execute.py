"""A compiled kernel's PTX, run over buffers on this machine's CPU."""

import ctypes
from collections.abc import Sequence
from functools import cached_property

from gensor_kernels.errors import BuildError
from gensor_kernels.families.core.family import Launch
from gensor_kernels.families.core.tensor_maps import ALIGNMENT
from tests.doubles.strict.tensor_maps import refusals, with_maps
from tests.ptx.compile import library, machine, ptx_of
from tests.ptx.limits import refusal
from tests.ptx.translation.fusion import fused as fuse
from tests.ptx.translation.parse import Instruction, parse
from tests.ptx.translation.translate import translate

#: multiprocessors of the device that blocks which walk tiles are launched on, so that each has several
WALKED = 2
#: blocks that wait for one another, whatever their number, so that some tiles are shared by two, and by three
SHARED = 5


class PtxFault(Exception):
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
        *((name, ctypes.c_uint32) for name in ("truncated", "ordered")),
        ("params", ctypes.c_char_p),
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


def _argument(launch: Launch, params: bytes) -> bytes:
    """Params, and the tensor maps that the driver makes of them."""
    try:
        return with_maps(params, launch.maps) if launch.maps else params
    except BuildError as error:
        raise PtxFault(f"map: {error}; {refusals[-1] if refusals else ''}") from error


class Memory:
    """Global memory: buffers of this process at other addresses, a terabyte apart."""

    def __init__(self) -> None:
        self.buffers: list[_Buffer] = []

    def place(self, address: int, size: int, writable: bool) -> int:
        """Return the address at which a kernel sees a buffer; it is aligned as the buffer is, up to a page."""
        seen = (len(self.buffers) + 1 << 40) + (1 << 20) + address % 4096
        self.buffers.append(_Buffer(seen, size, address, writable))
        return seen


class Kernel:
    """The PTX of one source for one target; compiled by g++ when it runs first."""

    def __init__(self, text: str, *, fused: bool = True, truncated: bool = False):
        self._truncated = truncated
        self.module = parse(text)
        self._text = translate(fuse(self.module) if fused else self.module)

    @classmethod
    def of(cls, source: str, target: str, *, fused: bool = True, truncated: bool = False) -> "Kernel":
        """Return what NVRTC makes of a bound source.

        `fused`: with the products that NVRTC and ptxas fuse; `truncated`: tensor cores cut sums of floats
        (machine/sums.h).
        """
        return cls(ptx_of(source, target, fused=fused), fused=fused, truncated=truncated)

    @property
    def opcodes(self) -> set[str]:
        """The opcodes, with all qualifiers, of all entries."""
        return {i.opcode for entry in self.module.entries for i in entry.body if isinstance(i, Instruction)}

    @cached_property
    def _entries(self) -> dict[str, _Entry]:
        found = (_Entry * (len(self.module.entries) + 1)).in_dll(library(self._text), "entries")
        return {entry.name.decode(): entry for entry in found if entry.name}

    def run(
        self,
        launches: Sequence[Launch],
        params: bytes,
        memory: Memory,
        *,
        late: bool,
        order: str | int,
        ordered: bool = False,
    ) -> None:
        """Run launches one after the other; PtxFault where a rule of the ISA is broken.

        Copies arrive `late` or when they are issued; `order` is that of blocks, warps and lanes. With `ordered`, races
        and loads of unwritten memory are faults in any order.
        """
        for launch in launches:
            self._run(launch, _argument(launch, params), memory, late, order, ordered)

    def _run(self, launch: Launch, params: bytes, memory: Memory, late: bool, order: str | int, ordered: bool) -> None:
        entry = self._entries[launch.entry]
        parsed = next(each for each in self.module.entries if each.name == launch.entry)
        if refused := refusal(self.module, parsed, launch, len(params)):
            raise PtxFault(f"invalid: a launch of {refused} in {launch.entry}")
        if launch.maps and parsed.params_alignment % ALIGNMENT:
            raise PtxFault(f"misaligned: the parameters of {launch.entry}, which has tensor maps")
        buffers = (_Buffer * len(memory.buffers))(*memory.buffers)
        sm = int(self.module.target.strip("sm_af"))
        described = _Launch(
            grid=min(launch.grid, SHARED) if launch.together else launch.blocks(WALKED),
            threads=launch.block,
            shared_bytes=launch.shared_bytes,
            late=late,
            order={"forward": 0, "reverse": 1}.get(order, 0) if isinstance(order, str) else order + 2,
            together=launch.together,
            params_bytes=len(params),
            buffers=len(buffers),
            sm=sm,
            cluster=launch.cluster,
            dependent=launch.dependent and sm >= 90,  # before, launches wait for the one in front
            truncated=self._truncated,
            ordered=ordered,
            params=None,
            buffer=buffers,
        )
        held = ctypes.create_string_buffer(params, len(params))
        described.params = ctypes.cast(held, ctypes.c_char_p)
        message = ctypes.create_string_buffer(600)
        if machine().run_entry(ctypes.byref(entry), ctypes.byref(described), message, len(message)):
            raise PtxFault(message.value.decode())
