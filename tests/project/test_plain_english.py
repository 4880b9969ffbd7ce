"""The budget of phrases that plain_english.py lists."""

from .plain_english import hits

BUDGET = 60


def test_text_is_plain_english():
    found = hits([])
    assert len(found) <= BUDGET, "\n".join(place for _, place in found)
