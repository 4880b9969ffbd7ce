"""Models on a GPU that is a strict double: arenas by stream, launches that are bound, and CUDA graphs."""

import contextlib
import itertools
import threading
from types import SimpleNamespace

import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels.dispatch.api import current
from gensor_kernels.dispatch.plans.runtime import Runtime
from gensor_kernels.dispatch.selection import library
from gensor_kernels.graph.execution import arena
from gensor_kernels.graph.execution.bound import HOT_RUN, Bound

cupy = pytest.importorskip("cupy")
from tests.doubles.captured import Stock, filled  # noqa: E402
from tests.doubles.strict.machine import installed  # noqa: E402
from tests.threads import in_threads  # noqa: E402

from ..models import model, node  # noqa: E402

RNG = np.random.default_rng(0)
W1, W2 = (RNG.standard_normal((64, 64)).astype(np.float32) / 8 for _ in range(2))
#: Seconds that a test waits for a thread.
PATIENCE = 60


@pytest.fixture
def opened(monkeypatch):
    """opened(stock) -> a Machine whose public functions have such kernels; by default the library serves all calls."""
    monkeypatch.setenv("GENSOR_TUNE", "predicted")
    monkeypatch.setenv("GENSOR_DETERMINISTIC", "1")  # no races: nothing can be timed here
    with installed() as machine:

        def make(stock="library"):
            device = machine.device()
            stocked = library.Library() if stock == "library" else Stock(device.arch, stock)
            monkeypatch.setattr(current, "only", Runtime(device, stocked))
            return machine

        yield make


def layers(**keywords):
    """Products with an activation between, and a maximum that the library computes."""
    nodes = [
        node("MatMul", ["x", "w1"], ["a"]),
        node("Relu", ["a"], ["b"]),
        node("MatMul", ["b", "w2"], ["c"]),
        node("Max", ["c", "b"], ["d"]),
        node("MatMul", ["d", "w1"], ["e"]),
        node("Transpose", ["e"], ["y"], perm=[1, 0]),
    ]
    return model(nodes, {"x": ("float32", ("n", 64))}, ["y"], {"w1": W1, "w2": W2}, **keywords)


def expected(x):
    b = np.maximum(x @ W1, 0)
    return (np.maximum(b @ W2, b) @ W1).T


def drawn(seed, rows=64):
    x = np.random.default_rng(seed).standard_normal((rows, 64)).astype(np.float32)
    return filled((rows, 64), np.float32).set(x), x


def bound_of(made):
    (plan,) = made._plans.values()
    (bound,) = plan.bound.values()
    return bound


def test_the_second_run_is_captured_and_the_graph_computes_the_same(opened):
    machine, made = opened(), layers()
    for seed in range(5):
        given, x = drawn(seed)
        np.testing.assert_allclose(made(given).get(), expected(x), rtol=2e-4, atol=2e-4)
        assert len(next(iter(made._plans.values())).bound) == (seed > 0)
    assert bound_of(made).captured and machine.context.captured == 1


def raced(monkeypatch, repeats=1):
    """Calls race, and every way takes a microsecond."""
    monkeypatch.delenv("GENSOR_DETERMINISTIC")

    def sampled(self, calls, rounds=None):
        for call in calls * repeats:
            call()
        return [[1.0] * 9 for _ in calls]

    monkeypatch.setattr("gensor_kernels.devices.cuda.CudaDevice.sampled", sampled)


def test_nothing_is_captured_while_a_kernel_is_still_to_race(opened, monkeypatch):
    machine = opened("")
    raced(monkeypatch)
    made, (given, _) = layers(), drawn(0)
    counts = []
    for _ in range(5):
        made(given)
        counts.append(len(next(iter(made._plans.values())).bound))
    assert counts[:2] == [0, 0] and counts[-1] == 1
    assert machine.context.captured == 1 and bound_of(made).captured


def test_memory_of_races_is_not_the_models(opened, monkeypatch):
    """A race makes thousands of requests: to give each a place in the arena would take minutes."""
    opened("")
    raced(monkeypatch, repeats=100)
    counts, make_layout = [], arena.make_layout
    monkeypatch.setattr(arena, "make_layout", lambda uses, ends: counts.append(len(uses)) or make_layout(uses, ends))
    made, (given, _) = layers(), drawn(0)
    for _ in range(5):
        made(given)
    assert counts and max(counts) < 20


