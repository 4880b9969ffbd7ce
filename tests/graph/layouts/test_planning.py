"""Planning: times that are asked once, equal to those of `explain`, and constants that signatures share."""

import gc

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.dispatch.api.current import current_runtime
from gensor_kernels.dispatch.api.explain import asked, explain, served
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.graph.execution.model import Model
from gensor_kernels.graph.execution.plan import Plan
from gensor_kernels.graph.execution.weights import Weights
from gensor_kernels.graph.ir.derived import Derived
from gensor_kernels.graph.ir.options import Options
from gensor_kernels.graph.layouts import laid_out as module
from gensor_kernels.graph.layouts.times import LAST, Times, weight_orders
from gensor_kernels.graph.lowerings import LOWERINGS, predicted
from gensor_kernels.graph.lowerings.base import Constants, Run
from gensor_kernels.graph.readers.onnx_file import Source

from ..models import node, proto
from .test_layouts import body, bottleneck

RNG = np.random.default_rng(0)


def drawn(*shape, dtype="float32"):
    return RNG.standard_normal(shape).astype(dtype)


@pytest.fixture
def questions(monkeypatch):
    """The calls whose times were asked for."""
    found = []
    monkeypatch.setattr(predicted, "served", lambda *given: found.append(given) or served(*given))
    monkeypatch.setattr(predicted, "_known", type(predicted._known)())
    return found


def planned(made, *shape, dtype=None, weights=None):
    source = Source(made)
    return Plan(source.graph({"x": shape} if shape else None), weights or Weights(), Options(dtype))


# ---- times


