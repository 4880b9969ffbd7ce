"""Programs of a toolchain, run so that no process and no temporary file of theirs outlives this process.

A shell runs each program in its own process group, with its own temporary folder. The shell also reads a pipe that this
process alone holds open for writing: however this process ends, the pipe is closed then, and the shell ends the group
and deletes the folder. The pipe is found in /proc: numbers of descriptors in a shell may be those of `pass_fds`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gensor_kernels.errors import MachineError

_SHELL = """
(trap '' TERM; read -r _ <"$0"; kill -TERM 0; rm -rf "$TMPDIR"; kill -KILL 0) >/dev/null 2>&1 &
"$@" <"$TMPDIR/input"
code=$?
{ kill -KILL $!; wait $!; } 2>/dev/null  # or process 1 would have to, which in a container may be this one
exit $code
"""


def run(
    command: Sequence[str], text: str | bytes = "", pass_fds: Sequence[int] = (), timeout: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program with `text` on its standard input, and return what it has written, in English.

    The return code of a program that a signal ended is 128 and the signal. Raises MachineError where it cannot run,
    subprocess.TimeoutExpired after `timeout` seconds.
    """
    with _folder(text) as folder:
        alive, own = os.pipe()
        try:
            return subprocess.run(
                ["/bin/sh", "-c", _SHELL, f"/proc/self/fd/{alive}", *command],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                encoding="utf-8",
                errors="replace",
                pass_fds=(*pass_fds, alive),
                umask=0o077,
                start_new_session=True,
                env=os.environ | {"TMPDIR": folder, "LC_ALL": "C"},
                timeout=timeout,
            )
        except OSError as error:
            raise MachineError(f"{command[0]} cannot be started: {error.strerror or error}") from error
        finally:
            os.close(alive)
            os.close(own)


@contextmanager
def _folder(text: str | bytes) -> Iterator[str]:
    folder = ""
    try:
        with folder_errors("the temporary folder", "TMPDIR"):
            folder = tempfile.mkdtemp(prefix="gensor-")
            Path(folder, "input").write_bytes(text.encode() if isinstance(text, str) else text)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # the shell may be deleting it


@contextmanager
def folder_errors(name: str, variable: str) -> Iterator[None]:
    """Raise the system's errors of a block that writes to a folder as MachineError, in one sentence.

    ``name`` is the folder's, for people; the environment variable ``variable`` names another one.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise MachineError(
            f"{name} cannot be written ({reason}): free space there, or set {variable} to another folder"
        ) from error
