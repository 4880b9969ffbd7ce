"""benchmarks.unseen, stored_times and models: what is drawn or read, and the figures that are printed."""

import json
import sys

import numpy as np
import pytest

from benchmarks import models, stored_times
from benchmarks.stored_times import Timed
from benchmarks.unseen import DRAWS, WAYS, main
from gensor_database import PRETUNED
from gensor_kernels.operators.products import matmul
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


SHIPPED = PRETUNED / "sm_90.db"


def one(measured, predicted):
    return Timed(matmul.workload(64, 64, 64), np.array(measured), np.array(predicted))


def test_a_right_order_has_no_regret_and_a_wrong_one_has():
    right, wrong = one([10.0, 20.0, 30.0], [1.0, 2.0, 3.0]), one([30.0, 20.0, 10.0], [1.0, 2.0, 3.0])
    assert (right.regret, right.tau) == (1.0, 1.0) and (wrong.regret, wrong.tau) == (3.0, -1.0)
    found = stored_times.figures([right, wrong])
    assert found["workloads"] == 2 and found["times"] == 6 and found["tau"] == 0 and found["regret"] == 2.0


def test_the_shipped_times_of_an_h100(capsys):
    assert stored_times.main([str(SHIPPED), "--part", "h100-sxm"]) == 0
    words = capsys.readouterr().out.replace(",", " ").split()
    assert int(words[words.index("workloads") + 1]) >= 60
    assert float(words[words.index("regret") + 1]) < 1.1  # the order of the potential is worth something


@pytest.mark.parametrize("part", ["h200", "h100-pcie"])
def test_a_part_without_times(part, capsys):
    assert stored_times.main([str(SHIPPED), "--part", part]) == 1
    assert f"has no times of kernels on {part}" in capsys.readouterr().err


@pytest.mark.nightly
def test_the_command_counts_launches(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["models", "mobilenet_v2", "gpt2_session"])
    models.main()
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[:3] for row in rows] == [["| mobilenet_v2", "54", "0 / 1"], ["| gpt2_session", "86", "1 / 6"]]
