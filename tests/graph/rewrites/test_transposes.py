"""Transposes of models with channels last: which remain, with onnxruntime's results."""

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.graph.execution.model import Model
from gensor_kernels.graph.ir.options import Options
from gensor_kernels.graph.readers.onnx_file import Source

from ..models import by_onnxruntime, check, draw, operators
from ..networks.channels_last import chain, resnet

pytest.importorskip("onnxruntime")


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        (chain, {"Transpose": 2, "Conv": 3}),
        (
            resnet,
            {
                **{"Transpose": 1, "Conv": 12, "MaxPool": 1, "ReduceMean": 2, "Reshape": 1, "Elementwise": 1},
                **{"Concat": 1, "MatMul": 1, "Softmax": 1},
            },
        ),
    ],
)
@pytest.mark.parametrize(("part", "dtype"), [("sm_87", None), ("sm_90", "float16")])
def test_a_network_of_keras_has_the_transposes_of_its_inputs_and_results(network, expected, part, dtype):
    made, shape = network()
    x = draw(*shape)
    with gensor_kernels.emulated(part):
        model = Model(Source(made), "model", Options(dtype))
        found = [model(x) for _ in range(3)]  # node by node, recorded, and bound
        served = [each for layer in model.explain(x) for each in layer.served]
    (plan,) = model._plans.values()
    counts: dict[str, int] = {}
    for node in plan.graph.nodes:
        counts[node.op] = counts.get(node.op, 0) + 1
    assert {op: count for op, count in counts.items() if op != "Cast"} == expected
    if network is chain:
        assert len(served) == 3
    if dtype:  # no launch, and no copy
        assert {node.layout for node in plan.graph.nodes if node.op == "Transpose"} == {"last"}
    (wanted,) = by_onnxruntime(made, {"x": x})
    for each in found:
        np.testing.assert_allclose(each, wanted, *((2e-2, 2e-2) if dtype else (1e-4, 1e-5)))


INPUTS = {"image": draw(2, 6, 5, 3), "other": draw(2, 6, 5, 3), "wave": draw(2, 7, 4)}
CONSTANTS = {
    **{"w": draw(4, 3, 1, 1), "term": draw(4), "plane": draw(6, 1, 4), "pads": np.array([0, 1, 2, 0, 0, 0, 1, 0])},
    **{"zero": np.float32(0), "six": np.float32(6), "starts": np.array([1, 0]), "ends": np.array([5, 9])},
    **{"axes": np.array([1, -1]), "last": np.array([-1]), "spatial": np.array([1, 2]), "line": draw(5, 4, 1)},
}
IN, OUT = "Transpose<perm = [0, 3, 1, 2]>", "Transpose<perm = [0, 2, 3, 1]>"
CONV = f"a = {IN}(image); b = Conv(a, w); c = {OUT}(b)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{CONV}; d = Add(c, term); e = Relu(d); y = Mul(plane, e)", "Transpose, Conv + Add + Relu, Mul, Transpose"),
        (f"{CONV}; z = Clip(c, zero, six); t = {IN}(z); y = Neg(t)", "Transpose, Conv + Clip, Mul"),
        (f"{CONV}; z = Pad(c, pads, six); t = {IN}(z); y = Relu(t)", "Transpose, Conv, Pad, Relu"),
        (f"{CONV}; z = Slice(c, starts, ends, axes); t = {IN}(z); y = Relu(t)", "Transpose, Conv, Slice, Relu"),
        (
            f"{CONV}; d, e = Split<axis = -1, num_outputs = 2>(c); z = Add(d, e); t = {IN}(z); y = Relu(t)",
            "Transpose, Conv, Split, Add + Relu",
        ),
        (f"{CONV}; y = ReduceMax<keepdims = 0>(c, spatial)", "Transpose, Conv, ReduceMax"),
        (
            f"{CONV}; d = ReduceMean(c, spatial); z = Sub(c, d); t = {IN}(z); y = Relu(t)",
            "Transpose, Conv, ReduceMean, Sub + Relu",
        ),
        (f"{CONV}; y = ReduceSum<keepdims = 0>(c, last)", "Transpose, Conv, ReduceSum"),
        (
            f"{CONV}; d = Concat<axis = 3>(c, image); e = Relu(d); t = {IN}(e); y = Relu(t)",
            "Transpose, Conv, Concat, Relu + Relu",
        ),
        # The order of the file has as few Transposes.
        (f"t = {IN}(image); y = Relu(t)", "Transpose, Relu"),
        ("t = Transpose<perm = [0, 2, 1]>(wave); r = Relu(t); y = Softmax<axis = -1>(r)", "Transpose, Relu, Softmax"),
        (f"{CONV}; d = Softmax<axis = -1>(c); y = Add(d, term)", "Transpose, Conv, Transpose, Softmax, Add"),
    ],
)
def test_operators_between_transposes_compute_in_the_other_order(text, expected, emulator):
    assert operators(check(text, INPUTS, CONSTANTS), views=True) == expected
