"""The comparison of stored picks with fresh walks: what is drawn, and which ways to choose include others."""

import json

from benchmarks.unseen import MOST_FLOPS, WAYS, drawn, main


def test_the_draw_depends_on_its_seed_alone():
    first = [each.key() for each in drawn(40, 3)]
    assert first == [each.key() for each in drawn(40, 3)] != [each.key() for each in drawn(40, 4)]
    assert all(each.flops() <= MOST_FLOPS for each in drawn(40, 3))


def test_more_to_choose_from_is_never_predicted_to_be_slower(tmp_path, capsys):
    assert main(["--arch", "sm_87", "--shapes", "4", "--json", str(tmp_path / "u.json")]) == 0
    found = json.loads((tmp_path / "u.json").read_text())["sm_87"]
    assert found["worst"] and all(
        line["as_tuned"] >= line["portfolio"] >= line["stored"] >= 1 for line in found["worst"]
    )
    printed = capsys.readouterr().out
    assert all(way in printed for way in WAYS)
