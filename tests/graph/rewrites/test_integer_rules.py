"""Quantised products and convolutions become kernels of int8, and weights of few bits stay as they are."""

import ml_dtypes
import numpy as np
import pytest
from onnx import helper, numpy_helper

from gensor_kernels.graph.execution.model import Model
from gensor_kernels.graph.ir.graph import Graph, Node, Spec
from gensor_kernels.graph.ir.options import DEFAULT, Options
from gensor_kernels.graph.readers.onnx_file import Source
from gensor_kernels.graph.rewrites import rewrite
from tests.graph.models import by_onnxruntime, nodes_of, proto

RNG = np.random.default_rng(7)
ENDS = {"int8": (-128, 127), "uint8": (0, 255)}


def integers(kind, *shape):
    return RNG.integers(ENDS[kind][0], ENDS[kind][1] + 1, shape).astype(kind)


def floats(*shape):
    return RNG.standard_normal(shape).astype("float32")


def run(text, given, constants, opset=21, outputs=None, options=DEFAULT):
    """Return (graph after the rules, results here, results of onnxruntime)."""
    made_by = {name for node in nodes_of(text) for name in node.output}
    read = {name for node in nodes_of(text) for name in node.input}
    results = outputs or [name for name in made_by if name not in read]
    kinds = {name: (str(each.dtype), each.shape) for name, each in given.items()}
    constants = {name: each for name, each in constants.items() if name in read}
    made = proto(text, kinds, results, {k: v for k, v in constants.items() if v.dtype.name not in SMALL}, opset)
    for name, each in constants.items():
        if each.dtype.name in SMALL:
            made.graph.initializer.append(numpy_helper.from_array(each, name))
    for each in made.graph.output:
        each.type.ClearField("tensor_type")
        each.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(RESULTS.get(each.name, "float32")))
    model = Model(Source(made), "model", options)
    found = model(**given)
    graph = model._plan(given).graph
    return graph, found, by_onnxruntime(made, given)[0] if options == DEFAULT else None


SMALL = ("int4", "uint4")
RESULTS = {"q": "int8", "u": "uint8", "h": "float16"}


def scale(value):
    return np.float32(value)


def kinds_of(graph):
    return [str(node) if node.op == "Pointwise" else node.op for node in graph.nodes]


@pytest.mark.parametrize("attributes", ["pads=[1,1,1,1]", "strides=[2,1], pads=[2,0,1,1]", "dilations=[2,2]"])
@pytest.mark.parametrize("kind, zero", [("uint8", 113), ("int8", 0), ("int8", -128)])
@pytest.mark.parametrize("activation", ["", "Relu", "Clip"])
def test_convolutions_are_one_launch_each_with_their_padding_and_activation(
    emulator, attributes, kind, zero, activation
):
    """The second quantised tensor has another zero point; each filter has a scale."""
    text = f"d = DequantizeLinear(x, s, z); f = DequantizeLinear<axis=0>(w, t); c = Conv<{attributes}>(d, f, b);"
    text += (
        f"r = {activation}(c, low, high);" if activation == "Clip" else f"r = {activation}(c);" if activation else ""
    )
    text += f"p = QuantizeLinear({'r' if activation else 'c'}, o, n); y = DequantizeLinear(p, o, n)"
    x, w = integers(kind, 2, 3, 7, 8), integers("int8", 5, 3, 3, 3)
    constants = {
        "s": scale(0.02),
        "z": np.array(zero, kind),
        "w": w,
        "t": np.abs(floats(5)) * 0.01 + 0.001,
        "b": floats(5),
    }
    constants |= {"o": scale(0.06), "n": np.array(7, kind), "low": scale(0), "high": scale(6)}
    if kind == "uint8":
        text = f"a = QuantizeLinear(e, s, z); {text.replace('(x, s, z)', '(a, s, z)')}"
        graph, found, wanted = run(text, {"e": (x - float(zero)).astype("float32") * 0.02}, constants)
    else:
        graph, found, wanted = run(text, {"x": x}, constants)
    assert np.abs(found - wanted).max() <= 0.06 * 1.0001 and (found != wanted).mean() < 0.01
    (convolution,) = (node for node in graph.nodes if node.op.endswith("Conv"))
    assert convolution.op == "IntegerConv" and convolution.attribute("to") == "int8"
    assert kinds_of(graph).count("QuantizeLinear") == (kind == "uint8")


