"""What a captured launch uses lives as long as its graph, whoever served the call and whatever it took beside a result.

Every call of `CALLS` is captured over a pool that gives freed memory to whoever asks next, and replayed when others
have all of that memory, and when nobody has it any more.
"""

import gc
import threading

import pytest

import gensor_kernels as gk
from gensor_kernels.dispatch.api import current
from gensor_kernels.dispatch.plans.runtime import Runtime
from gensor_kernels.dispatch.selection import library

cupy = pytest.importorskip("cupy")
from tests.doubles.captured import CALLS, UNSERVED, Machine, Stock, Stream, half, of  # noqa: E402  # noqa: E402
from tests.doubles.fake_cuda import FakeModule  # noqa: E402
from tests.doubles.kernels import put  # noqa: E402
from tests.threads import in_threads  # noqa: E402

#: What shows all that Programs with streams, and those that need least, do otherwise.
PRODUCTS = ("matmul", "float32", "out", "overlap", "wider out", "bias and gelu", "einsum", "einsum of three", "conv2d")
PAIRS = [("split_k", name) for name in CALLS]
PAIRS += [("library", name) for name in CALLS if name not in UNSERVED]
PAIRS += [(stock, name) for stock in ("stream", "") for name in PRODUCTS]


@pytest.fixture
def opened(monkeypatch):
    """opened(stock) -> a Machine whose public functions have such kernels."""
    monkeypatch.setenv("GENSOR_TUNE", "predicted")
    monkeypatch.setenv("GENSOR_DETERMINISTIC", "1")  # no races: nothing can be timed here
    before = cupy.cuda.get_allocator()

    def make(stock="split_k"):
        machine = Machine(monkeypatch)
        device = machine.device
        stocked = library.Library() if stock == "library" else Stock(device.arch, stock)
        monkeypatch.setattr(current, "only", Runtime(device, stocked))
        return machine

    yield make
    cupy.cuda.set_allocator(before)


def warm(call, runs=3):
    """Kernels are loaded, and stand by, before a capture."""
    for _ in range(runs):
        call()


def everything(heap):
    """Whoever asks next, until nothing that was freed is left."""
    return [heap(each.size) for each in sorted(heap.free, key=lambda use: use.size)]


def taken_over(machine, graph):
    """Others have what was freed; then the pool is emptied."""
    others = everything(machine.heap)
    graph.replay(machine.heap)
    others.clear()
    machine.heap.free.clear()
    graph.replay(machine.heap)


@pytest.mark.parametrize(("stock", "name"), PAIRS)
def test_a_replay_touches_what_was_captured(opened, stock, name):
    machine = opened(stock)
    call = CALLS[name]()
    warm(call)
    before = machine.heap.in_use()
    result, graph = machine.captured(call)
    assert graph.operations or name == "prepack"
    taken_over(machine, graph)
    del result
    taken_over(machine, graph)
    graph.destroy()
    machine.device._graphs.tidy()
    assert machine.heap.in_use() == before


def split(machine):
    """A call that takes a workspace."""
    call = CALLS["out"]()
    warm(call)
    return call, machine.heap.in_use()


def own(machine, graph, before):
    """The allocations that a graph touches and that began after `before`, a serial number."""
    return {use for _, uses in graph.operations for use in uses if use.serial > before}


def test_calls_of_one_capture_use_memory_again(opened):
    machine = opened()
    call, before = split(machine)
    graph = machine.captured(call)[1]
    once = machine.heap.in_use() - before
    several = machine.captured(lambda: [call() for _ in range(10)] and None)[1]
    assert once > 0 and machine.heap.in_use() == before + 2 * once
    taken_over(machine, graph)
    taken_over(machine, several)
    graph.destroy()
    gc.collect()
    taken_over(machine, several)
    assert machine.heap.in_use() == before + once


def test_streams_of_one_capture_share_nothing(opened):
    machine = opened()
    call, _ = split(machine)
    serial, other = machine.heap.serial, Stream()

    def forked():
        call()
        (recording,) = machine.driver.streams.values()
        other.graph = machine.driver.streams[other.ptr] = recording
        with other:
            call()
        del machine.driver.streams[other.ptr]

    graph = machine.captured(forked)[1]
    assert len(graph.retained) == 1 and len(own(machine, graph, serial)) == 2
    taken_over(machine, graph)


def test_graphs_of_two_threads_share_nothing(opened):
    machine = opened()
    calls, barrier, graphs = [CALLS["out"]() for _ in range(4)], threading.Barrier(4), []
    for call in calls:
        warm(call)
    serial = machine.heap.serial

    def work(call):
        def meeting():
            for _ in range(5):
                barrier.wait()
                call()

        graphs.append(machine.captured(meeting)[1])

    in_threads(work, calls)
    parts = [own(machine, graph, serial) for graph in graphs]
    assert len(parts) == 4 and all(parts) and sum(map(len, parts)) == len(set().union(*parts))
    for graph in graphs:
        taken_over(machine, graph)


