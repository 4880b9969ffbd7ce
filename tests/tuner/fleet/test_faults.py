"""Workers that die, hang, swell, forge answers or lose the network: no task is lost, and no result is wrong."""

import asyncio
import concurrent.futures
import contextlib
import os
import re
import signal
import threading
import time
from types import SimpleNamespace

import pytest

pytest.importorskip("distributed", reason="Dask is not installed")

import dask

from gensor_kernels.config import cache_dir
from gensor_tuner.fleet import cluster as clusters
from gensor_tuner.fleet import connect
from gensor_tuner.fleet.abilities import abilities
from gensor_tuner.fleet.cluster import Cluster, Fleet, Member, Running
from gensor_tuner.tasks.local import Local
from tests.doubles.fleet import Stub
from tests.doubles.schedulers import alive, until

pytestmark = [pytest.mark.fleet, pytest.mark.usefixtures("stubs")]
PRELOAD = {"distributed.worker.preload": ["tests.doubles.fleet"]}


@pytest.fixture(scope="module")
def opened(stubs):
    """A cluster of two worker processes, and what it has said."""
    said = []
    with dask.config.set(PRELOAD), Cluster("local:2", said.append) as cluster:
        cluster.ready(["stub", "walk", "compile", "verify"])
        yield cluster, said


@pytest.fixture
def fleet(opened):
    """An executor on the cluster, once both of its workers are there and workers that an earlier test ended are not."""
    cluster, said = opened
    said.clear()

    async def identity():
        return await cluster._client.scheduler.identity(n_workers=-1)

    def settled():
        able = {each.address for each in cluster.able("stub")}
        return len(able) == 2 and able == set(cluster._call(identity())["workers"])

    until(settled)
    return Fleet(cluster, Local(1))


class Brief(Stub):
    seconds = 3.0


def failing(folder, fault, *faults, kind=Stub):
    return [kind(number, str(folder), fault, count) for number, count in enumerate(faults)]


def test_results_come_in_order_and_equal_tasks_run_once(fleet, tmp_path):
    seen = []
    tasks = [Stub(number, str(tmp_path), sleep=0.05 * (number % 2)) for number in range(12)]
    assert fleet.map(tasks, lambda index, result: seen.append((index, result))) == list(range(12))
    assert seen == [(number, number) for number in range(12)] and not fleet.lost
    assert all(task.runs() == 1 for task in tasks)


def test_workers_that_we_start_share_our_cache_folder_and_are_not_sampled(fleet):
    settings = [(os.getenv, "GENSOR_CACHE_DIR"), (dask.config.get, "distributed.worker.profile.enabled")]

    async def told():
        return [set((await fleet.cluster._client.run(*each)).values()) for each in settings]

    assert fleet.cluster._call(told()) == [{str(cache_dir())}, {False}]
    assert fleet.cluster._cluster.scheduler.allowed_failures == connect.FAILURES


@pytest.mark.parametrize("fault", ["raise", "corrupt", "lie"])
def test_a_bad_answer_costs_a_retry_and_three_are_a_loss(fleet, tmp_path, fault):
    tasks = failing(tmp_path, fault, 0, 1, 2, 3)
    assert fleet.map(tasks) == [0, 1, 2, -1]
    assert [task.runs() for task in tasks] == [1, 2, 3, 3]
    (reason,) = fleet.lost
    told = {"raise": "as planted", "corrupt": "do not match their digest", "lie": "4 in place of 3"}
    assert reason.startswith("stub: worker ") and reason.count(told[fault]) == 3


def test_a_worker_that_dies_costs_its_task_a_retry(fleet, tmp_path):
    """One task at a time: a worker that dies takes along results which the client has not fetched yet."""
    tasks = failing(tmp_path, "die", 0, 1, 2)
    assert [fleet.map([task]) for task in tasks] == [[0], [1], [2]] and not fleet.lost
    # Not exactly 1, 2 and 3: Dask may begin a task once more before it hears that it is cancelled or has ended.
    assert all(task.runs() > task.number for task in tasks)