@pytest.mark.parametrize("product", ["MatMul(d, f)", "Gemm(d, f, b)", "Gemm<transB=1>(d, f, b)"])
@pytest.mark.parametrize("zero", [0, 9])
def test_products(emulator, product, zero):
    turned = "transB" in product
    w = integers("int8", *((6, 40) if turned else (40, 6)))
    text = f"d = DequantizeLinear(x, s, z); f = DequantizeLinear<axis={0 if turned else 1}>(w, t); m = {product};"
    constants = {"s": scale(0.02), "z": np.int8(zero), "w": w, "t": np.abs(floats(6)) * 0.01 + 0.001, "b": floats(6)}
    graph, found, wanted = run(text + "y = Relu(m)", {"x": integers("int8", 5, 40)}, constants)
    assert kinds_of(graph) == ["IntegerMatMul"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())
    constants |= {"o": scale(0.3), "n": np.int8(-4)}
    graph, found, wanted = run(text + "q = QuantizeLinear(m, o, n)", {"x": integers("int8", 5, 40)}, constants)
    assert kinds_of(graph) == ["IntegerMatMul"] and found.dtype == np.int8
    assert np.abs(found.astype(int) - wanted).max() <= 1


def test_rounding_is_half_to_even_and_saturates(emulator):
    """Products that are exact in any order: sums from -200 to 200, halved, with zero points of either parity."""
    x = np.arange(-100, 101, dtype="int8")[:, None].repeat(2, axis=1)
    constants = {"one": scale(1), "w": np.ones((2, 1), "int8"), "o": scale(4)}
    for zero in (0, 1, -128, 127):
        text = (
            "d = DequantizeLinear(x, one); f = DequantizeLinear(w, one); m = MatMul(d, f); q = QuantizeLinear(m, o, n)"
        )
        graph, found, wanted = run(text, {"x": x}, constants | {"n": np.int8(zero)})
        assert kinds_of(graph) == ["IntegerMatMul"] and np.abs(found.astype(int) - wanted).max() <= 1
        away = np.abs(x[:, 0] / 2 % 1 - 0.5) > 0  # no tie
        assert (found[away] == wanted[away]).all() and found.min() >= -128


