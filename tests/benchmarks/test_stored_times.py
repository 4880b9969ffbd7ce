"""benchmarks.stored_times: predictions of stored kernels and their times."""

import numpy as np
import pytest

from benchmarks import stored_times
from benchmarks.stored_times import Timed
from gensor_database import PRETUNED
from gensor_kernels.operators.products import matmul

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
