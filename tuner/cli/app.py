"""gensor-tune: its commands, of which those about databases are in stored.py, and how it ends.

Data goes to stdout, progress and logs to stderr; exit code 1 reports bad or failed rows. Each command imports what it
needs, so that help and completions need neither NumPy nor the families.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, BadParameter, Context, Exit, Option
from typer.completion import get_completion_script

import gensor_kernels
from gensor_database.errors import StoreError
from gensor_database.text import duration
from gensor_kernels import spelling
from gensor_kernels.errors import GensorError, ToolMissingError
from gensor_kernels.machine.arch import lookup
from gensor_tuner.output import (
    STDOUT,
    json_lines,
    note,
    output,
    printable,
    say,
    terminal_width,
    write_json,
)
from gensor_tuner.regression import TOLERANCE

from . import SHELLS, STOPPED, VARIABLE, stored
from . import options as given
from .help import Commands, Grouped
from .own import own
from .values import convert_plainly

PROGRAM = "gensor-tune"

app = Commands(
    cls=Grouped,
    add_completion=False,
    no_args_is_help=True,
    help="Make verified CUDA kernels for a model or a list of shapes, without a GPU.",
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

fleet = Commands(cls=Grouped, no_args_is_help=True, help="Machines that tune for others, on a Dask cluster.")
app.add_typer(fleet, name="fleet")
app.command()(own)
for _name, _function in stored.COMMANDS.items():
    app.command(_name)(_function)

#: Base of typer's errors about command lines; where it is imported from depends on the version.
UsageError: Any = BadParameter.__base__


def write_shapes(model: Path, out: Path, arch: str, inputs: Sequence[str] | None, dtype: str | None) -> None:
    """Write the shapes that a model calls."""
    from gensor_tuner.shapes import from_model, model_cache

    model_cache.write(model, out, lookup(arch).name, from_model.extents_of(inputs or []), dtype)


def _version(asked: bool) -> None:
    if asked:
        say(f"gensor-kernels {gensor_kernels.__version__}")
        raise Exit


@app.callback(invoke_without_command=True)
def tune(
    context: Context,
    arch: Annotated[
        list[str] | None,
        Option(metavar="ARCH", help=f"{given.ARCH} May be repeated.", autocompletion=given.complete_arch),
    ] = None,
    shapes: Annotated[list[Path] | None, Option(metavar="FILE", help="The shapes file (CSV).")] = None,
    model: Annotated[Path | None, Option(metavar="FILE", help="An ONNX model, in place of --shapes.")] = None,
    input: given.InputOption = None,
    dtype: given.DtypeOption = None,
    db: given.DbOption = None,
    top: given.TopOption = 16,
    budget: Annotated[
        float | None, Option(metavar="SECONDS", min=0.0, help="End after SECONDS with the kernels verified by then.")
    ] = None,
    seed: given.SeedOption = 0,
    jobs: given.JobsOption = 0,
    cluster: given.ClusterOption = None,
    distrust: Annotated[
        bool, Option("--distrust", help="With --cluster: compile and execute chosen kernels again on this machine.")
    ] = False,
    shard: Annotated[
        str | None, Option(metavar="I/N", help="Tune only the share I of N of the classes; `merge` joins them.")
    ] = None,
    measure: Annotated[str, Option(metavar="WHEN", help="Time kernels on the GPU: auto, never or require.")] = "auto",
    verify: Annotated[
        str,
        Option(
            metavar="WHERE",
            help="Verify kernels on the emulator; on both with device; nowhere with none: they stay unusable.",
        ),
    ] = "emulator",
    graph: Annotated[
        str, Option(metavar="GRAPH", help="full, or paper: only the paper's actions, reconstructed.")
    ] = "full",
    strategy: Annotated[
        str, Option(metavar="NAME", help="walk, paper (--graph paper), evolution, annealing, random or exhaustive.")
    ] = "walk",
    json: Annotated[Path | None, Option(metavar="FILE", help="Write one JSON object per row to FILE.")] = None,
    quiet: Annotated[bool, Option("--quiet", "-q", help="No progress.")] = False,
    version: Annotated[
        bool, Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Tune every row of a shapes file, or every layer of a model, for an architecture and store the kernels."""
    if context.invoked_subcommand is not None:
        return
    if not arch or not (shapes or model):
        raise BadParameter(
            "--arch and --shapes are both needed: gensor-tune --arch sm_87 --shapes shapes.csv; "
            "`gensor-tune shapes --example -o shapes.csv` writes one to change"
        )
    if shapes and model:
        raise BadParameter("--shapes and --model were both given: leave one out")
    if dtype is not None and not model:
        raise BadParameter("--dtype goes with --model: a shapes file has the column dtype")
    if len(shapes or []) > 1:
        raise BadParameter("--shapes was given more than once: run gensor-tune once for each")
    parts = [lookup(each).part for each in arch]
    if len(set(parts)) < len(parts):
        raise BadParameter(f"--arch names one part twice: {', '.join(parts)}")
    if len(arch) > 1 and (budget is not None or model):
        other = "--model" if model else "--budget"
        raise BadParameter(f"{other} takes one --arch: run gensor-tune once for each")
    if cluster is not None:
        from gensor_tuner.fleet.connect import check as check_address

        check_address(cluster)
    from gensor_tuner.run.class_run import Options
    from gensor_tuner.run.many import Shard
    from gensor_tuner.strategies import STRATEGIES

    from . import tuning

    try:
        share = None if shard is None else Shard.of(shard)
    except ValueError as error:
        raise BadParameter(str(error)) from None
    if distrust and (cluster is None or verify == "none"):
        reason = "goes with --cluster" if cluster is None else "repeats verifications: leave out --verify none"
        raise BadParameter(f"--distrust {reason}")
    given.one_of("--measure", measure, ("auto", "never", "require"))
    given.one_of("--verify", verify, ("emulator", "device", "none"))
    given.one_of("--graph", graph, ("full", "paper"))
    given.one_of("--strategy", strategy, tuple(STRATEGIES))
    if graph == "paper" and strategy not in ("walk", "paper"):
        raise BadParameter(f"--graph paper is a strategy of its own: leave out --strategy {strategy}")
    graph = "paper" if strategy == "paper" else graph
    began = time.monotonic()
    options = Options(top=top, seed=seed, jobs=jobs, graph=graph, verify=verify, strategy=strategy)
    with tempfile.TemporaryDirectory() as folder:
        rows = shapes[0] if shapes else Path(folder, "shapes.csv")
        if model is not None:
            write_shapes(model, rows, arch[0], input, dtype)
            if budget is not None:
                took = duration((time.monotonic() - began) * 1e6)
                note(f"{model} was read in {took}, which --budget does not count")
        settings = tuning.Settings(arch, given.database(db), options, measure, budget, json, quiet)
        settings = replace(settings, cluster=cluster, distrust=distrust, shard=share)
        if model is not None:  # a model in 16 bits has its own totals
            settings = replace(settings, model=model.name if dtype is None else f"{model.name} in {dtype}")
        code = tuning.tune(settings, rows)
    raise Exit(code)


