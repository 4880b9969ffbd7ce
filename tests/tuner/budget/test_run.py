"""--budget: which task of a model gets the next slice, and a run under a clock that slices and kernels move on."""

import re
from functools import partial
from types import SimpleNamespace

import pytest

from gensor_database.record import Kernel, Verification
from gensor_database.store import Store
from gensor_kernels.build.nvrtc import Binary, toolchain
from gensor_kernels.build.resources import EntryResources
from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.rows import views
from gensor_tuner.budget.run import BudgetedRun
from gensor_tuner.budget.task_scheduler import SLICE, Task, TaskScheduler, end_to_end, gains, merged, predicted
from gensor_tuner.build.binaries import Compile
from gensor_tuner.run.class_run import Options
from gensor_tuner.run.tune import Run
from gensor_tuner.search.trace import replay
from gensor_tuner.shapes.reader import Row
from gensor_tuner.strategies.request import Request, search
from gensor_tuner.tasks.local import Local
from gensor_tuner.tasks.task import ignore
from gensor_tuner.verify.verify import Execute, Verdict
from tests.doubles.walks import remembered

ARCH = lookup("sm_87")
#: Seconds that a slice of search takes, and a kernel: half to compile it, half to verify it.
WALK, KERNEL = 0.2, 4.0
#: The class that takes most is the last one.
SHAPES = [("float32", 64, 1), ("float32", 512, 1), ("float16", 256, 2), ("float16", 640, 2), ("int8", 4096, 50)]


class Machine:
    """A clock, and what moves it: no kernel is really compiled or executed."""

    def __init__(self, monkeypatch):
        self.now, self.asked, self.compiled, self.wrong = 100.0, [], [], set()

        self.kinds = {Request: self.walk, Compile: self.compile, Execute: self.execute}

        def run(executor, tasks, done=ignore):
            results = self.kinds[type(tasks[0])](tasks) if tasks else []
            for index, result in enumerate(results):
                done(index, result)
            return results

        monkeypatch.setattr(Local, "map", run)
        monkeypatch.setattr(Local, "prepare", lambda executor: None)

    def walk(self, requests):
        self.now += WALK * len(requests)
        self.asked += requests
        return [remembered(each) for each in requests]

    def compile(self, tasks):
        self.now += KERNEL / 2 * len(tasks)
        self.compiled += tasks
        names = ("contraction_mma", "contraction_simt", "contraction_sliced", "gemv", "reduce_split", "rows")
        entries = {name: EntryResources(registers=96) for name in names}
        more = {"entries": entries, "toolchain": toolchain()}
        return [Binary("sm_87", f"{hash(each.source)}".encode(), **more) for each in tasks]

    def execute(self, tasks):
        self.now += KERNEL / 2 * len(tasks)
        wrong = Verdict("wrong", "as the test wants it")
        return [wrong if each.workload.kind in self.wrong else Verdict("ok") for each in tasks]


@pytest.fixture
def machine(monkeypatch):
    return Machine(monkeypatch)


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "k.db") as opened:
        yield opened


def rows():
    made = [matmul.workload(m, 256, 256, dtype=dtype) for dtype, m, _ in SHAPES]
    return [Row(2 + i, f"{w.kind}-{w.size['m']}", SHAPES[i][2], w) for i, w in enumerate(made)]


def run(machine, store, budget):
    """(results by row, lines for people, seconds taken)."""
    told: list[str] = []
    made = BudgetedRun(ARCH, store, Options(), budget=budget, notify=told.append, clock=lambda: machine.now)
    began = machine.now
    results = {row.name: result for row, result in made.rows(rows())}
    return results, told, machine.now - began


@pytest.mark.parametrize("budget", (7, 20, 1000))
def test_a_budget_is_kept(machine, store, budget):
    results, _, seconds = run(machine, store, budget)
    assert seconds <= budget + KERNEL
    assert {result.status for result in results.values()} <= {"ok", "skipped"} and len(results) == len(SHAPES)
    assert [name for name, each in results.items() if each.status == "ok"] or budget < KERNEL


