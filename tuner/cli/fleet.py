"""The subcommands of `gensor-tune fleet`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from typer import Option, Typer

from gensor_tuner.output import say

from . import commands
from .options import JobsOption

fleet = Typer(no_args_is_help=True, help="Machines that tune for others, on a Dask cluster.")


@fleet.callback()
def machines() -> None:
    """Machines that tune for others, on a Dask cluster."""


@fleet.command()
def worker(
    scheduler: Annotated[str, Option(metavar="ADDRESS", help="tcp://HOST:PORT or tls://HOST:PORT.")],
    jobs: JobsOption = 0,
    scratch: Annotated[
        Path | None, Option(metavar="FOLDER", help="Where tasks write; default: a folder in the cache folder.")
    ] = None,
) -> None:
    """Offer this machine to a scheduler until Ctrl-C: a process per core, and one that measures for each GPU."""
    from gensor_tuner.fleet import worker as serving

    serving.check(scheduler)
    serving.serve(scheduler, commands.cores(jobs), scratch, lambda line: say(f"gensor-tune: {line}", sys.stderr))
