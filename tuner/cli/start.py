"""Start of the `gensor-tune` process: Ctrl-C while modules load, and closed output streams."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from . import SHELLS, STOPPED, VARIABLE

#: The exit code after Ctrl-C, as shells have it.
INTERRUPTED = 130


def main() -> None:
    """Run the command line."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the parent process: print would confuse the two streams
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - until the process ends
    # Before NumPy is loaded: walks and executions use every core themselves, and threads of BLAS would only wait for
    # work, at full speed. Some kernels' executions took twice the processor time.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        keep_interrupts()
        from gensor_database.text import escape_streams

        escape_streams()
        from .app import main as run

        serve_shell()
        run()
    except KeyboardInterrupt:
        print(STOPPED, file=sys.stderr)
        leave()
    except ModuleNotFoundError as error:
        from gensor_kernels import install

        sentence = install.about(error)
        if sentence is None:
            raise
        print(f"gensor-tune: {sentence}", file=sys.stderr)
        sys.exit(2)
    except SystemExit as ended:
        if ended.code == INTERRUPTED:
            leave()
        raise


def serve_shell() -> None:
    """Prepare a process that a shell starts at its own start or at a tab, and waits for.

    Values and helps stay text as they are written: typer would import pydantic and rich for them, twice the time.
    """
    if VARIABLE not in os.environ and (sys.argv[1:-1] != ["completion"] or sys.argv[-1] not in SHELLS):
        return
    from typer.completion import completion_init
    from typer.core import TyperArgument, TyperOption

    completion_init()
    sys.modules["rich"] = None  # type: ignore[assignment]
    for kind in (TyperArgument, TyperOption):
        kind.process_value = lambda self, ctx, value: (  # type: ignore[method-assign]
            () if value is None and (self.multiple or self.nargs == -1) else value
        )


def leave() -> NoReturn:
    """End this process and its children at once: a thread may be in the middle of a long compilation."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    for child in descendants(os.getpid()):
        with suppress(OSError):
            if os.getsid(child) == os.getsid(0):  # others, as compilers, end and clean up by themselves
                os.kill(child, signal.SIGKILL)
    os._exit(INTERRUPTED)


def descendants(process: int) -> list[int]:
    """Return the numbers of all processes below `process`, parents first; none where there is no /proc."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):  # it has ended meanwhile
            parents[int(stat.parent.name)] = int(stat.read_text(errors="replace").rpartition(")")[2].split()[1])
    found = [process]
    for parent in found:
        found += [child for child, its_parent in parents.items() if its_parent == parent]
    return found[1:]


def keep_interrupts() -> None:
    """Make Ctrl-C raise KeyboardInterrupt whatever libraries do; call before any library starts threads.

    While NVRTC compiles, its front end handles SIGINT by ending the process with exit code 4. Every thread therefore
    blocks the signal (libraries' threads inherit the mask), and one thread waits for it with sigwait, which no handler
    can intercept. Child processes block the signal as well; this process ends them.
    """
    if not hasattr(signal, "pthread_sigmask") or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return  # ignored on purpose, as by a shell that runs this process in the background
    signal.signal(signal.SIGUSR1, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    main_thread = threading.get_ident()

    def wait() -> None:
        while True:
            signal.sigwait({signal.SIGINT})
            _thread.interrupt_main()  # takes effect once the main thread executes Python code again,
            signal.pthread_kill(main_thread, signal.SIGUSR1)  # so wake it from a blocking call

    threading.Thread(target=wait, name="gensor-interrupts", daemon=True).start()


if __name__ == "__main__":
    main()