@pytest.mark.parametrize("part", ["sm_87", "sm_90"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_short_answer_has_the_time_of_explain(part, dtype):
    image, matrix = drawn(2, 16, 14, 14, dtype=dtype), drawn(64, 64, dtype=dtype)
    calls = [
        (gensor_kernels.matmul, (matrix, matrix.T), {"epilogue": [("bias", matrix[0].copy()), "relu"]}),
        (gensor_kernels.conv2d, (image, drawn(8, 16, 3, 3, dtype=dtype)), {"padding": 1}),
        (gensor_kernels.conv2d, (image.transpose(0, 2, 3, 1), drawn(8, 3, 3, 16, dtype=dtype)), {"layout": "NHWC"}),
        (gensor_kernels.max_pool2d, (image, 2), {}),
        (gensor_kernels.softmax, (matrix,), {}),
        (gensor_kernels.einsum, ("ij,jk,kl->il", matrix, matrix, matrix), {}),
    ]
    with gensor_kernels.emulated(part):
        for function, args, keywords in calls:
            found = explain(function, *args, **keywords)
            question = asked(current_runtime(), function, *args, **keywords)
            short = served(current_runtime(), question)
            steps = found.steps or (found,)
            assert short.us == pytest.approx(sum(each.measured_us or each.predicted_us for each in steps))
            assert short.us > 0
            assert short.staged == any(bool(each.staged) for each in steps)


class _Answered(Exception):
    pass


class Explained(Times):
    """Times of nodes by `explain` at each node's call, on arrays in the layouts in question."""

    def of(self, node, read_last):
        last, graph = node.layout == "last", self.graph
        orders = weight_orders(graph, node)
        arguments = []
        for place, name in enumerate(node.inputs):
            if place == 1 and orders is not None:
                arguments.append(self.array(name, orders[last and name in graph.constants]))
            elif name in graph.constants and graph.constants[name].dtype.kind in "iub":
                arguments.append(graph.constants[name])
            else:
                arguments.append(self.image(name, read_last if place == 0 else last) if name else None)
        run = Run(Constants((), {}))
        run.values = {each.operand: self.image(each.operand, last) for each in node.epilogue if each.operand}
        run.call = self.answered
        try:
            LOWERINGS[node.op](run, node, *arguments)
        except _Answered as answer:
            (found,) = answer.args
        except UnsupportedError:
            return np.inf
        time = found.measured_us or found.predicted_us or found.vendor_us or found.library_us
        if time is None or (found.staged and read_last != last):
            return np.inf
        return time + (self.conversion(node.inputs[0]) if found.staged else 0.0)

    @staticmethod
    def answered(function, *args, **keywords):
        raise _Answered(explain(function, *args, **keywords))

    def image(self, name, last):
        return self.array(name, LAST if last and len(self.graph.shape(name)) == 4 else None)

    def array(self, name, order):
        spec = self.graph.spec(name)
        order = range(len(spec.shape)) if order is None else order
        stored = np.empty([spec.shape[axis] for axis in order], spec.dtype)
        return stored.transpose(np.argsort(list(order)).tolist())


@pytest.mark.parametrize("part", ["sm_87", "sm_90"])
@pytest.mark.parametrize("dtype", [None, "float16"])
@pytest.mark.parametrize("made", [body, bottleneck])
def test_layouts_are_those_that_explain_would_choose(part, dtype, made, monkeypatch):
    file, found = made(), []
    with gensor_kernels.emulated(part):
        for times in (Times, Explained):
            monkeypatch.setattr(module, "Times", times)
            plan = planned(file, dtype=dtype)
            found.append(([(each.name, each.layout, each.inputs) for each in plan.graph.nodes], plan.layouts))
    assert found[0] == found[1]


def chain(count):
    """Equal convolutions, each of its own weights."""
    names = ["x", *(f"t{place}" for place in range(count))]
    nodes = [node("Conv", [names[at], f"w{at}"], [names[at + 1]], pads=[1, 1, 1, 1]) for at in range(count)]
    constants = {f"w{at}": drawn(16, 16, 3, 3) for at in range(count)}
    return proto(nodes, {"x": ("float32", ("n", 16, 14, 14))}, [names[-1]], constants)


def test_equal_nodes_are_asked_about_once(questions):
    with gensor_kernels.emulated("sm_87"):
        planned(chain(2), 1, 16, 14, 14)
        few = len(questions)
        planned(chain(6), 1, 16, 14, 14)  # another graph with the same nodes
        assert 0 < few == len(questions)
        planned(chain(2), 2, 16, 14, 14)
        assert len(questions) > few


def test_times_are_asked_again_where_the_library_changes(questions):
    with gensor_kernels.emulated("sm_87"):
        planned(chain(2), 1, 16, 14, 14)
        few = len(questions)
        current_runtime().library.reload()
        planned(chain(2), 1, 16, 14, 14)
    assert len(questions) == 2 * few


# ---- constants


def products(count=3, width=256):
    names = ["x", *(f"t{place}" for place in range(count))]
    nodes = [node("MatMul", [names[at], f"w{at}"], [names[at + 1]]) for at in range(count)]
    constants = {f"w{at}": drawn(width, width) / 16 for at in range(count)}
    return proto(nodes, {"x": ("float32", ("n", width))}, [names[-1]], constants)


@pytest.mark.parametrize("weights", [None, "int8", "int4"])
def test_signatures_share_narrow_weights(weights, monkeypatch):
    """The very arrays: nothing is cast or quantised a second time, and nothing is kept twice."""
    model = Model(Source(products()), "model", Options("float16", weights))
    with gensor_kernels.emulated("sm_87"):
        results = [model(drawn(rows, 256)) for rows in (200, 300)]
    first, second = model._plans.values()
    assert [each.shape for each in results] == [(200, 256), (300, 256)]
    assert first.graph.constants.keys() == second.graph.constants.keys()
    for name, array in first.graph.constants.items():
        assert second.graph.constants[name] is array
    (kept,) = model._weights.values()
    held = {id(each) for alike in kept._arrays.values() for each in alike}
    assert held == {id(each) for each in first.graph.constants.values()}


def test_arrays_are_known_by_their_constants():
    derived, made = Derived(), []
    constant = drawn(4, 6)
    derived.note([constant])

    def doubled(source):
        made.append(source)
        return source * 2

    def of(source):
        return derived.array("doubled", [source], lambda: doubled(source))

    first = of(constant)
    assert of(constant) is first and len(made) == 1
    assert of(constant.T) is not first  # another view
    np.testing.assert_array_equal(of(constant.T), constant.T * 2)
    assert of(constant[1:]).shape == (3, 6)
    assert derived.array("halved", [constant], lambda: constant / 2) is not first
    other = constant.copy()
    assert of(other) is not of(other)  # of an array that nobody keeps nothing is kept
    second = of(first)
    assert of(first) is second  # of results, too
    assert derived.fact("most", constant, lambda: 1) == derived.fact("most", constant, lambda: 2) == 1
    assert derived.fact("most", other, lambda: 2) == 2
    made.clear()
    del first, second
    gc.collect()
    of(constant)
    assert len(made) == 1  # results go with their last user


def test_changed_options_make_other_arrays():
    """float16 and bfloat16 of the same constants, from one store."""
    weights, made = Weights(), products(1)
    source = Source(made)
    with gensor_kernels.emulated("sm_87"):
        found = [Plan(source.graph({"x": (4, 256)}), weights, Options(dtype)) for dtype in ("float16", "bfloat16")]
    dtypes = [{each.dtype.name for each in plan.graph.constants.values()} for plan in found]
    assert dtypes == [{"float16"}, {"bfloat16"}]
