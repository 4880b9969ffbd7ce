"""Progress on stderr, from the first row on: a bar on a terminal, lines anywhere else."""

import io
import sys

import pytest

from gensor_tuner.cli.progress import INTERVAL, Shown


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()], ids=["a file", "a terminal"])
def test_rows_and_seconds_are_told_at_once_and_no_control_character_is(stream, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "stderr", stream)
    made = Shown(jobs=1, top=4, budget=None, rows=3, quiet=False)
    try:
        made.plan([["first", "second"], ["third"]])
        made.begin(["first", "second"])
        assert "0 of 3 rows; first, second; " in stream.getvalue() and " s left" in stream.getvalue()
        if not stream.isatty():
            before = made.clock()
            made.clock = lambda: before + INTERVAL / 2
            made("walk", 1)
            assert stream.getvalue().count("\n") == 1  # too early for another line
            made.clock = lambda: before + INTERVAL
            made("walk", 1)
            assert stream.getvalue().count("\n") == 2 and "walk 2: first" in stream.getvalue()
        made.begin(["\x1b]0;title\x07"])
        made.show()
    finally:
        made.close()
    assert "\x1b]" not in stream.getvalue()
