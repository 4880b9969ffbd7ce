"""Files that declare far more than they hold, or something else: a sentence, within bounds of memory and time."""

import json
import os
import re
import subprocess
import sys
import tracemalloc

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from gensor_kernels.errors import ModelError, UnsupportedError
from gensor_kernels.graph.execution.model import Model, load
from gensor_kernels.graph.readers import onnx_limits, onnx_weights
from gensor_kernels.graph.readers.onnx_file import Source
from tests.campaign_size import FULL, SEED

from ..models import node, proto
from .mutated_models import draw_file, messages, outcome

pytestmark = pytest.mark.usefixtures("emulator")
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


def save(model, folder, name="hostile.onnx"):
    (folder / name).write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    return folder / name


def bomb(op, constants):
    """A model that uses the sum of a constant of 2^40 elements."""
    text = f"[bomb] big = {op}({', '.join(constants)}); floats = Cast<to = 1>(big); s = ReduceSum<keepdims = 0>(floats)"
    return proto(f"{text}; y = Add(x, s)", X, Y, constants)


def with_functions(*functions):
    """A model that calls the first of its functions; (name, nodes) computes b from a."""
    opsets = 'opset_import: ["": 20, "own": 1]'
    parts = [f"<ir_version: 9, {opsets}> model (float[2, 2] x) => (float[2, 2] y) {{ y = own.{functions[0][0]}(x) }}"]
    parts += [f'<domain: "own", {opsets}> {name} (a) => (b) {{ {nodes} }}' for name, nodes in functions]
    return onnx.parser.parse_model("\n".join(parts))


def nest(depth, twice=False):
    """Functions each of which calls the next, once or twice; the last calls Relu."""
    calls = [f"own.f{level + 1}" for level in range(depth - 1)] + ["Relu"]
    text = "t = {0}(a) b = {0}(t)" if twice else "b = {0}(a)"
    return with_functions(*((f"f{level}", text.format(called)) for level, called in enumerate(calls)))


def branching(depth):
    """Functions each of which calls the next twice in both branches of an If."""
    functions = []
    for level in range(depth):
        called = f"own.f{level + 1}" if level + 1 < depth else "Relu"
        branch = f"() => (float[2, 2] v) {{ t = {called}(a) v = {called}(t) }}"
        text = f"c = Constant<value = bool {{1}}>() b = If (c) <then_branch = one {branch}, else_branch = two {branch}>"
        functions.append((f"f{level}", text))
    return with_functions(*functions)


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


def hostile_models():
    """Return models by name, and what a process that loads and calls each prints: nothing where it computes it."""
    one, high, text = np.ones(1, "f"), np.int64(2**40), "t" * (64 << 20)
    bombs = {
        "ConstantOfShape": {"shape": HUGE},
        "Expand": {"one": one, "shape": HUGE},
        "Range": {"low": np.int64(0), "high": high, "step": np.int64(1)},
        "Tile": {"one": one[None], "shape": HUGE},
        "Pad": {"one": one, "shape": np.array([0, high])},
        "MatMul": {"column": np.ones((2**20, 1), "f"), "row": np.ones((1, 2**20), "f")},
    }
    cycle = with_functions(("ping", "b = own.pong(a)"), ("pong", "b = own.ping(a)"))
    misfit = proto("[off] y = MatMul(x, w)", X, {"y": (2, 3)}, {"w": np.ones((5, 3), "f")})
    long = proto([node("Gelu", ["x"], ["y"], name="long", approximate=text)], X, Y)
    return {op: (bomb(op, constants), "UnsupportedError node 'bomb'.* bytes") for op, constants in bombs.items()} | {
        "doubling functions": (nest(40, twice=True), "UnsupportedError the model has 1099511627776 nodes"),
        "few functions": (nest(3, twice=True), "$"),
        "3,000 nested functions": (nest(3000), "$|UnsupportedError|ModelError"),  # more than Python's stack
        "functions that call each other": (cycle, "(UnsupportedError function|ModelError).*p"),
        "messages within messages": (messages_within_messages(), "ModelError"),
        "long text": (long, r"UnsupportedError node 'long' \(Gelu\): texts of 67108864 bytes"),
        "claimed extents": (claiming(2**20, 2**20), "ModelError"),
        "negative extents": (claiming(-1, 4), "ModelError"),
        "three gigabytes": (three_gigabytes(), "$"),
        "shapes that do not fit": (misfit, "ModelError[^\n]*\n$"),
    }


