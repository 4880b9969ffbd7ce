"""Files that ask for far more than they hold, or lie about it: a sentence, within bounds of memory and time."""

import subprocess
import sys
import textwrap
import tracemalloc

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import gensor_kernels
from gensor_kernels.errors import ModelError, UnsupportedError
from gensor_kernels.graph.execution.model import Model, load
from gensor_kernels.graph.readers import onnx_bounds, onnx_weights
from gensor_kernels.graph.readers.onnx_file import Source

from ..models import node, proto

#: Address space of a process that loads a hostile file; the libraries alone take most of the first two.
BYTES = 6 << 30
SECONDS = 90

LOAD = """
import resource, sys
import numpy as np
import gensor_kernels, onnx, onnxscript.optimizer
resource.setrlimit(resource.RLIMIT_AS, ({bytes}, {bytes}))
resource.setrlimit(resource.RLIMIT_CPU, ({seconds}, {seconds}))
try:
    model = gensor_kernels.load(sys.argv[1])
    with gensor_kernels.emulated("sm_87"):
        model(**{{name: np.ones([2] * len(spec.shape), spec.dtype) for name, spec in model.inputs.items()}})
except gensor_kernels.GensorError as error:
    print(type(error).__name__, error)
"""


def told(path):
    """Return what a process of its own says about a file."""
    script = textwrap.dedent(LOAD).format(bytes=BYTES, seconds=SECONDS)
    ended = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, timeout=10 * SECONDS)
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert "Traceback" not in ended.stderr
    return ended.stdout


def saved(model, tmp_path):
    (tmp_path / "hostile.onnx").write_bytes(model.SerializeToString())
    return tmp_path / "hostile.onnx"


X = {"x": ("float32", (2, 2))}
HUGE = np.array([2**20, 2**20])


@pytest.mark.parametrize(
    ("op", "inputs", "constants"),
    [
        ("ConstantOfShape", ["shape"], {"shape": HUGE}),
        ("Expand", ["one", "shape"], {"one": np.float32([1]), "shape": HUGE}),
        ("Range", ["low", "high", "step"], {"low": np.int64(0), "high": np.int64(2**40), "step": np.int64(1)}),
        ("Tile", ["one", "shape"], {"one": np.ones((1, 1), np.float32), "shape": HUGE}),
        ("Pad", ["one", "shape"], {"one": np.ones(1, np.float32), "shape": np.array([0, 2**40])}),
        ("MatMul", ["column", "row"], {"column": np.ones((2**20, 1), "f"), "row": np.ones((1, 2**20), "f")}),
    ],
)
def test_constants_that_a_file_computes_are_bounded(tmp_path, op, inputs, constants):
    """A constant of 2^40 elements is refused before anything allocates it, although only its sum is used."""
    nodes = [
        node(op, inputs, ["big"], name="bomb"),
        node("Cast", ["big"], ["floats"], to=TensorProto.FLOAT),
        node("ReduceSum", ["floats"], ["sum"], keepdims=0),
        node("Add", ["x", "sum"], ["y"]),
    ]
    text = told(saved(proto(nodes, X, {"y": (2, 2)}, constants), tmp_path))
    assert text.startswith("UnsupportedError node 'bomb'") and "bytes" in text, text


def computed_constants(op, count=40):
    """A model that picks from many constants of 512 kB, all different."""
    nodes, constants = [node("Cast", ["x"], ["i"], to=TensorProto.INT64)], {"shape": np.array([2**8, 2**9])}
    for number in range(count):
        more = {"value": numpy_helper.from_array(np.float32([number]))} if op == "ConstantOfShape" else {}
        constants[f"one{number}"] = np.full((1, 1), number, np.float32)
        inputs = ["shape"] if more else [f"one{number}", "shape"]
        nodes += [node(op, inputs, [f"c{number}"], **more), node("Gather", [f"c{number}", "i"], [f"g{number}"])]
    nodes.append(node("Sum", [f"g{number}" for number in range(count)], ["y"]))
    return proto(nodes, X, ["y"], constants)


