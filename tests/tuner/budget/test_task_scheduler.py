"""Which task of a model gets the next slice, and the campaign that spends a budget so."""

import pytest

from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul
from gensor_tuner.budget.task_scheduler import SLICE, Task, TaskScheduler, end_to_end, gains, merged, predicted
from gensor_tuner.search.trace import replay
from gensor_tuner.strategies.request import Request, search
from gensor_tuner.tasks.local import Local

ARCH = lookup("sm_87")


def task(best, calls=1.0, bound=0.0, flops=1.0, group="a"):
    return Task(calls, bound, flops, group, list(best))


def test_calls_weigh_and_a_bound_ends_all_hope():
    few, many, done = task([4, 2]), task([4, 2], calls=3), task([2, 2], bound=2)
    assert end_to_end([few, many, done]) == 10
    gain = gains([few, many, done])
    assert gain[1] == pytest.approx(3 * gain[0]) and gain[0] > 0 and gain[2] == 0


def test_recent_gains_count_and_hope_fades_with_slices_that_bring_nothing():
    falling, stuck = task([8, 4, 2]), task([8, 2, 2])
    assert gains([falling])[0] > gains([stuck])[0] > 0
    assert stuck.stale() == 1 and falling.stale() == 0
    fading = [gains([task([8, *[2] * n])])[0] for n in range(2, 6)]
    assert fading == sorted(fading, reverse=True) and fading[-1] < 0.1 * fading[0]


def test_a_task_far_slower_than_a_similar_one_has_more_to_gain():
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