def test_calls_of_a_graph_make_a_kind_of_call_worth_tuning(opened, monkeypatch):
    opened("")
    raced(monkeypatch)
    made, (given, _) = layers(), drawn(0)
    considered = []
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
    made.calls, made.inputs, made._new, made.launch, made.clock = HOT_RUN - 1, (), (), lambda: None, itertools.count()
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
    nodes = [
        node("Gemm", ["x", "w1"], ["a"], transB=1),
        node("Shape", ["x"], ["s"]),
        node("ConstantOfShape", ["s"], ["z"]),
        node("Max", ["a", "z"], ["y"]),
    ]
    made = model(nodes, {"x": ("float32", ("n", 64))}, {"y": ("n", 64)}, {"w1": W1})
    (given, x), sizes = drawn(0), []
    for _ in range(4):
        np.testing.assert_allclose(made(given).get(), np.maximum(x @ W1.T, 0), rtol=2e-4, atol=2e-4)
        (weights,) = made._weights.values()
        sizes.append(len(weights.placed))
    assert sizes == [sizes[0]] * 4


def test_results_stay_what_they_are_when_the_graph_runs_again(opened):
    opened()
    made = layers()
    pairs = [drawn(seed) for seed in range(6)]
    results = [made(given) for given, _ in pairs]
    for result, (_, x) in zip(results, pairs, strict=True):
        np.testing.assert_allclose(result.get(), expected(x), rtol=2e-4, atol=2e-4)


def test_inputs_of_any_layout_and_of_the_host(opened):
    opened()
    made = layers()
    given, x = drawn(0)
    for each in (given, given, given.T, filled((64, 128), np.float32)[:, ::2], x):
        wanted = each if isinstance(each, np.ndarray) else each.get()
        np.testing.assert_allclose(made(each).get(), expected(wanted), rtol=2e-4, atol=2e-3)


def test_each_stream_has_an_arena_of_its_own(opened):
    machine, made = opened(), layers()
    streams = [machine.cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    results = []
    for seed in range(6):
        with streams[seed % 2]:
            given, x = drawn(seed)
            results.append((made(given), x))
    machine.synchronize()
    for stream in streams:
        stream.synchronize()
    for result, x in results:
        np.testing.assert_allclose(result.get(), expected(x), rtol=2e-4, atol=2e-4)
    (plan,) = made._plans.values()
    first, second = (plan.bound[stream.ptr].arena for stream in streams)
    assert first.base + first.layout.nbytes <= second.base or second.base + second.layout.nbytes <= first.base


def test_few_arenas_are_kept_and_the_one_unused_for_longest_goes(opened, monkeypatch):
    monkeypatch.setattr("gensor_kernels.graph.execution.bound.MOST_ARENAS", 2)
    machine, made = opened(), layers()
    for rows in (8, 8, 16, 16, 8, 32, 32, 8):
        given, _ = drawn(rows, rows)
        made(given)
    sizes = [shape[0] for (((_, shape, _),), *_), plan in made._plans.items() if plan.bound]
    assert sizes == [8, 32]
    machine.synchronize()
    in_use = machine.pool.in_use()
    made._plans.clear(), made._known.clear()
    made._weights.clear()
    del given
    assert machine.pool.in_use() < in_use


def test_threads_that_share_a_stream_take_turns(opened):
    opened()
    made = layers()
    pairs = [drawn(seed) for seed in range(16)]
    results = [None] * len(pairs)
    for given, _ in pairs[:2]:
        made(given)

    def work(number):
        for place in range(number, len(pairs), 4):
            results[place] = made(pairs[place][0])

    in_threads(work, range(4))
    for result, (_, x) in zip(results, pairs, strict=True):
        np.testing.assert_allclose(result.get(), expected(x), rtol=2e-4, atol=2e-4)


def test_inside_the_callers_capture_nothing_is_bound_and_the_graph_owns_its_memory(opened):
    machine, made = opened(), layers()
    given, x = drawn(0)
    for _ in range(3):
        made(given)
    machine.synchronize()
    arena = bound_of(made).arena
    result, graph = machine.captured(lambda: made(given))
    assert machine.context.captured == 2  # the model's, and the caller's
    lows = [each.uses for each in graph.graph.nodes]
    assert not any(arena.base <= low < arena.base + arena.layout.nbytes for uses in lows for low, _ in uses)
    others = machine.pool.everything()
    made._plans.clear(), made._known.clear(), made._weights.clear()
    graph.launch()
    np.testing.assert_allclose(result.get(), expected(x), rtol=2e-4, atol=2e-4)
    others.clear()


@pytest.mark.parametrize("stock", ["", "split_k"])
def test_kernels_are_launched_from_the_graph_with_addresses_of_the_arena(opened, stock):
    """Kernels do nothing on the double, but each address in their Params must be memory in use."""
    machine, made = opened(stock), layers()
    given, _ = drawn(0)
    for _ in range(2):
        made(given)
    machine.synchronize()
    before = len(machine.context.launches)
    machine.pool.free_all_blocks()
    for _ in range(3):
        made(given)
    machine.synchronize()
    bound = bound_of(made)
    assert bound.captured and len(machine.context.launches) == before  # the graph's launches are no calls
    steps = [type(each).__name__ for each in bound.steps]
    assert steps.count("Recompute") == 1 and len(steps) >= 4


def test_a_model_that_reads_data_back_stays_eager_and_says_so(opened):
    machine = opened()
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("Reshape", ["a", "s"], ["y"], name="turn")]
    made = model(nodes, {"x": ("float32", (64, 64)), "s": ("int64", (2,))}, ["y"], {"w": W1})
    given, x = drawn(0)
    for shape in ([32, 128], [32, 128], [128, 32], [4096, 1]):
        size = filled((2,), np.int64).set(np.array(shape))
        assert made(given, size).shape == tuple(shape)
    assert machine.context.captured == 0
    text = str(made.memory(given, size))
    assert "node 'turn' (Reshape) reads data back to the host" in text
    np.testing.assert_allclose(made(given, size).get().reshape(64, 64), x @ W1, rtol=2e-4, atol=2e-4)


