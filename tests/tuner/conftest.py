"""Fixtures of the tuner's tests."""

import sys

import pytest


@pytest.fixture
def gensor_tune(monkeypatch, capsys, tmp_path):
    """gensor_tune("show", "--db", "{}/k.db") -> (exit code, stdout, stderr); {} in an argument is the test's folder."""
    cli = pytest.importorskip("gensor_tuner.cli.app")

    def run(*arguments) -> tuple[int, str, str]:
        named = [str(each).replace("{}", str(tmp_path)) for each in arguments]
        monkeypatch.setattr(sys, "argv", ["gensor-tune", *named])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code, *capsys.readouterr()

    return run
