"""The table "Where would I change ...?" of CONTRIBUTING.md: each file exists and contains the name."""

import re

from .test_packaging import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_each_file_exists_and_contains_the_name():
    section = re.search(r"^## Where would I change \.\.\.\?\n\n(.*?)\n\n[^|]", TEXT, re.MULTILINE | re.DOTALL)[1]
    rows = re.findall(r"^\| [^|]*? ?\| `([^`|]+)` \| `(\w+)` \|$", section, re.MULTILINE)
    assert len(rows) == len(section.splitlines()) - 2 >= 20
    texts = {path: (ROOT / path).read_text(encoding="utf-8") for path, _ in rows}
    assert not [row for row in rows if not re.search(rf"\b{row[1]}\b", texts[row[0]])]
