"""A list of kernels that one process writes and others require, so that all of them compute the same bits.

A JSON file of pins: a part and a Workload, and what serves it, as `{"kernel", "stored", "program"}`, or `"library"`.
Where the first kernel cannot read the operands, or inside graph capture, where the library's call cannot be recorded,
the next one serves. Calls whose arrays are copied first have other pins (`copied`).
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any, NamedTuple

from gensor_database import canonical
from gensor_database.writing import written
from gensor_kernels import forking
from gensor_kernels.errors import MALFORMED, BuildError, PinError
from gensor_kernels.families.registry import program_from_json
from gensor_kernels.operators.types.workload import Workload

from .library import Kernel, Library, generate, is_legal
from .predict import predicted_us
from .tiers import Choice, Request, coarsen

FORMAT = 1
LIBRARY = "library"


class Pin(NamedTuple):
    """A kernel that serves: its digest, that of the stored kernel which is launched, its Program.

    Empty of the array library.
    """

    kernel: str = ""
    stored: str = ""
    program: str = ""

    @classmethod
    def of(cls, kernel: Kernel | None) -> Pin:
        """Return the Pin of a kernel, None for the array library."""
        return cls() if kernel is None else cls(kernel.digest, kernel.stored, kernel.program.to_json())


class Pins:
    """The pins of a file: they are required where it was there, else found, and written by `close`."""

    def __init__(self, path: Path):
        self.path, self.required = path, path.exists()
        self._pins: dict[str, list[Pin]] = _read(path) if self.required else {}
        self._lock = forking.lock(self, "_lock", threading.Lock)

    def choose(self, request: Request, choice: Choice, copied: bool, library: Library) -> Choice:
        """Return the choice that is pinned for a request, or `choice` where none has to be; else raise PinError."""
        key = _key(request, copied)
        for pin in tuple(self._pins.get(key, ())):
            found = self._find(pin, request, choice, library)
            if found is not None:
                return found
        if not self.required or (request.emulated and choice.kernel is None):
            return choice
        if key in self._pins:
            raise PinError(
                f"no kernel that {self.path} pins for {_words(request)} can serve it here: use the databases and the "
                "version of the package with which it was written"
            )
        raise PinError(
            f"{self.path} pins nothing for {_words(request)}: delete the file, and make this call too in the block "
            "that writes it"
        )

    def note(self, request: Request, kernel: Kernel | None, copied: bool) -> None:
        """Pin what serves a request; PinError where something else has to."""
        key, pin = _key(request, copied), Pin.of(kernel)
        with self._lock:
            pins = self._pins.setdefault(key, [])
            if any(each.kernel == pin.kernel for each in pins):
                return
            if not self.required:
                pins.append(pin)
                return
        raise PinError(f"the kernel that {self.path} pins for {_words(request)} cannot be loaded here")

    def close(self) -> None:
        """Write the file, if it was absent; from now on its pins are required."""
        if self.required:
            return
        with self._lock:
            self.required = True
            rows = [{**json.loads(key), "served": [_entry(pin) for pin in pins]} for key, pins in self._pins.items()]
        text = json.dumps({"gensor_pins": FORMAT, "pins": sorted(rows, key=canonical)}, indent=1)
        try:
            if self.path.exists():
                raise FileExistsError("another process has written it meanwhile")
            with written(self.path) as file:
                file.write(f"{text}\n")
        except OSError as error:
            raise PinError(f"the pinned kernels cannot be written to {self.path}: {error}") from error

    def _find(self, pin: Pin, request: Request, choice: Choice, library: Library) -> Choice | None:
        """Return the choice of a pin, or None if it cannot serve the request."""
        if not pin.kernel:
            able = not request.emulated and not request.captured
            return Choice(4, f"{self.path} pins the library", standby=True) if able else None
        kernel = _kernel(pin, request, library)
        if kernel is None or not request.allows(kernel):
            return None
        if choice.kernel is not None and choice.kernel.digest == kernel.digest:
            return choice
        predicted = predicted_us(kernel, request.problem.workload, request.arch, library)
        return Choice(2, f"{self.path} pins this kernel", kernel, predicted)


def _kernel(pin: Pin, request: Request, library: Library) -> Kernel | None:
    """Return a pinned kernel that may run a request; on the emulator also one that no database has."""
    workload, arch = request.problem.workload, request.arch
    kernel = library.find(pin.kernel, pin.stored)
    if kernel is None and request.emulated:
        try:
            made = generate(program_from_json(pin.program), coarsen(workload), arch)
        except (BuildError, *MALFORMED):
            return None
        kernel = made if made.digest == pin.kernel else None
    return kernel if kernel is not None and is_legal(kernel, workload, arch) else None


def _key(request: Request, copied: bool) -> str:
    """Return what calls with the same pins share."""
    workload: Workload = request.problem.workload
    fields: dict[str, Any] = {"part": request.arch.part, "workload": json.loads(workload.key())}
    return canonical({**fields, "copied": True} if copied else fields)


def _words(request: Request) -> str:
    workload = request.problem.workload
    sizes = ", ".join(f"{name} = {size}" for name, size in workload.sizes)
    return f"{workload.operator} of {'/'.join(dtype for _, dtype in workload.dtypes)} with {sizes}"


def _entry(pin: Pin) -> Any:
    return {**pin._asdict(), "program": json.loads(pin.program)} if pin.kernel else LIBRARY


def _read(path: Path) -> dict[str, list[Pin]]:
    try:
        body = json.loads(path.read_text(encoding="ascii"))
        if body["gensor_pins"] != FORMAT:
            raise ValueError(f"format {body['gensor_pins']} is not {FORMAT}")
        pins = {}
        for row in body["pins"]:
            served = [
                Pin() if each == LIBRARY else Pin(each["kernel"], each["stored"], canonical(each["program"]))
                for each in row.pop("served")
            ]
            if not all(isinstance(text, str) for pin in served for text in pin):
                raise TypeError("a digest is no text")
            pins[canonical(row)] = served
    except (OSError, RecursionError, *MALFORMED) as error:
        raise PinError(f"{path} is no list of pinned kernels: {error}") from error
    return pins