@pytest.mark.parametrize("kind", [Run, partial(BudgetedRun, budget=20)])
def test_a_row_that_no_kernel_of_the_limit_serves_gets_one_more(machine, store, kind):
    """One Program keeps a short row in registers, and has no room for a long one."""
    made = [Row(n, f"{n}", 1, views.workload("softmax", (4, n), (1,), "float32")) for n in (64, 100_000)]
    results = [result for _, result in kind(ARCH, store, Options(top=1)).rows(made)]
    assert [result.error for result in results] == [None, None] and len({each.kernel for each in results}) == 2


def test_the_estimate_falls_as_search_and_then_kernels_go_on(machine, store):
    results, told, _ = run(machine, store, 1000)
    for stage in ("slices", "kernels"):
        found = [re.findall(rf"end to end ([\d.]+) (µs|ms|s) .*{stage}", line) for line in told]
        falling = [float(number) * {"µs": 1, "ms": 1e3, "s": 1e6}[unit] for each in found for number, unit in each]
        assert falling and falling == sorted(set(falling), reverse=True)
    assert {result.status for result in results.values()} == {"ok"}
    # With any budget, walks after the compiler's feedback are as long as slices.
    assert any(each.feedback for each in machine.asked) and {each.evaluations for each in machine.asked} == {SLICE}


def test_a_budget_too_small_says_so_and_serves_what_takes_most(machine, store):
    results, told, _ = run(machine, store, 7)
    assert [name for name, each in results.items() if each.status == "ok"] == ["int8-4096"]
    assert results["float32-64"].status == "skipped"
    assert results["float32-64"].error == "the budget of 7 s was spent before this row had a kernel; run again to go on"
    assert "a budget of 7 s is too small for a kernel of every class: 2 of 3 have none (matmul float" in told[-1]


def test_runs_go_on_where_the_last_one_ended(machine, store):
    served = []
    for _ in range(8):
        results, _, _ = run(machine, store, 9)
        served.append(sum(result.status == "ok" for result in results.values()))
    assert served == sorted(served) and served[-1] == len(SHAPES)
    run(machine, store, 1000)
    assert len(set(machine.compiled)) == len(machine.compiled)  # stored kernels are not compiled again
    before = len(machine.compiled)
    results, told, seconds = run(machine, store, 9)
    assert all(result.stored for result in results.values())
    assert seconds == 0 and told == [] and len(machine.compiled) == before


@pytest.mark.parametrize("stale", ["toolchain", "Source", "is_current"])
def test_kernels_that_would_be_made_otherwise_today_are_made_again(machine, store, monkeypatch, stale):
    run(machine, store, 9)
    (kernel,) = store.rows(Kernel)
    again = BudgetedRun(ARCH, store, Options(), budget=9, clock=lambda: machine.now)
    (held,) = again._kernels_of(store, kernel.class_key)
    assert held.program.to_json() == kernel.program and held.verdicts
    changed = {"toolchain": lambda: "another", "is_current": lambda row: False}
    changed["Source"] = SimpleNamespace(of=lambda text: SimpleNamespace(digest="another"))
    monkeypatch.setattr(f"gensor_tuner.budget.run.{stale}", changed[stale])
    assert list(again._kernels_of(store, kernel.class_key)) == []


def test_one_kernel_serves_a_class_until_others_are_worth_it(machine, store):
    few, _, _ = run(machine, store, 20)
    assert {result.status for result in few.values()} == {"ok"}
    assert len({result.kernel for result in few.values()}) < len(SHAPES)
    many, _, _ = run(machine, store, 1000)
    assert all(many[name].predicted_us <= few[name].predicted_us for name in few)
    assert sum(each.predicted_us for each in many.values()) < sum(each.predicted_us for each in few.values())


def test_kernels_that_are_wrong_are_stored_as_such_and_cost_their_class_alone(machine, store):
    machine.wrong = {"int8"}
    results, _, seconds = run(machine, store, 40)
    assert seconds <= 40 + KERNEL
    assert results["int8-4096"].status == "failed" and "before a kernel passed" in results["int8-4096"].error
    refused = {row.kernel_digest for row in store.rows(Verification, outcome="wrong")}
    assert refused and refused <= {row.digest for row in store.rows(Kernel)}


