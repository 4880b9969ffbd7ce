"""The comparison of stored picks with fresh walks: what is drawn, and which ways to choose include others."""

import json

import pytest

from benchmarks.unseen import DRAWS, WAYS, main
from gensor_tuner.run.drawn import MOST_FLOPS


@pytest.mark.parametrize("kind", DRAWS)
def test_the_draw_depends_on_its_seed_alone(kind):
    drawn = DRAWS[kind]
    first = [each.key() for each in drawn(40, 3)]
    assert first == [each.key() for each in drawn(40, 3)] != [each.key() for each in drawn(40, 4)]
    assert len(first) == 40 and all(each.flops() <= MOST_FLOPS for each in drawn(40, 3))


def test_more_to_choose_from_is_never_predicted_to_be_slower(tmp_path, capsys):
    assert main(["--arch", "sm_87", "--shapes", "4", "--json", str(tmp_path / "u.json")]) == 0
    found = json.loads((tmp_path / "u.json").read_text())["sm_87"]
    assert list(found) == list(DRAWS)
    for each in found.values():
        served = [line for line in each["worst"] if line["stored"] is not None]
        assert served and all(line["portfolio"] >= line["stored"] >= 1 for line in served)
    printed = capsys.readouterr().out
    assert all(way in printed for way in WAYS)
