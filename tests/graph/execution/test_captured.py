"""Models on a GPU that is a strict double: arenas by stream, launches that are bound, and CUDA graphs."""

import contextlib
import threading
from types import SimpleNamespace

import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels import forking
from gensor_kernels.devices.sampling import Samples
from gensor_kernels.dispatch.api import current
from gensor_kernels.dispatch.plans.runtime import Runtime
from gensor_kernels.dispatch.selection import library
from gensor_kernels.graph.execution import arena
from gensor_kernels.graph.execution.bound import HOT_RUN, Bound

cupy = pytest.importorskip("cupy")
from tests.doubles.captured import Stock, filled  # noqa: E402
from tests.doubles.strict.machine import without_races  # noqa: E402
from tests.threads import in_threads  # noqa: E402

from ..models import model  # noqa: E402

RNG = np.random.default_rng(0)
W1, W2 = (RNG.standard_normal((64, 64)).astype(np.float32) / 8 for _ in range(2))
#: Seconds that a test waits for a thread.
PATIENCE = 60


@pytest.fixture
def opened(monkeypatch):
    """opened(stock) -> a Machine whose public functions have such kernels; by default the library serves all calls."""
    with without_races(monkeypatch) as machine:

        def make(stock="library"):
            device = machine.device()
            stocked = library.Library() if stock == "library" else Stock(device.arch, stock)
            monkeypatch.setattr(current, "only", Runtime(device, stocked))
            return machine

        yield make


@pytest.fixture
def raced(opened, monkeypatch):
    """raced(repeats) -> a Machine on which calls race, each that often; every way takes a microsecond."""

    def make(repeats=1):
        class Sampled:
            last, running = 0, frozenset()

            def __init__(self, calls):
                self.calls = calls

            def first(self):
                for call in self.calls * repeats:
                    call()
                return [Samples([1.0] * 9, [0.1] * 9) for _ in self.calls]

        machine = opened("")
        monkeypatch.delenv("GENSOR_DETERMINISTIC")
        monkeypatch.setattr("gensor_kernels.devices.cuda.CudaDevice.sampler", lambda self, calls: Sampled(calls))
        return machine

    return make


#: Products with an activation between, and a maximum that the library computes.
LAYERS = "a = MatMul(x, w1); b = Relu(a); c = MatMul(b, w2); d = Max(c, b); e = MatMul(d, w1); y = Transpose(e)"


def layers():
    return model(LAYERS, {"x": ("float32", ("n", 64))}, ["y"], {"w1": W1, "w2": W2})


def draw(seed, rows=64):
    x = np.random.default_rng(seed).standard_normal((rows, 64)).astype(np.float32)
    return filled((rows, 64), np.float32).set(x), x


def assert_correct(result, x, atol=2e-4):
    b = np.maximum(x @ W1, 0)
    np.testing.assert_allclose(result.get(), (np.maximum(b @ W2, b) @ W1).T, rtol=2e-4, atol=atol)


def call(made, count):
    """Call a model with `count` drawn inputs, check its results, and return the last input."""
    results = []
    for seed in range(count):
        given, x = draw(seed)
        results.append((made(given), x))
        assert_correct(*results[-1])
    for result, x in results:  # no later call has written over it
        assert_correct(result, x)
    return given


def bounds(made):
    (plan,) = made._plans.values()
    return plan.bound


def bound_of(made):
    (bound,) = bounds(made).values()
    return bound


def forget(made):
    for each in (made._plans, made._known, made._shared):
        each.clear()


@pytest.mark.parametrize("disabled", [False, True])
def test_the_second_run_is_captured_and_its_results_stay_what_they_are(opened, monkeypatch, disabled):
    if disabled:
        monkeypatch.setenv("GENSOR_DISABLE", "1")  # node by node
    machine, made = opened(), layers()
    call(made, 1)
    assert disabled or not bounds(made)
    call(made, 5)
    assert machine.context.captured == (0 if disabled else 1) and (disabled or bound_of(made).captured)


def test_nothing_is_captured_while_kernels_race_and_their_memory_is_not_the_models(raced, monkeypatch):
    """A race makes thousands of requests: to give each a place in the arena would take minutes."""
    machine = raced(repeats=100)
    requests, make = [], arena.make_layout
    monkeypatch.setattr(arena, "make_layout", lambda uses, ends: requests.append(len(uses)) or make(uses, ends))
    made, (given, _), counts = layers(), draw(0), []
    for _ in range(5):
        made(given)
        counts.append(len(bounds(made)))
    assert requests and max(requests) < 20 and counts[:2] == [0, 0] and counts[-1] == 1
    assert machine.context.captured == 1 and bound_of(made).captured


