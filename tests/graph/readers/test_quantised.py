"""Models as onnxruntime quantises them, and operators of quantised tensors, compared with onnxruntime."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnxruntime import quantization
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType

from gensor_kernels.dispatch.recurrent import layers
from gensor_kernels.graph.execution.model import Model
from gensor_kernels.graph.readers.onnx_file import Source
from tests.graph.models import by_onnxruntime, proto

RNG = np.random.default_rng(5)
IMAGE = RNG.standard_normal((2, 3, 9, 8)).astype("float32")
ROWS = RNG.standard_normal((5, 24)).astype("float32")


def draw(*shape):
    return (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype("float32")


#: Networks by name: nodes, the input, constants, and the result.
NETWORKS = {
    "convolutions": (
        "a = Conv<pads=[1,1,1,1]>(x, w, b); r = Relu(a); c = Conv<pads=[1,1,1,1], strides=[2,2], group=2>(r, u);"
        "d = Conv<pads=[0,1,2,0]>(c, v, b); s = Sigmoid(d); p = GlobalAveragePool(s); f = Flatten(p);"
        "y = Gemm(f, g, h)",
        IMAGE,
        {
            **{"w": draw(8, 3, 3, 3), "b": draw(8, 1).ravel(), "u": draw(8, 4, 3, 3), "v": draw(8, 8, 2, 2)},
            **{"g": draw(8, 6), "h": draw(6, 1).ravel()},
        },
    ),
    "products": (
        "a = MatMul(x, w); b = Add(a, c); r = Relu(b); d = MatMul(r, u); e = Add(d, x); y = MatMul(e, v)",
        ROWS,
        {"w": draw(24, 40), "c": draw(40, 1).ravel(), "u": draw(40, 24), "v": draw(24, 16)},
    ),
}


class Reader(CalibrationDataReader):
    def __init__(self, x):
        self.left = iter([{"x": x}, {"x": x * 0.5}])

    def get_next(self):
        return next(self.left, None)


def network(name, opset=17):
    text, x, constants = NETWORKS[name]
    made = proto(text, {"x": ("float32", x.shape)}, {"y": None}, constants, opset)
    return onnx.shape_inference.infer_shapes(made), x


def quantum(made):
    """Return the scale of the last QuantizeLinear or of the operator that makes the last quantised tensor."""
    constants = {each.name: onnx.numpy_helper.to_array(each) for each in made.graph.initializer}
    scales = [constants[name] for name in constants if name.endswith("y_scale") or name == "y_scale"]
    return float(np.max(scales[-1])) if scales else None


def assert_close(found, wanted, bound=None):
    """Compare dtypes, shapes and elements; integers within one, floats by default within 1e-5 of the largest."""
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    bound = 1 if wanted.dtype.kind in "iu" else bound or 1e-5 * np.abs(wanted).max()
    assert np.abs(found.astype(np.float64) - wanted.astype(np.float64)).max() <= bound * (1 + 1e-4)


def compare(made, inputs, quanta=1.0, scale=None):
    """Compare results with onnxruntime's, within quanta of the last quantised tensor; integers within one."""
    wanted = by_onnxruntime(made, inputs)
    model = Model(Source(made), "model")
    found = model(**inputs)
    found = found if isinstance(found, tuple) else (found,)
    for each, want in zip(found, wanted, strict=True):
        assert_close(each, want, quanta * scale if scale else None)
    return model


