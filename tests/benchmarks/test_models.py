"""benchmarks.models: launches of an exported network and of a session's step."""

import sys

import pytest

from benchmarks import models


@pytest.mark.nightly
def test_the_command_counts_launches(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["models", "mobilenet_v2", "gpt2_session"])
    models.main()
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[:3] for row in rows] == [["| mobilenet_v2", "54", "0 / 1"], ["| gpt2_session", "86", "1 / 6"]]
