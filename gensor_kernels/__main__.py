"""`python -m gensor_kernels`: the report of `gensor-tune doctor`, which needs no extra; `run` accelerates a program."""

from __future__ import annotations

import argparse
import os
import sys

from gensor_database.text import escape_streams
from gensor_kernels.dispatch.accelerated import running


def main() -> None:
    """Print the report, or run a program."""
    text = "Print a report about this machine to paste into a bug report: versions, tools, GPU, databases."
    parser = argparse.ArgumentParser(prog="python -m gensor_kernels", description=text)
    commands = parser.add_subparsers(dest="command", title="commands")
    about = "run a Python program, with the functions of CuPy that gensor_kernels.accelerate() replaces"
    made = commands.add_parser("run", help=about, description=f"{about[0].upper()}{about[1:]}.")
    running.add_arguments(made)
    given = parser.parse_args()
    if given.command == "run":
        running.run(made, given)
    else:
        _print_report()


def _print_report() -> None:
    from gensor_kernels.devices.doctor import report

    escape_streams()
    try:
        for line in report():
            print(line, flush=True)
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