@pytest.mark.parametrize("kinds", [("QUInt8", "QInt8"), ("QInt8", "QInt8"), ("QUInt8", "QUInt8")])
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_statically_quantised_models(emulator, tmp_path, name, form, kinds, per_channel):
    made, x = network(name)
    onnx.save(made, tmp_path / "float.onnx")
    activations, weights = (getattr(QuantType, each) for each in kinds)
    quantization.quantize_static(
        *(tmp_path / "float.onnx", tmp_path / "quantised.onnx", Reader(x)),
        **{"quant_format": QuantFormat[form], "activation_type": activations, "weight_type": weights},
        per_channel=per_channel,
    )
    quantised = onnx.load(tmp_path / "quantised.onnx")
    made = compare(quantised, {"x": x}, scale=quantum(quantised))._plan({"x": x}).graph
    if weights == QuantType.QUInt8:  # with zero points
        return
    own = [node for node in made.nodes if node.op in ("IntegerConv", "IntegerMatMul")]
    assert not {"Conv", "Gemm", "MatMul"} & {node.op for node in made.nodes}
    assert len(own) == {"convolutions": 4, "products": 3}[name]
    assert all(node.attribute("to") == "int8" for node in own)


@pytest.mark.parametrize("weights", [QuantType.QInt8, QuantType.QUInt8])
@pytest.mark.parametrize("name", NETWORKS)
def test_dynamically_quantised_models(emulator, tmp_path, name, weights):
    made, x = network(name)
    onnx.save(made, tmp_path / "float.onnx")
    quantization.quantize_dynamic(tmp_path / "float.onnx", tmp_path / "quantised.onnx", weight_type=weights)
    quantised = onnx.load(tmp_path / "quantised.onnx")
    assert any(each.op_type.endswith("Integer") for each in quantised.graph.node)
    ops = [node.op for node in compare(quantised, {"x": x})._plan({"x": x}).graph.nodes]
    if weights == QuantType.QInt8:
        assert "MatMulInteger" not in ops and ops.count("IntegerMatMul") == {"convolutions": 1, "products": 3}[name]


ZEROS = {"rows": np.arange(5, dtype="uint8"), "columns": np.arange(-3, 3, dtype="int8")}


@pytest.mark.parametrize("rows", [(), (1,), (5,), (2, 5, 1)])
@pytest.mark.parametrize("columns", [(), (6,), (2, 1, 6)])
@pytest.mark.parametrize("types", [("uint8", "int8"), ("int8", "uint8"), ("uint8", "uint8"), ("int8", "int8")])
def test_zero_points_of_rows_and_columns(emulator, rows, columns, types):
    """onnxruntime has no zero points of rows: differences are multiplied in 64 bits."""
    limits = [(np.iinfo(each).min, np.iinfo(each).max + 1) for each in types]
    shapes = (2, 5, 7), (2, 7, 6), rows, columns
    a, b, z, w = (RNG.integers(*limits[i % 2], shape).astype(types[i % 2]) for i, shape in enumerate(shapes))
    given = {"a": a, "b": b, "z": z, "w": w}
    kinds = {name: (str(each.dtype), each.shape) for name, each in given.items()}
    made = proto("y = MatMulInteger(a, b, z, w)", kinds, {"y": None})
    made.graph.output[0].type.tensor_type.elem_type = TensorProto.INT32
    z = z[:, None] if z.shape == (5,) else z
    wanted = (a.astype(int) - z) @ (b.astype(int) - w)
    found = Model(Source(made), "model")(**given)
    assert found.dtype == np.int32 and (found == wanted).all()


@pytest.mark.parametrize("zero", [0, 3, 128, 255])
@pytest.mark.parametrize("weights", ["int8", "uint8"])
@pytest.mark.parametrize("attributes", ["pads=[1,2,0,1]", "pads=[2,2,2,2], dilations=[2,1], group=2", "strides=[2,1]"])
def test_convolutions_of_integers_are_exact_in_their_padding(emulator, zero, weights, attributes):
    x = RNG.integers(0, 256, (2, 4, 6, 7)).astype("uint8")
    w = RNG.integers(np.iinfo(weights).min, np.iinfo(weights).max, (6, 2 if "group" in attributes else 4, 3, 3))
    constants = {"w": w.astype(weights), "z": np.uint8(zero), "k": np.array(0 if weights == "int8" else 117, weights)}
    made = proto(f"y = ConvInteger<{attributes}>(x, w, z, k)", {"x": ("uint8", x.shape)}, {"y": None}, constants)
    made.graph.output[0].type.tensor_type.elem_type = TensorProto.INT32
    found = Model(Source(made), "model")(x)
    pads = [0, 0, 0, 0] if "pads" not in attributes else eval(attributes.split("pads=")[1].split("]")[0] + "]")
    image = np.pad(x.astype("float32") - zero, [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])])
    filters = {"w": w.astype("float32") - float(constants["k"])}
    more = ", ".join(each for each in attributes.split(", ") if not each.startswith("pads"))
    plain = proto(f"y = Conv{f'<{more}>' if more else ''}(x, w)", {"x": ("float32", image.shape)}, {"y": None}, filters)
    (wanted,) = by_onnxruntime(plain, {"x": image})
    assert found.dtype == np.int32 and (found == wanted).all()


