"""benchmarks.device with little time."""

import time

import pytest

from benchmarks.gpu import families, sanitizer, shipped
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


# ---- sanitizer


@pytest.fixture
def tool(monkeypatch, tmp_path):
    """A compute-sanitizer that records its arguments and then runs a script."""
    path = tmp_path / "compute-sanitizer"

    def made(script):
        path.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n{script}\n')
        path.chmod(0o755)

    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return made


def test_the_sanitizers_tools_share_the_time_and_are_told_of_no_api_errors(tool, tmp_path):
    tool("echo '========= ERROR SUMMARY: 0 errors'")
    made = session(tmp_path, seconds=130)
    assert made.work("sanitizer", sanitizer.items(made)) == COMPLETE
    calls = [line.split() for line in (tmp_path / "calls").read_text().splitlines()]
    memcheck, racecheck = (each[: each.index("--target-processes")] for each in calls)
    assert memcheck == ["--tool", "memcheck", "--report-api-errors", "no"] and racecheck == ["--tool", "racecheck"]
    given = [float(each[each.index("--seconds") + 1]) for each in calls]
    assert given[0] <= 130 / 2 and sum(given) < 200
    # No kernel was run.
    assert {end["outcome"] for end in made.journal.results("sanitizer").values()} == {"timeout"}


def test_a_tool_that_ends_in_time_for_no_kernel_is_no_verdict(tool, monkeypatch, tmp_path):
    monkeypatch.setattr(sanitizer, "LEAST", 0.1)
    monkeypatch.setattr(sanitizer, "END", 0.2)
    tool("exec sleep 20")
    made = session(tmp_path, seconds=1.0)
    assert sanitizer.sanitize(made, "racecheck", 2)["outcome"] == "timeout"


def test_the_sanitizers_verdict_is_its_own_count(tool, tmp_path):
    made = session(tmp_path)
    tool("echo '========= ERROR SUMMARY: 3 errors'")
    assert sanitizer.sanitize(made, "memcheck")["outcome"] == "timeout"  # nothing was executed
    end = '{"event": "end", "step": "families", "item": "x", "outcome": "ok"}'
    run = f'while [ "$1" != --out ]; do shift; done; echo \'{end}\' > "$2/results.jsonl"; '
    tool(run + "echo '========= ERROR SUMMARY: 3 errors'")
    found = sanitizer.sanitize(made, "memcheck")
    assert {**found, "error": ""} == {"outcome": "wrong", "errors": 3, "kernels": 1, "not_ok": [], "error": ""}
    tool(run + "echo '========= ERROR SUMMARY: 0 errors'")
    assert sanitizer.sanitize(made, "memcheck")["outcome"] == "ok"


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
