"""Planning: predicted times are those of `explain`, looked up once, and signatures share constants."""

import gc

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.dispatch.api.current import current_runtime
from gensor_kernels.dispatch.api.explain import explain, find_call, find_time
from gensor_kernels.graph.execution.model import Model
from gensor_kernels.graph.execution.plan import Plan
from gensor_kernels.graph.execution.weights import Weights
from gensor_kernels.graph.ir.graph import Derived
from gensor_kernels.graph.ir.options import Options
from gensor_kernels.graph.lowerings import predicted
from gensor_kernels.graph.readers.onnx_file import Source

from ..models import proto

pytestmark = pytest.mark.usefixtures("emulator")
RNG = np.random.default_rng(0)


def draw(*shape, dtype="float32"):
    return RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize(("part", "dtype"), [("sm_87", "float16"), ("sm_90", "float32")])
def test_a_short_answer_has_the_time_of_explain(part, dtype):
    image, matrix = draw(2, 16, 14, 14, dtype=dtype), draw(64, 64, dtype=dtype)
    calls = [
        (gensor_kernels.matmul, (matrix, matrix.T), {"epilogue": [("bias", matrix[0].copy()), "relu"]}),
        (gensor_kernels.conv2d, (image, draw(8, 16, 3, 3, dtype=dtype)), {"padding": 1}),
        (gensor_kernels.conv2d, (image.transpose(0, 2, 3, 1), draw(8, 3, 3, 16, dtype=dtype)), {"layout": "NHWC"}),
        (gensor_kernels.max_pool2d, (image, 2), {}),
        (gensor_kernels.softmax, (matrix,), {}),
        (gensor_kernels.einsum, ("ij,jk,kl->il", matrix, matrix, matrix), {}),
    ]
    with gensor_kernels.emulated(part):
        for function, args, keywords in calls:
            found = explain(function, *args, **keywords)
            short = find_time(current_runtime(), find_call(current_runtime(), function, *args, **keywords))
            steps = found.steps or (found,)
            assert short.us == pytest.approx(sum(each.measured_us or each.predicted_us for each in steps))
            assert short.us > 0
            assert short.staged == any(bool(each.staged) for each in steps)


def repeat(text, count, x, weight):
    """A model of `count` equal nodes one after another, each with other weights."""
    names = ["x", *(f"t{place}" for place in range(count))]
    nodes = "; ".join(f"{names[at + 1]} = {text}({names[at]}, w{at})" for at in range(count))
    constants = {f"w{at}": draw(*weight) / 16 for at in range(count)}
    return proto(nodes, {"x": ("float32", ("n", *x))}, [names[-1]], constants)


def test_times_are_looked_up_once_unless_the_library_changes(monkeypatch):
    lookups = []
    monkeypatch.setattr(predicted, "find_time", lambda *given: lookups.append(given) or find_time(*given))
    monkeypatch.setattr(predicted, "_known", type(predicted._known)())

    def plan(count, batch=1):
        lookups.clear()
        made = repeat("Conv<pads = [1, 1, 1, 1]>", count, (16, 14, 14), (16, 16, 3, 3))
        Plan(Source(made).graph({"x": (batch, 16, 14, 14)}), Weights(), Options())
        return len(lookups)

    few = plan(2)
    assert few > 0 and plan(6) == 0  # another graph with the same nodes
    assert plan(2, batch=2) > 0
    current_runtime().library.reload()
    assert plan(2) == few


@pytest.mark.parametrize("weights", [None, "int8", "int4"])
def test_signatures_share_narrow_weights(weights):
    """The very arrays: nothing is cast or quantised a second time, and nothing is kept twice."""
    model = Model(Source(repeat("MatMul", 3, (256,), (256, 256))), "model", Options("float16", weights))
    results = [model(draw(rows, 256)) for rows in (200, 300)]
    first, second = model._plans.values()
    assert [each.shape for each in results] == [(200, 256), (300, 256)]
    assert first.graph.constants.keys() == second.graph.constants.keys()
    for name, array in first.graph.constants.items():
        assert second.graph.constants[name] is array
    ((kept, _),) = model._shared.values()
    held = {id(each) for alike in kept._arrays.values() for each in alike}
    assert held == {id(each) for each in first.graph.constants.values()}


def test_arrays_are_known_by_their_constants():
    derived, made = Derived(), []
    constant = draw(4, 6)
    other = constant.copy()
    derived.note([constant])

    def double(source):
        return derived.array("doubled", [source], lambda: made.append(source) or source * 2)

    first = double(constant)
    second = double(first)  # results count as constants
    assert double(constant) is first and double(first) is second and len(made) == 2
    np.testing.assert_array_equal(double(constant.T), constant.T * 2)  # another view
    assert double(constant[1:]).shape == (3, 6)
    assert derived.array("halved", [constant], lambda: constant / 2) is not first
    assert double(other) is not double(other)  # results of arrays that were not noted are not kept
    assert derived.fact("most", constant, lambda: 1) == derived.fact("most", constant, lambda: 2) == 1
    assert derived.fact("most", other, lambda: 2) == 2
    made.clear()
    del first, second
    gc.collect()
    double(constant)
    assert len(made) == 1  # results go with their last user