def doubled_constant(op, count=40):
    """A model that picks from a constant of 2^40 elements, each the half of the next."""
    nodes = [node(op, [f"c{number}"] * 2, [f"c{number + 1}"], axis=0) for number in range(count)]
    nodes += [node("Cast", ["x"], ["i"], to=TensorProto.INT64), node("Gather", [f"c{count}", "i"], ["y"])]
    return proto(nodes, X, ["y"], {"c0": np.ones(1, np.float32)})


def apart(op):
    """A model whose optimiser does not know the size of a constant: it comes out of an operator with two results."""
    nodes = [node("Split", ["sizes"], ["shape", "rest"], axis=0, num_outputs=2)]
    nodes += [node(op, ["shape"], ["big"]), node("ReduceSum", ["big"], ["sum"]), node("Add", ["x", "sum"], ["y"])]
    return proto(nodes, X, ["y"], {"sizes": np.array([2**15, 2**15, 1, 1])})


@pytest.mark.parametrize(
    ("op", "made"),
    [(op, computed_constants) for op in ("ConstantOfShape", "Expand", "Tile")]
    + [("Concat", doubled_constant), ("ConstantOfShape", apart)],
)
def test_many_constants_are_bounded_together(monkeypatch, op, made):
    """They are refused while a few are in memory, also where the optimiser, the plan and a run compute some each."""
    monkeypatch.setattr(onnx_bounds, "LARGEST_FOLDED", 4 << 20)
    Model(Source(proto([node("Relu", ["x"], ["y"])], X, ["y"])), "model")  # what it imports takes memory, too
    tracemalloc.start()
    try:
        with (
            gensor_kernels.emulated("sm_87"),
            pytest.raises(UnsupportedError, match=rf"\({op}\): a constant of .* with others: 4.\d+e\+06 are served"),
        ):
            Model(Source(made(op)), "model")(np.ones((2, 2), np.float32))
        assert tracemalloc.get_traced_memory()[1] < 24 << 20
    finally:
        tracemalloc.stop()


def test_constants_without_further_readers_are_not_counted(monkeypatch):
    monkeypatch.setattr(onnx_bounds, "LARGEST_FOLDED", 1 << 20)
    nodes = [node("ConstantOfShape", ["shape"], ["c0"])]
    nodes += [node("Cos", [f"c{number}"], [f"c{number + 1}"]) for number in range(20)]
    nodes.append(node("Add", ["x", "c20"], ["y"]))
    found = proto(nodes, {"x": ("float32", (2**8, 2**8))}, ["y"], {"shape": np.array([2**8, 2**8])})
    with gensor_kernels.emulated("sm_87"):
        assert Model(Source(found), "model")(np.ones((2**8, 2**8), np.float32)).shape == (2**8, 2**8)


def doubling(depth):
    """A function that calls another twice, which calls another twice, and so on."""
    functions = []
    for level in range(depth):
        inner = f"f{level - 1}" if level else "Relu"
        domain = "own" if level else ""
        nodes = [
            helper.make_node(inner, ["a"], ["b"], domain=domain),
            helper.make_node(inner, ["b"], ["c"], domain=domain),
        ]
        opsets = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
        functions.append(helper.make_function("own", f"f{level}", ["a"], ["c"], nodes, opsets))
    return functions


def with_functions(functions, called):
    model = proto([node(called, ["x"], ["y"], domain="own")], X, {"y": (2, 2)})
    model.opset_import.append(helper.make_opsetid("own", 1))
    model.functions.extend(functions)
    return model


def test_functions_that_call_others_are_bounded(tmp_path):
    text = told(saved(with_functions(doubling(40), "f39"), tmp_path))
    assert text.startswith("UnsupportedError the model has 1099511627776 nodes"), text
    assert told(saved(with_functions(doubling(3), "f2"), tmp_path)) == ""


