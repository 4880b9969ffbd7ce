"""Memory that a captured launch uses lives as long as its graph, for every public function and server of a call."""

import gc
import threading

import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels.devices import cuda, graphs
from gensor_kernels.dispatch.api import current
from gensor_kernels.dispatch.plans.runtime import Runtime
from gensor_kernels.dispatch.selection import library, load

cupy = pytest.importorskip("cupy")
from tests.campaign_size import sample  # noqa: E402
from tests.doubles.captured import CALLS, UNSERVED, Stock, half, of  # noqa: E402
from tests.doubles.kernels import forget_gpus, put  # noqa: E402
from tests.doubles.strict.arrays import Array, host  # noqa: E402
from tests.doubles.strict.machine import without_races  # noqa: E402
from tests.doubles.strict.pool import enqueue  # noqa: E402
from tests.threads import in_threads  # noqa: E402

#: Calls that show the differences of Programs with streams and of the smallest Programs.
PRODUCTS = ["matmul", "float32", "out", "overlap", "wider out", "bias and gelu", "einsum", "einsum of three", "conv2d"]


@pytest.fixture
def opened(monkeypatch):
    """opened(stock) -> a Machine whose public functions have kernels of that stock."""
    with without_races(monkeypatch) as machine:

        def make(stock="split_k"):
            machine.only = device = machine.device()
            stocked = library.Library() if stock == "library" else Stock(device.arch, stock)
            monkeypatch.setattr(current, "only", Runtime(device, stocked))
            return machine

        yield make


def warm(machine, call, runs=3):
    """Load the kernels of a call before a capture."""
    for _ in range(runs):
        call()
    machine.synchronize()


def replay(machine, graph):
    """Replay a graph while all freed memory is in use by others, and again after the pool was emptied."""
    others = machine.pool.everything()
    for _ in range(2):
        graph.launch()
        machine.synchronize()  # raises the faults of the device
        others.clear()
        machine.pool.free_all_blocks()


def destroy(machine, graph):
    graph.destroy()
    machine.synchronize()


@pytest.mark.parametrize("stock", ["split_k", "library", "stream", ""])
def test_replays_use_only_the_graphs_memory(opened, stock):
    """A share of the calls by the commit's hash, or all of them in a full campaign."""
    machine = opened(stock)
    names = {"split_k": list(CALLS), "library": [name for name in CALLS if name not in UNSERVED]}.get(stock, PRODUCTS)
    for name in sample(names, 9):
        call = CALLS[name]()
        warm(machine, call)
        before = machine.pool.in_use()
        result, graph = machine.capture(call)
        assert graph.graph.nodes or name == "prepack"
        replay(machine, graph)
        if stock == "library" and isinstance(result, Array):  # NumPy computes: the numbers are the call's
            np.testing.assert_array_equal(host(result), call().get(), err_msg=name)
        del result
        replay(machine, graph)
        destroy(machine, graph)
        machine.only._graphs.tidy()
        assert machine.pool.in_use() == before, name


def split(machine):
    """A call that takes a workspace."""
    call = CALLS["out"]()
    warm(machine, call)
    return call, machine.pool.in_use()


def own(machine, graph, before):
    """The allocations that a graph touches and that began after `before`, a serial number."""
    return {use for node in graph.graph.nodes for use in node.uses if use[1] > before}


def test_calls_of_one_capture_use_memory_again(opened):
    machine = opened()
    call, before = split(machine)
    graph = machine.capture(call)[1]
    once = machine.pool.in_use() - before
    several = machine.capture(lambda: [call() for _ in range(10)] and None)[1]
    assert once > 0 and machine.pool.in_use() == before + 2 * once
    replay(machine, graph)
    replay(machine, several)
    destroy(machine, graph)
    gc.collect()
    replay(machine, several)
    assert machine.pool.in_use() == before + once


def test_streams_of_one_capture_share_nothing(opened):
    machine = opened()
    call, _ = split(machine)
    serial, other = machine.context.memory.serial, machine.cupy.cuda.Stream()

    def forked():
        call()
        other.wait_event(machine.cupy.cuda.get_current_stream().record())
        with other:
            call()
        machine.cupy.cuda.get_current_stream().wait_event(other.record())

    graph = machine.capture(forked)[1]
    assert len(graph.graph.retained) == 1 and len(own(machine, graph, serial)) == 2
    replay(machine, graph)


def test_graphs_of_two_threads_share_nothing(opened):
    machine = opened()
    calls, barrier, graphs = [CALLS["out"]() for _ in range(4)], threading.Barrier(4), []
    for call in calls:
        warm(machine, call)
    serial = machine.context.memory.serial

    def work(call):
        def meeting():
            for _ in range(5):
                barrier.wait()
                call()

        graphs.append(machine.capture(meeting)[1])

    in_threads(work, calls)
    parts = [own(machine, graph, serial) for graph in graphs]
    assert len(parts) == 4 and all(parts) and sum(map(len, parts)) == len(set().union(*parts))
    for graph in graphs:
        replay(machine, graph)


