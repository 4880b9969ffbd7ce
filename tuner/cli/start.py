"""The `gensor-tune` command from its first moment on: Ctrl-C while it is still loading, and closed output streams."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading

from . import STOPPED


def main() -> None:
    """Run the command line."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us: print would take one stream for the other
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - until the process ends
    try:
        keep_interrupts()
        from .app import main as run

        run()
    except KeyboardInterrupt:
        print(STOPPED, file=sys.stderr)
        sys.exit(130)


def keep_interrupts() -> None:
    """From now on Ctrl-C is Python's, whatever library would take it; before any library has started threads.

    While NVRTC compiles, SIGINT is handled by its front end, which ends the process at once, with exit code 4. So
    every thread blocks it, those of libraries by inheritance, and one waits for it, which no handler can come between.
    Processes started from here block it as well: they are ended by this one.
    """
    if not hasattr(signal, "pthread_sigmask") or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return  # or ignored by whoever started us, as by a shell that runs us in the background
    signal.signal(signal.SIGUSR1, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    main_thread = threading.get_ident()

    def wait() -> None:
        while True:
            signal.sigwait({signal.SIGINT})
            _thread.interrupt_main()  # which takes effect when the main thread runs code of Python's again,
            signal.pthread_kill(main_thread, signal.SIGUSR1)  # so it is woken where it waits

    threading.Thread(target=wait, name="gensor-interrupts", daemon=True).start()


if __name__ == "__main__":
    main()