@app.command()
def run(
    model: given.ModelArgument,
    emulate: Annotated[
        str | None,
        Option(
            metavar="ARCH",
            help="Predict for this capability or part, without a GPU; nothing is computed.",
            autocompletion=given.complete_arch,
        ),
    ] = None,
    profile: Annotated[
        bool, Option("--profile", help="Draw a plot, too; on a GPU, time each layer by itself.")
    ] = False,
    out: Annotated[
        Path | None, Option("--out", "-o", metavar="FILE", help="With --profile: the plot; default MODEL.png.")
    ] = None,
    json: Annotated[
        Path | None, Option(metavar="FILE", help="Write one JSON object per layer to FILE; - is stdout.")
    ] = None,
    input: given.InputOption = None,
    dtype: given.DtypeOption = None,
    db: given.DbOption = None,
) -> None:
    """Print the layers of a model: kernel, time and bound of each. `--profile` draws a plot."""
    if out is not None and not profile:
        raise BadParameter("--out goes with --profile: it names the plot")
    from gensor_tuner.report import layers as drawing
    from gensor_tuner.shapes import from_model

    plot = (out or Path(f"{model.stem}.png")) if profile else None
    with given.read_first(db), json_lines(json) as lines:
        try:
            found = from_model.layers(model, emulate, from_model.extents_of(input or []), plot is not None, dtype)
        except ToolMissingError as error:
            raise error if emulate else ToolMissingError(f"--emulate ARCH predicts without a GPU; {error}") from None
        for each in drawing.summaries(found) if lines is not None else ():
            write_json(lines, each)
        for line in found.lines(terminal_width(sys.stdout)):
            say(line)
        if plot is not None:
            part = lookup(emulate).part if emulate else "this machine's GPU"
            drawing.plot(found, printable(f"{model.name} on {part}", 80), plot)
            note(f"the plot is in {plot}")


