"""Files that declare far more than they hold, or something else: a sentence, within bounds of memory and time."""

import json
import re
import subprocess
import sys
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

#: Bytes of address space and seconds of a process that loads a hostile file; libraries take most of two gigabytes.
BYTES, SECONDS = 6 << 30, 90
#: Loads each file in a process with these limits, forked from one that has imported the libraries.
LOAD = """
import json, os, resource, sys
import numpy as np
import gensor_kernels, onnx, onnxscript.optimizer
gensor_kernels.load(sys.argv[3])  # imports what all need
found = {}
for path in sys.argv[4:]:
    read, write = os.pipe()
    child = os.fork()
    if not child:
        for each in (1, 2):
            os.dup2(write, each)
        resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]),) * 2)
        resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[2]),) * 2)
        try:
            model = gensor_kernels.load(path)
            with gensor_kernels.emulated("sm_87"):
                model(**{name: np.ones([2] * len(spec.shape), spec.dtype) for name, spec in model.inputs.items()})
        except gensor_kernels.GensorError as error:
            print(type(error).__name__, error, flush=True)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as stream:
        text = stream.read()
    found[path] = os.waitpid(child, 0)[1], text
print(json.dumps(found))
"""

X = {"x": ("float32", (2, 2))}
Y = {"y": (2, 2)}
HUGE = np.array([2**20, 2**20])
OPSETS = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]


def save(model, folder):
    (folder / "hostile.onnx").write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    return folder / "hostile.onnx"


def bomb(op, inputs, constants):
    """A model that uses the sum of a constant of 2^40 elements."""
    text = (
        f"[bomb] big = {op}({inputs}); floats = Cast<to = 1>(big); s = ReduceSum<keepdims = 0>(floats); y = Add(x, s)"
    )
    return proto(text, X, Y, constants)


def function(name, nodes, result="b"):
    return helper.make_function("own", name, ["a"], [result], nodes, OPSETS)


def with_functions(functions, called):
    model = proto([node(called, ["x"], ["y"], domain="own")], X, Y)
    model.opset_import.append(helper.make_opsetid("own", 1))
    model.functions.extend(functions)
    return model


def nest(depth, calls):
    """Functions each of which calls the one before some times; the first calls Relu."""
    functions = []
    for level in range(depth):
        inner, domain = (f"f{level - 1}", "own") if level else ("Relu", "")
        names = "abc"[: calls + 1]
        nodes = [node(inner, [names[at]], [names[at + 1]], domain=domain) for at in range(calls)]
        functions.append(function(f"f{level}", nodes, names[-1]))
    return with_functions(functions, f"f{depth - 1}")


def calling_each_other():
    pairs = (("ping", "pong"), ("pong", "ping"))
    return with_functions([function(name, [node(other, ["a"], ["b"], domain="own")]) for name, other in pairs], "ping")


def messages_within_messages():
    """Graphs in attributes, 500 levels deep: protobuf's own limit is a hundred."""

    def field(tag, body):
        size, rest = b"", len(body)
        while rest > 127:
            size, rest = size + bytes([rest & 127 | 128]), rest >> 7
        return bytes([tag]) + size + bytes([rest]) + body

    body = b"\x0a\x04leaf"
    for _ in range(500):
        body = field(0x0A, field(0x2A, field(0x32, body)))  # GraphProto.node, NodeProto.attribute, AttributeProto.g
    return b"\x08\x09" + field(0x3A, body)


def claiming(*extents):
    """Weights of four numbers that claim other extents."""
    model = proto("y = Add(x, w)", X, Y, {"w": np.ones((2, 2), np.float32)})
    model.graph.initializer[0].ClearField("dims")
    model.graph.initializer[0].dims.extend(extents)
    return model


def external_tensor(*extents, **places):
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=extents, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": "w.bin", **places}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


#: Rows of 1,024 numbers of a sparse file: 3 GB, within an address space that libraries and the file's map share.
ROWS = 3 << 18


def three_gigabytes():
    model = proto("[look] y = Gather(w, i)", {"i": ("int64", (2, 2))}, {"y": (2, 2, 1024)})
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    model.graph.initializer.append(external_tensor(ROWS, 1024))
    return model


