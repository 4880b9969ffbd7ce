"""The command `gensor-tune own`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from . import options as given


def own(
    kernel: Annotated[str, Argument(metavar="KERNEL", help="A T1 file (JSON), or FILE.py:NAME of an own.Kernel.")],
    arch: given.ArchOption,
    reference: Annotated[str, Option(metavar="FILE.py:NAME", help="A function that returns the right results.")],
    db: Annotated[Path, Option(metavar="FILE", help="Database for the configurations.")],
    size: Annotated[list[str] | None, Option(metavar="NAME=NUMBER", help="A size; may be repeated.")] = None,
    check_at: Annotated[
        list[str] | None, Option(metavar="NAME=NUMBER", help="A size of verification; may be repeated.")
    ] = None,
    keep: Annotated[int, Option(metavar="N", min=1, max=64, help="Configurations verified and stored.")] = 16,
    budget: Annotated[
        int, Option(metavar="N", min=1, max=100_000, help="Configurations compiled before one is measured.")
    ] = 600,
    seed: given.SeedOption = 0,
    jobs: given.JobsOption = 0,
    measure: Annotated[str, Option(metavar="WHEN", help="Time them on the GPU: auto, never or require.")] = "auto",
    t4: Annotated[Path | None, Option("--t4", metavar="FILE", help="Write the results as a T4 file.")] = None,
    quiet: Annotated[bool, Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Tune your own CUDA kernel with knobs. It is compiled, counted and executed here; a GPU is used but not needed."""
    given.one_of("--measure", measure, ("auto", "never", "require"))
    from gensor_tuner.own.command import run

    options = {"keep": keep, "budget": budget, "seed": seed, "jobs": jobs or None, "measure": measure}
    run(kernel, arch, reference, db, size or [], check_at or [], t4, quiet, **options)