def test_functions_that_branches_call_are_bounded():
    """Five kilobytes: each function calls the next one twice in each branch of an If."""
    functions, opsets = [], [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    for level in range(12):
        inner, domain = (f"f{level - 1}", "own") if level else ("Relu", "")
        pair = [node(inner, ["a"], ["t"], domain=domain), node(inner, ["t"], ["v"], domain=domain)]
        turn = node("If", ["c"], ["b"], then_branch=_branch(pair), else_branch=_branch(pair))
        nodes = [node("Constant", [], ["c"], value=numpy_helper.from_array(np.array(True))), turn]
        functions.append(helper.make_function("own", f"f{level}", ["a"], ["b"], nodes, opsets))
    with pytest.raises(UnsupportedError, match="the model has 27962026 nodes with its functions inlined"):
        Source(with_functions(functions, "f11"))


def test_functions_that_are_nested_deeply(tmp_path):
    """A chain of 3,000 functions is longer than Python's stack; it ends in a sentence or is computed."""
    functions = []
    for level in range(3000):
        inner, domain = (f"f{level - 1}", "own") if level else ("Relu", "")
        nodes = [helper.make_node(inner, ["a"], ["b"], domain=domain)]
        opsets = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
        functions.append(helper.make_function("own", f"f{level}", ["a"], ["b"], nodes, opsets))
    text = told(saved(with_functions(functions, "f2999"), tmp_path))
    assert text == "" or text.startswith(("UnsupportedError", "ModelError")), text


def test_functions_that_call_themselves(tmp_path):
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    functions = []
    for name, called in (("ping", "pong"), ("pong", "ping")):
        inner = [helper.make_node(called, ["a"], ["b"], domain="own")]
        functions.append(helper.make_function("own", name, ["a"], ["b"], inner, opsets))
    text = told(saved(with_functions(functions, "ping"), tmp_path))
    assert text.startswith(("UnsupportedError function", "ModelError")) and "p" in text, text


def test_messages_within_messages(tmp_path):
    """Graphs in attributes, 500 levels deep: protobuf's own limit is a hundred."""
    body = b"\x0a\x04leaf"
    for _ in range(500):
        attribute = b"\x32" + _varint(len(body)) + body  # AttributeProto.g
        inner = b"\x2a" + _varint(len(attribute)) + attribute  # NodeProto.attribute
        body = b"\x0a" + _varint(len(inner)) + inner  # GraphProto.node
    file = tmp_path / "deep.onnx"
    file.write_bytes(b"\x08\x09" + b"\x3a" + _varint(len(body)) + body)
    assert told(file).startswith("ModelError"), file


def _varint(number):
    found = b""
    while number > 127:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


def test_texts_are_bounded(tmp_path):
    model = proto([node("Gelu", ["x"], ["y"], name="long", approximate="t" * (64 << 20))], X, {"y": (2, 2)})
    text = told(saved(model, tmp_path))
    assert text.startswith("UnsupportedError node 'long' (Gelu): texts of 67108864 bytes"), text[:300]


def test_claimed_extents_without_data(tmp_path):
    """Weights that claim 2^40 elements and have eight bytes."""
    model = proto([node("Add", ["x", "w"], ["y"])], X, {"y": (2, 2)}, {"w": np.ones((2, 2), np.float32)})
    model.graph.initializer[0].ClearField("dims")
    model.graph.initializer[0].dims.extend([2**20, 2**20])
    assert told(saved(model, tmp_path)).startswith("ModelError"), "8 bytes are not 2^40 elements"
    model = proto([node("Add", ["x", "w"], ["y"])], X, {"y": (2, 2)}, {"w": np.ones((2, 2), np.float32)})
    model.graph.initializer[0].ClearField("dims")
    model.graph.initializer[0].dims.extend([-1, 4])
    assert told(saved(model, tmp_path)).startswith("ModelError")


def external(tmp_path, location, **places):
    """A model whose weights are at `location`."""
    model = proto([node("MatMul", ["x", "w"], ["y"])], {"x": ("float32", (2, 64))}, {"y": (2, 64)})
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[64, 64], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **places}.items():
        tensor.external_data.add(key=key, value=str(value))
    model.graph.initializer.append(tensor)
    return saved(model, tmp_path)


