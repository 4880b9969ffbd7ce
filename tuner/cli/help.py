"""Help of gensor-tune: its options and commands in groups, in words that are not cut."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from typer import Typer
from typer.core import TyperCommand, TyperGroup

Record = tuple[str, str]
Function = TypeVar("Function", bound=Callable[..., Any])
#: Widths of the first column, so that groups are aligned: of commands' names, and of options with their values.
COLUMNS = (10, 20)

#: Groups in the order of the help; commands of none are listed after them.
GROUPS = {
    "What to tune": ("--arch", "--shapes", "--model", "--input", "--dtype", "--db"),
    "How long, and where": ("--budget", "--jobs", "--cluster", "--distrust", "--shard"),
    "How to search and to check": ("--top", "--seed", "--strategy", "--graph", "--verify", "--measure"),
    "Output": ("--json", "--quiet", "--version", "--help"),
    "Commands to prepare": ("archs", "shapes", "doctor", "completion"),
    "Commands for your own kernels": ("own",),
    "Commands to look at results": ("show", "run", "report"),
    "Commands for databases": ("where", "export", "merge", "import", "verify", "refresh", "prune", "clean"),
    "Commands for boards, clusters and releases": ("measure", "fleet", "check", "pretune"),
}


#: Texts that typer adds to a help: that a number is not negative, and bounds.
NOT_NEGATIVE, BOUNDS = re.compile(r"x>=0(\.0)?"), re.compile(r"([\d.]+)<=x<=([\d.]+)")


class Described(TyperCommand):
    """A command whose parameters are shown without the names of Python's types."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and the options with their helps."""
        listed = [(each.param_type_name, record) for each in self.get_params(ctx) if (record := _record(each, ctx))]
        for kind, title in (("argument", "Arguments"), ("option", "Options")):
            _write(formatter, title, [record for of, record in listed if of == kind])


class Grouped(TyperGroup):
    """A command with commands below it."""

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        """Write the usage: two lines where the command can do without one of those below it."""
        if not self.invoke_without_command:
            super().format_usage(ctx, formatter)
            return
        formatter.write_usage(ctx.command_path, "--arch ARCH (--shapes FILE | --model FILE) [OPTIONS]")
        formatter.write_usage(ctx.command_path, "COMMAND [OPTIONS]", prefix="       ")

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options with their helps, and the commands with their first sentences."""
        options = {max(each.opts, key=len): _record(each, ctx) for each in self.get_params(ctx)}
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        listed: dict[str, Record | None] = dict(options)
        listed |= {name: (name, each.get_short_help_str(1000).rstrip(".")) for name, each in commands if each}
        rest = {name: record for name, record in listed.items() if record}
        for title, names in GROUPS.items():
            _write(formatter, title, [rest.pop(name) for name in names if name in rest])
        _write(formatter, "Commands", list(rest.values()))


class Commands(Typer):
    """An application of such commands."""

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Function], Function]:
        """Return a decorator that adds a function as a command."""
        return super().command(name, cls=Described, **settings)


def _record(parameter: Any, ctx: Any) -> Record | None:
    """Return the name and the help of a parameter, or None where it is hidden."""
    found = parameter.get_help_record(ctx)
    if found is None:
        return None
    name, text = re.sub(r" <[^<>]*>$", "", found[0]), found[1]
    said, bracket, facts = text.replace("  \\[", "  [").rpartition("  [")  # some versions escape it for rich
    if not bracket:
        return name, text
    kept = [BOUNDS.sub(r"\1 to \2", fact) for fact in facts[:-1].split("; ") if not NOT_NEGATIVE.fullmatch(fact)]
    return name, f"{said}  [{'; '.join(kept)}]" if kept else said


def _write(formatter: Any, title: str, records: Sequence[Record]) -> None:
    if records:
        widest = max(len(name) for name, _ in records)
        column = min(COLUMNS, key=lambda width: (width < widest, width))
        with formatter.section(title):
            formatter.write_dl([(name.ljust(column), text) for name, text in records])
