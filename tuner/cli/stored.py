"""Commands of gensor-tune about databases: what is in them, files to and from them, times for them.

Each command imports what it needs, so that help and completions need neither NumPy nor the families.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from typer import Argument, BadParameter, Exit, Option

from gensor_database.errors import StoreError
from gensor_kernels.errors import ConfigError, GensorError
from gensor_tuner.output import beside, counts_text, json_lines, plural, say, terminal_width

from . import options as given


def show(
    db: given.DbOption = None,
    arch: given.RecordsArchOption = None,
    kernel: Annotated[
        str | None, Option(metavar="DIGEST", help="One kernel, by the first digits of its digest.")
    ] = None,
    json: given.LinesOption = False,
    source: Annotated[
        bool, Option("--source", help="With --kernel: its CUDA source, after the constants of its Program.")
    ] = False,
) -> None:
    """Print the records of a database, or one kernel. A kernel has a program, resources, verification and a walk."""
    if source and kernel is None:
        raise BadParameter("--source goes with --kernel DIGEST: gensor-tune show lists the kernels")
    if source and json:
        raise BadParameter("--source is text: leave out --json")
    from gensor_tuner.store.show import kernel_lines, record_lines, source_lines

    with given.existing(db) as store:
        if kernel is not None and source:
            lines = source_lines(store, kernel)
        elif kernel is not None:
            lines = list(kernel_lines(store, kernel, json, terminal_width(sys.stdout)))
            if not lines:
                raise GensorError(f"{store.path} has no kernel whose digest begins with '{kernel}'")
        else:
            lines = list(record_lines(store, arch, json, terminal_width(sys.stdout)))
    for line in lines:
        say(line)


def export(
    out: Annotated[
        Path, Argument(metavar="FILE", help="File to write: .csv, .json, .jsonl, .parquet, or .db (a compact copy).")
    ],
    db: given.DbOption = None,
    arch: given.RowsArchOption = None,
    json: Annotated[
        bool, Option("--json", help="Every row as a JSON line for `import`, whatever FILE's ending; - is stdout.")
    ] = False,
    binaries: Annotated[bool, Option("--binaries", help="With --json: sources, cubins and verdicts too.")] = False,
) -> None:
    """Write records as a table, all rows as JSON, or a compact copy. `--json` is for `import`, a .db for shipping."""
    if binaries and not json:
        raise BadParameter("--binaries goes with --json; a .db has them anyway")
    from gensor_database.exchange import capabilities
    from gensor_database.exchange import export as export_store
    from gensor_tuner.store.export import write_records
    from gensor_tuner.store.jsonl import export_lines

    with given.existing(db) as store:
        if json:
            raise Exit(export_lines(store, out, arch, binaries))
        if out.suffix != ".db":
            count = write_records(store, out, arch)
            say(f"{count} {plural('record', count)} in {'stdout' if str(out) == '-' else out}", file=beside(out))
            return
        if arch is None:
            found = capabilities(store)
            if len(found) != 1:
                has = f"{store.path} has rows of {', '.join(found) or 'no capability'}"
                raise ConfigError(f"a shipped database serves one capability, {has}: --arch sm_XX says which to export")
            (arch,) = found
        try:
            counts = export_store(store, out, arch)
        except StoreError as error:  # its message names the unfinished temporary file
            raise ConfigError(f"{out} cannot be written: {str(error).rpartition(': ')[2]}") from None
        say(f"{out}: {counts_text(dict(sorted(counts.items())))} for {arch}")


def where(
    arch: given.PackagedArchOption = None,
    json: given.LinesOption = False,
) -> None:
    """Print the databases that are read, in order. Where one is ignored, the reason is printed: exit code 1."""
    from gensor_tuner.store import maintenance

    raise Exit(maintenance.where(arch, json))


def prune(
    db: given.DbOption = None,
    other_abi: Annotated[
        bool, Option("--other-abi", help="Also records and portfolios of kernels that this version cannot launch.")
    ] = False,
    dry_run: given.DryRunOption = False,
) -> None:
    """Delete superseded and unreferenced rows, never timings. The file shrinks."""
    from gensor_tuner.store import maintenance

    raise Exit(maintenance.prune(given.existing_file(db), other_abi, dry_run))


def clean(dry_run: given.DryRunOption = False) -> None:
    """Delete build products in the cache folder, never a database. These are emulator libraries and verdicts."""
    from gensor_tuner.store import maintenance

    raise Exit(maintenance.clean(dry_run))


def import_(
    source: Annotated[Path, Argument(metavar="FILE", help="JSON lines of `export --json`; - is stdin.")],
    db: given.DbOption = None,
    binaries: Annotated[
        bool,
        Option(
            "--binaries",
            help="Take sources, cubins and verdicts too: their machine code runs on your GPU as you, and counts as "
            "verified because the file says so. Only for files of people you trust.",
        ),
    ] = False,
) -> None:
    """Add the rows of an export: programs, records, timings. A malformed line is refused with a reason."""
    from gensor_tuner.store.jsonl import import_lines

    raise Exit(import_lines(source, given.database(db), binaries))


def measure(
    db: given.DbOption = None,
    shapes: Annotated[Path | None, Option(metavar="FILE", help="Only the rows of this shapes file.")] = None,
    out: Annotated[
        Path | None, Option(metavar="FILE", help="Database to add the times to; default: the one read.")
    ] = None,
    budget: given.BudgetOption = None,
    memory: Annotated[
        str | None, Option(metavar="BYTES", help="Device memory that may be used: 500000000, 500M, 2G.")
    ] = None,
    json: given.JsonOption = None,
) -> None:
    """Time stored kernels and CuPy on this machine's GPU. Nothing is compiled, and `merge` takes the times home."""
    from gensor_tuner.measure.command import measure as run

    limit = None if memory is None else given.bytes_of(memory)
    with json_lines(json) as lines:
        raise Exit(run(given.existing_file(db), out, shapes, budget, limit, lines))


