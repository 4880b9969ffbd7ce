"""Progress on stderr, from the first row on: a bar on a terminal, lines anywhere else."""

import io
import sys

import pytest

from gensor_tuner.cli.progress import INTERVAL, Shown
from gensor_tuner.run.progress import Tracker, left_text


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


def tracker(*classes: list[str], clock=lambda: 0.0, **more) -> Tracker:
    made = Tracker(jobs=1, rows=sum(map(len, classes)), clock=clock, **more)
    made.plan(classes)
    return made


def test_an_estimate_and_the_rows_at_work_are_told_from_the_first_second():
    seen = tracker(["a", "b"], ["c"])
    assert seen.seconds_left > tracker(["a", "b"]).seconds_left > 0
    seen.begin(["a", "b"])
    assert seen.text() == f"0 of 3 rows; a, b; {left_text(seen.seconds_left)} left"
    seen = tracker(["a", "b", "c", "d"])
    seen.begin(["a", "b", "c", "d"])
    seen.stage("walk", 4)
    seen("walk", 1)
    assert "walk 1 of 4: b;" in seen.text()
    seen.stage("compile", 7)
    seen("compile", 3)
    assert "compile 3 of 7: a, b and 2 more;" in seen.text()


def test_slow_steps_raise_the_estimate_and_time_lowers_it():
    now = [0.0]
    seen = tracker(["a", "b", "c", "d"], clock=lambda: now[0])
    seen.begin(["a", "b", "c", "d"])
    before = seen.seconds_left
    seen.stage("walk", 4)
    now[0] = 100.0
    seen("walk", 1)
    assert seen.seconds_left >= 300.0 > before
    now[0] = 200.0
    seen("walk", 3)
    assert seen.seconds_left < 300.0

    seen = tracker(["a"], budget=60.0, clock=lambda: now[0])  # a budget is the time that is left
    now[0] = 245.0
    assert seen.seconds_left == 15.0 and seen.share == 0.75
    assert "about 15 s left" in seen.text()