def test_weights_outside_of_the_folder(tmp_path):
    (tmp_path / "secret.bin").write_bytes(np.ones((64, 64), np.float32).tobytes())
    inner = tmp_path / "inner"
    inner.mkdir()
    for location in ("../secret.bin", str(tmp_path / "secret.bin"), "deeper/../../secret.bin"):
        with pytest.raises(ModelError, match="outside of the model's folder"):
            load(external(inner, location))
    (inner / "link.bin").symlink_to(tmp_path / "secret.bin")
    with pytest.raises(ModelError, match="outside of the model's folder"):
        load(external(inner, "link.bin"))
    for location in ("/dev/zero", "/proc/self/environ"):
        with pytest.raises(ModelError, match="outside of the model's folder"):
            load(external(inner, location))


def _function(body, attributes=()):
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    return helper.make_function("own", "f", ["a"], ["b"], body, opsets, list(attributes))


def _branch(nodes):
    return helper.make_graph(nodes, "branch", [], [helper.make_tensor_value_info("v", TensorProto.FLOAT, [2])])


def _in_a_list(tensor):
    call = node("ConstantOfShape", ["shape"], ["v"])
    call.attribute.add(name="value", type=onnx.AttributeProto.TENSORS).tensors.append(tensor)
    return proto([call, node("Add", ["x", "v"], ["y"])], X, {"y": (2, 2)}, {"shape": np.array([2])})


def _sparse(tensor):
    made = proto([node("Add", ["x", "v"], ["y"])], X, {"y": (2, 2)})
    indices = numpy_helper.from_array(np.arange(2), "indices")
    tensor.name = "v"
    made.graph.sparse_initializer.append(helper.make_sparse_tensor(tensor, indices, [2]))
    return made


def _turned(tensor):
    branch = _branch([node("Constant", [], ["v"], value=tensor)])
    turn = node("If", ["c"], ["v"], then_branch=branch, else_branch=branch)
    return proto([turn, node("Add", ["x", "v"], ["y"])], X, {"y": (2, 2)}, {"c": np.array(True)})


#: Models with a tensor of two numbers somewhere else than among the initializers.
PLACES = {
    "attribute": lambda tensor: proto(
        [node("ConstantOfShape", ["shape"], ["v"], value=tensor), node("Add", ["x", "v"], ["y"])],
        *(X, {"y": (2, 2)}, {"shape": np.array([2])}),
    ),
    "constant": lambda tensor: proto(
        [node("Constant", [], ["v"], value=tensor), node("Add", ["x", "v"], ["y"])], X, {"y": (2, 2)}
    ),
    "function": lambda tensor: with_functions(
        [_function([node("Constant", [], ["v"], value=tensor), node("Add", ["a", "v"], ["b"])])], "f"
    ),
    "branch": _turned,
    "list": _in_a_list,
    "sparse": _sparse,
}


@pytest.mark.parametrize("place", PLACES)
def test_tensors_anywhere_are_read_from_the_model_folder(tmp_path, monkeypatch, place):
    """The working folder has a file of the same name: none of its numbers may come out."""
    for folder, value in (("model", 3), ("home", 7)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "w.bin").write_bytes(np.full(2, value, np.float32).tobytes())
    monkeypatch.chdir(tmp_path / "home")
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="w.bin")
    if place == "attribute":
        tensor.dims[0] = 1
    file = saved(PLACES[place](tensor), tmp_path / "model")
    try:
        loaded = load(file)
        with gensor_kernels.emulated("sm_87"):
            found = loaded(np.zeros((2, 2), np.float32))
    except (ModelError, UnsupportedError) as error:
        assert place in ("branch", "list", "sparse"), error
    else:
        assert loaded.weight_files == ("w.bin",)
        np.testing.assert_array_equal(found, np.full((2, 2), 3, np.float32))
    (tmp_path / "model" / "w.bin").unlink()
    with pytest.raises(ModelError, match=r"in another file, which is missing: 'w.bin'"):
        load(file)
    (tmp_path / "model" / "w.bin").symlink_to(tmp_path / "home" / "w.bin")
    with pytest.raises(ModelError, match="outside of the model's folder"):
        load(file)