def merge(
    sources: Annotated[list[Path], Argument(metavar="FILE", help="Databases to read.")],
    db: given.DbOption = None,
    out: Annotated[
        Path | None,
        Option("--out", "-o", metavar="FILE", help="Create this database from the files, or add them to it."),
    ] = None,
    binaries: Annotated[
        bool,
        Option(
            "--binaries",
            help="Take cubins and verdicts too. Trusting a file means: its machine code runs on your GPU as you, and "
            "counts as verified because the file says so. Leave it out unless you trust everybody who could write it.",
        ),
    ] = False,
    json: Annotated[
        Path | None, Option("--json", metavar="FILE", help="Write one JSON object per conflict to FILE.")
    ] = None,
) -> None:
    """Add the rows of other databases to one. Programs, records, timings: nothing is overwritten or lost."""
    from gensor_tuner.store.merge import merge as run

    if out is not None and db is not None:
        raise BadParameter("--db adds to a database, -o makes one: name one of them")
    with json_lines(json) as lines:
        raise Exit(run(sources, out or given.database(db), out is not None, binaries, lines))


def verify(
    db: given.DbOption = None,
    arch: given.OnlyArchOption = None,
    rebuild: Annotated[
        bool, Option("--rebuild", help="Compile again, and compare cubins made by this toolchain byte by byte.")
    ] = False,
    execute: Annotated[bool, Option("--execute", help="Execute every kernel on the emulator again.")] = False,
    jobs: given.JobsOption = 0,
    json: given.JsonOption = None,
) -> None:
    """Check digests, references and sources of all rows. Every kernel's source is derived from its Program again."""
    from gensor_tuner.store.check import verify as run

    with json_lines(json) as lines:
        raise Exit(run(given.existing_file(db), arch, rebuild, execute, jobs, lines))


def refresh(
    db: given.DbOption = None,
    arch: given.OnlyArchOption = None,
    budget: given.BudgetOption = None,
    jobs: given.JobsOption = 0,
    json: given.JsonOption = None,
) -> None:
    """Rebuild and verify the recorded kernels after an upgrade. Their Programs are the source; every timing stays."""
    from gensor_tuner.store.refresh import refresh as run

    with json_lines(json) as lines:
        raise Exit(run(given.existing_file(db), arch, budget, jobs, lines))


def report(
    db: given.DbOption = None,
    arch: given.RecordsArchOption = None,
    out: Annotated[Path, Option("--out", "-o", metavar="FILE", help="The HTML file to write.")] = Path("report.html"),
) -> None:
    """Write a self-contained HTML page about a database. It has a roofline, predictions, timings, walk and records."""
    from gensor_tuner.report.page import write

    with given.existing(db) as store:
        say(write(store, arch, out), file=beside(out))


#: By the names that users write.
COMMANDS: dict[str, Callable[..., None]] = {
    **{each.__name__: each for each in (show, report, export, where, prune, clean)},
    "import": import_,
    **{each.__name__: each for each in (measure, merge, verify, refresh)},
}
