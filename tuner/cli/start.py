"""Start of the `gensor-tune` process: Ctrl-C while modules load, and closed output streams."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading

from gensor_kernels import install

from . import STOPPED


def main() -> None:
    """Run the command line."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the parent process: print would confuse the two streams
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - until the process ends
    try:
        keep_interrupts()
        from .app import main as run

        run()
    except KeyboardInterrupt:
        print(STOPPED, file=sys.stderr)
        sys.exit(130)
    except ModuleNotFoundError as error:
        sentence = install.about(error)
        if sentence is None:
            raise
        print(f"gensor-tune: {sentence}", file=sys.stderr)
        sys.exit(2)


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