def test_a_result_may_outlive_its_graph(opened):
    machine = opened()
    call = CALLS["matmul"]()
    warm(call)
    result, graph = machine.captured(call)
    use = machine.heap.whose(result.data.ptr)
    graph.destroy()
    gc.collect()
    everything(machine.heap)
    assert machine.heap.whose(result.data.ptr) == use
    del result
    assert use not in machine.heap.uses.values()


@pytest.mark.parametrize("missing", ["cuStreamGetCaptureInfo_v2", "cuUserObjectCreate", "cuGraphRetainUserObject"])
@pytest.mark.parametrize("how", ["lacks", "refuses"])
def test_where_nobody_says_when_a_graph_ends_memory_stays(opened, missing, how):
    machine = opened()
    call, before = split(machine)
    setattr(machine.driver, how, (missing,))
    graphs = [machine.captured(call)[1] for _ in range(2)]
    if (missing, how) == ("cuStreamGetCaptureInfo_v2", "refuses"):  # an invalid capture: there will be no graph
        assert machine.heap.in_use() == before
        return
    for graph in graphs:
        taken_over(machine, graph)
        graph.destroy()
    gc.collect()
    for graph in graphs:
        taken_over(machine, graph)


def test_memory_that_is_allocated_in_stream_order_is_the_graphs_by_itself(opened):
    """As by `cupy.cuda.malloc_async`: kept here it would never be freed within the graph, which could run only once."""
    machine = opened()
    call, before = split(machine)

    def in_order(nbytes):
        machine.did("an allocation", [])
        return machine.heap(nbytes)

    with cupy.cuda.using_allocator(in_order):
        graph = machine.captured(call)[1]
    assert graph.operations[0][0] == "an allocation" and machine.heap.in_use() == before


def test_the_callers_allocator_is_asked(opened):
    machine = opened()
    call, _ = split(machine)
    asked = []
    with cupy.cuda.using_allocator(lambda nbytes: asked.append(nbytes) or machine.heap(nbytes)):
        machine.captured(call)
        assert cupy.cuda.get_allocator()(512).mem.size == 512 and asked[-1] == 512
    assert len(asked) == 2


def test_zeros_are_written_at_every_replay(opened):
    machine = opened()

    def zeroed():
        with machine.device.lasting():
            machine.device.workspace(1000, True)

    graph = machine.captured(zeroed)[1]
    assert [name for name, _ in graph.operations] == ["memset"]
    taken_over(machine, graph)


def test_what_allocates_nothing_asks_nothing(opened, monkeypatch):
    machine = opened("")
    a, b, out = half(128, 256), half(256, 128), half(128, 128)
    warm(of(gk.matmul, a, b, out=out), runs=5)
    monkeypatch.setattr(machine.driver, "cuStreamGetCaptureInfo_v2", lambda *_: pytest.fail("asked"))
    monkeypatch.setattr(type(machine.device), "capturing", lambda self: pytest.fail("asked"))
    graph = machine.captured(lambda: gk.matmul(a, b, out))[1]
    assert len(graph.operations) == 1 and not graph.retained


def test_outside_of_a_capture_memory_goes_back_at_once(opened):
    machine = opened()
    call, before = split(machine)
    call()
    assert machine.heap.in_use() == before and not machine.driver.objects


def test_captured_functions_stay_loaded(opened, monkeypatch):
    """`refresh` makes new Plans and Runtimes; modules are unloaded by nobody."""
    from gensor_kernels.devices import cuda
    from gensor_kernels.dispatch.selection import load

    machine, loaded = opened(), set()
    monkeypatch.setattr(FakeModule, "__del__", lambda self: loaded.discard(id(self)), raising=False)
    monkeypatch.setattr(FakeModule, "load", lambda self, image: loaded.add(id(self)))
    for name, value in (("lookup", current._cuda), ("only", None), ("_emulates", False), ("_forget_devices", [])):
        monkeypatch.setattr(current, name, value)
    put(monkeypatch, None)
    monkeypatch.setattr(cuda, "current_device", lambda: lambda: 0)
    monkeypatch.setattr(cuda, "CudaDevice", lambda number: machine.opened())
    monkeypatch.setattr(load, "library", lambda arch: Stock(arch, "split_k"))
    call = CALLS["matmul"]()
    warm(call)
    before = set(loaded)
    gk.refresh()
    gc.collect()
    assert before and loaded == before
    warm(call)
    assert loaded == before
