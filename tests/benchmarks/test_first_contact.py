"""benchmarks.device with little time."""

import time

import pytest

from benchmarks.gpu import families, shipped
from benchmarks.gpu.harness.journal import Journal
from benchmarks.gpu.harness.session import Session
from benchmarks.gpu.harness.supervise import COMPLETE, OUT_OF_TIME
from benchmarks.gpu.kernels import ordering
from gensor_database.record import Verification
from gensor_kernels.machine.arch import lookup
from gensor_tuner.run.result import Result

from .stored_kernel import ARCH
from .test_gpu_paths import device


def session(folder, arch=ARCH, seconds=300):
    made = Session(folder, Journal(folder / "results.jsonl"), time.monotonic() + seconds)
    made.__dict__["device"] = device(arch)
    return made


# ---- shipped


@pytest.fixture
def one_operator(monkeypatch, tmp_path):
    """A database without kernels that lacks one operator; the time of the first run suffices for no kernel."""
    (tmp_path / "rows.csv").write_text("op,dtype,shape,axes\nreduce_sum,fp32,64x64,1\n")
    monkeypatch.setattr(shipped, "OPERATORS", tmp_path / "rows.csv")
    monkeypatch.setattr(shipped, "given", lambda session, store: {"from": "nothing"})
    monkeypatch.setattr(shipped, "TOP", 1)
    real = shipped.BudgetedRun

    class Late:
        elapsed = float("inf")

        def __init__(self, *given, **more):
            monkeypatch.setattr(shipped, "BudgetedRun", real)

        def rows(self, rows):
            return [(row, Result(row.workload, "failed", error="the budget was spent")) for row in rows]

    monkeypatch.setattr(shipped, "BudgetedRun", Late)


def fillings(made):
    return [event for event in made.journal.events() if event["event"] == "end" and event["item"].startswith("kernels")]


def test_operators_without_kernels_are_tuned_as_long_as_there_is_time(one_operator, tmp_path):
    made = session(tmp_path)
    assert made.work("shipped", shipped.items(made)) == COMPLETE
    assert [end["left"] for end in fillings(made)] == [1, 0]
    with made.store() as store:
        (verdict,) = store.rows(Verification)
    assert (verdict.method, verdict.outcome) == ("device", "ok")


def test_a_run_that_resumes_tunes_what_is_left(one_operator, monkeypatch, tmp_path):
    made, fill = session(tmp_path), shipped.fill

    def last(given):
        found = fill(given)
        given.deadline = 0.0
        return found

    monkeypatch.setattr(shipped, "fill", last)
    assert made.work("shipped", shipped.items(made)) == OUT_OF_TIME
    monkeypatch.setattr(shipped, "fill", fill)
    again = session(tmp_path)
    assert again.work("shipped", shipped.items(again)) == COMPLETE
    assert [end["left"] for end in fillings(made)] == [1, 0]


# ---- families


def test_the_first_kernels_are_of_every_kind_and_then_of_every_shipped_class(monkeypatch, tmp_path):
    monkeypatch.setattr(families, "LAYOUTS", ("kn", "kk"))
    made = session(tmp_path, lookup("sm_90"))
    known, rest = ordering.shipped_kernels(made), families.starters(made)
    found = list(ordering.order(known, rest))
    assert len(found) == len({each.name for each in found}) == len(known) + len(rest)
    of = [ordering.traits(each) for each in found]
    kinds = set().union(*of)
    assert {"plain", "split", "stream", "cluster", "dependent", "staged epilogue", "tensor maps"} <= kinds
    few = next(few for few in range(len(found)) if set().union(*of[:few]) == kinds)
    assert few <= 30
    classes = {each.workload.class_key() for each in known}
    first = found[: few + len(classes)]
    assert classes <= {each.workload.class_key() for each in first}
    assert all(each.code and each.code.cubin for each in first if " shipped " in each.name)


def test_shipped_kernels_are_verified_at_the_verifiers_cases(tmp_path):
    made = session(tmp_path)
    made.only = "^rows reduce_sum float32 k .* shipped"
    assert made.work("families", families.items(made)) == COMPLETE
    ends = made.journal.results("families")
    assert ends and all(end["outcome"] == "ok" and 0 < end["worst"] <= 1 for end in ends.values())