def test_products_of_two_quantised_tensors_and_views_between(emulator):
    text = (
        "d = DequantizeLinear(x, s); e = DequantizeLinear(k, s); t = Transpose<perm=[0,2,1]>(e);"
        "u = QuantizeLinear(t, s, z); f = DequantizeLinear(u, s, z); y = MatMul(d, f)"
    )
    given = {"x": integers("int8", 2, 5, 16), "k": integers("int8", 2, 7, 16)}
    graph, found, wanted = run(text, given, {"s": scale(0.03), "z": np.int8(0)})
    assert kinds_of(graph) == ["Transpose", "IntegerMatMul"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
def test_maxima_of_windows_are_of_integers(emulator, form):
    pool = "MaxPool<kernel_shape=[3,2], pads=[1,0,1,1], strides=[2,1]>"
    text = f"p = QuantizeLinear(x, s, z); o = {pool}(p)"
    if form == "QDQ":
        text = f"p = QuantizeLinear(x, s, z); d = DequantizeLinear(p, s, z); m = {pool}(d); o = QuantizeLinear(m, s, z)"
    constants = {"s": scale(0.04), "z": np.uint8(100)}
    graph, found, wanted = run(text + "; y = DequantizeLinear(o, s, z)", {"x": floats(1, 3, 8, 7)}, constants, 17)
    assert kinds_of(graph) == ["QuantizeLinear", "MaxPool", "DequantizeLinear"] and (found == wanted).all()


def test_signals_depthwise_filters_and_terms_of_channels(emulator):
    text = "d = DequantizeLinear(x, s, z); f = DequantizeLinear(w, t); y = Conv<pads=[2,1], group=4>(d, f)"
    constants = {"s": scale(0.1), "z": np.int8(5), "w": integers("int8", 4, 1, 3), "t": scale(0.02), "c": floats(4, 1)}
    x = integers("int8", 2, 4, 9)
    for more in ("", "; p = Add(y, c)"):
        graph, found, wanted = run(text + more, {"x": x}, constants)
        assert kinds_of(graph) == ["IntegerConv"]
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("kind, zero", [("uint8", 128), ("uint8", 117), ("int8", -3)])
@pytest.mark.parametrize(
    "attributes, shape, filters",
    [
        ("pads=[1,2,0,1], strides=[2,1]", (2, 4, 6, 7), (6, 4, 3, 3)),
        ("group=4, pads=[2,2,2,2], dilations=[2,1]", (2, 4, 6, 7), (4, 1, 3, 3)),
        ("pads=[1,1]", (1, 4, 9), (6, 4, 3)),
    ],
)
def test_convolutions_of_dynamic_zero_points_are_exact(emulator, kind, zero, attributes, shape, filters):
    """A convolution, that of the windows where weights have a zero point, and one launch for all that follows."""
    text = f"q, s, z = DynamicQuantizeLinear(x); c = ConvInteger<{attributes}>(q, w, z, k); f = Cast<to=1>(c);"
    constants = {"w": integers(kind, *filters), "k": np.array(zero, kind)}
    graph, found, wanted = run(text + "y = Mul(f, s)", {"x": floats(*shape) + 1}, constants)
    assert (found == wanted).all()
    assert kinds_of(graph).count("IntegerConv") == 1 + (zero != 128) and "ConvInteger" not in kinds_of(graph)
    assert graph.nodes[-1].op == "Pointwise"


@pytest.mark.parametrize("low, high", [(-1, 1), (0, 0), (2, 3), (-3, -2)])
def test_dynamic_ranges_are_two_reductions_and_two_programs(emulator, low, high):
    """Also where all elements are 0, or have one sign; one program writes the scale and the zero point."""
    x = RNG.uniform(low, high, (5, 24)).astype("float32")
    text = "u, s, z = DynamicQuantizeLinear(x); y = DequantizeLinear(u, s, z)"
    graph, found, wanted = run(text, {"x": x}, {})
    assert (found == wanted).all()
    ops = [node.op for node in graph.nodes]
    assert ops.count("Pointwise") == 2 and {"ReduceMin", "ReduceMax"} < {*ops} and "DynamicQuantizeLinear" not in ops


def test_what_is_no_kernel_of_int8_is_dequantised_once(emulator):
    """Zero points of weights, and weights of floats; constants that are no weights."""
    text = "d = DequantizeLinear(x, s); f = DequantizeLinear(w, t, z); m = MatMul(d, f); g = DequantizeLinear(v, t);"
    text += "y = Add(m, g)"
    constants = {
        "s": scale(0.02),
        "w": integers("int8", 16, 6),
        "t": scale(0.01),
        "z": np.int8(3),
        "v": integers("int8", 6),
    }
    graph, found, wanted = run(text, {"x": integers("int8", 5, 16)}, constants)
    assert kinds_of(graph) == ["DequantizeLinear", "MatMul"]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    graph, found, wanted = run("f = DequantizeLinear(w, t, z); y = MatMul(x, f)", {"x": floats(5, 16)}, constants)
    assert kinds_of(graph) == ["MatMul"]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("slow", ["IntegerMatMul", "rounded"])
def test_predicted_times_decide(slow):
    """Integers are not multiplied, or their result not rounded in the product, where kernels are slow or missing."""
    nodes = nodes_of(
        "d = DequantizeLinear(x, s); f = DequantizeLinear(w, s); m = MatMul(d, f); q = QuantizeLinear(m, s, n)"
    )
    specs = {name: Spec(np.dtype("float32"), shape) for name, shape in (("d", (5, 16)), ("f", (16, 6)), ("m", (5, 6)))}
    specs["q"] = Spec(np.dtype("int8"), (5, 6))
    constants = {"s": np.array(0.02, "float32"), "w": integers("int8", 16, 6), "n": np.array(3, "int8")}
    made = [Node(each.op_type, tuple(each.input), tuple(each.output), {}, each.output[0]) for each in nodes]
    graph = Graph(made, {"x": Spec(np.dtype("int8"), (5, 16))}, ["q"], constants, specs)

    def potential(_, nodes):
        rounded = any(node.attributes.get("to") == "int8" for node in nodes)
        return 9.0 if (rounded if slow == "rounded" else nodes[0].op == slow) else 1.0

    rest = (
        ["IntegerMatMul", "QuantizeLinear"] if slow == "rounded" else ["DequantizeLinear", "MatMul", "QuantizeLinear"]
    )
    assert kinds_of(rewrite(graph, potential)) == rest
    assert any("predicted to be slower" in each.why for each in graph.decisions)


def of_bits(kind, *shape):
    low, high = {"int8": (-128, 128), "int4": (-8, 8), "uint4": (0, 16)}[kind]
    return RNG.integers(low, high, shape).astype(getattr(ml_dtypes, kind, kind))


@pytest.mark.parametrize("kind", ["int8", "int4", "uint4"])
@pytest.mark.parametrize("block", [0, 32, 64, 128])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("turned", [False, True])
def test_weights_of_16_bit_products_stay(emulator, kind, block, zeros, turned):
    n, k = 24, 128
    shape = (n, k) if turned else (k, n)
    of_k = 1 if turned else 0
    scales = (n,) if not block else tuple(size // block if axis == of_k else size for axis, size in enumerate(shape))
    constants = {"w": of_bits(kind, *shape), "s": (np.abs(floats(*scales)) * 0.02 + 0.01).astype("float16")}
    constants |= {"z": of_bits(kind, *scales)} if zeros else {}
    axis = f"axis={of_k}, block_size={block}" if block else f"axis={1 - of_k}"
    text = f"f = DequantizeLinear<{axis}>(w, s{', z' if zeros else ''});"
    text += "t = Transpose<perm=[1,0]>(f); m = MatMul(x, t);" if turned else "m = MatMul(x, f);"
    x = floats(3, k).astype("float16")
    graph, found, _ = run(text + "h = Relu(m)", {"x": x}, constants)
    assert kinds_of(graph) == ["QuantisedLinear"]
    w, s = constants["w"].astype(float), constants["s"].astype(float)
    z = constants["z"].astype(float) if zeros else 0 * s
    s, z = ((np.repeat(each, block, axis=of_k) if block else np.expand_dims(each, of_k)) for each in (s, z))
    matrix = (w - z) * s
    wanted = np.maximum(x.astype(float) @ (matrix.T if turned else matrix), 0)
    assert np.abs(found.astype(float) - wanted).max() <= 4e-3 * np.abs(wanted).max()


def test_weights_of_a_float32_model_in_16_bits_stay(emulator):
    text = "f = DequantizeLinear<axis=1>(w, s); m = MatMul(x, f); y = Add(m, c)"
    constants = {"w": of_bits("int8", 64, 32), "s": np.abs(floats(32)) * 0.01 + 0.01, "c": floats(32)}
    x = floats(3, 64)
    graph, found, _ = run(text, {"x": x}, constants, options=Options("float16"))
    assert "QuantisedLinear" in kinds_of(graph) and not {"MatMul", "DequantizeLinear"} & {*kinds_of(graph)}
    wanted = x @ (constants["w"] * constants["s"]) + constants["c"]
    assert found.dtype == np.float32 and np.abs(found - wanted).max() <= 4e-3 * np.abs(wanted).max()
