"""benchmarks.unseen and models: what is drawn or read, and the figures that are printed."""

import json
import sys

import pytest

from benchmarks import models
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


@pytest.mark.nightly
def test_the_command_counts_launches(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["models", "mobilenet_v2", "gpt2_session"])
    models.main()
    rows = [line.split(",") for line in capsys.readouterr().out.splitlines()[1:]]
    assert [row[:4] for row in rows] == [["mobilenet_v2", "54", "0", "1"], ["gpt2_session", "86", "1", "6"]]
