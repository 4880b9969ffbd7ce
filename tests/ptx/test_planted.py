"""Bugs planted in inline PTX: a share of them is executed here, all of them by `python -m tests.ptx --planted`."""

import pytest

from tests.campaign_size import sample
from tests.ptx.planted import BUGS, CAUGHT, Bug, text_of, with_bug
from tests.ptx.planted_order import ORDER_BUGS

pytestmark = pytest.mark.usefixtures("needs_emulator")  # both are compiled by g++


def test_every_bug_is_an_edit_of_one_string():
    bugs = [*BUGS, *ORDER_BUGS]
    assert len({bug.name for bug in bugs}) == len(bugs)
    for bug in bugs:
        assert text_of(bug.program).count(bug.before) == 1, bug.name


@pytest.mark.parametrize("bug", [*sample(BUGS, 2, 3), *sample(ORDER_BUGS, 1, 2)], ids=lambda bug: bug.name)
def test_a_bug_is_caught(bug: Bug):
    found = with_bug(bug)
    assert found.outcome in CAUGHT, found
