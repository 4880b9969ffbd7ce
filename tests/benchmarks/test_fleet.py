"""benchmarks.fleet: the cost model, the sample, and docs/fleet.md beside the committed figures."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.fleet import __main__ as command
from benchmarks.fleet import model, stubs, tables, tasks, writer
from gensor_tuner.fleet import wire
from gensor_tuner.run.many import MOST

RESULTS = json.loads(command.RESULT.read_text(encoding="utf-8"))
DOC = Path(__file__).resolve().parents[2] / "docs" / "fleet.md"

COSTS = model.Costs(
    kinds={"walk": model.Kind(1, 1.0, 1e3, 2e3), "compile": model.Kind(4, 0.25, 1e4, 3e4)},
    classes=0.5,
    chain=3.0,
    client=0.01,
    client_per_task=0.001,
    scheduler_per_task=0.002,
    worker_per_task=0.0,
    commit=0.005,
)


def test_a_row_costs_what_its_tasks_cost():
    assert (COSTS.tasks, COSTS.work, COSTS.bytes) == (5, 2.0, 3e3 + 4 * 4e4)
    assert model.rates(COSTS, 1) == pytest.approx(
        {"cores": 0.5, "client": 1 / 0.015, "scheduler": 100, "database": 200, "classes in progress": 4 / 1.5}
    )


def test_one_core_takes_all_the_work():
    assert model.seconds(COSTS, 1000, 1) == pytest.approx(2000) and model.efficiency(COSTS, 1000, 1) == pytest.approx(1)


@pytest.mark.parametrize(
    ("changed", "slowest"),
    [
        ({}, model.CLASSES),
        ({"chain": 0.1}, model.CLIENT),
        ({"chain": 0.1, "client": 1e-9, "client_per_task": 1e-9}, model.SCHEDULER),
        ({"chain": 0.1, "commit": 0.05}, model.WRITER),
    ],
)
def test_the_slowest_part_is_named_and_more_cores_change_nothing_then(changed, slowest):
    costs = replace(COSTS, client=COSTS.client, **changed) if "client" not in changed else replace(COSTS, **changed)
    assert model.limit(costs, 2) == model.CORES and model.limit(costs, 100_000) == slowest
    assert model.seconds(costs, 10_000, 100_000) == model.seconds(costs, 10_000, 200_000)
    enough = model.saturation(costs, slowest)
    assert model.limit(costs, int(enough)) == model.CORES and model.limit(costs, int(enough) + 1) == slowest


@pytest.mark.parametrize("costs", [COSTS, model.measured(RESULTS)], ids=["given", "measured"])
def test_time_falls_with_cores_and_clients_and_stays_above_its_bounds(costs):
    rows = 80_000
    for clients in (1, 4, 64):
        before = float("inf")
        for cores in (64, 128, 256, 1024, 4096, 16384):
            taken = model.seconds(costs, rows, cores, clients)
            assert taken <= before and taken >= max(rows * costs.work / cores, costs.chain)
            assert taken <= model.seconds(costs, rows, cores, max(1, clients // 4))
            assert 0 < model.efficiency(costs, rows, cores, clients) <= 1
            before = taken
    few = model.clients_for(costs, 4096)
    assert (
        min(model.rates(costs, 4096, few).values()) * costs.work
        >= 0.9 * 4096 * (costs.work / (costs.work + costs.tasks * costs.worker_per_task))
        or few == 4096
    )


def test_a_client_has_a_limited_number_of_classes():
    assert [model.in_progress(cores) for cores in (1, 16, 1000)] == [4, 32, MOST]


def test_walks_behind_a_compilation_are_second_ones_but_not_those_of_the_next_run():
    stages = [{"kind": kind} for kind in ("walk", "compile", "verify", "walk", "compile", "walk", "compile", "verify")]
    assert model.kinds_of(stages) == ["walk", "compile", "verify", "walk", "compile", "again", "compile", "verify"]


def test_a_sample_stands_for_every_class():
    sizes = {f"{number:03}": size for number, size in enumerate([1] * 40 + [2] * 20 + [4] * 9 + [9] * 5 + [99] * 3)}
    drawn = tasks.sample(sizes, 1)
    assert len(drawn) == sum(tasks.STRATA.values()) and sum(drawn.values()) == pytest.approx(len(sizes))
    assert drawn == tasks.sample(sizes, 1) != tasks.sample(sizes, 2)


def test_a_stub_travels_as_a_task_does(monkeypatch):
    monkeypatch.setitem(wire.KINDS, stubs.KIND, stubs.Sleep)
    task = stubs.Sleep(7, 0.0, 3000, 500)
    message = wire.asked(task)
    answer, gone = wire.answer(stubs.KIND, message)
    assert wire.result_of(task, answer) == 7 and not gone
    assert 0.9 < len(message) / 3000 < 1.3 and 0.9 < len(answer) / 500 < 1.5
    with pytest.raises(wire.CorruptError):
        wire.result_of(stubs.Sleep(8), answer)


def test_the_database_takes_all_rows_of_a_record():
    found = writer.measure(records=3)
    assert (found["records"], found["rows"] >= 12, found["classes"] <= 3) == (3, True, True)
    assert found["records_per_s"] == pytest.approx(3 / found["seconds"])


@pytest.mark.fleet
def test_stubs_run_on_a_real_scheduler(capsys):
    pytest.importorskip("distributed")
    told = command.overhead(print, tasks=20, workers=2, repeats=1)
    assert told["median"]["scheduler_ms"] > 0 and told["median"]["wall_ms"] > 0
    sample = [
        {
            "stands_for": 1.0,
            "workloads": 2,
            "client_s": 0.0,
            "client": {"asking": 0.01, "checking": 0.01},
            "stages": [
                {"kind": kind, "seconds": [0.1, 0.2], "asked": 200, "result": 400}
                for kind in ("walk", "compile", "walk", "compile", "verify")
            ],
        }
    ]
    results = {
        "tasks": {"sample": sample, "known_s_per_workload": 0.0},
        "overhead": told,
        "writer": {"median": {"records_per_s": 100.0}},
    }
    (run,) = command.thousands(print, results, [(2, 2, 1.0)])["runs"]
    assert run["seconds"] >= 2 * 1.5 / 2 and 0 < run["efficiency"] <= 1 and 0 < run["predicted"] <= 1
    assert f"| 2 | 20 | {run['seconds']:.0f} |" in tables.thousands({"runs": [run]})


def test_the_committed_figures_are_those_of_the_docs():
    text = DOC.read_text(encoding="utf-8")
    missing = [name for name, table in tables.every(RESULTS).items() if table not in text]
    assert not missing, "python -m benchmarks.fleet tables"
    median, busy = RESULTS["overhead"]["median"], RESULTS["busy"]
    told = f"{median['wall_ms']:.1f} ms a task"
    assert told in text and f"{busy['share']:.1%} of the time" in text
    assert f"{RESULTS['writer']['median']['rows_per_s']:.0f} rows a second" in text


def test_64_workers_were_busy():
    assert RESULTS["busy"]["workers"] == 64 and RESULTS["busy"]["taken_s"] == 2 and RESULTS["busy"]["share"] >= 0.9
    assert RESULTS["overhead"]["tasks"] == 10_000
