"""The subcommands of gensor-tune that tell people how kernels do: a page about a database, and a check of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gensor_tuner.output import beside
from gensor_tuner.regression import TOLERANCE

from . import commands
from .store import DbOption


def report(
    db: DbOption = None,
    arch: Annotated[str | None, typer.Option(help="Only records of this capability.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The HTML file to write.")] = Path("report.html"),
) -> None:
    """Write one self-contained HTML page: roofline, predictions beside times, where time goes, a walk, every record."""
    from gensor_tuner.report.page import write

    with commands.existing(db) as store:
        print(write(store, commands.capability(arch), out), file=beside(out))


def check(
    baseline: Annotated[Path, typer.Option(help="Folder of earlier runs: pytest-benchmark JSON, benchmarks.device.")],
    results: Annotated[
        list[Path] | None,
        typer.Option(help="New runs, files or folders; may be repeated. Default: the newest three of the baseline."),
    ] = None,
    junit: Annotated[Path | None, typer.Option(help="Write the verdicts to FILE as JUnit XML.")] = None,
    tolerance: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Smaller slowdowns are let pass: 0.02 is 2 %.")
    ] = TOLERANCE,
) -> None:
    """Compare runs of benchmarks with earlier ones, the vendor's calls being the control; 1 where ours are slower."""
    from gensor_tuner.regression.checked import check as run

    raise typer.Exit(run(baseline, results or [], junit, tolerance))


def register(app: typer.Typer) -> None:
    """Adds the subcommands."""
    for function in (report, check):
        app.command()(function)
