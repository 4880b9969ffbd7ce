"""The disk fails at any call, once or from then on: programs get correct results, the command names the error.

`GENSOR_CAMPAIGN=full pytest tests/campaigns` takes every point, once and from then on, each with an error that the seed
decides: four seeds have all of them.
"""

import errno
import json
from itertools import product

import pytest

from tests.campaign_size import FULL, SEED, sample, tell

from .lives.checks import check
from .lives.lives import Action, Gate

FAILURES = (errno.ENOSPC, errno.EIO, errno.EACCES, errno.EROFS)
LASTING = (Action.ONCE, Action.FOREVER)


def faults(calls: int, few: int) -> list[tuple[int, Action, int]]:
    """Calls with what happens at them."""
    chosen = sample(list(product(range(1, calls + 1), LASTING)), few)
    return [(at, action, FAILURES[(at + action + SEED) % len(FAILURES)]) for at, action in chosen]


def play_all(chosen, play, passes) -> int:
    """Plays all faults, then fails with those that did not pass; the number of faults."""
    troubles = []
    for at, action, failure in chosen:
        try:
            passes(play(at=at, action=action, failure=failure))
        except Exception as error:
            troubles.append(f"call {at}, {action.name}, {errno.errorcode[failure]}: {error!r}")
    assert not troubles, "\n".join(troubles)
    return len(chosen)


@pytest.mark.parametrize("state", ["stocked", "absent"])
def test_a_program_gets_right_results_and_one_warning_at_most(stage, zygote, state, journal):
    def play(**gate):
        folder = stage.fresh(state, journal)
        return zygote.life(Gate(folder, **gate), "program", journal, folder / "kernels.db")

    whole = play()
    assert json.loads(whole.stdout) == {"right": 5, "warnings": []}, whole
    told = 0

    def passes(life):
        nonlocal told
        assert life.code == 0 and not life.stderr, life.stderr
        found = json.loads(life.stdout)
        assert found["right"] == 5 and len(found["warnings"]) <= 1, found
        told += len(found["warnings"])
        check(stage.folder / "play" / "kernels.db", [])

    count = play_all(faults(whole.calls, 4), play, passes)
    tell(f"faults, program, {state}, {journal}", f"{count}, of which {told} were worth a warning")
    assert told or not FULL


@pytest.mark.parametrize("act", ["tune", "merge"])
def test_the_command_says_what_is_wrong_and_keeps_what_it_reported(stage, act, journal):
    whole = stage.play(act, journal, stage.fresh("empty", journal), "more.csv")
    codes = {0: 0, 2: 0}

    def play(**gate):
        return stage.play(act, journal, stage.fresh("empty", journal), "more.csv", **gate)

    def passes(life):
        assert life.code in codes and "Traceback" not in life.stderr, life
        *_, last = life.stderr.splitlines() or [""]
        assert life.code == 0 or last.startswith("gensor-tune: "), life
        check(stage.folder / "play" / "kernels.db", stage.lines())
        codes[life.code] += 1

    count = play_all(faults(whole.calls, 6), play, passes)
    tell(f"faults, {act}, {journal}", f"{count}, exit codes {codes}")
    assert codes[0] + codes[2] == count and (all(codes.values()) or not FULL)
