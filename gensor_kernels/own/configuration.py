"""One configuration of a user's kernel: its source text, and its launch over arrays from PTX on this machine."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gensor_database.lazy import cached_property
from gensor_kernels.devices.ptx.compile import ptx_of
from gensor_kernels.devices.ptx.execute import Memory, Module, PtxFault, Run
from gensor_kernels.devices.ptx.limits import refusal
from gensor_kernels.devices.ptx.translation.parse import NotExecutedError, PtxError
from gensor_kernels.errors import BuildError, UnsupportedError

from .description import NUMBER, READ, Argument, Description, Value

#: Numbers that an argument is made of: an array, or the bytes of a scalar.
Given = np.ndarray | bytes
_ADDRESS = re.compile(r"(?<=global memory at )(0x[0-9a-f]+)")


def bind(description: Description, source: str, knobs: Mapping[str, Value]) -> str:
    """Return the text that NVRTC compiles: knobs as macros, before the source; its lines keep their numbers."""
    name = description.name
    first: dict[str, object] = {"options": list(description.options)} if description.options else {}
    if "<" in name:
        for knob, value in knobs.items():
            name = re.sub(rf"\b{knob}\b", str(value), name)
        first["name"] = name
    head = f"//own {json.dumps(first)}\n" if first else ""
    macros = "".join(f"#define {knob} {value}\n" for knob, value in knobs.items())
    return f'{head}{macros}#line 1 "kernel.cu"\n{source}'


def entry_of(name: str, entries: Sequence[str]) -> str:
    """Return the entry of a cubin or a PTX module that a Description's name stands for; BuildError without one."""
    identifier = name.partition("<")[0].rpartition("::")[2].strip()
    mangled = f"{len(identifier)}{identifier}"
    found = [each for each in entries if each == identifier] or [each for each in entries if mangled in each]
    if len(found) != 1:
        raise BuildError(f"the compiled source has {len(found)} entries called {identifier}: {', '.join(entries)}")
    return found[0]


@dataclass(frozen=True)
class Configuration:
    """A configuration for one target."""

    description: Description
    source: str
    knobs: tuple[tuple[str, Value], ...]
    target: str

    @cached_property
    def text(self) -> str:
        """The bound source."""
        return bind(self.description, self.source, dict(self.knobs))

    @cached_property
    def module(self) -> Module:
        """Its PTX, translated; BuildError with the compiler's log, UnsupportedError for what cannot be executed."""
        try:
            return Module(ptx_of(self.text, self.target, more=("-lineinfo",)))
        except NotExecutedError as error:
            raise UnsupportedError(
                f"{self.description.name} has the instruction {error}, which is not executed"
            ) from None
        except PtxError as error:
            raise UnsupportedError(f"{self.description.name} cannot be executed here: {error}") from None

    def run(
        self,
        arguments: Sequence[Given],
        constants: Mapping[str, np.ndarray],
        sizes: Mapping[str, int],
        order: str | int = "forward",
        ordered: bool = True,
    ) -> None:
        """Execute the kernel over arrays of this machine; PtxFault with line, thread and block where it is wrong."""
        described = self.description
        grid, block, shared = described.launch({**dict(self.knobs), **sizes})
        module = self.module
        entry = module.entry(entry_of(described.name, [each.name for each in module.module.entries]))
        memory, params, offsets = Memory(), bytearray(entry.params_bytes), list(entry.parameters.values())
        places: list[tuple[int, int, int]] = []  # address, bytes and number of each array
        if len(offsets) != len(arguments):
            raise PtxFault(f"{described.name} has {len(offsets)} parameters, args describes {len(arguments)}")
        ends = [*offsets[1:], entry.params_bytes]
        every = zip(arguments, described.arguments, offsets, ends, strict=True)
        for number, (given, what, at, end) in enumerate(every):
            value = given if isinstance(given, bytes) else self._place(memory, given, what)
            if not isinstance(given, bytes):
                places.append((int.from_bytes(value, "little"), given.nbytes, number))
            if len(value) > end - at:
                raise PtxFault(f"a parameter of {described.name} has {end - at} bytes: {len(value)} are given")
            params[at : at + len(value)] = value
        if refused := refusal(module.module, entry, int(np.prod(block)), shared, len(params)):
            raise PtxFault(f"a launch of {refused}")
        launch = Run(
            entry.name,
            grid,
            block,
            bytes(params),
            self._constants(constants),
            shared,
            late=True,
            order=order,
            ordered=ordered,
            cluster=entry.cluster,
        )
        try:
            module.execute(launch, memory)
        except PtxFault as fault:
            raise PtxFault(_ADDRESS.sub(lambda found: _named(int(found[1], 16), places), str(fault), 1)) from None

    @staticmethod
    def _place(memory: Memory, array: np.ndarray, what: Argument) -> bytes:
        return memory.place(array.ctypes.data, array.nbytes, what.role != READ).to_bytes(8, "little")

    def _constants(self, given: Mapping[str, np.ndarray]) -> bytes:
        places = self.module.module.constants
        bank = bytearray(max((at + size for at, size in places.values()), default=0))
        for name, array in given.items():
            at, size = places.get(name, (0, 0))
            if name in places and array.nbytes > size:
                raise PtxFault(f"the constant {name} has {size} bytes: {array.nbytes} are given")
            bank[at : at + min(array.nbytes, size)] = array.tobytes()[:size]
        return bytes(bank)


def _named(address: int, places: Sequence[tuple[int, int, int]]) -> str:
    """Return an address with the argument that it was computed from: arrays are a terabyte apart."""
    for first, size, number in places:
        if abs(address - first) < 1 << 39:
            return f"{address:#x} (byte {address - first} of argument {number}, which has {size})"
    return f"{address:#x}"


def draw(description: Description, names: Mapping[str, Value], seed: int) -> tuple[list[Given], dict[str, np.ndarray]]:
    """Return arguments and constants of random numbers at these sizes."""
    rng = np.random.default_rng(seed)
    arguments: list[Given] = [
        each.number(names) if each.role == NUMBER else np.ascontiguousarray(each.draw(rng, names))
        for each in description.arguments
    ]
    return arguments, {each.name: np.ascontiguousarray(each.draw(rng, names)) for each in description.constants}