def test_tensors_that_are_read_are_bounded_together(tmp_path, monkeypatch):
    """A hundred constants of a function that name the same file of 100 kB."""
    monkeypatch.setattr(onnx_weights, "LARGEST_FOLDED", 1 << 20)
    (tmp_path / "w.bin").write_bytes(bytes(100 << 10))
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[25 << 10], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="w.bin")
    body = [node("Constant", [], [f"v{number}"], value=tensor) for number in range(100)]
    found = with_functions([_function([*body, node("Relu", ["a"], ["b"])])], "f")
    with pytest.raises(UnsupportedError, match=r"^weights 'w': 1126400 bytes .*; make them initializers$"):
        Source(found, tmp_path)


@pytest.mark.parametrize(
    ("places", "reason"),
    [
        ({"offset": 4096}, "do not lie at byte 4096"),
        ({"offset": -1}, "do not lie at byte -1"),
        ({"length": 4}, "do not lie at byte 0"),
        ({"offset": "many"}, "which are no numbers"),
    ],
)
def test_weights_that_are_cut(tmp_path, places, reason):
    (tmp_path / "w.bin").write_bytes(np.ones((64, 64), np.float32).tobytes())
    with pytest.raises(ModelError, match=reason):
        load(external(tmp_path, "w.bin", **places))


def test_weights_in_another_file_are_right(tmp_path):
    weights = np.random.default_rng(0).standard_normal((65, 64)).astype(np.float32)
    (tmp_path / "w.bin").write_bytes(weights.tobytes())
    x = np.ones((2, 64), np.float32)
    with gensor_kernels.emulated("sm_87"):
        found = load(external(tmp_path, "w.bin", offset=256, length=64 * 64 * 4))(x)
    np.testing.assert_allclose(found, x @ weights[1:], rtol=1e-5, atol=1e-5)


def test_three_gigabytes_of_weights_are_not_copied(tmp_path):
    """A sparse file of 3 GB is loaded within an address space of 6 GB, which libraries and the file's map share."""
    rows = 3 << 18
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate(rows * 1024 * 4)
    nodes = [node("Gather", ["w", "i"], ["y"], name="look")]
    model = proto(nodes, {"i": ("int64", (2, 2))}, {"y": (2, 2, 1024)})
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[rows, 1024], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="w.bin")
    model.graph.initializer.append(tensor)
    assert told(saved(model, tmp_path)) == ""


def test_shapes_that_do_not_fit(tmp_path):
    model = proto([node("MatMul", ["x", "w"], ["y"], name="off")], X, {"y": (2, 3)}, {"w": np.ones((5, 3), np.float32)})
    text = told(saved(model, tmp_path))
    assert text.startswith("ModelError") and "Traceback" not in text and text.count("\n") == 1, text


def test_the_constant_is_still_right(tmp_path):
    """Large constants among the nodes are kept apart like initializers."""
    weights = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
    nodes = [
        node("Constant", [], ["w"], value=numpy_helper.from_array(weights)),
        node("MatMul", ["x", "w"], ["y"]),
    ]
    onnx.save(proto(nodes, {"x": ("float32", ("n", 64))}, {"y": ("n", 32)}), tmp_path / "constant.onnx")
    x = np.ones((2, 64), np.float32)
    with gensor_kernels.emulated("sm_87"):
        np.testing.assert_allclose(load(tmp_path / "constant.onnx")(x), x @ weights, rtol=1e-5, atol=1e-5)
