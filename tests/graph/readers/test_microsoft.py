"""Operators of com.microsoft compared with onnxruntime."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.graph.execution.model import Model
from gensor_kernels.graph.readers.onnx_file import Source
from gensor_kernels.graph.readers.onnx_lifting import FOREIGN
from tests.graph.models import by_onnxruntime, proto

from ..networks import exported_graphs
from .test_quantised import assert_close, compare

RNG = np.random.default_rng(6)
BATCH, ROWS, HEADS, SIZE = 2, 5, 4, 16
WIDTH = HEADS * SIZE


def draw(*shape):
    return RNG.standard_normal(shape).astype("float32")


def integers(high, *shape, dtype="int64"):
    return RNG.integers(0, high, shape).astype(dtype)


def model_of(text, given, outputs, constants, attributes, shapes=None):
    """Return a model with one operator of com.microsoft; inputs and results are named in its text.

    `shapes` are those of results that the model declares.
    """
    operator, names = text.split("(")
    names = [each.strip() for each in names.rstrip(")").split(",")]
    node = helper.make_node(operator, names, list(outputs), "node", domain="com.microsoft", **attributes)
    kinds = {name: (str(each.dtype), each.shape) for name, each in given.items() if name not in constants}
    known = {name: given[name] for name in constants}
    results = dict.fromkeys(each for each in outputs if each) | (shapes or {})
    made = proto([node], kinds, results, known, 17)
    made.opset_import.add(domain="com.microsoft", version=1)
    for each in made.graph.output:
        each.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(TYPES.get(each.name, np.dtype("float32")))
    return made


def check(text, given, outputs=("y",), constants=(), meant=None, valid=None, shapes=None, **attributes):
    """Compare an operator with onnxruntime.

    Where it has no code for the operator, `meant` is the text and the inputs of another with the same results. `valid`
    are rows of the caches that count, for each batch entry.
    """
    inputs = {name: each for name, each in given.items() if name not in constants}
    text_of, given_of = meant or (text, inputs)
    wanted = by_onnxruntime(model_of(text_of, given | given_of, outputs, constants, attributes), given_of)
    found = Model(Source(model_of(text, given, outputs, constants, attributes, shapes)), "model")(**inputs)
    found = found if isinstance(found, tuple) else (found,)
    for place, (each, want) in enumerate(zip(found, wanted, strict=True)):
        if place and valid is not None:
            for entry, rows in enumerate(valid):
                assert_close(each[entry, :, :rows], want[entry, :, :rows])
        else:
            assert_close(each, want)


TYPES = {"counts": np.dtype("int32"), "q": np.dtype("uint8")}
X, TABLE = draw(BATCH, ROWS, WIDTH), draw(WIDTH)


@pytest.mark.parametrize(
    "text, attributes",
    [
        ("Gelu(x)", {}),
        ("FastGelu(x)", {}),
        ("FastGelu(x, w)", {}),
        ("BiasGelu(x, w)", {}),
        ("QuickGelu(x)", {"alpha": 1.3}),
        ("SkipLayerNormalization(x, s, w)", {}),
        ("SkipLayerNormalization(x, s, w, b, c)", {"epsilon": 1e-3}),
        ("SkipSimplifiedLayerNormalization(x, s, w, c)", {"epsilon": 1e-3}),
        ("SkipSimplifiedLayerNormalization(x, s, w)", {"epsilon": 1e-3}),
    ],
)
def test_activations_and_norms(emulator, text, attributes):
    every = {"x": X, "s": draw(*X.shape), "w": TABLE, "b": draw(WIDTH), "c": draw(WIDTH)}
    outputs = ("y", "", "", "sum") if text.startswith("Skip") else ("y",)
    names = text.split("(")[1].rstrip(")").split(", ")
    for each in (outputs, outputs[:1]):
        check(text, {name: every[name] for name in names}, each, ("w",) if "w" in names else (), **attributes)


@pytest.mark.parametrize("left, right", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_products_with_turned_operands_and_a_factor(emulator, left, right):
    a, b = draw(2, 6, 7), draw(2, 7, 5)
    a, b = (a.swapaxes(1, 2) if left else a), (b.swapaxes(1, 2) if right else b)
    check("FusedMatMul(a, b)", {"a": a, "b": b}, transA=left, transB=right, alpha=0.25)


def test_norms_and_fused_operators_as_onnxruntime_writes_them(emulator):
    """Norms of a version without them, in the standard's domain; ranks after operators that the standard lacks."""
    nodes = [
        helper.make_node("FusedMatMul", ["x", "x"], ["a"], domain="com.microsoft", transB=1, alpha=0.1),
        helper.make_node("Softmax", ["a"], ["p"], axis=-1),
        helper.make_node("FusedMatMul", ["p", "x"], ["v"], domain="com.microsoft", transA=1),
        helper.make_node("LayerNormalization", ["v", "w", "w"], ["n"], axis=-1),
        helper.make_node("SimplifiedLayerNormalization", ["n", "w"], ["y"], axis=-1, epsilon=1e-4),
    ]
    made = proto(nodes, {"x": ("float32", X.shape)}, {"y": None}, {"w": TABLE}, 13)
    made.opset_import.add(domain="com.microsoft", version=1)
    compare(made, {"x": X})


