"""Shapes of a model: `gensor-tune shapes` and `gensor-tune --model`."""

import csv
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import gensor_kernels
from gensor_database.text import span
from gensor_kernels.errors import ModelError
from gensor_tuner.shapes import from_model, model_cache
from gensor_tuner.shapes.from_model import extents_of, loaded, signatures, write
from gensor_tuner.shapes.reader import read_shapes
from tests.graph.models import model as made
from tests.graph.models import node, proto

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def file(tmp_path):
    nodes = [node("Conv", ["x", "w"], ["c"]), node("Relu", ["c"], ["r"])]
    nodes += [node("Flatten", ["r"], ["f"]), node("MatMul", ["f", "v"], ["y"])]
    weights = {"w": np.ones((4, 3, 3, 3), np.float32), "v": np.ones((144, 8), np.float32)}
    onnx.save(proto(nodes, {"x": ("float32", ("n", 3, 8, 8))}, {"y": ("n", 8)}, weights), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def test_a_model_becomes_a_shapes_file_and_what_does_not_fit_is_a_sentence(file, tmp_path, gensor_tune):
    out = tmp_path / "written.csv"
    code, _, errors = gensor_tune("shapes", file, "--input", "x=2x3x8x8", "-o", out)
    assert code in (0, None), errors
    rows = [row.workload for row in read_shapes(out)]
    assert sorted((row.operator, row.epilogue) for row in rows) == [("conv2d", ("relu",)), ("matmul", ())]
    assert not list(tmp_path.glob("*.part"))
    for given, reason in (
        ((), "input x is float32 (n, 3, 8, 8): give its extents, as in --input x=1x3x8x8"),
        (("--input", "z=1x2"), "the model's inputs are x"),
        (("--input", "x=1;2"), "expected NAME=EXTENTS"),
    ):
        code, _, errors = gensor_tune("shapes", file, *given, "-o", "{}/shapes.csv")
        assert code and reason in errors, errors
        assert not (tmp_path / "shapes.csv").exists()
    code, _, errors = gensor_tune("--arch", "sm_87", "--model", file, "--shapes", "shapes.csv")
    assert code == 2 and "leave one out" in errors


def test_a_number_for_an_input_without_axes_decides_a_branch(tmp_path, gensor_tune):
    branches = "then_branch = t () => (float[n,4] a) { a = MatMul(x, w) }, "
    branches += "else_branch = e () => (float[n] b) { b = ReduceMean<keepdims = 0>(x, one) }"
    given = {"x": ("float32", ("n", 8)), "rate": ("int64", ())}
    constants = {"w": np.ones((8, 4), np.float32), "one": np.array([1]), "fast": np.int64(16000)}
    made = proto(f"c = Equal(rate, fast); y = If<{branches}>(c)", given, {"y": ("n", 4)}, constants)
    onnx.save(made, tmp_path / "rates.onnx")
    for rate, op in ((16000, "matmul"), (8000, "reduce_mean")):
        out = tmp_path / f"{rate}.csv"
        sizes = ("--input", f"rate={rate}", "--input", "n=16")
        code, _, errors = gensor_tune("shapes", tmp_path / "rates.onnx", *sizes, "-o", out)
        assert code in (0, None), errors
        assert [row.workload.operator for row in read_shapes(out)] == [op]
    onnx.save(proto("y = Mul(x, rate)", given | {"rate": ("float32", ())}, {"y": ("n", 8)}), tmp_path / "plain.onnx")
    code, _, errors = gensor_tune("shapes", tmp_path / "plain.onnx", "--input", "rate=1,2", "-o", out)
    assert code and "give one number for its value, as rate=1" in errors


def test_a_model_in_16_bits_has_shapes_records_and_layers_of_its_own(file, tmp_path, gensor_tune, needs_emulator):
    """As `gensor_kernels.load(dtype=)` makes it; and `run --db` reads what was tuned."""
    sizes, kinds = ("--input", "x=2x3x8x8"), {}
    for dtype in ("float32", "FP16", "bfloat16"):
        asked = ("--dtype", dtype) if dtype != "float32" else ()
        code, _, errors = gensor_tune("shapes", file, *sizes, *asked, "-o", "{}/shapes.csv")
        assert code in (0, None), errors
        kinds[dtype] = {row.workload.dtypes[0][1] for row in read_shapes(tmp_path / "shapes.csv")}
    assert kinds == {"float32": {"float32"}, "FP16": {"float16"}, "bfloat16": {"bfloat16"}}

    db, tuned = tmp_path / "net.db", ("--measure", "never", "--top", "1", "-q")
    asked = (*sizes, "--dtype", "float16")
    code, _, errors = gensor_tune("--arch", "Orin Nano", "--model", file, *asked, "--db", db, *tuned)
    assert code == 0, errors
    _, out, _ = gensor_tune("show", "--db", db)
    assert "net.onnx in float16 on orin-nano-8gb: 2 calls" in out

    known, found = os.environ.get("GENSOR_DB"), []
    for given in (("--db", db), ()):
        options = ("--emulate", "Orin Nano", "--dtype", "half", *given, "--json", "{}/layers.json")
        code, out, errors = gensor_tune("run", file, *sizes, *options)
        assert code in (0, None), errors
        assert "float16 (2, 4, 6, 6)" in out and os.environ.get("GENSOR_DB") == known
        lines = [json.loads(line) for line in (tmp_path / "layers.json").read_text().splitlines()]
        found.append({tier for line in lines for tier in line.get("tiers", ())})
    assert found[0] == {2} and 2 not in found[1]  # tuned for these sizes there; elsewhere picked, or left to CuPy


def test_wrong_types_and_databases_of_models_are_sentences(file, gensor_tune):
    for words, reason in (
        (("run", file, "--emulate", "sm_87", "--dtype", "fp8"), "'fp8' is not one of float16, bfloat16"),
        (("run", file, "--emulate", "sm_87", "--dtype", "flaot16"), "did you mean float16"),
        (("run", file, "--emulate", "sm_87", "--db", "{}/none.db"), "none.db does not exist: tune into it first"),
        (("--arch", "sm_87", "--shapes", "x.csv", "--dtype", "fp16"), "--dtype goes with --model"),
    ):
        code, _, errors = gensor_tune(*words)
        assert code == 2 and reason in errors, errors


def test_extents():
    assert extents_of(["x=1x3", "a=b=7"]) == {"x": [(1, 3)], "a=b": [(7,)]}
    assert extents_of(["x=1,8x3", "x=2x3", "n=4,4"]) == {"x": [(1, 3), (8, 3), (2, 3)], "n": [(4,)]}
    for text in ("x", "=1", "x=", "x=1x", "x=1,x2", "x=-1", "x=" + "9" * 20):
        with pytest.raises(ModelError):
            extents_of([text])


@pytest.fixture
def text_model(tmp_path):
    """Two inputs that share a batch and a sequence."""
    tensors = {name: ("float32", ("batch", "sequence", 16)) for name in ("ids", "mask")}
    nodes = [node("Add", ["ids", "mask"], ["s"], name="join"), node("MatMul", ["s", "w"], ["y"], name="project")]
    model = proto(nodes, tensors, {"y": ("batch", "sequence", 8)}, {"w": np.ones((16, 8), np.float32)})
    onnx.save(model, tmp_path / "text.onnx")
    return tmp_path / "text.onnx"


def test_lists_of_sizes_are_combined(text_model):
    model, _ = loaded(text_model)
    found = signatures(model, extents_of(["batch=1,8", "sequence=128,512"]))
    assert [each["ids"] for each in found] == [(1, 128, 16), (1, 512, 16), (8, 128, 16), (8, 512, 16)]
    assert all(each["mask"] == each["ids"] for each in found)
    # One input's extents set those of the other; combinations that contradict each other are left out.
    assert signatures(model, extents_of(["ids=1,8x128x16"])) == [
        dict.fromkeys(("ids", "mask"), (batch, 128, 16)) for batch in (1, 8)
    ]
    assert len(signatures(model, extents_of(["ids=1,8x4x16", "mask=1,8x4x16"]))) == 2
    for asked, reason in (
        (["ids=1x128x8"], "no combination of these extents fits"),
        (["ids=1x128"], "2 extents, but the input is float32"),
        (["batch=1x2"], "the model's inputs are ids, mask, and its sizes batch, sequence"),
        (["batch=1"], "give its extents"),
        ([f"{name}={','.join(map(str, range(1, 40)))}" for name in ("batch", "sequence")], "more than 1000"),
    ):
        with pytest.raises(ModelError, match=reason):
            signatures(model, extents_of(asked))


@pytest.mark.parametrize(
    ("shapes", "options"),
    [
        ({"x": ("n", 3, "h", "w")}, ["--input x=1x3x32x32"]),
        ({"x": (None, 3, None, None), "z": ("n", "a b"), "f": (2,)}, ["--input x=1x3x32x32", "--input z=1x32"]),
        ({"x": ("n", 3, "h", "w"), "my z": ("n", "w")}, ["--input x=1x3x32x32", "--input 'my z=1x32'"]),
        ({"x": ("n", 4, "h", "w")}, []),  # no extents fit
    ],
)
def test_the_hint_for_open_sizes_works(monkeypatch, shapes, options):
    """A convolution takes three channels, and a reshape images of 32 x 32 alone."""
    nodes = [node("Conv", ["x", "w"], ["c"]), node("Reshape", ["c", "to"], ["y"])]
    constants = {"w": np.ones((2, 3, 1, 1), np.float32), "to": np.array([-1, 2, 4, 256])}
    model = made(nodes, {name: ("float32", shape) for name, shape in shapes.items()}, ["y"], constants)
    monkeypatch.setattr(from_model, "TRIED", (7, 32, 64))
    with pytest.raises(ModelError) as told:
        signatures(model, {})
    found = str(told.value).partition("give its extents")[2]
    assert found == (f", as in {' '.join(options)}" if options else "")
    if options:
        signatures(model, extents_of(shlex.split(found)[4::2]))


def test_the_file_counts_every_run_and_is_the_same_for_all_archs(text_model, tmp_path, gensor_tune):
    texts, asked = set(), ("--input", "batch=1,2", "--input", "sequence=4,8")
    for arch in ("sm_75", "sm_87", "sm_90"):
        code, _, errors = gensor_tune("shapes", text_model, *asked, "--arch", arch, "-o", "{}/shapes.csv")
        assert code in (0, None), errors
        texts.add((tmp_path / "shapes.csv").read_text())
    (text,) = texts
    rows = list(csv.DictReader(text.splitlines()))
    products = {(row["m"], row["count"]) for row in rows if row["op"] == "matmul"}
    assert products == {("4", "1"), ("8", "2"), ("16", "1")}  # 2 x 4 and 1 x 8 are the same product
    assert {row["name"] for row in rows} == {"join", "project"}


def test_the_calls_of_a_rehearsal_are_those_of_a_run(file, tmp_path, needs_emulator):
    out, ran = tmp_path / "shapes.csv", tmp_path / "ran.csv"
    write(file, out, "sm_87", {"x": [(2, 3, 8, 8)]})
    with gensor_kernels.emulated("sm_87"), gensor_kernels.record(ran):
        loaded(file)[0](np.ones((2, 3, 8, 8), np.float32))
    both = [{(row.workload.key(), row.count) for row in read_shapes(path)} for path in (out, ran)]
    assert both[0] == both[1] and len(both[0]) == 2


def test_a_second_run_reads_no_model(file, tmp_path, monkeypatch):
    out, again = tmp_path / "shapes.csv", tmp_path / "again.csv"
    monkeypatch.setenv("GENSOR_CACHE_DIR", str(tmp_path / "cache"))
    asked = {"x": [(2, 3, 8, 8)]}
    model_cache.write(file, out, "sm_87", asked)
    monkeypatch.setattr(from_model, "write", lambda *_: pytest.fail("the model was read again"))
    model_cache.write(file, again, "sm_87", asked)
    assert again.read_text() == out.read_text()
    with pytest.raises(pytest.fail.Exception):
        model_cache.write(file, again, "sm_87", {"x": [(3, 3, 8, 8)]})
    file.write_bytes(file.read_bytes() + b"\x12\x01x")  # another producer name
    with pytest.raises(pytest.fail.Exception):
        model_cache.write(file, again, "sm_87", asked)


def test_layers_are_written_as_json_and_drawn(file, tmp_path, gensor_tune):
    pytest.importorskip("matplotlib")
    picture, lines = tmp_path / "net.png", tmp_path / "layers.jsonl"
    more = ("--emulate", "sm_87", "--input", "x=2x3x8x8", "--profile", "-o", picture, "--json", lines)
    code, out, errors = gensor_tune("run", file, *more)
    assert code in (0, None), errors
    *layers, total = map(json.loads, lines.read_text().splitlines())
    served = [each["operators"] for each in layers if each["kernels"]]
    assert served == [["Conv", "Relu"], ["MatMul"]] and ["Flatten"] in [each["operators"] for each in layers]
    assert layers[0]["shape"] == [2, 4, 6, 6] and layers[0]["predicted_us"] >= layers[0]["bound_us"] > 0
    assert all(each["measured_us"] is None for each in layers) and total["model"]["measured"] is False
    assert total["model"]["us"] == pytest.approx(sum(each["predicted_us"] or 0 for each in layers))
    band = sum(each["expected_low_us"] or 0 for each in layers), sum(each["expected_high_us"] or 0 for each in layers)
    assert (total["model"]["expected_low_us"], total["model"]["expected_high_us"]) == pytest.approx(band)
    assert f"(predicted; {span(*band)} expected by times on h100-sxm), the bound is" in out
    assert picture.read_bytes().startswith(b"\x89PNG") and len(picture.read_bytes()) > 5000
    code, _, errors = gensor_tune("run", file, "--emulate", "sm_87", "--input", "x=1,2x3x8x8")
    assert code == 2 and "a model is run at one" in errors
    code, _, errors = gensor_tune("run", file, "--emulate", "sm_87", "-o", picture)
    assert code == 2 and "--out goes with --profile" in errors


def test_every_layer_of_a_tuned_model_is_served_by_its_record(tmp_path, gensor_tune):
    """On a board with neither NVRTC nor g++, the database that a laptop made from the model serves all its calls."""
    pytest.importorskip("cupy")
    weights = {"w": np.ones((16, 8, 3, 3), np.float32), "v": np.ones((144, 8), np.float32)}
    nodes = [node("Conv", ["x", "w"], ["c"]), node("Relu", ["c"], ["r"])]
    nodes += [node("Flatten", ["r"], ["f"]), node("MatMul", ["f", "v"], ["m"]), node("Softmax", ["m"], ["y"])]
    file, site = tmp_path / "net.onnx", tmp_path / "site.db"
    onnx.save(proto(nodes, {"x": ("float32", ("n", 8, 5, 5))}, {"y": ("n", 8)}, weights), file)
    model = ("--model", file, "--input", "n=4")
    code, _, errors = gensor_tune("--arch", "sm_87", *model, "--db", site, "--budget", "300", "-q")
    assert code in (0, None), errors
    site.chmod(0o444)
    (tmp_path / "file").touch()
    nowhere = tmp_path / "file" / "nowhere"  # below a file nothing can be made, even by root
    command = [sys.executable, "-m", "tests.doubles.model_board", file, json.dumps({"x": [4, 8, 5, 5]})]
    environment = {
        **{"GENSOR_SITE_DB": str(site), "GENSOR_TUNE": "predicted", "GENSOR_CACHE_DIR": str(nowhere), "PATH": ""},
        "PYTHONPATH": os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]),
        "CUPY_CACHE_DIR": str(tmp_path),
    }
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    served = [each for each in found["layers"] if each["by"] != "array library"]
    assert [each["operators"] for each in served] == ["Conv + Relu", "MatMul", "Softmax"]
    assert {tier for each in served for tier in each["tiers"]} == {2}, found
    assert found["compiled"] == 0 and found["loads"] > 0
    # A profile repeats every layer, those of the array library too, and takes the median of the samples.
    assert {each["measured_us"] for each in found["layers"]} == {3.0}
    assert found["launches"] == 3 * len(served) and "12 µs measured" in found["printed"]
