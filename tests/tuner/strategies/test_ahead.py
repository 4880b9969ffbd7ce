"""Walks that are taken before they are asked for: the same results, and none is taken twice."""

import os
import signal
from dataclasses import replace

import pytest

from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul
from gensor_tuner.strategies import parallel
from gensor_tuner.strategies.parallel import PARALLEL_FROM, Request, Searcher, search

ARCH = lookup("sm_87")


def requests(dtype, count):
    return [Request(matmul.workload(16 * m, 16, 32, dtype=dtype), ARCH, 0, "full") for m in range(1, count + 1)]


NOW, LATER = requests("float64", PARALLEL_FROM), requests("float32", 3)


@pytest.fixture
def submitted(monkeypatch):
    """The workloads of all walks that processes were told to take."""
    told = []
    submit = parallel.ProcessPoolExecutor.submit
    monkeypatch.setattr(
        parallel.ProcessPoolExecutor,
        "submit",
        lambda pool, function, request: told.append(request.workload) or submit(pool, function, request),
    )
    return told


def test_expected_walks_are_taken_once_and_have_the_same_results(submitted):
    kept = {}
    with Searcher(2, kept) as searcher:
        searcher.expect(LATER)
        first = list(searcher.run(NOW))
        assert submitted == [each.workload for each in (*NOW, *LATER)]
        assert list(searcher.run(LATER)) == [search(each) for each in LATER]
        assert len(submitted) == len(NOW) + len(LATER) and not searcher._ahead
        assert len(kept) == len(submitted)
        searcher.expect(LATER)  # finished, and kept
        assert first == list(searcher.run(NOW)) and len(submitted) == len(NOW) + len(LATER)


def test_another_walk_of_an_expected_workload_is_taken_itself(submitted):
    with Searcher(2) as searcher:
        searcher.expect(LATER)
        list(searcher.run(NOW))
        other = [replace(each, seed=1) for each in LATER]
        assert list(searcher.run(other)) == [search(each) for each in other]
        assert len(submitted) == len(NOW) + 2 * len(LATER)


def test_only_a_few_are_taken_ahead(submitted, monkeypatch):
    monkeypatch.setattr(parallel, "AHEAD", 1)
    with Searcher(2) as searcher:
        searcher.expect(LATER)
        list(searcher.run(NOW))
        assert len(submitted) == len(NOW) + 2
        assert list(searcher.run(LATER)) == [search(each) for each in LATER]
        assert len(submitted) == len(NOW) + len(LATER)


def test_without_processes_nothing_is_taken_ahead(submitted):
    for jobs in (1, 2):
        with Searcher(jobs) as searcher:
            searcher.expect(NOW)
            assert list(searcher.run(LATER)) == [search(each) for each in LATER] and not submitted


def test_walks_that_were_lost_with_a_process_are_taken_here():
    with Searcher(2) as searcher:
        searcher.expect(LATER)
        list(searcher.run(NOW))
        for process in searcher._processes:
            os.kill(process.pid, signal.SIGKILL)
            process.join()
        assert list(searcher.run(LATER)) == [search(each) for each in LATER]