@pytest.mark.parametrize("activation, parameters", [("Relu", []), ("LeakyRelu", [0.2]), ("Clip", [-0.5, 0.7])])
def test_fused_convolutions(emulator, activation, parameters):
    given = {"x": draw(1, 3, 6, 6), "w": draw(4, 3, 3, 3), "b": draw(4), "z": draw(1, 4, 6, 6)}
    more = {"activation": activation, "pads": [1, 1, 1, 1]} | ({"activation_params": parameters} if parameters else {})
    check("FusedConv(x, w, b, z)", given, constants=("w", "b"), **more)


def test_embeddings(emulator):
    mask = (np.arange(ROWS) < np.array([[3], [5]])).astype("int32")
    given = {"i": integers(9, BATCH, ROWS, dtype="int32"), "s": integers(2, BATCH, ROWS, dtype="int32"), "mask": mask}
    tables = {"words": draw(9, WIDTH), "places": draw(7, WIDTH), "kinds": draw(2, WIDTH), "w": TABLE, "b": draw(WIDTH)}
    text, outputs = "EmbedLayerNormalization(i, s, words, places, kinds, w, b, mask)", ("y", "counts", "sum")
    check(text, given | tables, outputs, tuple(tables))
    check(
        "EmbedLayerNormalization(i, , words, places, , w, b)",
        {"i": given["i"]} | tables,
        ("y", "counts"),
        tuple(tables),
    )