def test_what_cannot_be_captured_runs_in_a_loop(opened, monkeypatch):
    machine, made = opened(), layers()
    monkeypatch.setattr("gensor_kernels.devices.cuda.CudaDevice.captured", refuse)
    for seed in range(4):
        given, x = drawn(seed)
        np.testing.assert_allclose(made(given).get(), expected(x), rtol=2e-4, atol=2e-4)
    assert machine.context.captured == 0 and "cannot be captured: no graphs today" in bound_of(made).reason
    assert "no graphs today" in str(made.memory(given))


def refuse(self, run):
    raise RuntimeError("no graphs today")


def test_refresh_binds_anew(opened):
    opened()
    made = layers()
    given, x = drawn(0)
    for _ in range(3):
        made(given)
    first = bound_of(made)
    current.only.refresh()
    for _ in range(3):
        np.testing.assert_allclose(made(given).get(), expected(x), rtol=2e-4, atol=2e-4)
    assert bound_of(made) is not first and bound_of(made).holds() and not first.holds()


def test_disabled_means_node_by_node(opened, monkeypatch):
    monkeypatch.setenv("GENSOR_DISABLE", "1")
    machine, made = opened(), layers()
    for seed in range(3):
        given, x = drawn(seed)
        np.testing.assert_allclose(made(given).get(), expected(x), rtol=2e-4, atol=2e-4)
    assert machine.context.captured == 0


def test_recorded_calls_are_counted_one_by_one(opened, tmp_path):
    opened()
    made = layers()
    given, _ = drawn(0)
    for _ in range(3):
        made(given)
    with gk.record(tmp_path / "shapes.csv"):
        for _ in range(5):
            made(given)
    counts = [line.split(",") for line in (tmp_path / "shapes.csv").read_text().splitlines()]
    assert counts[0].count("count") == 1
    place = counts[0].index("count")
    assert sum(int(float(line[place])) for line in counts[1:]) >= 15


def test_a_fork_keeps_no_lock_of_another_thread(opened):
    opened()
    made = layers()
    given, _ = drawn(0)
    for _ in range(2):
        made(given)
    bound, (plan,) = bound_of(made), made._plans.values()
    held = [bound.lock, plan._turn, plan.arenas._lock]
    for lock in held:
        lock.acquire()
    from gensor_kernels import forking

    forking._renew_all()
    done = threading.Thread(target=made, args=(given,), daemon=True)
    done.start()
    done.join(PATIENCE)
    assert not done.is_alive()
