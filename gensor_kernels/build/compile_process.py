"""One compilation by NVRTC, and the program of a process that compiles on request (its parent: compilers.py).

As a program, this file is run by its path and imports nothing of this package: the process compiles 0.15 s after its
start. It reads from stdin and writes to stdout. All lengths are `HEADER`s:

- first the parent sends a length and the JSON of its `sys.path`, and gets the version of NVRTC as "12.9\\n";
- then each request is a length and the target, a length and the source. The answer is a length and JSON,
  {"error": text or null, "log": text}, then a length and the cubin.

The process ends when stdin closes. It ignores Ctrl-C, which the parent handles.
"""

from __future__ import annotations

import json
import signal
import struct
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, BinaryIO

# No source folder on the include path: the bytes must not depend on the working directory. -v makes ptxas report
# registers and spills; 177 is "declared but never referenced", which every header of intrinsics would print.
OPTIONS = ("--std=c++17", "--no-source-include", "--ptxas-options=-v", "--diag-suppress=177")
HEADER = struct.Struct("<Q")
#: Begins a first line with the JSON of what else a source is compiled with: {"name": an expression that names an
#: instance of a template, "options": a list}.
DIRECTIVE = b"//own "


def directive(text: bytes) -> tuple[bytes, list[str]]:
    """Return the name expression, empty without one, and the options of a source's first line."""
    if not text.startswith(DIRECTIVE):
        return b"", []
    given = json.loads(text[len(DIRECTIVE) :].partition(b"\n")[0])
    return given.get("name", "").encode(), [str(each) for each in given.get("options", [])]


def compile_text(library: ModuleType, text: bytes, target: str) -> tuple[str | None, str, bytes]:
    """Return the name of the error, or None, the compiler's log, and the cubin, which is empty after an error.

    ``library`` is NVIDIA's bindings, ``cuda.bindings.nvrtc``; ``text`` is in UTF-8, without NUL.
    """
    success = library.nvrtcResult.NVRTC_SUCCESS
    status, program = library.nvrtcCreateProgram(text, b"kernel.cu", 0, [], [])
    if status != success:
        return status.name, "", b""
    try:
        name, more = directive(text)
        if name:
            library.nvrtcAddNameExpression(program, name)
        options = [option.encode() for option in (f"--gpu-architecture={target}", *OPTIONS, *more)]
        (compiled,) = library.nvrtcCompileProgram(program, len(options), options)
        log = _read(library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog, program)
        lines = log.rstrip(b"\0").decode("utf-8", "replace").splitlines()
        # Compile times are the one thing in the log that differs between two runs.
        kept = "\n".join(line.rstrip() for line in lines if line.strip() and "Compile time" not in line)
        if compiled != success:
            return compiled.name, kept, b""
        return None, kept, _read(library.nvrtcGetCUBINSize, library.nvrtcGetCUBIN, program)
    finally:
        library.nvrtcDestroyProgram(program)


def _read(size_of: Callable[..., Any], get: Callable[..., Any], program: Any) -> bytes:
    _, size = size_of(program)
    data = bytearray(size)
    get(program, data)
    return bytes(data)


def version(library: ModuleType) -> str:
    """Return the version of NVRTC, such as "12.9"."""
    _, major, minor = library.nvrtcVersion()
    return f"{major}.{minor}"


def _block(stream: BinaryIO) -> bytes | None:
    """Return the next block of a stream, or None at its end."""
    header = stream.read(HEADER.size)
    return stream.read(*HEADER.unpack(header)) if len(header) == HEADER.size else None


def _serve(requests: BinaryIO, answers: BinaryIO) -> None:
    path = _block(requests)
    if path is None:
        return
    sys.path[:] = json.loads(path)
    from cuda.bindings import nvrtc

    answers.write(f"{version(nvrtc)}\n".encode())
    answers.flush()
    while (target := _block(requests)) is not None and (text := _block(requests)) is not None:
        error, log, cubin = compile_text(nvrtc, text, target.decode())
        report = json.dumps({"error": error, "log": log}).encode()
        answers.write(HEADER.pack(len(report)) + report + HEADER.pack(len(cubin)) + cubin)
        answers.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):  # NVRTC sets its own handler
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    _serve(sys.stdin.buffer, sys.stdout.buffer)