@pytest.mark.parametrize("bits, block, k", [(4, 32, 64), (4, 16, 40), (8, 32, 64)])
@pytest.mark.parametrize("has_zeros", [False, True])
def test_products_of_few_bits(emulator, bits, block, k, has_zeros):
    n, blocks = 6, -(-k // block)
    given = {
        "a": draw(3, k),
        "b": integers(256, n, blocks, block * bits // 8, dtype="uint8"),
        "s": np.abs(draw(n, blocks)),
        "z": integers(256, n, -(-blocks * bits // 8), dtype="uint8"),
        "c": draw(n),
    }
    text = f"MatMulNBits(a, b, s, {'z' if has_zeros else ''}, , c)"
    check(text, given, constants=("b", "s", "z", "c"), N=n, K=k, bits=bits, block_size=block)


@pytest.mark.parametrize("positions", ["first", "all"])
@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embeddings(emulator, positions, interleaved):
    angles = np.arange(9)[:, None] * 0.3 ** np.arange(SIZE // 2)
    given = {
        "x": X,
        "p": np.array([2]) if positions == "first" else integers(9, BATCH, ROWS),
        **{"c": np.cos(angles).astype("float32"), "s": np.sin(angles).astype("float32")},
    }
    check("RotaryEmbedding(x, p, c, s)", given, constants=("c", "s"), interleaved=interleaved)
    x = X.reshape(BATCH, ROWS, HEADS, SIZE).swapaxes(1, 2)
    check("RotaryEmbedding(x, p, c, s)", given | {"x": x}, constants=("c", "s"), interleaved=interleaved)


def test_quantised_products_of_onnxruntime(emulator):
    b, c = integers(255, 24, 6, dtype="uint8"), draw(6)
    scales = {"s": np.float32(0.1), "t": np.float32(0.03), "z": np.uint8(7), "u": np.uint8(130)}
    given = {"x": draw(3, 24), "b": b, "c": c, **scales}
    check("DynamicQuantizeMatMul(x, b, t, u, c)", {k: given[k] for k in "xbtuc"}, constants=("b", "t", "u", "c"))
    given["a"] = integers(255, 3, 24, dtype="uint8")
    text = "MatMulIntegerToFloat(a, b, s, t, z, u, c)"
    check(text, {k: given[k] for k in "abstzuc"}, constants=tuple("bstzuc"))


@pytest.mark.parametrize("text", ["QLinearAdd(a, s, z, b, t, u, r, v)", "QLinearMul(a, s, z, b, t, u, r, v)"])
def test_quantised_sums(emulator, text):
    scales = {"s": np.float32(0.1), "t": np.float32(0.03), "z": np.uint8(7), "u": np.uint8(130)}
    given = {"a": integers(255, 3, 24, dtype="uint8"), "b": integers(255, 24, dtype="uint8"), **scales}
    check(text, given | {"r": np.float32(0.2), "v": np.uint8(90)}, ("q",), constants=tuple("stzurv"))


@pytest.mark.parametrize(
    "operator", ["QLinearSigmoid", "QLinearLeakyRelu", "QLinearAveragePool", "QLinearGlobalAveragePool"]
)
def test_other_quantised_operators(emulator, operator):
    given = {"a": integers(255, 2, 3, 6, 6, dtype="uint8"), "s": np.float32(0.02), "z": np.uint8(120)}
    given |= {"r": np.float32(0.02), "v": np.uint8(10)}
    more = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]} if operator == "QLinearAveragePool" else {}
    check(f"{operator}(a, s, z, r, v)", given, ("q",), constants=tuple("szrv"), **more)


MASKS = {
    "none": None,
    "counts": np.array([3, 5], "int32"),
    "keys": (np.arange(ROWS) < np.array([[3], [5]])).astype("int32"),
    "scores": integers(2, BATCH, ROWS, ROWS, dtype="int32") | np.eye(ROWS, dtype="int32"),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("causal", [0, 1])
def test_attention_with_its_projections(emulator, mask, causal):
    given = {"x": X, "w": draw(WIDTH, 3 * WIDTH) / 4, "b": draw(3 * WIDTH), "m": MASKS[mask]}
    if mask == "none":
        del given["m"]
    text = "Attention(x, w, b, m)" if "m" in given else "Attention(x, w, b)"
    check(text, given, ("y", "p"), constants=("w", "b"), num_heads=HEADS, unidirectional=causal)


def test_attention_with_a_past_and_with_further_terms(emulator):
    given = {"x": X, "w": draw(WIDTH, 3 * WIDTH) / 4, "b": draw(3 * WIDTH)}
    more = {"constants": ("w", "b"), "num_heads": HEADS, "unidirectional": 1}
    check("Attention(x, w, b, , p)", given | {"p": draw(2, BATCH, HEADS, 6, SIZE)}, ("y", "n"), **more)
    check("Attention(x, w, b, , , e)", given | {"e": draw(1, HEADS, ROWS, ROWS)}, **more)


@pytest.mark.parametrize("form", ["three", "keys", "one", "encoder", "past"])
@pytest.mark.parametrize("mask", ["none", "counts", "keys"])
def test_attention_of_several_inputs(emulator, form, mask):
    q, k, v = X, draw(BATCH, ROWS, WIDTH), draw(BATCH, ROWS, WIDTH)
    given, names, outputs = {"q": q, "k": k, "v": v}, "q, k, v, b, m, e", ("y",)
    if form == "encoder":
        given = {"q": q, "k": draw(BATCH, HEADS, ROWS, SIZE), "v": draw(BATCH, HEADS, ROWS, SIZE)}
    elif form == "past":
        given |= {each: draw(BATCH, HEADS, 3, SIZE) for each in ("past", "values")}
        names, outputs = f"{names}, past, values", ("y", "pk", "pv")
    keys = ROWS + 3 * (form == "past")
    given["b"] = draw(3 * WIDTH) if form not in ("one", "keys") else None
    given["m"] = MASKS[mask] if mask != "keys" else (np.arange(keys) < np.array([[3], [keys]])).astype("int32")
    given["m"] = None if form == "encoder" else given["m"]
    given["e"] = draw(1, HEADS, ROWS, keys)
    more = {"num_heads": HEADS, "scale": 0.3}
    packed, own = dict(given), names
    if form in ("keys", "one"):
        parts = [given[name].reshape(BATCH, ROWS, HEADS, SIZE) for name in ("qkv" if form == "one" else "kv")]
        packed |= {"q": np.stack(parts, axis=3), "k": None} if form == "one" else {"k": np.stack(parts, axis=3)}
        packed["v"] = None
        own, names = (
            ", ".join(name if inputs[name] is not None else "" for name in "qkvbme") for inputs in (packed, given)
        )
    else:
        own = names = ", ".join(name if given[name] is not None else "" for name in names.split(", "))
    packed, given = ({name: each for name, each in some.items() if each is not None} for some in (packed, given))
    check(f"MultiHeadAttention({own})", packed, outputs, meant=(f"MultiHeadAttention({names})", given), **more)


def angles(rows=32):
    found = np.arange(rows)[:, None] * 0.4 ** np.arange(SIZE // 2)
    return {"c": np.cos(found).astype("float32"), "s": np.sin(found).astype("float32")}


@pytest.mark.parametrize("past", [0, 6])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("rotary", [0, 1])
@pytest.mark.parametrize("packed", [False, True])
def test_grouped_queries_and_their_caches(emulator, past, batch, rotary, packed):
    rows = 1 if past else ROWS
    given = {"q": draw(batch, rows, WIDTH), "k": draw(batch, rows, 2 * SIZE), "v": draw(batch, rows, 2 * SIZE)}
    text = "GroupQueryAttention(q, k, v, pk, pv, n, t"
    if packed:
        given = {"q": np.concatenate([*given.values()], axis=2)}
        text = text.replace("k, v", " , ", 1)
    given |= {"pk": draw(batch, 2, past, SIZE), "pv": draw(batch, 2, past, SIZE)}
    counts = past + rows - 1 - np.arange(batch) * (2 if past else 0)
    given |= {"n": counts.astype("int32"), "t": np.array(past + rows, "int32")}
    if rotary:
        given, text = given | angles(), text + ", c, s"
    constants = ("c", "s") if rotary else ()
    more = {"num_heads": HEADS, "kv_num_heads": 2, "do_rotary": rotary, "softcap": 5.0 * rotary}
    check(text + ")", given, ("y", "newk", "newv"), constants, valid=counts + 1, **more)


@pytest.mark.parametrize("window", [-1, 3])
def test_caches_of_a_fixed_size_and_windows(emulator, window):
    counts, shape = np.array([6, 6], "int32"), (2, 2, 16, SIZE)
    given = {"q": draw(2, 1, WIDTH), "k": draw(2, 1, 2 * SIZE), "v": draw(2, 1, 2 * SIZE)}
    given |= {"pk": draw(*shape), "pv": draw(*shape), "n": counts, "t": np.array(7, "int32")}
    grown = given | {name: np.ascontiguousarray(given[name][:, :, :6]) for name in ("pk", "pv")}
    text, more = "GroupQueryAttention(q, k, v, pk, pv, n, t)", {"num_heads": HEADS, "kv_num_heads": 2}
    shapes = {"newk": shape, "newv": shape}
    more["local_window_size"] = window
    check(text, given, ("y", "newk", "newv"), meant=(text, grown), valid=counts + 1, shapes=shapes, **more)


def test_attention_of_quantised_projections(emulator):
    given = {
        "x": integers(255, BATCH, ROWS, WIDTH, dtype="uint8"),
        "w": integers(255, WIDTH, 3 * WIDTH, dtype="uint8"),
        **{"b": draw(3 * WIDTH), "s": np.float32(0.02), "t": np.float32(0.004), "m": MASKS["counts"]},
        **{"z": np.uint8(120), "u": np.uint8(131)},
    }
    check("QAttention(x, w, b, s, t, m, z, u)", given, constants=tuple("wbstzu"), num_heads=HEADS)


def test_what_operators_of_onnxruntime_are_refused_for():
    with pytest.raises(UnsupportedError, match=r"^node 'node' \(FusedMatMul\): transposed batches are not served"):
        check("FusedMatMul(a, b)", {"a": draw(2, 3, 4), "b": draw(3, 4, 5)}, transBatchA=1)
    with pytest.raises(UnsupportedError, match=r"^node 'node' \(MatMulNBits\): 'b' is computed, only constants are"):
        given = {"a": draw(3, 32), "b": integers(256, 4, 1, 16, dtype="uint8"), "s": draw(4)}
        check("MatMulNBits(a, b, s)", given, N=4, K=32, bits=4, block_size=32)


@pytest.mark.parametrize("name", ["bert_base_traced_small", "gpt2_step_small", "mobilenet_v2_small"])
def test_plans_of_models_that_onnxruntime_optimised_have_the_same_nodes(emulator, name, tmp_path):
    made = exported_graphs.draw(name)
    given, options = exported_graphs.inputs(made), onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath, options.log_severity_level = str(tmp_path / "optimised.onnx"), 4
    onnxruntime.InferenceSession(made.SerializeToString(), options)
    optimised = onnx.load(options.optimized_model_filepath)
    assert any(node.domain == "com.microsoft" for node in optimised.graph.node)
    plans = [Model(Source(each), "model")._plan(given).graph.nodes for each in (made, optimised)]
    first, second = (sorted(node.op for node in plan) for plan in plans)
    assert first == second
    if name.startswith("bert"):
        found, wanted = Model(Source(optimised), "model")(**given), by_onnxruntime(made, given)
        for each, want in zip(found if isinstance(found, tuple) else (found,), wanted, strict=True):
            assert_close(each, want)


@pytest.mark.parametrize("batch, past", [(1, 16), (1, 0), (2, 0), (2, 6)])
def test_a_layer_of_a_language_model_in_four_bits(emulator, batch, past):
    """As onnxruntime's generator writes it, in 16 bits and with sizes by name: weights stay in 4 bits.

    With one batch entry, keys and values are appended in the Attention; others begin at different places.
    """
    half, width, rows, nodes = np.float16, WIDTH, 1 if past else 3, []
    constants = {name: (draw(width) / 4 + 1).astype(half) for name in ("g", "h")}
    constants |= {"cos": angles()["c"].astype(half), "sin": angles()["s"].astype(half)}

    def add(operator, inputs, outputs, domain="com.microsoft", **attributes):
        nodes.append(helper.make_node(operator, inputs.split(), outputs.split(), outputs, domain=domain, **attributes))

    def multiply(x, k, n, result):
        constants[f"{result}.w"] = integers(256, n, k // 32, 16, dtype="uint8")
        constants[f"{result}.s"] = np.abs(draw(n, k // 32) / 50).astype(half) + half(0.01)
        add("MatMulNBits", f"{x} {result}.w {result}.s", result, K=k, N=n, bits=4, block_size=32)

    add("SimplifiedLayerNormalization", "x g", "n", "", axis=-1)
    multiply("n", width, 2 * width, "qkv")
    nodes.append(helper.make_node("GroupQueryAttention", ["qkv", "", "", *"pvct", "cos", "sin"], [*"aij"], "attend"))
    nodes[-1].domain = "com.microsoft"
    nodes[-1].attribute.extend(helper.make_attribute(*each) for each in (("num_heads", HEADS), ("kv_num_heads", 2)))
    nodes[-1].attribute.append(helper.make_attribute("do_rotary", 1))
    multiply("a", width, width, "o")
    nodes.append(
        helper.make_node("SkipSimplifiedLayerNormalization", [*"xoh"], ["m", "", "", "r"], "skip", epsilon=1e-5)
    )
    nodes[-1].domain = "com.microsoft"
    multiply("m", width, 2 * width, "gate")
    add("Sigmoid", "gate", "z", "")
    add("Mul", "gate z", "u", "")
    multiply("u", 2 * width, width, "d")
    add("Add", "r d", "y", "")
    caches = ("float16", ("batch", 2, "past", SIZE))
    inputs = {"x": ("float16", ("batch", "rows", width)), "p": caches, "v": caches, "c": ("int32", ("batch",))}
    made = proto(nodes, inputs | {"t": ("int32", ())}, {"y": None, "i": None, "j": None}, constants, 17)
    made.opset_import.add(domain="com.microsoft", version=1)
    given = {"x": draw(batch, rows, width).astype(half), "c": np.full(batch, past + rows - 1, "int32")}
    given |= {name: draw(batch, 2, past, SIZE).astype(half) for name in "pv"} | {"t": np.array(past + rows, "int32")}
    model = Model(Source(made), "model")
    for each, want in zip(model(**given), by_onnxruntime(made, given), strict=True):
        assert_close(each, want, 4e-3 * np.abs(want).max())
    ops = [node.op for node in model._plan(given).graph.nodes]
    assert ops.count("QuantisedLinear") == 4 and not {"MatMul", "DequantizeLinear"} & {*ops}
    assert ops.count("TensorScatter") == ops.count("Concat") == (0 if batch == 1 or not past else 2)


def test_the_documentation_lists_every_operator():
    page = (Path(__file__).parents[3] / "docs" / "reference" / "onnx.md").read_text()
    listed = page.replace("\n", " ").split("quantiser write: ")[1].split(". ")[0].split(", ")
    assert listed == sorted(operator for domain, operator in FOREIGN if domain == "com.microsoft")
