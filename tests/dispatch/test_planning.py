"""New kinds of calls in many threads, and how many Plans are kept."""

import gc
import threading
import tracemalloc

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.dispatch import kept
from gensor_kernels.dispatch.plans import make
from gensor_kernels.dispatch.selection import library as libraries
from gensor_kernels.dispatch.selection import predict
from gensor_kernels.dispatch.tuning import background
from gensor_kernels.turns import Turns
from tests.doubles.kernels import aligned, kernels, put, runtime_of, workload
from tests.threads import in_threads

WAIT = 60


@pytest.fixture
def runtime(monkeypatch):
    """A Runtime whose kernels serve every float32 product."""
    monkeypatch.setenv("GENSOR_TUNE", "predicted")
    return put(monkeypatch, runtime_of(stored=kernels(workload(), cubin=b"")))


def product(rows):
    return gensor_kernels.matmul(aligned((rows, 64)), aligned((64, 64)))


def rows_of(plans):
    """The rows of the products that have Plans."""
    return sorted(plan.call.result.shape[0] for plan in plans.values())


class Held:
    """Stands for `make.choose`: choosing for products of some rows waits until `open`."""

    def __init__(self, monkeypatch, rows):
        self.rows, self.plain, self.began, self.open = rows, make.choose, threading.Event(), threading.Event()
        self.chosen = []
        monkeypatch.setattr(make, "choose", self)

    def __call__(self, call, operands, *more, **keywords):
        self.chosen.append(operands.inputs[0].shape[0])
        if self.chosen[-1] == self.rows:
            self.began.set()
            assert self.open.wait(WAIT)
        return self.plain(call, operands, *more, **keywords)


def test_a_new_kind_of_call_waits_for_no_other(runtime, monkeypatch):
    held = Held(monkeypatch, 64)
    slow = threading.Thread(target=product, args=(64,))
    slow.start()
    assert held.began.wait(WAIT)
    quick = threading.Thread(target=product, args=(32,))
    quick.start()
    quick.join(WAIT)
    assert not quick.is_alive() and slow.is_alive()
    assert rows_of(runtime.plans) == [32]
    held.open.set()
    slow.join(WAIT)
    assert rows_of(runtime.plans) == [32, 64]


def test_threads_with_one_new_kind_wait_for_its_plan(runtime, monkeypatch):
    held, misses = Held(monkeypatch, 64), gensor_kernels.counters()["misses"]
    threads = [threading.Thread(target=product, args=(64,)) for _ in range(8)]
    for each in threads:
        each.start()
    assert held.began.wait(WAIT)
    held.open.set()
    for each in threads:
        each.join(WAIT)
    assert held.chosen == [64] and len(runtime.plans) == 1
    assert gensor_kernels.counters()["misses"] - misses == 1


def test_each_thread_with_a_new_kind_is_counted_and_keeps_its_plan(runtime):
    misses = gensor_kernels.counters()["misses"]
    in_threads(product, range(8, 8 * 17, 8))
    assert rows_of(runtime.plans) == [*range(8, 8 * 17, 8)]
    assert gensor_kernels.counters()["misses"] - misses == 16


def test_a_call_within_planning_waits_for_nobody(runtime, monkeypatch):
    """Two threads each plan a call, and within that make the other's call: a signal's handler may do so."""
    both, plain = threading.Barrier(2), make.choose
    inner = threading.local()

    def choose(call, operands, *more, **keywords):
        if not getattr(inner, "entered", False):
            inner.entered = True
            both.wait(WAIT)
            product(96 - operands.inputs[0].shape[0])
        return plain(call, operands, *more, **keywords)

    monkeypatch.setattr(make, "choose", choose)
    in_threads(product, (32, 64))
    assert rows_of(runtime.plans) == [32, 64]


def test_a_plan_that_was_begun_before_a_change_is_not_kept(runtime, monkeypatch):
    held = Held(monkeypatch, 64)
    slow = threading.Thread(target=product, args=(64,))
    slow.start()
    assert held.began.wait(WAIT)
    runtime.refresh()
    held.open.set()
    slow.join(WAIT)
    assert not runtime.plans
    product(64)
    assert len(runtime.plans) == 1


def test_an_error_while_planning_ends_the_turn(runtime, monkeypatch):
    def fail(*_, **more):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(make, "choose", fail)
        with pytest.raises(KeyboardInterrupt):
            product(64)
    product(64)
    assert len(runtime.plans) == 1 and not runtime.turns._turns


def test_a_turn_of_the_parent_is_nothing_to_a_child():
    turns = Turns()
    with turns.at("a"):
        turns.after_fork()
        with turns.at("a"):
            pass
    assert not turns._turns