@pytest.mark.parametrize(
    ("way", "weights", "per_channel"),
    [
        *(("forward", QuantType.QInt8, False), ("reverse", QuantType.QUInt8, True)),
        *(("bidirectional", QuantType.QInt8, True), ("bidirectional", QuantType.QUInt8, False)),
    ],
)
def test_layers_that_round_their_states(emulator, tmp_path, monkeypatch, way, weights, per_channel):
    """A batch of one sequence is compared: onnxruntime quantises the states of several by thread."""
    directions, hidden = 2 if way == "bidirectional" else 1, 6
    shapes = {"w": (4 * hidden, 5), "r": (4 * hidden, hidden), "b": (8 * hidden,), "h": (1, hidden), "c": (1, hidden)}
    constants = {name: np.stack([draw(*shape) for _ in range(directions)]) for name, shape in shapes.items()}
    text = f'y, m, n = LSTM<hidden_size={hidden}, direction="{way}">(x, w, r, b, l, h, c)'
    given = {"x": ("float32", (7, 1, 5)), "l": ("int32", (1,))}
    made = proto(text, given, {"y": None, "m": None, "n": None}, constants, 17)
    onnx.save(onnx.shape_inference.infer_shapes(made), tmp_path / "float.onnx")
    quantization.quantize_dynamic(
        *(tmp_path / "float.onnx", tmp_path / "quantised.onnx"), weight_type=weights, per_channel=per_channel
    )
    quantised = onnx.load(tmp_path / "quantised.onnx")
    assert [each.op_type for each in quantised.graph.node] == ["DynamicQuantizeLSTM"]
    for length in (7, 4):
        inputs = {"x": RNG.standard_normal((7, 1, 5)).astype("float32"), "l": np.array([length], "int32")}
        compare(quantised, inputs)
        plain = by_onnxruntime(made, inputs)[0]  # rounding to 8 bits shows
        assert np.abs(by_onnxruntime(quantised, inputs)[0] - plain).max() > 1e-4 * np.abs(plain).max()
    families = [each.family for each in served(quantised, inputs)]
    assert families.count("pointwise") == 1 and families[-1] == "recurrent_slices"  # x is rounded, then all steps
    monkeypatch.setattr(layers, "_is_best", lambda *given: False)
    compare(quantised, inputs)
    families = [each.family for each in served(quantised, inputs)]
    assert families.count("pointwise") == 1 + 7 * directions  # each state is rounded in one launch


def served(model, inputs):
    """The calls of a model, in order."""
    return [call for layer in Model(Source(model), "model").explain(**inputs) for call in layer.served]


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("scale", [0.5, np.inf])
def test_masks_of_minus_infinity(emulator, dtype, scale):
    """onnxruntime's quantize_static gives such masks an infinite scale: what they become is no number."""
    x = np.array([-np.inf, np.nan, np.inf, -3, 0, 1000], "float32")
    constants = {"s": np.float32(scale), "z": np.array(7, dtype)}
    made = proto(
        "q = QuantizeLinear(x, s, z); y = DequantizeLinear(q, s, z)",
        {"x": ("float32", x.shape)},
        {"y": None},
        constants,
    )
    (wanted,) = by_onnxruntime(made, {"x": x})
    np.testing.assert_array_equal(Model(Source(made), "model")(x), wanted)
