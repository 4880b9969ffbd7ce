"""Python time of a model's call: real `cupy.ndarray` objects over a fake allocator, and launches that do nothing.

    pytest benchmarks/host/bench_call.py --benchmark-columns=min,median

A model of 48 products with bias and activation, float16. `captured`: the call copies its input, launches a graph and
copies its result, all of which are stubs; the target is 10 us. `bound`: it makes the launches in a loop; the target is
2 us for each. `by nodes`: each node is dispatched, as in the first call. Copies and queries of the device and the
stream need a driver, and are not part of it.
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
    """Return a chain of products, each with a bias and an activation."""
    nodes, constants = [], []
    for number in range(LAYERS):
        values = np.random.default_rng(number).standard_normal((WIDTH, WIDTH)).astype(np.float16)
        constants += [numpy_helper.from_array(values, f"w{number}"), numpy_helper.from_array(values[0], f"b{number}")]
        nodes.append(helper.make_node("MatMul", [f"x{number}", f"w{number}"], [f"m{number}"]))
        nodes.append(helper.make_node("Add", [f"m{number}", f"b{number}"], [f"a{number}"]))
        nodes.append(helper.make_node("Relu", [f"a{number}"], [f"x{number + 1}"]))
    ends = [helper.make_tensor_value_info(name, 10, [ROWS, WIDTH]) for name in ("x0", f"x{LAYERS}")]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], constants)
    return Model(Source(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)), "chain")


@pytest.mark.parametrize("how", ["captured", "bound", "by nodes"])
def test_call(benchmark, how):
    kernels = list(starter_kernels(operator.workload(512, 512, 512, dtype="float16")))
    graph = None if how == "bound" else int  # a function that does nothing stands in for the launch of a graph
    with (
        mock.patch.dict(os.environ, GENSOR_DETERMINISTIC="1"),  # no races: nothing can be timed here
        fake_allocator(),
        stub_runtime(kernels),
        mock.patch.object(cupy, "asarray", lambda value: cupy.empty(value.shape, value.dtype)),
        mock.patch.object(StubDevice, "stream", lambda device: 0),
        mock.patch.object(StubDevice, "copy", lambda device, target, source: None),
        mock.patch.object(StubDevice, "capture_graph", lambda device, run: graph),
    ):
        made, x = model(), cupy.empty((ROWS, WIDTH), np.float16)
        for _ in range(2):
            made(x0=x)
        (plan,) = made._plans.values()
        (bound,) = plan.bound.values()
        assert bound.captured == (graph is not None) and len(bound.steps) == LAYERS
        call = (lambda: plan.run({"x0": x})) if how == "by nodes" else lambda: made(x0=x)
        benchmark.pedantic(call, rounds=200, iterations=5, warmup_rounds=10)
    if benchmark.stats:
        us = benchmark.stats.stats.min * 1e6
        benchmark.extra_info.update(us=round(us, 3), us_per_launch=round(us / LAYERS, 3))
        print(f"\n{benchmark.name}: {us:.2f} us a call, {us / LAYERS:.3f} us a launch")
