"""The command `python -m tests.ptx`: what it skips, its exit code and its table."""

import json

import pytest

from tests.ptx import __main__ as command
from tests.ptx.stored import small

LINE = {
    "arch": "sm_87",
    "family": "gemv",
    "dtype": "float32",
    "form": "plain",
    "detail": "",
    "cases": 5,
    "runs": 8,
    "worst": 0.25,
    "elements": 100,
    "equal": 60,
    "replaced": "",
    "causes": {"functions": [70, 30], "no cause": [30, 30]},
    "opcodes": ["bra"],
}


@pytest.fixture
def executed(monkeypatch):
    """The names of what the command executes, in order; every outcome but the last is ok."""
    names = []

    def execute(item, replaced, *, emulated):
        assert emulated
        names.append(item.name)
        return LINE | {"name": item.name, "replaced": replaced.name, "outcome": "wrong" if len(names) == 3 else "ok"}

    monkeypatch.setattr(command, "execute", execute)
    return names


def run(monkeypatch, *arguments: object) -> int:
    monkeypatch.setattr(
        "sys.argv", ["tests.ptx", "--small", "--arch", "sm_87", "--family", "gemv", *map(str, arguments)]
    )
    return command.main()


def test_a_stopped_run_goes_on_and_a_wrong_result_is_told(monkeypatch, executed, tmp_path, capsys):
    lines, made = tmp_path / "lines", tmp_path / "table.json"
    assert run(monkeypatch, "--most", 2, "--json", lines) == 0
    assert run(monkeypatch, "--most", 1, "--json", lines, "--table", made) == 1
    assert len(set(executed)) == 3
    table = json.loads(made.read_text())
    sums = {"cases": 15, "runs": 24, "elements": 300, "equal": 180, "worst": 0.25}
    sums["causes"] = {"functions": [210, 90], "no cause": [90, 90]}
    assert table["total"] == {"kernels": 3, "right": 2, "not_executed": 0} | sums
    assert len(table["findings"]) == 1 and "wrong" in table["findings"][0]
    assert "gemv sm_87 float32, plain: wrong" in capsys.readouterr().out


def test_lines_with_something_replaced_are_apart(monkeypatch, executed, tmp_path):
    lines, made = tmp_path / "lines", tmp_path / "table.json"
    for options in ([], ["--plain", "--truncated"], ["--plain", "--truncated"]):
        run(monkeypatch, "--most", 1, "--json", lines, "--table", made, *options)
    assert executed[0] == executed[1] != executed[2]
    table = json.loads(made.read_text())
    assert table["total"]["kernels"] == 1
    assert {name: sums["kernels"] for name, sums in table["replaced"].items()} == {"plain truncated": 2}


def test_kernels_that_other_databases_have_are_left_out(monkeypatch, executed, tmp_path):
    every = list(small("sm_87", "gemv"))[:4]

    def stored(arch, family, folder=None):
        assert (arch, family) == ("sm_87", "gemv") and folder in (None, tmp_path)
        return every if folder is None else every[1:3]

    monkeypatch.setattr(command, "stored", stored)
    monkeypatch.setattr("sys.argv", ["tests.ptx", "--arch", "sm_87", "--family", "gemv", "--since", str(tmp_path)])
    assert command.main() == 0 and set(executed) == {every[0].name, every[3].name}


def test_what_is_not_executed_has_its_reason():
    lines = [LINE | {"name": "a", "outcome": "ok"}, LINE | {"name": "b", "outcome": "not executed", "detail": "wgmma"}]
    table = command.table(lines)
    assert table["not_executed"] == [{"family": "gemv", "instruction": "wgmma"}]
    assert (table["total"]["right"], table["total"]["not_executed"], table["findings"]) == (1, 1, [])
