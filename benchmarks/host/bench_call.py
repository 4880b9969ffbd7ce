"""Python time of a model's call: real `cupy.ndarray` objects over a fake allocator, and launches that do nothing.

    pytest benchmarks/host/bench_call.py --benchmark-columns=min,median

A model of 48 products with bias and activation, float16. `captured`: the call copies its input, launches a graph and
copies its result, all of which are stubs; the target is 10 us. `bound`: it makes the launches in a loop; the target is
2 us for each. `by nodes`: each node is dispatched, as in the first call, and inside a capture of the caller's. Copies
and queries of the device and the stream need a driver, and are not part of it.
"""

import os
from unittest import mock

import numpy as np
import pytest

from gensor_kernels.graph.execution.model import Model
from gensor_kernels.operators.products import matmul as operator

cupy = pytest.importorskip("cupy")
onnx = pytest.importorskip("onnx")
from onnx import helper, numpy_helper  # noqa: E402

from gensor_kernels.graph.readers.onnx_file import Source  # noqa: E402

from .without_gpu import StubDevice, fake_allocator, starter_kernels, stub_runtime  # noqa: E402

LAYERS, ROWS, WIDTH = 48, 64, 256


def model():
    """A chain of products, each with a bias and an activation."""
    nodes, constants, last = [], [], "x"
    for number in range(LAYERS):
        names = [f"{kind}{number}" for kind in ("w", "b", "m", "a", "r")]
        weight, bias, product, shifted, result = names
        values = np.random.default_rng(number).standard_normal((WIDTH, WIDTH)).astype(np.float16)
        constants += [numpy_helper.from_array(values, weight), numpy_helper.from_array(values[0], bias)]
        nodes.append(helper.make_node("MatMul", [last, weight], [product]))
        nodes.append(helper.make_node("Add", [product, bias], [shifted]))
        nodes.append(helper.make_node("Relu", [shifted], [result]))
        last = result
    ends = [helper.make_tensor_value_info(name, 10, [ROWS, WIDTH]) for name in ("x", last)]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], constants)
    return Model(Source(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)), "chain")


@pytest.fixture
def opened():
    """A model and its input."""
    kernels = list(starter_kernels(operator.workload(512, 512, 512, dtype="float16")))
    with (
        mock.patch.dict(os.environ, GENSOR_DETERMINISTIC="1"),  # no races: nothing can be timed here
        fake_allocator(),
        stub_runtime(kernels),
        mock.patch.object(cupy, "asarray", lambda value: cupy.empty(value.shape, value.dtype)),
        mock.patch.object(StubDevice, "stream", lambda device: 0),
        mock.patch.object(StubDevice, "copy", lambda device, target, source: None),
        mock.patch.object(StubDevice, "capture_graph", lambda device, run: None),
    ):
        yield model(), cupy.empty((ROWS, WIDTH), np.float16)


def timed(benchmark, call, launches=1):
    """Time one call; per launch where there are several."""
    benchmark.pedantic(call, rounds=200, iterations=5, warmup_rounds=10)
    if benchmark.stats:
        us = benchmark.stats.stats.min * 1e6
        benchmark.extra_info.update(us=round(us, 3), us_per_launch=round(us / launches, 3))
        print(f"\n{benchmark.name}: {us:.2f} us a call, {us / launches:.3f} us a launch ({launches})")


def bound_of(made):
    (plan,) = made._plans.values()
    (bound,) = plan.bound.values()
    return bound


def test_captured(benchmark, opened):
    made, x = opened
    with mock.patch.object(StubDevice, "capture_graph", lambda device, run: _nothing):
        for _ in range(2):
            made(x)
    assert bound_of(made).captured
    timed(benchmark, lambda: made(x))


def test_bound(benchmark, opened):
    made, x = opened
    for _ in range(2):
        made(x)
    bound = bound_of(made)
    assert not bound.captured and len(bound.steps) == LAYERS
    timed(benchmark, lambda: made(x), LAYERS)


def test_by_nodes(benchmark, opened):
    made, x = opened
    made(x)
    (plan,) = made._plans.values()
    inputs = {"x": x}
    timed(benchmark, lambda: plan.run(inputs), LAYERS)


def _nothing():
    """Stands in for the launch of a graph."""
