"""gensor-tune: the command line. Data on stdout, progress and logs on stderr; exit code 1 for bad or failed rows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from gensor_database.store import StoreError
from gensor_kernels.errors import GensorError
from gensor_tuner.output import say
from gensor_tuner.run.class_run import Options
from gensor_tuner.strategies import STRATEGIES

from . import STOPPED, commands, fleet
from . import report as report_cli
from .store import DbOption, export_rows, register

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Construct verified CUDA kernels for a list of shapes, without a GPU.",
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

ArchOption = Annotated[str, typer.Option(help="Compute capability (sm_87) or part (orin-nano-8gb, h200).")]
ShapesOption = Annotated[Path, typer.Option(help="The shapes file (CSV); - is stdin.")]
JobsOption = Annotated[int, typer.Option(min=0, help="Parallel work; 0 is every usable core.")]
SeedOption = Annotated[int, typer.Option(min=0, help="Seed of the walks.")]
TopOption = Annotated[int, typer.Option(min=1, max=256, help="Finalists compiled per class.")]


@app.callback(invoke_without_command=True)
def tune(
    context: typer.Context,
    arch: Annotated[str | None, typer.Option(help="Compute capability (sm_87) or part (orin-nano-8gb, h200).")] = None,
    shapes: Annotated[Path | None, typer.Option(help="The shapes file (CSV).")] = None,
    db: DbOption = None,
    top: TopOption = 16,
    budget: Annotated[
        float | None, typer.Option(min=0.0, help="End after SECONDS, with what is verified then.")
    ] = None,
    seed: SeedOption = 0,
    jobs: JobsOption = 0,
    measure: Annotated[str, typer.Option(help="auto, never or require: time kernels on the GPU.")] = "auto",
    verify: Annotated[
        str, typer.Option(help="Where kernels run first: emulator; device, which is both; or none, and none is usable.")
    ] = "emulator",
    graph: Annotated[str, typer.Option(help="full, or paper: the paper's actions alone, reconstructed.")] = "full",
    strategy: Annotated[
        str, typer.Option(help="What searches: walk, paper (--graph paper), evolution, annealing, random, exhaustive.")
    ] = "walk",
    json: Annotated[Path | None, typer.Option(help="Write one JSON object per row to FILE.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars.")] = False,
) -> None:
    """Tune every row of a shapes file for an architecture and store the kernels."""
    if context.invoked_subcommand is not None:
        return
    if arch is None or shapes is None:
        raise typer.BadParameter("--arch and --shapes are both needed: gensor-tune --arch sm_87 --shapes shapes.csv")
    _one_of("--measure", measure, ("auto", "never", "require"))
    _one_of("--verify", verify, ("emulator", "device", "none"))
    _one_of("--graph", graph, ("full", "paper"))
    _one_of("--strategy", strategy, STRATEGIES)
    if graph == "paper" and strategy not in ("walk", "paper"):
        raise typer.BadParameter(f"--graph paper is a strategy of its own: leave out --strategy {strategy}")
    graph = "paper" if strategy == "paper" else graph
    cores = commands.cores(jobs)
    options = Options(top=top, seed=seed, jobs=cores, graph=graph, verify=verify, strategy=strategy)
    code = commands.tune(arch, shapes, db, options, measure=measure, budget=budget, json_path=json, quiet=quiet)
    raise typer.Exit(code)


@app.command()
def show(
    db: DbOption = None,
    arch: Annotated[str | None, typer.Option(help="Only records of this capability.")] = None,
    kernel: Annotated[str | None, typer.Option(help="One kernel, by the first digits of its digest.")] = None,
    json: Annotated[bool, typer.Option("--json", help="JSON lines instead of a table.")] = False,
) -> None:
    """Print the records of a database, or one kernel with its program, resources, verification and walk."""
    raise typer.Exit(commands.show(db, arch, kernel, json))


@app.command()
def export(
    out: Annotated[
        Path, typer.Argument(metavar="FILE", help="File to write: .csv, .json lines, or .db (a compact copy).")
    ],
    db: DbOption = None,
    arch: Annotated[str | None, typer.Option(help="Only rows of this capability.")] = None,
    json: Annotated[
        bool,
        typer.Option("--json", help="Every row as a JSON line, whatever FILE is called, for `import`; - is stdout."),
    ] = False,
    binaries: Annotated[
        bool, typer.Option("--binaries", help="With --json: sources, cubins and verdicts too.")
    ] = False,
) -> None:
    """Write records as CSV or JSON lines, every row for `import`, or a compact database for shipping."""
    if binaries and not json:
        raise typer.BadParameter("--binaries goes with --json; a .db has them anyway")
    raise typer.Exit(commands.export(out, db, arch) if not json else export_rows(out, db, arch, binaries))


@app.command()
def pretune(
    arch: ArchOption,
    shapes: ShapesOption = Path("examples/common_shapes.csv"),
    out: Annotated[Path | None, typer.Option(help="Default: database/pretuned/<arch>.db of this checkout.")] = None,
    seed: SeedOption = 0,
    jobs: JobsOption = 0,
    top: TopOption = 16,
) -> None:
    """Build the database that ships with the package for one compute capability."""
    options = Options(top=top, seed=seed, jobs=commands.cores(jobs))
    raise typer.Exit(commands.pretune(arch, shapes, out, options))


@app.command()
def archs() -> None:
    """List every compute capability and part, with the figures the predictions rest on."""
    raise typer.Exit(commands.archs())


@app.command()
def doctor() -> None:
    """Print what was found on this machine, to paste into a bug report."""
    from .doctor import report

    for line in report():
        print(line)


register(app)
fleet.register(app)
report_cli.register(app)


def _one_of(option: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise typer.BadParameter(f"{option} is one of {', '.join(choices)}, not '{value}'")


def main() -> None:
    """Entry point of `gensor-tune`: errors are sentences on stderr, never tracebacks."""
    try:
        app(prog_name="gensor-tune")
    except (GensorError, StoreError) as error:
        advice = " (another database: --db FILE, or GENSOR_DB)" if isinstance(error, StoreError) else ""
        for line in f"gensor-tune: {error}{advice}".split("\n"):
            say(line, sys.stderr)
        sys.exit(2)
    except SystemExit as ended:
        if ended.code == 130:  # which is what typer makes of Ctrl-C
            print(STOPPED, file=sys.stderr)
        raise
    except BrokenPipeError:
        sys.exit(141)  # the reader of a pipe left, as `gensor-tune show | head` does
    except KeyboardInterrupt:
        print(STOPPED, file=sys.stderr)
        sys.exit(130)
    except (OSError, MemoryError) as error:  # no space, no files, no memory: rows that were reported are stored
        print(f"gensor-tune: {str(error) or 'out of memory'}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
