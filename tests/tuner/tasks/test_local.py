"""Walks ahead of their request: the same results, and none is taken twice."""

from dataclasses import replace

import pytest

from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul
from gensor_tuner.run.unfinished import Keeping, Unfinished
from gensor_tuner.strategies.request import Request, search
from gensor_tuner.tasks import local
from gensor_tuner.tasks.local import PARALLEL_FROM, Local

ARCH = lookup("sm_87")


def requests(dtype, count):
    made = [matmul.workload(16 * m, 16, 32, dtype=dtype) for m in range(1, count + 1)]
    return [Request(each, ARCH, 0, "full", evaluations=200) for each in made]


NOW, LATER = requests("float64", PARALLEL_FROM), requests("float32", 3)


@pytest.fixture
def submitted(monkeypatch):
    """The workloads of all walks that were sent to processes."""
    told = []
    submit = local.ProcessPoolExecutor.submit
    monkeypatch.setattr(
        local.ProcessPoolExecutor,
        "submit",
        lambda pool, function, task: told.append(task.workload) or submit(pool, function, task),
    )
    return told


def test_expected_walks_are_taken_once_and_have_the_same_results(submitted, tmp_path):
    kept = Unfinished(tmp_path / "unfinished.json")
    with Local(2) as processes:
        executor = Keeping(processes, kept)
        executor.expect(LATER)
        first = executor.map(NOW)
        assert submitted == [each.workload for each in (*NOW, *LATER)]
        assert executor.map(LATER) == [search(each) for each in LATER]
        assert len(submitted) == len(NOW) + len(LATER) and not processes._ahead
        assert len(kept.new) == len(submitted)
        kept.known |= kept.new
        executor.expect(LATER)  # finished, and kept
        assert first == executor.map(NOW) and len(submitted) == len(NOW) + len(LATER)


def test_another_walk_of_an_expected_workload_is_taken_itself(submitted):
    with Local(2) as executor:
        executor.expect(LATER)
        executor.map(NOW)
        other = [replace(each, seed=1) for each in LATER]
        assert executor.map(other) == [search(each) for each in other]
        assert len(submitted) == len(NOW) + 2 * len(LATER)


def test_only_a_few_are_taken_ahead_and_none_without_processes(submitted, monkeypatch):
    for jobs in (1, 2):
        with Local(jobs) as executor:
            executor.expect(NOW)
            assert executor.map(LATER) == [search(each) for each in LATER] and not submitted
    monkeypatch.setattr(local, "AHEAD", 1)
    with Local(2) as executor:
        executor.expect(LATER)
        executor.map(NOW)
        assert len(submitted) == len(NOW) + 2
        assert executor.map(LATER) == [search(each) for each in LATER]
        assert len(submitted) == len(NOW) + len(LATER)


def test_walks_that_were_lost_with_a_process_are_taken_here():
    with Local(2) as executor:
        executor.expect(LATER)
        executor.map(NOW)
        for process in executor._processes:
            process.kill()  # unless the death of another has ended it
            process.join()
        assert executor.map(LATER) == [search(each) for each in LATER]
