"""The factors between predicted and measured times: they follow from the committed times, and hold for others."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from gensor_kernels.machine import expected

TIMES = Path(__file__).parents[2] / "benchmarks/results/h100-sxm.jsonl.gz"
LEAST = 10  # workloads of a family that has factors of its own


@pytest.fixture(scope="module")
def ratios():
    """Measured over predicted times, by family or "" for the others, and by workload."""
    found = {}
    for line in gzip.decompress(TIMES.read_bytes()).splitlines():
        row = json.loads(line)
        pairs = zip(row.get("predicted_us") or (), row.get("measured_us") or (), strict=True)
        for predicted, measured in pairs:
            if predicted and measured:
                family = row["group"].split()[0]
                found.setdefault(family, {}).setdefault((family, row["key"]), []).append(measured / predicted)
    pooled = {family: own for family, own in found.items() if len(own) >= LEAST}
    pooled[""] = {key: times for family, own in found.items() if family not in pooled for key, times in own.items()}
    return pooled


def quantiles(workloads):
    return np.percentile([ratio for times in workloads for ratio in times], (8, 92))


def test_the_factors_are_those_of_the_times(ratios):
    assert set(ratios) == {*expected._FACTORS, ""}
    for family, own in ratios.items():
        assert expected.expected_us(1.0, family) == pytest.approx(quantiles(own.values()), abs=0.012), family


def test_times_of_a_workload_left_out_are_as_expected(ratios):
    inside = []
    for own in ratios.values():
        for left_out, times in own.items():
            low, high = quantiles([others for key, others in own.items() if key != left_out])
            inside += [low <= ratio <= high for ratio in times]
    assert len(inside) == 496 and np.mean(inside) >= 0.8