@app.command()
def shapes(
    model: Annotated[Path | None, Argument(metavar="[MODEL]", help="The ONNX model.")] = None,
    out: Annotated[
        Path | None,
        Option("--out", "-o", metavar="FILE", help="The shapes file (CSV) to write; default of --example: stdout."),
    ] = None,
    example: Annotated[
        bool, Option("--example", help="Write a commented file to change, in place of a model's calls.")
    ] = False,
    arch: Annotated[
        str,
        Option(
            metavar="ARCH",
            help="The capability whose choices are asked; nothing is computed.",
            autocompletion=given.complete_arch,
        ),
    ] = "sm_87",
    input: given.InputOption = None,
    dtype: given.DtypeOption = None,
) -> None:
    """Write the calls of a model as a shapes file. They are those after its fusions, for each requested size."""
    if example == (model is not None):
        raise BadParameter("shapes takes a model, or --example: gensor-tune shapes model.onnx -o shapes.csv")
    if model is not None:
        if out is None:
            raise BadParameter("-o FILE names the shapes file: gensor-tune shapes model.onnx -o shapes.csv")
        write_shapes(model, out, arch, input, dtype)
        return
    from gensor_tuner.shapes.example import TEXT

    with output(out or Path(STDOUT), "--out") as file:
        file.write(TEXT)


@app.command()
def pretune(
    arch: given.ArchOption,
    shapes: given.ShapesOption = Path("examples/common_shapes.csv"),
    out: Annotated[
        Path | None, Option(metavar="FILE", help="Default: database/pretuned/ARCH.db of this checkout.")
    ] = None,
    seed: given.SeedOption = 0,
    jobs: given.JobsOption = 0,
    top: given.TopOption = 16,
    drawn: Annotated[int, Option(metavar="N", min=0, help="Drawn Workloads whose kernels may be added.")] = 3600,
) -> None:
    """Build the database that ships for one compute capability."""
    from gensor_tuner.run.class_run import Options

    from . import tuning

    raise Exit(tuning.pretune(arch, shapes, out, Options(top, seed, jobs), drawn))


@app.command()
def archs(
    part: Annotated[
        str | None,
        Argument(metavar="[PART]", help="One part, with all its figures.", autocompletion=given.complete_arch),
    ] = None,
) -> None:
    """List capabilities and parts, or one part's figures. Figures have sources; a last line says what ships."""
    from . import archs as listing

    for line in listing.overview() if part is None else listing.details(part):
        say(line)
    if part is None:
        note(listing.SEVERAL)


@app.command()
def completion(shell: Annotated[str, Argument(metavar="SHELL", help="bash, zsh or fish.")]) -> None:
    """Print the completions for a shell. In its start file: eval "$(gensor-tune completion bash)"."""
    given.one_of("SHELL", shell, SHELLS)
    for line in get_completion_script(prog_name=PROGRAM, complete_var=VARIABLE, shell=shell).splitlines():
        say(line)


@app.command()
def doctor() -> None:
    """Print a report about this machine to paste into a bug report."""
    from gensor_kernels.devices.doctor import report

    for line in report():
        say(line)


