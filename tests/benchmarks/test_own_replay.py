"""Replays of measured spaces: the procedure with recorded times, and counts that are kept."""

import numpy as np
import pytest

from benchmarks.own_replay import Replayed, procedure, replayed
from gensor_kernels.build.nvrtc import compile_count
from gensor_kernels.machine.arch import lookup
from tests.own.test_tune import scale

pytestmark = pytest.mark.usefixtures("needs_emulator")
SIZES = {"n": 1000}
THREADS, EACH = (32, 64, 96, 128), (1, 2, 3, 4)


def test_a_space_is_replayed_and_counts_are_kept(tmp_path):
    kernel = scale(knobs={"threads": [*THREADS, 160], "each": [*EACH]})  # 160 was not measured
    rows = [({"threads": t, "each": e}, 1.0 + abs(t - 60) + e) for t in THREADS for e in EACH if (t, e) != (96, 4)]
    rng = np.random.default_rng(0)
    found = []
    for _ in range(2):
        before = compile_count()
        measured = Replayed(
            kernel, [rows[each] for each in rng.permutation(len(rows))], lookup("orin-nano-8gb"), SIZES, SIZES, 1,
            tmp_path / "counts.db",
        )  # fmt: skip
        found.append((procedure(measured, 8, 0), replayed(measured, 100, 1), compile_count() - before))
    (order, figures, compiled), again = found
    assert compiled == 16 and again == (order, figures, 0)
    assert len(order) == len(set(order)) and set(order) <= {milliseconds * 1e-3 for _, milliseconds in rows}
    assert figures["configurations"] == 15 and figures["regret of all rounds"] == 0
    assert figures["measured until within 5 %"] <= 15 == figures["measured in all rounds"]
