"""Graph capture over the strict double of the driver, and two faults of former releases, put back."""

from contextlib import nullcontext

import numpy as np
import pytest

from gensor_kernels.devices import cuda
from gensor_kernels.devices.driver import relaxed_capture
from gensor_kernels.errors import BuildError

cupy = pytest.importorskip("cupy")
from tests.devices.strict_machine import loaded, operands, raises, written  # noqa: E402
from tests.doubles.strict.capture import GLOBAL, RELAXED, THREAD_LOCAL  # noqa: E402
from tests.threads import in_threads  # noqa: E402


def outside(machine):
    event = machine.cupy.cuda.Event()
    with machine.cupy.cuda.Stream(non_blocking=True):
        event.record()
    return event


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda machine, stream, event: stream.synchronize(), "STREAM_CAPTURE_UNSUPPORTED"),
        (lambda machine, stream, event: event.synchronize(), "STREAM_CAPTURE_UNSUPPORTED"),
        (lambda machine, stream, event: event.done, "STREAM_CAPTURE_UNSUPPORTED"),
        (lambda machine, stream, event: stream.wait_event(event), "STREAM_CAPTURE_ISOLATION"),
        (lambda machine, stream, event: machine.cupy.empty((7,)), "STREAM_CAPTURE_UNSUPPORTED"),
        (lambda machine, stream, event: machine.pool.free_all_blocks(), "STREAM_CAPTURE_UNSUPPORTED"),
        (lambda machine, stream, event: loaded(machine.device(), written()), "STREAM_CAPTURE_UNSUPPORTED"),
        (lambda machine, stream, event: machine.synchronize(), "STREAM_CAPTURE_IMPLICIT"),
    ],
)
def test_what_a_capture_forbids_breaks_it(machine, call, error):
    event, freed = outside(machine), machine.cupy.empty((9,))
    del freed
    stream = machine.cupy.cuda.Stream()
    with stream:
        stream.begin_capture(GLOBAL)
        with pytest.raises((RuntimeError, BuildError), match=error):
            call(machine, stream, event)
        assert machine.device().capturing()  # CuPy raises, for an invalid capture
        with raises("STREAM_CAPTURE_INVALIDATED"):
            stream.end_capture()
        assert not machine.device().capturing()


@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL, RELAXED])
def test_a_mode_says_whose_calls_break_a_capture(machine, mode):
    stream, breaks = machine.cupy.cuda.Stream(), []

    def elsewhere(_):
        try:
            machine.cupy.empty((1000,))
        except RuntimeError:
            breaks.append("another thread")

    with stream:
        stream.begin_capture(mode)
        assert machine.device().capturing()
        with relaxed_capture():
            machine.cupy.empty((2000,))
        in_threads(elsewhere, [0])
        try:
            machine.cupy.empty((4000,))
        except RuntimeError:
            breaks.append("this thread")
        with raises("STREAM_CAPTURE_INVALIDATED") if breaks else nullcontext():
            stream.end_capture()
    assert breaks == [["another thread", "this thread"], ["this thread"], []][mode]


def test_a_device_on_the_legacy_stream_captures_while_another_stream_does(machine):
    device, stream = machine.device(), machine.cupy.cuda.Stream()
    with stream:
        stream.begin_capture(RELAXED)
        assert device.capturing()
    assert device.capturing()  # the query itself is refused there
    stream.end_capture()
    assert not device.capturing()


def test_a_capture_loads_nothing_and_stays_whole(machine, product):
    """In the mode that forbids most: until a kernel is loaded, the library's call is captured."""
    a, b, exact = operands(machine)
    out = machine.cupy.empty(exact.shape, np.float16)
    for expected in (["matmul"], ["contraction_mma", "contraction_reduce"]):
        _, graph = machine.capture(lambda: product(a, b, out))
        assert [node.name for node in graph.graph.nodes] == expected
        assert len(machine.context.modules) == (expected != ["matmul"])
        out.fill(0)
        graph.launch()
        np.testing.assert_array_equal(out.get(), exact)
        product(a, b, out)  # which loads the kernel


def capture_product(machine, product):
    """(result, what it should be, the graph, operands) of a captured product, whose workspace the call has dropped."""
    a, b, exact = operands(machine)
    out = machine.cupy.empty(exact.shape, np.float16)
    product(a, b, out)
    machine.synchronize()
    graph = machine.capture(lambda: product(a, b, out), mode=RELAXED)[1]
    out.fill(0)
    return out, exact, graph, (a, b)


def test_a_captured_product_is_right_when_others_have_all_free_memory(machine, product):
    out, exact, graph, _operands = capture_product(machine, product)
    machine.others = machine.pool.everything()
    for _ in range(2):
        graph.launch()
        np.testing.assert_array_equal(out.get(), exact)


def test_captured_memory_that_goes_back_to_the_pool_shows(machine, product, monkeypatch):
    """Until captured calls had memory of their graph, replays wrote to memory that the pool had given to others."""
    monkeypatch.setattr(cuda.CudaDevice, "lasting", lambda self: nullcontext())
    out, _, graph, _operands = capture_product(machine, product)
    machine.others = machine.pool.everything()
    graph.launch()
    with raises("ILLEGAL_ADDRESS"):
        out.get()
