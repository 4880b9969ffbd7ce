"""The subcommands of gensor-tune that look after databases and the cache folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gensor_tuner.store import maintenance
from gensor_tuner.store.jsonl import export_lines, import_lines

from . import commands

DbOption = Annotated[
    Path | None, typer.Option(help="Database; default GENSOR_DB, else kernels.db in the cache folder.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")]


def where(
    arch: Annotated[
        str | None, typer.Option(help="Only the packaged database of this capability; default: of each.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="JSON lines instead of text.")] = False,
) -> None:
    """Print which databases are read, in which order, and why one is ignored; exit code 1 where one is."""
    raise typer.Exit(maintenance.where(commands.capability(arch), json))


def prune(
    db: DbOption = None,
    other_abi: Annotated[
        bool,
        typer.Option("--other-abi", help="Records and portfolios of kernels that this version cannot launch, too."),
    ] = False,
    dry_run: DryRunOption = False,
) -> None:
    """Delete superseded records and what nothing refers to, never timings, and make the file smaller."""
    raise typer.Exit(maintenance.prune(commands.existing_file(db), other_abi, dry_run))


def clean(dry_run: DryRunOption = False) -> None:
    """Delete what was built into the cache folder (emulator libraries, verdicts), never a database."""
    raise typer.Exit(maintenance.clean(dry_run))


def export_rows(out: Path, db: Path | None, arch: str | None, binaries: bool) -> int:
    """`export --json`."""
    with commands.existing(db) as store:
        return export_lines(store, out, commands.capability(arch), binaries)


def import_(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="JSON lines of `export --json`; - is stdin.")],
    db: DbOption = None,
    binaries: Annotated[
        bool,
        typer.Option(
            "--binaries",
            help="Take sources, cubins and verdicts too: their machine code runs on your GPU as you, and counts as "
            "verified because the file says so. Only for files of people you trust.",
        ),
    ] = False,
) -> None:
    """Add the rows of an export: programs, records, timings. A line that is none of these is refused, with a reason."""
    raise typer.Exit(import_lines(source, commands.database(db), binaries))


def register(app: typer.Typer) -> None:
    """Adds the subcommands."""
    for function in (where, prune, clean):
        app.command()(function)
    app.command("import")(import_)