def test_a_process_with_little_memory_ends_in_a_sentence(tmp_path):
    (tmp_path / "w.bin").touch()
    os.truncate(tmp_path / "w.bin", ROWS * 1024 * 4)
    models = hostile_models()
    paths = {name: str(save(made, tmp_path, f"{name}.onnx")) for name, (made, _) in models.items()}
    plain = save(proto("y = Relu(x)", X, Y), tmp_path)
    command = [sys.executable, "-c", LOAD, str(BYTES), str(SECONDS), str(plain), *paths.values()]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=10 * SECONDS)
    assert ended.returncode == 0, ended.stderr[-2000:]
    outcomes = json.loads(ended.stdout)
    for name, (_, says) in models.items():
        status, text = outcomes[paths[name]]
        assert status == 0 and "Traceback" not in text and re.match(says, text), (name, text[:300], text[-2000:])


def computed_constants(op, count=40):
    """A model that picks from many constants of 512 kB, all different."""
    parts, constants = ["i = Cast<to = 7>(x)"], {"shape": np.array([2**8, 2**9])}
    for number in range(count):
        constants[f"one{number}"] = np.full((1, 1), number, np.float32)
        call = f"{op}(one{number}, shape)"
        if op == "ConstantOfShape":
            call = f"{op}<value = float[1] {{{number}}}>(shape)"
        parts.append(f"c{number} = {call}; g{number} = Gather(c{number}, i)")
    parts.append(f"y = Sum({', '.join(f'g{number}' for number in range(count))})")
    return proto("; ".join(parts), X, ["y"], constants)


def doubled_constant(op, count=40):
    """A model that picks from a constant of 2^40 elements, each the half of the next."""
    parts = [f"c{number + 1} = {op}<axis = 0>(c{number}, c{number})" for number in range(count)]
    text = "; ".join([*parts, "i = Cast<to = 7>(x)", f"y = Gather(c{count}, i)"])
    return proto(text, X, ["y"], {"c0": np.ones(1, np.float32)})


def apart(op):
    """A model whose optimiser does not know the size of a constant: it comes out of an operator with two results."""
    text = f"shape, rest = Split<axis = 0, num_outputs = 2>(sizes); big = {op}(shape)"
    sizes = np.array([2**15, 2**15, 1, 1])
    return proto(f"{text}; s = ReduceSum(big); y = Add(x, s)", X, ["y"], {"sizes": sizes})


@pytest.mark.parametrize(
    ("op", "made"),
    [(op, computed_constants) for op in ("ConstantOfShape", "Expand", "Tile")]
    + [("Concat", doubled_constant), ("ConstantOfShape", apart)],
)
def test_many_constants_are_bounded_together(monkeypatch, op, made):
    """They are refused while a few are in memory, also where the optimiser, the plan and a run compute some each."""
    monkeypatch.setattr(onnx_limits, "LARGEST_FOLDED", 4 << 20)
    Model(Source(proto("y = Relu(x)", X, ["y"])), "model")  # imports take memory as well
    tracemalloc.start()
    try:
        with pytest.raises(UnsupportedError, match=rf"\({op}\): a constant of .* with others: 4.\d+e\+06 are served"):
            Model(Source(made(op)), "model")(np.ones((2, 2), np.float32))
        assert tracemalloc.get_traced_memory()[1] < 24 << 20
    finally:
        tracemalloc.stop()


def test_constants_without_further_readers_are_not_counted(monkeypatch):
    monkeypatch.setattr(onnx_limits, "LARGEST_FOLDED", 1 << 20)
    chain = "; ".join(f"c{number + 1} = Cos(c{number})" for number in range(20))
    text, shape = f"c0 = ConstantOfShape(shape); {chain}; y = Add(x, c20)", (2**8, 2**8)
    found = proto(text, {"x": ("float32", shape)}, ["y"], {"shape": np.array(shape)})
    assert Model(Source(found), "model")(np.ones(shape, np.float32)).shape == shape


def test_functions_that_branches_call_are_bounded():
    """A few kilobytes."""
    with pytest.raises(UnsupportedError, match="the model has 27962026 nodes with its functions inlined"):
        Source(branching(12))


def external(tmp_path, location, **places):
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


def in_a_list():
    call = node("ConstantOfShape", ["shape"], ["v"])
    call.attribute.add(name="value", type=onnx.AttributeProto.TENSORS).tensors.append(FILLED)
    return proto([call, node("Add", ["x", "v"], ["y"])], X, Y, {"shape": np.array([2])})