def test_calls_of_a_graph_make_a_kind_of_call_worth_tuning(raced, monkeypatch):
    raced()
    made, (given, _), considered = layers(), draw(0), []
    monkeypatch.setattr(current.only.background, "consider", considered.append)
    for _ in range(5):
        made(given)
    bound = bound_of(made)
    assert bound.trials and not considered
    while bound.calls < 64:
        made(given)
    assert len(considered) == len(bound.trials)


def test_another_threads_call_does_not_hide_the_hot_one():
    """It may come between this thread's turn and what follows from it."""
    ripened, made = [], Bound.__new__(Bound)
    made.calls, made.inputs, made._new, made.launch = HOT_RUN - 1, (), (), lambda: None
    made.device = SimpleNamespace(copy=None, empty=None)
    made.trials = [SimpleNamespace(ripen=lambda: ripened.append(made.calls))]

    class Lock(contextlib.nullcontext):
        def __exit__(self, *_):
            made.calls += 1

    made.lock = Lock()
    made(())
    assert ripened == [HOT_RUN + 1]


def test_views_of_weights_are_on_the_device_once(opened):
    """A product with the transposed weights, and an array that the host computes for each signature."""
    opened()
    text = "a = Gemm<transB = 1>(x, w1); s = Shape(x); z = ConstantOfShape(s); y = Max(a, z)"
    made = model(text, {"x": ("float32", ("n", 64))}, {"y": ("n", 64)}, {"w1": W1})
    (given, x), sizes = draw(0), []
    for _ in range(4):
        np.testing.assert_allclose(made(given).get(), np.maximum(x @ W1.T, 0), rtol=2e-4, atol=2e-4)
        ((weights, _),) = made._shared.values()
        sizes.append(len(weights.placed))
    assert sizes == [sizes[0]] * 4


def test_inputs_of_any_layout_and_of_the_host(opened):
    opened()
    made, (given, x) = layers(), draw(0)
    for each in (given, given, given.T, filled((64, 128), np.float32)[:, ::2], x):
        assert_correct(made(each), each if isinstance(each, np.ndarray) else each.get(), atol=2e-3)


