"""`python -m gensor_kernels`: the report of `gensor-tune doctor`, which needs no extra."""

from __future__ import annotations

import argparse
import os
import sys

from gensor_database.text import escape_streams
from gensor_kernels.devices.doctor import report


def main() -> None:
    """Print the report."""
    escape_streams()
    text = "Print a report about this machine to paste into a bug report: versions, tools, GPU, databases."
    argparse.ArgumentParser(prog="python -m gensor_kernels", description=text).parse_args()
    try:
        for line in report():
            print(line, flush=True)
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
