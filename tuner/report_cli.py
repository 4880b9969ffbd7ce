"""The subcommands of gensor-tune that tell people how kernels do: a page about a database, and a check of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import commands
from .store_cli import DbOption


def report(
    db: DbOption = None,
    arch: Annotated[str | None, typer.Option(help="Only records of this capability.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The HTML file to write.")] = Path("report.html"),
) -> None:
    """Write one self-contained HTML page: roofline, predictions beside times, where time goes, a walk, every record."""
    from .report.page import write

    with commands.existing(db) as store:
        print(write(store, commands.capability(arch), out))


def register(app: typer.Typer) -> None:
    """Adds the subcommands."""
    app.command()(report)