def test_what_is_verified_is_stored_whatever_stops_the_run(machine, store, monkeypatch):
    real, calls = machine.execute, []

    def execute(tasks):
        calls.extend(tasks)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return real(tasks)

    machine.kinds[Execute] = execute
    with pytest.raises(KeyboardInterrupt):
        run(machine, store, 40)
    machine.kinds[Execute] = real
    results, _, _ = run(machine, store, 0)
    assert [name for name, each in results.items() if each.status == "ok"] == ["int8-4096"]


def task(best, calls=1.0, bound=0.0, flops=1.0, group="a"):
    return Task(calls, bound, flops, group, list(best))


def test_what_a_slice_gains_follows_calls_bounds_recent_gains_and_similar_tasks():
    few, many, done = task([4, 2]), task([4, 2], calls=3), task([2, 2], bound=2)
    assert end_to_end([few, many, done]) == 10
    gain = gains([few, many, done])
    assert gain[1] == pytest.approx(3 * gain[0]) and gain[0] > 0 and gain[2] == 0
    falling, stuck = task([8, 4, 2]), task([8, 2, 2])
    assert gains([falling])[0] > gains([stuck])[0] > 0
    assert stuck.stale() == 1 and falling.stale() == 0
    fading = [gains([task([8, *[2] * n])])[0] for n in range(2, 6)]
    assert fading == sorted(fading, reverse=True) and fading[-1] < 0.1 * fading[0]
    slow = task([9, 8, 8, 8, 8], flops=10)
    alone = gains([slow, task([1, 1], flops=10, group="b")])[0]
    beside = gains([slow, task([1, 1], flops=10)])[0]
    assert beside > alone


@pytest.fixture
def campaign():
    made = [matmul.workload(m, 256, 256, dtype="float32", epilogue=e) for m, e in ((192, ()), (256, ()), (384, "relu"))]
    calls = {workload.key(): (workload, float(i + 1)) for i, workload in enumerate(made)}
    return TaskScheduler(Request(made[0], ARCH, 0, "full"), calls)


def test_every_task_gets_a_slice_and_the_whole_never_rises(campaign):
    before = campaign.seconds
    assert before == sum(task.calls * task.seconds for task in campaign.tasks)
    whole = [before]
    for seconds in campaign.run(Local(1)):
        whole.append(seconds)
        if len(whole) > 6:
            break
    assert all(task.slices for task in campaign.tasks)
    assert whole == sorted(whole, reverse=True) and whole[-1] < before
    assert campaign.evaluations <= len(whole) * (SLICE + 3 * len(campaign.tasks))


def test_a_campaign_that_begins_late_leaves_out_what_comes_last(campaign):
    calls = dict(zip((w.key() for w in campaign.workloads), ((w, 1.0) for w in campaign.workloads), strict=True))
    moments = iter([False, True])
    assert TaskScheduler(campaign.base, calls, lambda: next(moments)).workloads == campaign.workloads[:2]


def test_similar_tasks_inform_each_other(campaign):
    each = campaign.next(1)[0]
    group = campaign.tasks[each.task].group
    other = next(i for i, task in enumerate(campaign.tasks) if i != each.task and task.group == group)
    found = search(campaign.request(each))
    campaign.take(each, found)
    tried = predicted(campaign.spaces[other], [program for program, _ in found.best[:3]])
    assert tried and campaign.tasks[other].seconds <= min(tried.values())
    assert campaign.tasks[other].slices == 0


def test_what_slices_found_is_one_walk_with_trails(campaign):
    for _ in range(4):
        each = campaign._slice(1)
        campaign.take(each, search(campaign.request(each)))
    whole = campaign.founds()[campaign.workloads[1].key()]
    seconds = [cost for _, cost in whole.best]
    assert seconds == sorted(seconds) and seconds[0] == campaign.tasks[1].seconds
    space = Space(campaign.workloads[1], ARCH)
    assert [replay(space, trail) for trail in whole.trails] == [program for program, _ in whole.best]
    assert merged([whole]).best == whole.best