def in_a_sparse_initializer():
    made = proto("y = Add(x, v)", X, Y)
    values, indices = numpy_helper.from_array(np.float32([9, 9]), "v"), numpy_helper.from_array(np.arange(2), "indices")
    made.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [2]))
    return made


FILLED = numpy_helper.from_array(np.float32([9, 9]))
CONSTANT = "v = Constant<value = float[2] {9, 9}>()"
BRANCH = f"() => (float[2] u) {{ {CONSTANT.replace('v =', 'u =')} }}"
#: Models that add a tensor of two numbers to x, where it is in the file, and whether such a file is served.
PLACES = {
    "initializer": (lambda: proto("y = Add(x, v)", X, Y, {"v": np.float32([9, 9])}), True),
    "constant": (lambda: proto(f"{CONSTANT}; y = Add(x, v)", X, Y), True),
    "constant of shape": (
        lambda: proto("v = ConstantOfShape<value = float[1] {9}>(s); y = Add(x, v)", X, Y, {"s": np.array([2])}),
        True,
    ),
    "function": (lambda: with_functions(("f", f"{CONSTANT} b = Add(a, v)")), True),
    "branch": (
        lambda: proto(
            f"v = If<then_branch = one {BRANCH}, else_branch = two {BRANCH}>(c); y = Add(x, v)",
            X,
            Y,
            {"c": np.array(True)},
        ),
        False,
    ),
    "list": (in_a_list, False),
    "sparse initializer": (in_a_sparse_initializer, False),
}


@pytest.mark.parametrize("place", PLACES)
def test_tensors_anywhere_are_read_from_the_model_folder(tmp_path, monkeypatch, place):
    """The working folder has a file of the same name: none of its numbers may come out."""
    for folder, value in (("model", 3), ("home", 7)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "w.bin").write_bytes(np.float32([1, 2, value, value]).tobytes())
    monkeypatch.chdir(tmp_path / "home")
    make, is_served = PLACES[place]
    made = make()
    for tensor in [each for each in messages(made) if isinstance(each, TensorProto) and each.data_type == 1]:
        outside = external_tensor(*tensor.dims, offset=8, length=4 * tensor.dims[0])
        outside.name = tensor.name
        tensor.CopyFrom(outside)
    file = save(made, tmp_path / "model")
    try:
        loaded = load(file)
        found = loaded(np.zeros((2, 2), np.float32))
    except (ModelError, UnsupportedError) as error:
        assert not is_served, error
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
    body = "".join(f"v{number} = Constant<value = float {{0}}>() " for number in range(100))
    made = with_functions(("f", f"{body} b = Relu(a)"))
    for call in made.functions[0].node[:100]:
        call.attribute[0].t.CopyFrom(external_tensor(25 << 10))
    with pytest.raises(UnsupportedError, match=r"^weights 'w': 1126400 bytes .*; make them initializers$"):
        Source(made, tmp_path)


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


# ---- models changed at random

#: Mutated models of a push, and of a night.
COUNT = 40_000 if FULL else 70


@pytest.mark.filterwarnings("ignore")
def test_mutated_models_end_in_a_result_or_an_error_of_the_package():
    raw, computed = [], 0
    for number in range(COUNT):
        case, data = draw_file(number, SEED)
        what, text = outcome(data)
        computed += what == "computed"
        raw += [] if what else [f"{number}: {case}: {text}"]
    assert not raw and computed > 5


@pytest.mark.parametrize(
    ("text", "k", "opset", "reason"),
    [
        ("[node] y, i = TopK(x, k)", [-1], 20, r"node 'node' \(TopK\)"),
        ("[node] y, z = Split<axis = 1>(x, k)", [3, 3], 20, r"node 'node' \(Split\)"),
        ("y = Relu(x)", [], 9999, "operators of version 9999 of the standard"),
        ("c = Constant(); y = Add(x, c)", [], 20, "no valid ONNX model"),
        ("c = Constant<value_int = 1, value_float = 1.0>(); y = Add(x, c)", [], 20, "no valid ONNX model"),
        ("[node] y = Pad(x, k)", [0, 2**40, 0, 0], 20, r"node 'node' \(Pad\)"),
    ],
)
def test_models_that_are_not_valid_are_refused(text, k, opset, reason):
    found = proto(text, {"x": ("float32", ("n", 4))}, ["y"], {"k": np.array(k)} if k else {}, opset)
    with pytest.raises((ModelError, UnsupportedError), match=reason):
        load(found)(np.ones((2, 4), np.float32))
