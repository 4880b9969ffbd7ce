"""`python -m gensor_kernels run`: a script that knows nothing of this package, with CuPy's functions replaced."""

from __future__ import annotations

import argparse
import atexit
import builtins
import io
import os
import runpy
import sys
from importlib.machinery import SourceFileLoader
from types import ModuleType, TracebackType
from typing import NoReturn

from gensor_kernels import config

from . import accelerate


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `run` to a parser."""
    parser.add_argument("--report", action="store_true", help="print to stderr what was reached, and what served it")
    parser.add_argument("--only", metavar="NAMES", help="functions and groups to replace, separated by commas")
    parser.add_argument("-m", dest="module", action="store_true", help="the program is a module, as for python -m")
    parser.add_argument("program", help="a Python file")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the program")


def run(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    """Replace CuPy's functions, and run a script or a module as `python` would do."""
    if given.only:
        try:
            accelerate.find_names(config.names_in(given.only))
        except ValueError as error:
            parser.error(str(error))
    # In the environment, so that processes that the program starts do the same once they import gensor_kernels.
    os.environ["GENSOR_ACCELERATE"] = given.only or "1"
    accelerate.accelerate_process(report=given.report)
    if given.report:
        process = os.getpid()
        atexit.register(lambda: print_report() if os.getpid() == process else None)
    (run_module if given.module else run_script)(given.program, *given.arguments)


def print_report() -> None:
    """Print to stderr what was reached since the process began."""
    if accelerate.counting is not None and sys.stderr is not None:
        sys.stdout.flush()
        print(f"\n{accelerate.counting}", file=sys.stderr, flush=True)


def run_script(path: str, *args: str) -> None:
    """Run a file as `python path *args` does: as `__main__`, with its folder first in `sys.path`, and with the same
    tracebacks and exit codes."""
    sys.argv[:] = [path, *args]
    full = os.path.abspath(path)
    try:
        with io.open_code(full) as file:
            text = file.read()
    except OSError as error:
        print(f"{sys.executable}: can't open file {full!r}: [Errno {error.errno}] {error.strerror}", file=sys.stderr)
        raise SystemExit(2) from None
    if not getattr(sys.flags, "safe_path", sys.flags.isolated):
        sys.path[0] = os.path.dirname(os.path.realpath(full))
    main = ModuleType("__main__")
    own = {"__builtins__": builtins, "__file__": full, "__cached__": None, "__package__": None, "__spec__": None}
    vars(main).update(own, __loader__=SourceFileLoader("__main__", full))
    sys.modules["__main__"] = main  # for good: what the program registers for its end may need it
    try:
        code = compile(text, full, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        _end(error, None)
    try:
        exec(code, vars(main))
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        _end(error, error.__traceback__ and error.__traceback__.tb_next)


def run_module(name: str, *args: str) -> None:
    """Run a module as `python -m name *args` does."""
    sys.argv[:] = [name, *args]
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _end(error: BaseException, traceback: TracebackType | None) -> NoReturn:
    """End as the interpreter does after an error, whose traceback then begins in the script."""
    sys.excepthook(type(error), error.with_traceback(traceback), traceback)
    raise SystemExit(1) from None