def test_a_result_may_outlive_its_graph(opened):
    machine = opened()
    call = CALLS["matmul"]()
    warm(machine, call)
    result, graph = machine.capture(call)
    use = machine.context.memory.whose(result.data.ptr)
    destroy(machine, graph)
    gc.collect()
    others = machine.pool.everything()
    assert machine.context.memory.whose(result.data.ptr) == use
    del result
    machine.synchronize()
    assert others is not None and use not in machine.context.memory.by_host.values()


@pytest.mark.parametrize("missing", ["cuStreamGetCaptureInfo_v2", "cuUserObjectCreate", "cuGraphRetainUserObject"])
@pytest.mark.parametrize("how", ["lacks", "refuses"])
def test_memory_is_kept_where_the_driver_does_not_report_the_end_of_a_graph(opened, missing, how):
    machine = opened()
    call, before = split(machine)
    if how == "lacks":
        machine.lacks(missing)
    else:
        machine.system.refuses[missing] = 801
    if (missing, how) == ("cuStreamGetCaptureInfo_v2", "refuses"):  # an invalid capture: there will be no graph
        with pytest.raises(RuntimeError, match="STREAM_CAPTURE_INVALIDATED"):
            machine.capture(call)
        assert machine.pool.in_use() == before
        return
    graphs = [machine.capture(call)[1] for _ in range(2)]
    for graph in graphs:
        replay(machine, graph)
        destroy(machine, graph)
    gc.collect()
    others = machine.pool.everything()
    machine.synchronize()
    for graph in graphs:
        assert others is not None and not any(machine.context.memory.damage(node.uses) for node in graph.graph.nodes)


def test_memory_allocated_in_stream_order_belongs_to_the_graph(opened):
    """As by `cupy.cuda.malloc_async`: if it were kept, the graph would never free it and could run only once."""
    machine = opened()
    call, before = split(machine)

    def in_order(nbytes):
        enqueue(machine.system, "an allocation", [], lambda: None)
        return machine.pool(nbytes)

    with cupy.cuda.using_allocator(in_order):
        graph = machine.capture(call)[1]
    assert graph.graph.nodes[0].name == "an allocation" and machine.pool.in_use() == before


def test_the_callers_allocator_is_used(opened):
    machine = opened()
    call, _ = split(machine)
    asked = []
    with cupy.cuda.using_allocator(lambda nbytes: asked.append(nbytes) or machine.pool(nbytes)):
        machine.capture(call)
        assert cupy.cuda.get_allocator()(512).mem.size >= 512 and asked[-1] == 512
    assert len(asked) == 2


def test_zeros_are_written_at_every_replay(opened):
    machine = opened()

    def zeroed():
        with machine.only.lasting():
            machine.only.workspace(1000, True)

    graph = machine.capture(zeroed)[1]
    assert [node.name for node in graph.graph.nodes] == ["memset"]
    replay(machine, graph)


def test_calls_that_allocate_nothing_do_not_ask_the_driver(opened, monkeypatch):
    machine = opened("")
    a, b, out = half(128, 256), half(256, 128), half(128, 128)
    warm(machine, of(gk.matmul, a, b, out=out), runs=5)
    monkeypatch.setattr(graphs, "driver_function", lambda name: pytest.fail("the driver was asked"))
    monkeypatch.setattr(cuda.CudaDevice, "capturing", lambda self: pytest.fail("the driver was asked"))
    graph = machine.capture(lambda: gk.matmul(a, b, out))[1]
    assert len(graph.graph.nodes) == 1 and not graph.graph.retained


def test_outside_of_a_capture_memory_goes_back_at_once(opened):
    machine = opened()
    call, before = split(machine)
    call()
    assert machine.pool.in_use() == before and not machine.context.objects


def test_captured_functions_stay_loaded(opened, monkeypatch):
    """`refresh` makes new Plans and Runtimes, and unloads no module."""
    machine = opened()
    forget_gpus(monkeypatch)
    put(monkeypatch, None)
    monkeypatch.setattr(load, "library", lambda arch: Stock(arch, "split_k"))
    call = CALLS["matmul"]()
    warm(machine, call)
    graph = machine.capture(call)[1]
    gk.refresh()
    gc.collect()
    modules = machine.context.modules
    assert modules and all(each.loaded for each in modules)
    replay(machine, graph)
    warm(machine, call)
    assert len(modules) == 1


@pytest.mark.parametrize("name", ["split", "plain"])
def test_a_bound_calls_workspace_lasts_as_long_as_a_graph(opened, name):
    """A graph that captured a plan outlives it; replays use its workspace, not memory of others."""
    machine = opened({"split": "split_k", "plain": ""}[name])
    plan = gk.bind(gk.matmul, half(64, 1024), half(1024, 64), out=half(64, 64))
    assert plan._bound.launch != plan._again and bool(plan._bound.kept) == (name == "split")
    out, graph = machine.capture(plan)
    kept = [plan._call]  # the caller's arrays
    plan()
    machine.synchronize()
    del plan
    gc.collect()
    replay(machine, graph)
    destroy(machine, graph)
    assert kept and out is not None