def test_two_kinds_of_calls_of_one_workload_are_tuned_once(monkeypatch, tmp_path):
    """The second waits for the kernel of the first; `out` makes it another kind."""
    monkeypatch.setenv("GENSOR_TUNE", "now")
    monkeypatch.setenv("GENSOR_DB", str(tmp_path / "own.db"))
    stored, tuned = {}, []
    runtime = put(monkeypatch, runtime_of())
    runtime.library = libraries.Library(read=lambda: libraries.Contents(dict(stored), dict(records)))
    records, began, go = {}, threading.Event(), threading.Event()

    def tune(wanted, *_, **more):
        tuned.append(wanted)
        began.set()
        assert go.wait(WAIT)
        stored.update(kernels(wanted, cubin=b""))
        records[wanted.key()] = next(iter(stored))
        return True

    monkeypatch.setattr(background, "tune", tune)
    monkeypatch.setattr(runtime, "refine", lambda wanted: None)
    a, b, out = aligned((64, 64)), aligned((64, 64)), aligned((64, 64))
    bias = {"bias": aligned((64,))}
    threads = [threading.Thread(target=gensor_kernels.matmul, args=each, kwargs=bias) for each in ((a, b), (a, b, out))]
    for each in threads:
        each.start()
    assert began.wait(WAIT)
    go.set()
    for each in threads:
        each.join(WAIT)
    assert len(tuned) == 1 and len(runtime.plans) == 2
    assert not any("no kernel is stored" in plan.reason for plan in runtime.plans.values())


def test_what_was_measured_meanwhile_is_no_error(runtime):
    """A measurement takes the place of all residuals while a thread is computing one."""
    product(64)
    found, (first, *_) = runtime.library, runtime.library.contents.kernels.values()
    found.residuals.clear()
    found.timed = lambda kernel: setattr(found, "residuals", {}) or []
    assert predict.residual(first, found, runtime.device.arch) is None


def test_kernels_near_a_size_are_those_of_present_contents(runtime):
    found = runtime.library
    found.keep_near("bucket", (("m", 1),), list(found.contents.kernels))
    assert found.near("bucket", (("m", 2),))
    late = found._near["bucket"]
    found.refuse(list(found.contents.kernels))
    found._near["bucket"] = late  # of a thread that chose before
    assert not found.near("bucket", (("m", 2),))


# ---- how many Plans are kept


def test_the_plans_used_least_recently_are_forgotten_first(runtime, monkeypatch):
    product(8)
    monkeypatch.setattr(kept, "MOST_BYTES", 8 * next(iter(runtime.plans.values())).nbytes)
    misses, hits = (gensor_kernels.counters()[name] for name in ("misses", "hits"))
    for rows in range(16, 8 * 30, 8):
        product(rows)
        product(8)
        assert len(runtime.plans.both()) <= 8
    assert gensor_kernels.counters()["misses"] - misses == 28  # the Plan in use was never made again
    assert {8, 8 * 29} <= set(rows_of(runtime.plans.both()))
    assert 16 not in set(rows_of(runtime.plans.both()))
    # Those found in the older generation are not counted, unless hits are.
    assert gensor_kernels.counters()["hits"] == hits


def test_what_a_race_has_left_takes_the_place_of_its_trial_in_both_generations(runtime, monkeypatch):
    product(8)
    (trial,) = runtime.plans.values()
    runtime.plans._older = dict(runtime.plans)
    dict.clear(runtime.plans)
    runtime.replace(trial, trial.plan)
    assert set(runtime.plans.both().values()) == {trial.plan}


A, B, X = (aligned(shape) for shape in ((4096, 64), (64, 64), (64,)))
KINDS = {
    "product": lambda rows: gensor_kernels.matmul(A[:rows], B),
    "epilogue": lambda rows: gensor_kernels.matmul(A[:rows], B, bias=X, activation="relu"),
    "converted": lambda rows: gensor_kernels.matmul(A[:rows], B.astype(np.int16)),
    "contraction": lambda rows: gensor_kernels.einsum("ij,jk->ik", A[:rows], B),
    "library": lambda rows: gensor_kernels.softmax(A[:rows]),
    "chain": lambda rows: gensor_kernels.einsum("ij,jk,kl->il", A[:rows], B, B),
}


@pytest.mark.parametrize("mode", ["predicted", "auto", "off"])
@pytest.mark.parametrize("kind", KINDS)
def test_plans_take_the_memory_that_they_report(runtime, monkeypatch, kind, mode):
    """At most; and not much more is reported than the least of them take. With "off" nothing is on trial."""
    monkeypatch.setenv("GENSOR_TUNE", mode)
    for rows in range(8, 8 * 24, 8):  # what all of them share
        KINDS[kind](rows)
    runtime.plans.clear()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for rows in range(8 * 24, 8 * 56, 8):
            for _ in range(2 if mode == "off" else 1):  # at the second call a kernel stands by
                KINDS[kind](rows)
        runtime.device.launched.clear()
        runtime.device.ran.clear()
        gc.collect()
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(runtime.plans) >= 32 and held <= runtime.plans._bytes <= 5 * held