ONE, LONG = np.float32([1]), "t" * (64 << 20)
BOMB = "UnsupportedError node 'bomb'.* bytes"
#: Models, and what a process that loads and calls them prints: nothing where it computes them.
FILES = {
    "constant of shape": (lambda: bomb("ConstantOfShape", "shape", {"shape": HUGE}), BOMB),
    "expand": (lambda: bomb("Expand", "one, shape", {"one": ONE, "shape": HUGE}), BOMB),
    "range": (
        lambda: bomb("Range", "low, high, step", {"low": np.int64(0), "high": np.int64(2**40), "step": np.int64(1)}),
        BOMB,
    ),
    "tile": (lambda: bomb("Tile", "one, shape", {"one": ONE[None], "shape": HUGE}), BOMB),
    "pad": (lambda: bomb("Pad", "one, shape", {"one": ONE, "shape": np.array([0, 2**40])}), BOMB),
    "product": (
        lambda: bomb("MatMul", "column, row", {"column": np.ones((2**20, 1), "f"), "row": np.ones((1, 2**20), "f")}),
        BOMB,
    ),
    "doubling functions": (lambda: nest(40, 2), "UnsupportedError the model has 1099511627776 nodes"),
    "few functions": (lambda: nest(3, 2), "$"),
    "3,000 nested functions": (lambda: nest(3000, 1), "$|UnsupportedError|ModelError"),  # more than Python's stack
    "functions that call each other": (calling_each_other, "(UnsupportedError function|ModelError).*p"),
    "messages within messages": (messages_within_messages, "ModelError"),
    "long text": (
        lambda: proto([node("Gelu", ["x"], ["y"], name="long", approximate=LONG)], X, Y),
        r"UnsupportedError node 'long' \(Gelu\): texts of 67108864 bytes",
    ),
    "claimed extents": (lambda: claiming(2**20, 2**20), "ModelError"),
    "negative extents": (lambda: claiming(-1, 4), "ModelError"),
    "three gigabytes": (three_gigabytes, "$"),
    "shapes that do not fit": (
        lambda: proto("[off] y = MatMul(x, w)", X, {"y": (2, 3)}, {"w": np.ones((5, 3), np.float32)}),
        "ModelError[^\n]*\n$",
    ),
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """(exit status, text) of the process of each of FILES, by name."""
    paths = {}
    for name, (make, _) in FILES.items():
        folder = tmp_path_factory.mktemp("hostile")
        paths[name] = str(save(make(), folder))
        if name == "three gigabytes":
            with (folder / "w.bin").open("wb") as file:
                file.truncate(ROWS * 1024 * 4)
    plain = save(proto("y = Relu(x)", X, Y), tmp_path_factory.mktemp("plain"))
    command = [sys.executable, "-c", LOAD, str(BYTES), str(SECONDS), str(plain), *paths.values()]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=10 * SECONDS)
    assert ended.returncode == 0, ended.stderr[-2000:]
    found = json.loads(ended.stdout)
    return {name: found[path] for name, path in paths.items()}


@pytest.mark.parametrize("name", FILES)
def test_a_process_with_little_memory_ends_in_a_sentence(outcomes, name):
    status, text = outcomes[name]
    assert status == 0 and "Traceback" not in text, text[-2000:]
    assert re.match(FILES[name][1], text), text[:300]


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
    text = (
        f"shape, rest = Split<axis = 0, num_outputs = 2>(sizes); big = {op}(shape); s = ReduceSum(big); y = Add(x, s)"
    )
    return proto(text, X, ["y"], {"sizes": np.array([2**15, 2**15, 1, 1])})


@pytest.mark.parametrize(
    ("op", "made"),
    [(op, computed_constants) for op in ("ConstantOfShape", "Expand", "Tile")]
    + [("Concat", doubled_constant), ("ConstantOfShape", apart)],
)
def test_many_constants_are_bounded_together(monkeypatch, op, made):
    """They are refused while a few are in memory, also where the optimiser, the plan and a run compute some each."""
    monkeypatch.setattr(onnx_bounds, "LARGEST_FOLDED", 4 << 20)
    Model(Source(proto("y = Relu(x)", X, ["y"])), "model")  # imports take memory as well
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


def branch(nodes):
    return helper.make_graph(nodes, "branch", [], [helper.make_tensor_value_info("v", TensorProto.FLOAT, [2])])


def test_functions_that_branches_call_are_bounded():
    """Five kilobytes: each function calls the next one twice in each branch of an If."""
    functions = []
    for level in range(12):
        inner, domain = (f"f{level - 1}", "own") if level else ("Relu", "")
        pair = [node(inner, ["a"], ["t"], domain=domain), node(inner, ["t"], ["v"], domain=domain)]
        turn = node("If", ["c"], ["b"], then_branch=branch(pair), else_branch=branch(pair))
        constant = node("Constant", [], ["c"], value=numpy_helper.from_array(np.array(True)))
        functions.append(function(f"f{level}", [constant, turn]))
    with pytest.raises(UnsupportedError, match="the model has 27962026 nodes with its functions inlined"):
        Source(with_functions(functions, "f11"))


def external(tmp_path, location, **places):
    """The path of a model whose weights are at `location`."""
    model = proto("y = MatMul(x, w)", {"x": ("float32", (2, 64))}, {"y": (2, 64)})
    model.graph.initializer.append(external_tensor(64, 64, location=location, **places))
    return save(model, tmp_path)