@pytest.mark.parametrize("alive", [False, True], ids=["the worker has died", "the worker hangs"])
def test_only_a_worker_that_still_has_the_task_is_restarted(alive):
    """A task whose worker has died waits for a new one, which takes longer to start than the task may take. The client
    does not know yet: its list of workers is old."""
    restarted, worker = [], "tcp://127.0.0.1:10"

    async def processing():
        return {worker: ["key"]} if alive else {"tcp://127.0.0.1:11": ["key"]}

    async def cancel(force):
        pass

    async def restart(workers, **_):
        restarted.extend(workers)

    cluster = Cluster("tcp://127.0.0.1:9", clock=lambda: 1000.0)
    cluster._client = SimpleNamespace(processing=processing, restart_workers=restart)
    cluster.members[worker] = Member(worker, "desk", "", 1, abilities())
    cluster._running["key"] = Running(Brief(0), SimpleNamespace(cancel=cancel), began=1.0, worker=worker)
    asyncio.run(cluster._restart_hung())
    assert restarted == [worker] * alive and cluster._running["key"].hung == alive


def test_a_task_that_kills_every_worker_is_given_up(fleet, tmp_path):
    """Dask gives it up after three deaths, and is asked again if it was not running on all three of these workers."""
    (task,) = failing(tmp_path, "die", 99)
    assert fleet.map([task]) == [-1] and task.runs() >= 3
    assert re.fullmatch("stub: [3-9] workers ended while they ran it", *fleet.lost)


def test_a_worker_that_hangs_is_restarted(opened, fleet, tmp_path):
    tasks = failing(tmp_path, "hang", 0, 1, kind=Brief)
    assert fleet.map(tasks) == [0, 1] and not fleet.lost and tasks[1].runs() >= 2
    assert any("is restarted: a task did not end within 3 s" in line for line in opened[1])


def pids(cluster):
    """The processes of the workers that the nannies keep."""
    nannies = getattr(cluster._cluster, "workers", {}).values()
    return [each.pid for each in nannies if getattr(each, "pid", None)]


def test_no_process_is_left():
    with dask.config.set(PRELOAD), Cluster("local:2") as cluster:
        cluster.ready(["stub"])
        left = pids(cluster)
        assert len(left) == 2

        def run():
            with contextlib.suppress(concurrent.futures.CancelledError):
                Fleet(cluster, Local(1)).map([Stub(1, sleep=30)])

        threading.Thread(target=run, daemon=True).start()
        time.sleep(0.5)
    until(lambda: not any(map(alive, left)))


def test_a_retry_whose_workers_have_gone_is_sent_to_others(opened, fleet, tmp_path):
    """The first answer is bad, so that only the other worker is asked, and that one dies."""
    cluster, _ = opened
    task = Stub(8, str(tmp_path), "raise, then hang", 2)
    gone = threading.Event()

    def kill():
        while task.runs() < 2:
            time.sleep(0.02)
        for pid in pids(cluster):
            os.kill(pid, signal.SIGKILL)
        gone.set()

    threading.Thread(target=kill, daemon=True).start()
    assert fleet.map([task]) == [8] and gone.is_set() and not fleet.lost
    # Three, and one for each run that a worker begins while it comes back and that is cancelled then: how many depends
    # on the machine's load.
    assert task.runs() >= 3


def test_without_a_worker_tasks_wait_and_the_run_ends(fleet, monkeypatch, tmp_path):
    """The last test of this cluster, which can be used no more."""
    monkeypatch.setattr(clusters, "NOBODY_SECONDS", 1.0)

    class Nobodys(Stub):
        kind = "nobodys"

    with pytest.raises(clusters.FleetError, match=r"no worker of .* can nobodys"):
        fleet.map([Nobodys(1)])
