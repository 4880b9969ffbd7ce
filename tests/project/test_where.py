"""The table "Where would I change ...?" of CONTRIBUTING.md: each file is there, and has the name in it."""

import re

import pytest

from .test_packaging import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
SECTION = re.search(r"^## Where would I change \.\.\.\?\n\n(.*?)\n\n[^|]", TEXT, re.MULTILINE | re.DOTALL)
ROWS = re.findall(r"^\| ([^|]*?) ?\| `([^`|]+)` \| `(\w+)` \|$", SECTION[1] if SECTION else "", re.MULTILINE)


def test_the_table_answers_twenty_questions():
    assert SECTION and len(ROWS) == len(SECTION[1].splitlines()) - 2
    assert len([question for question, *_ in ROWS if question]) >= 20


@pytest.mark.parametrize("path, name", [row[1:] for row in ROWS])
def test_the_file_is_there_and_has_the_name_in_it(path, name):
    assert re.search(rf"\b{name}\b", (ROOT / path).read_text(encoding="utf-8"))