def test_weights_outside_of_the_folder(tmp_path):
    (tmp_path / "secret.bin").write_bytes(np.ones((64, 64), np.float32).tobytes())
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "link.bin").symlink_to(tmp_path / "secret.bin")
    outside = ("../secret.bin", str(tmp_path / "secret.bin"), "deeper/../../secret.bin", "link.bin")
    for location in (*outside, "/dev/zero", "/proc/self/environ"):
        with pytest.raises(ModelError, match="outside of the model's folder"):
            load(external(inner, location))


ADD = node("Add", ["x", "v"], ["y"])
SHAPE = {"shape": np.array([2])}


def constant_of(tensor):
    return node("Constant", [], ["v"], value=tensor)


def in_an_initializer(tensor):
    made = proto([ADD], X, Y)
    made.graph.initializer.append(tensor)
    tensor.name = made.graph.initializer[0].name = "v"
    return made


def in_a_constant_of_shape(tensor):
    tensor.dims[0] = 1
    return proto([node("ConstantOfShape", ["shape"], ["v"], value=tensor), ADD], X, Y, SHAPE)


def in_a_constant(tensor):
    return proto([constant_of(tensor), ADD], X, Y)


def in_a_function(tensor):
    return with_functions([function("f", [constant_of(tensor), node("Add", ["a", "v"], ["b"])])], "f")


def in_a_branch(tensor):
    one = branch([constant_of(tensor)])
    return proto([node("If", ["c"], ["v"], then_branch=one, else_branch=one), ADD], X, Y, {"c": np.array(True)})


def in_a_list(tensor):
    call = node("ConstantOfShape", ["shape"], ["v"])
    call.attribute.add(name="value", type=onnx.AttributeProto.TENSORS).tensors.append(tensor)
    return proto([call, ADD], X, Y, SHAPE)


def in_a_sparse_initializer(tensor):
    made, tensor.name = proto([ADD], X, Y), "v"
    indices = numpy_helper.from_array(np.arange(2), "indices")
    made.graph.sparse_initializer.append(helper.make_sparse_tensor(tensor, indices, [2]))
    return made


SERVED = (in_an_initializer, in_a_constant_of_shape, in_a_constant, in_a_function)


@pytest.mark.parametrize("place", [*SERVED, in_a_branch, in_a_list, in_a_sparse_initializer])
def test_tensors_anywhere_are_read_from_the_model_folder(tmp_path, monkeypatch, place):
    """The working folder has a file of the same name: none of its numbers may come out."""
    for folder, value in (("model", 3), ("home", 7)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "w.bin").write_bytes(np.float32([1, 2, *[value] * 2]).tobytes())
    monkeypatch.chdir(tmp_path / "home")
    length = 4 if place is in_a_constant_of_shape else 8
    file = save(place(external_tensor(2, offset=8, length=length)), tmp_path / "model")
    try:
        loaded = load(file)
        with gensor_kernels.emulated("sm_87"):
            found = loaded(np.zeros((2, 2), np.float32))
    except (ModelError, UnsupportedError) as error:
        assert place not in SERVED, error
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
    tensor = external_tensor(25 << 10)
    body = [node("Constant", [], [f"v{number}"], value=tensor) for number in range(100)]
    found = with_functions([function("f", [*body, node("Relu", ["a"], ["b"])])], "f")
    with pytest.raises(UnsupportedError, match=r"^weights 'w': 1126400 bytes .*; make them initializers$"):
        Source(found, tmp_path)


@pytest.mark.parametrize(
    ("places", "reason"),
    [
        ({"offset": 4096}, "are not at byte 4096"),
        ({"offset": -1}, "are not at byte -1"),
        ({"length": 4}, "are not at byte 0"),
        ({"offset": "many"}, "which are no numbers"),
    ],
)
def test_weights_that_are_cut(tmp_path, places, reason):
    (tmp_path / "w.bin").write_bytes(np.ones((64, 64), np.float32).tobytes())
    with pytest.raises(ModelError, match=reason):
        load(external(tmp_path, "w.bin", **places))


def test_large_constants_among_the_nodes_are_kept_apart():
    weights = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
    nodes = [node("Constant", [], ["w"], value=numpy_helper.from_array(weights)), node("MatMul", ["x", "w"], ["y"])]
    x = np.ones((2, 64), np.float32)
    with gensor_kernels.emulated("sm_87"):
        found = load(proto(nodes, {"x": ("float32", ("n", 64))}, {"y": ("n", 32)}))(x)
    np.testing.assert_allclose(found, x @ weights, rtol=1e-5, atol=1e-5)
