"""Help of gensor-tune: complete sentences and plain names of values, in 80 columns."""

import re

import pytest

cli = pytest.importorskip("gensor_tuner.cli.app")
from typer.main import get_command  # noqa: E402

from gensor_tuner.cli.help import GROUPS  # noqa: E402

TREE = get_command(cli.app)
LINES = ["", *TREE.commands, *(f"fleet {name}" for name in TREE.commands["fleet"].commands)]


@pytest.fixture
def shown(gensor_tune, monkeypatch):
    """The help of a command on a terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    return lambda line: gensor_tune(*line.split(), "--help")[1]


@pytest.mark.parametrize("line", LINES)
def test_a_help_fits_80_columns_and_names_no_types_of_python(shown, line):
    text = shown(line)
    assert max(map(len, text.splitlines())) <= 80
    assert not re.search(r"<|x>=|\brange\b|\bfloat\b|list\[|TEXT|INTEGER|PATH\]", text)
    command = TREE
    for name in line.split():
        command = command.commands[name]
    for each in command.params:
        assert (getattr(each, "is_flag", False) or each.metavar) and (each.metavar or "") in text, each.name
        assert " ".join(each.help.split()) in " ".join(text.split()), each.name


def test_every_command_is_in_a_group_with_a_summary_on_one_line(shown):
    lines = shown("").splitlines()
    assert not {"Commands:", "Options:"} & {*lines} and {f"{title}:" for title in GROUPS} <= {*lines}
    for name, command in TREE.commands.items():
        summary = command.get_short_help_str(1000).rstrip(".")
        assert f"  {name:<10}  {summary}" in lines and command.help.startswith(summary)
    named = [name for names in GROUPS.values() for name in names]
    options = [max(each.opts, key=len) for each in TREE.params]
    assert sorted(named) == sorted([*TREE.commands, *options, "--help"])


def test_bounds_are_words(shown):
    assert "1 to 256]" in shown("") and "0.0 to 1.0]" in " ".join(shown("check").split())