def test_each_stream_has_its_own_arena(opened):
    machine, made, results = opened(), layers(), []
    streams = [machine.cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    for seed in range(6):
        with streams[seed % 2]:
            given, x = draw(seed)
            results.append((made(given), x))
    machine.synchronize()
    for stream in streams:
        stream.synchronize()
    for result, x in results:
        assert_correct(result, x)
    first, second = (bounds(made)[stream.ptr].arena for stream in streams)
    assert first.base + first.layout.nbytes <= second.base or second.base + second.layout.nbytes <= first.base


def test_few_arenas_are_kept_and_the_one_unused_for_longest_goes(opened, monkeypatch):
    monkeypatch.setattr("gensor_kernels.graph.execution.bound.MOST_ARENAS", 2)
    machine, made = opened(), layers()
    for rows in (8, 8, 16, 16, 8, 32, 32, 8):
        made(draw(rows, rows)[0])
    sizes = [shape[0] for (((_, shape, _),), *_), plan in made._plans.items() if plan.bound]
    assert sizes == [8, 32]
    machine.synchronize()
    in_use = machine.pool.in_use()
    forget(made)
    assert machine.pool.in_use() < in_use


def test_threads_that_share_a_stream_take_turns(opened):
    opened()
    made, pairs = layers(), [draw(seed) for seed in range(16)]
    results = [None] * len(pairs)
    for given, _ in pairs[:2]:
        made(given)

    def work(number):
        for place in range(number, len(pairs), 4):
            results[place] = made(pairs[place][0])

    in_threads(work, range(4))
    for result, (_, x) in zip(results, pairs, strict=True):
        assert_correct(result, x)


def test_inside_the_callers_capture_nothing_is_bound_and_the_graph_owns_its_memory(opened):
    machine, made, (given, x) = opened(), layers(), draw(0)
    call(made, 3)
    machine.synchronize()
    arena = bound_of(made).arena
    result, graph = machine.capture(lambda: made(given))
    assert machine.context.captured == 2  # the model's, and the caller's
    lows = [each.uses for each in graph.graph.nodes]
    assert not any(arena.base <= low < arena.base + arena.layout.nbytes for uses in lows for low, _ in uses)
    others = machine.pool.everything()
    forget(made)
    graph.launch()
    assert_correct(result, x)
    others.clear()


@pytest.mark.parametrize("stock", ["", "split_k"])
def test_kernels_are_launched_from_the_graph_with_addresses_of_the_arena(opened, stock):
    """Kernels do nothing on the double, but each address in their Params must be memory in use."""
    machine, made, (given, _) = opened(stock), layers(), draw(0)
    for count in (2, 3):
        before = len(machine.context.launches)
        machine.pool.free_all_blocks()
        for _ in range(count):
            made(given)
        machine.synchronize()
    bound = bound_of(made)
    assert bound.captured and len(machine.context.launches) == before  # the graph's launches are no calls
    steps = [type(each).__name__ for each in bound.steps]
    assert steps.count("Recompute") == 1 and len(steps) >= 4


def test_a_model_that_reads_data_back_stays_eager_and_says_so(opened):
    machine = opened()
    inputs = {"x": ("float32", (64, 64)), "s": ("int64", (2,))}
    made = model("a = MatMul(x, w); [turn] y = Reshape(a, s)", inputs, ["y"], {"w": W1})
    given, x = draw(0)
    for shape in ([32, 128], [32, 128], [128, 32], [4096, 1]):
        size = filled((2,), np.int64).set(np.array(shape))
        result = made(given, size)
        assert result.shape == tuple(shape)
        np.testing.assert_allclose(result.get().reshape(64, 64), x @ W1, rtol=2e-4, atol=2e-4)
    assert machine.context.captured == 0
    assert "node 'turn' (Reshape) reads data back to the host" in str(made.memory(given, size))


def test_nodes_before_the_first_one_that_reads_data_back_are_captured(opened):
    """One of two results is made before, and its memory is the caller's."""
    machine = opened()
    inputs = {"x": ("float32", (64, 64)), "s": ("int64", (2,))}
    text = f"{LAYERS}; [turn] z = Reshape(y, s); r = Relu(z)"
    made = model(text, inputs, ["y", "r"], {"w1": W1, "w2": W2})
    kept = []
    for number, shape in enumerate(([32, 128], [64, 64], [128, 32], [4096, 1], [1, 4096])):
        (given, x), size = draw(number), filled((2,), np.int64).set(np.array(shape))
        kept.append((*made(given, size), x, shape))
    assert machine.context.captured == 1
    assert "as one CUDA graph, until node 'turn' (Reshape) reads data back" in str(made.memory(given, size))
    for y, r, x, shape in kept:
        b = np.maximum(x @ W1, 0)
        wanted = (np.maximum(b @ W2, b) @ W1).T
        np.testing.assert_allclose(y.get(), wanted, rtol=2e-4, atol=2e-4)
        np.testing.assert_allclose(r.get(), np.maximum(wanted, 0).reshape(shape), rtol=2e-4, atol=2e-4)


def test_what_cannot_be_captured_runs_in_a_loop(opened, monkeypatch):
    def refuse(self, run):
        raise RuntimeError("no graphs today")

    monkeypatch.setattr("gensor_kernels.devices.cuda.CudaDevice.capture_graph", refuse)
    machine, made = opened(), layers()
    given = call(made, 4)
    assert machine.context.captured == 0 and "no graphs today" in str(made.memory(given))
    assert "cannot be captured: no graphs today" in bound_of(made).reason


def test_refresh_binds_again_and_recorded_calls_are_counted_one_by_one(opened, tmp_path):
    opened()
    made = layers()
    call(made, 3)
    first = bound_of(made)
    current.only.refresh()
    call(made, 3)
    assert bound_of(made) is not first and bound_of(made).holds() and not first.holds()
    with gk.record(tmp_path / "shapes.csv"):
        call(made, 5)
    head, *lines = [line.split(",") for line in (tmp_path / "shapes.csv").read_text().splitlines()]
    assert head.count("count") == 1
    assert sum(int(float(line[head.index("count")])) for line in lines) >= 15


def test_a_fork_keeps_no_lock_of_another_thread(opened):
    opened()
    made = layers()
    given = call(made, 2)
    (plan,) = made._plans.values()
    for lock in (bound_of(made).lock, plan._turn, plan.arenas._lock):
        lock.acquire()
    forking._renew_all()
    waiting = threading.Thread(target=made, args=(given,), daemon=True)
    waiting.start()
    waiting.join(PATIENCE)
    assert not waiting.is_alive()