@app.command()
def check(
    baseline: Annotated[
        Path, Option(metavar="FOLDER", help="Folder of earlier runs: pytest-benchmark JSON, benchmarks.device.")
    ],
    results: Annotated[
        list[Path] | None,
        Option(
            metavar="PATH",
            help="New runs, files or folders; may be repeated. Default: the newest three of the baseline.",
        ),
    ] = None,
    junit: Annotated[Path | None, Option(metavar="FILE", help="Write the verdicts to FILE as JUnit XML.")] = None,
    tolerance: Annotated[
        float, Option(metavar="SHARE", min=0.0, max=1.0, help="Accepted slowdown: 0.02 is 2 %.")
    ] = TOLERANCE,
    allow_unclear: Annotated[
        bool, Option("--allow-unclear", help="Pass benchmarks whose runs are too noisy for a verdict.")
    ] = False,
) -> None:
    """Compare benchmark runs with earlier runs. The vendor's calls are the control; exit code 1 if ours are slower."""
    from gensor_tuner.regression.command import check as run

    raise Exit(run(baseline, results or [], junit, tolerance, allow_unclear))


@fleet.callback()
def machines() -> None:
    """Machines that tune for others, on a Dask cluster."""


@fleet.command()
def worker(
    scheduler: Annotated[str, Option(metavar="ADDRESS", help="tcp://HOST:PORT or tls://HOST:PORT.")],
    jobs: given.JobsOption = 0,
    scratch: Annotated[
        Path | None, Option(metavar="FOLDER", help="Where tasks write; default: a folder in the cache folder.")
    ] = None,
) -> None:
    """Offer this machine to a scheduler until Ctrl-C. A process per core tunes, and one for each GPU measures."""
    from gensor_tuner.fleet import worker as serving

    serving.check(scheduler)
    serving.serve(scheduler, jobs, scratch, note)


def main() -> None:
    """Run gensor-tune; errors become sentences on stderr, never tracebacks."""
    convert_plainly()
    try:
        sys.exit(app(prog_name=PROGRAM, standalone_mode=False) or 0)
    except UsageError as error:
        if len(sys.argv) == 1:  # the message is the help
            error.show()
            sys.exit(2)
        help_of = error.ctx.command_path if error.ctx is not None else "gensor-tune"
        message = error.format_message().removeprefix("Invalid value: ").rstrip(".")
        if name := getattr(error, "option_name", "") if "No such option" in message else "":
            meant = spelling.did_you_mean(spelling.near(name, getattr(error, "possibilities", None) or ()))
            message = f"No such option: {name}" + (f": {meant}" if meant else "")
        listed = "commands" if message.startswith("No such command") else "options"
        for ending, option in ((".csv", "--shapes"), (".onnx", "--model")):
            if listed == "commands" and message.removesuffix("'").endswith(ending):
                message += f": a file of shapes or a model goes with its option, as in {option} FILE"
        note(f"{message} ({help_of} --help lists the {listed})")
        sys.exit(2)
    except GensorError as error:
        advice = " (another database: --db FILE, or GENSOR_DB)" if isinstance(error, StoreError) else ""
        for line in f"gensor-tune: {error}{advice}".split("\n"):
            say(line, sys.stderr)
        sys.exit(2)
    except SystemExit as ended:
        if ended.code == 130:  # typer's exit code for Ctrl-C
            say(STOPPED, file=sys.stderr)
        raise
    except BrokenPipeError:
        sys.exit(141)  # the reader of a pipe closed it, as in `gensor-tune show | head`
    except KeyboardInterrupt:
        say(STOPPED, file=sys.stderr)
        sys.exit(130)
    except (OSError, MemoryError) as error:  # no space, no files, no memory: reported rows are already stored
        named = (getattr(error, "filename", None), getattr(error, "strerror", None) or str(error) or "out of memory")
        note(f"{': '.join(str(each) for each in named if each)}")
        sys.exit(2)


if __name__ == "__main__":
    main()
