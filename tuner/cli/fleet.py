"""The subcommands of gensor-tune that carry databases between machines and versions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from gensor_tuner.output import json_lines

from . import commands
from .store import DbOption

JsonOption = Annotated[Path | None, typer.Option("--json", help="Write one JSON object per result to FILE.")]
ArchOption = Annotated[str | None, typer.Option(help="Only kernels of this capability.")]
JobsOption = Annotated[int, typer.Option(min=0, help="Parallel work; 0 is every usable core.")]
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}


def bytes_of(text: str) -> int:
    """A number of bytes: digits, with k, M or G behind them for 1000, a million, a billion."""
    match = re.fullmatch(r"([0-9]{1,15})([kmg]?)b?", text.strip().lower())
    if match is None or int(match[1]) == 0:
        raise typer.BadParameter(f"--memory takes a number of bytes such as 500000000, 500M or 2G, not '{text[:40]}'")
    return int(match[1]) * UNITS[match[2]]


def measure(
    db: DbOption = None,
    shapes: Annotated[Path | None, typer.Option(help="Only the rows of this shapes file.")] = None,
    out: Annotated[Path | None, typer.Option(help="Database to add the times to; default: the one read.")] = None,
    budget: Annotated[float | None, typer.Option(min=0.0, help="Stop starting new work after SECONDS.")] = None,
    memory: Annotated[str | None, typer.Option(help="Device memory that may be used: BYTES, 500M, 2G.")] = None,
    json: JsonOption = None,
) -> None:
    """Time stored kernels beside CuPy on the GPU at hand; nothing is compiled. `merge` takes the times home."""
    from gensor_tuner.measure.command import measure as run

    limit = None if memory is None else bytes_of(memory)
    with json_lines(json) as lines:
        raise typer.Exit(run(commands.existing_file(db), out, shapes, budget, limit, lines))


def merge(
    sources: Annotated[list[Path], typer.Argument(metavar="FILE", help="Databases to read.")],
    db: DbOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Make this database of all of them, or add them to it.")
    ] = None,
    binaries: Annotated[
        bool,
        typer.Option(
            "--binaries",
            help="Take cubins and verdicts too. Trusting a file means: its machine code runs on your GPU as you, and "
            "counts as verified because the file says so. Leave it out unless you trust everybody who could write it.",
        ),
    ] = False,
    json: Annotated[Path | None, typer.Option("--json", help="Write one JSON object per conflict to FILE.")] = None,
) -> None:
    """Add the rows of other databases to one: programs, records, timings. Nothing is overwritten or lost."""
    from gensor_tuner.store.merge import merge as run

    if out is not None and db is not None:
        raise typer.BadParameter("--db adds to a database, -o makes one: name one of them")
    with json_lines(json) as lines:
        raise typer.Exit(run(sources, out or commands.database(db), out is not None, binaries, lines))


def verify(
    db: DbOption = None,
    arch: ArchOption = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Compile again, and compare cubins made by this toolchain byte by byte.")
    ] = False,
    execute: Annotated[bool, typer.Option("--execute", help="Execute every kernel on the emulator again.")] = False,
    jobs: JobsOption = 0,
    json: JsonOption = None,
) -> None:
    """Check every row's digest and references, and derive every kernel's source from its Program again."""
    from gensor_tuner.store.check import verify as run

    with json_lines(json) as lines:
        only = commands.capability(arch)
        raise typer.Exit(run(commands.existing_file(db), only, rebuild, execute, commands.cores(jobs), lines))


def refresh(
    db: DbOption = None,
    arch: ArchOption = None,
    budget: Annotated[float | None, typer.Option(min=0.0, help="Stop starting new work after SECONDS.")] = None,
    jobs: JobsOption = 0,
    json: JsonOption = None,
) -> None:
    """After an upgrade: build and verify the recorded kernels again from their Programs. Every timing stays."""
    from gensor_tuner.store.upgrade import refresh as run

    with json_lines(json) as lines:
        only = commands.capability(arch)
        raise typer.Exit(run(commands.existing_file(db), only, budget, commands.cores(jobs), lines))


def learn(
    db: DbOption = None,
    arch: Annotated[str | None, typer.Option(help="Only timings of this capability or part.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the model's bags.")] = 0,
) -> None:
    """Learn from a database's timings what the potential gets wrong, and store it with them: used from then on."""
    from gensor_tuner.learn.command import learn as run

    part = None if arch is None or arch.startswith("sm_") else arch
    raise typer.Exit(run(commands.existing_file(db), commands.capability(arch), part, seed))


def register(app: typer.Typer) -> None:
    """Adds the subcommands."""
    for function in (measure, learn, merge, verify, refresh):
        app.command()(function)
