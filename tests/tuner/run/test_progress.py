"""Progress of a run: the rows at work, and an estimate that follows events."""

from __future__ import annotations

from gensor_tuner.run.progress import Tracker, left_text


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def tracker(clock: Clock, *classes: list[str], **more) -> Tracker:
    made = Tracker(jobs=1, rows=sum(map(len, classes)), clock=clock, **more)
    made.plan(classes)
    return made


def test_there_is_an_estimate_from_the_first_second():
    seen = tracker(Clock(), ["a", "b"], ["c"])
    alone = tracker(Clock(), ["a", "b"])
    assert seen.seconds_left > alone.seconds_left > 0
    seen.begin(["a", "b"])
    assert seen.text() == f"0 of 3 rows; a, b; {left_text(seen.seconds_left)} left"


def test_the_rows_at_work_are_named_with_their_step():
    seen = tracker(Clock(), ["a", "b", "c", "d"])
    seen.begin(["a", "b", "c", "d"])
    seen.stage("walk", 4)
    seen("walk", 1)
    assert "walk 1 of 4: b;" in seen.text()
    seen.stage("compile", 7)
    seen("compile", 3)
    assert "compile 3 of 7: a, b and 2 more;" in seen.text()


def test_slow_steps_raise_the_estimate_and_time_lowers_it():
    clock = Clock()
    seen = tracker(clock, ["a", "b", "c", "d"])
    seen.begin(["a", "b", "c", "d"])
    before = seen.seconds_left
    seen.stage("walk", 4)
    clock.now = 100.0
    seen("walk", 1)
    assert seen.seconds_left >= 300.0 > before
    clock.now = 200.0
    seen("walk", 3)
    assert seen.seconds_left < 300.0


def test_a_budget_is_the_time_that_is_left():
    clock = Clock()
    seen = tracker(clock, ["a"], budget=60.0)
    clock.now = 45.0
    assert seen.seconds_left == 15.0 and seen.share == 0.75
    assert "about 15 s left" in seen.text()
