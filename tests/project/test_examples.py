"""The example models against onnxruntime, and GPT-2 against the same layers in NumPy, in float64.

Layers that are rounded to float16 one by one have an error of float16 itself: the models may have twice that.
"""

import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import gensor_kernels as gk
from tests.conftest import why_no_gpu

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAMES = ["bert", "gpt2", "llama", "resnet50"]


@pytest.fixture(autouse=True)
def _in_their_folder(monkeypatch):
    """Examples import common.py of their folder."""
    monkeypatch.syspath_prepend(EXAMPLES)


def example(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


def round_half(x):
    return x.astype(np.float16).astype(np.float64)


def assert_near(found, reference):
    """`reference` computes the result with a rounding after every layer."""
    wanted = reference(np.asarray)
    allowed = 2 * np.abs(reference(round_half) - wanted).max()
    assert 0 < allowed < 0.1 * np.abs(wanted).max()
    assert np.abs(found.astype(np.float64) - wanted).max() <= allowed


def gpt2_logits(weights, config, ids, rounded):
    """All logits (batch, tokens, vocabulary), without a cache."""
    w = {name: array.astype(np.float64) for name, array in weights.items()}
    batch, tokens = ids.shape

    def project(name, x):
        return x @ w[name + ".weight"] + w[name + ".bias"]

    def norm(name, x):
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        return rounded(scaled * w[name + ".weight"] + w[name + ".bias"])

    x = rounded(w["wte.weight"][ids] + w["wpe.weight"][:tokens])
    seen = np.tri(tokens, dtype=bool)
    for layer in range(config.layers):
        name = f"h.{layer}."
        qkv = rounded(project(name + "attn.c_attn", norm(name + "ln_1", x)))
        q, k, v = qkv.reshape(batch, tokens, 3, config.heads, -1).transpose(2, 0, 3, 1, 4)
        scores = np.where(seen, q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]), -np.inf)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = rounded(shares / shares.sum(-1, keepdims=True) @ v)
        x = rounded(x + project(name + "attn.c_proj", mixed.transpose(0, 2, 1, 3).reshape(x.shape)))
        hidden = project(name + "mlp.c_fc", norm(name + "ln_2", x))
        hidden = rounded(0.5 * hidden * (1 + np.tanh(np.sqrt(2 / np.pi) * (hidden + 0.044715 * hidden**3))))
        x = rounded(x + project(name + "mlp.c_proj", hidden))
    return rounded(norm("ln_f", x) @ w["wte.weight"].T)


def test_gpt2_reads_a_prompt_and_decodes():
    """Calls are captured from the third token on."""
    gpt2 = example("gpt2")
    weights, ids = gpt2.draw(gpt2.SMALL), np.random.default_rng(1).integers(0, gpt2.SMALL.vocabulary, (2, 9))
    with gk.emulated("sm_87"):
        session = gk.load(gpt2.build(gpt2.SMALL, weights)).session(batch=2)
        found = {3: session(ids[:, :4], np.zeros(2, np.int64))}
        for place in range(4, 9):
            found[place] = session(ids[:, place : place + 1], np.full(2, place))
        layers = session.explain(ids[:, 8:], np.full(2, 8))
    for last, logits in found.items():
        assert_near(logits, lambda rounded, last=last: gpt2_logits(weights, gpt2.SMALL, ids, rounded)[:, last])
    kernels = sum(len(layer.served) for layer in layers)
    assert kernels <= gpt2.SMALL.layers * 7 + 3  # fewer where a product computes the next norm
    stored = [layer.operators for layer in layers if layer.operators.startswith("MatMulAppend")]
    assert len(stored) == gpt2.SMALL.layers
    library = {layer.operators for layer in layers if not layer.served}
    assert library == {"Add", "Cast", "Gather", "NewestRows", "Unsqueeze"}  # of integers on the host, and embeddings


def test_the_gpt2_command_generates(capsys):
    gpt2 = example("gpt2")
    gpt2.main(["--emulate", "sm_87", "--ids", "3,1,2", "--new", "2"])
    tokens, summary, *_, compared = capsys.readouterr().out.splitlines()
    assert summary.startswith("2 tokens in ")
    assert compared.startswith("logits: the largest difference from onnxruntime is ") and "e-04 of" in compared
    ids = np.array([[3, 1, 2]])
    for token in map(int, tokens.split()):  # the likeliest, within the precision of float16
        logits = gpt2_logits(gpt2.draw(gpt2.SMALL), gpt2.SMALL, ids, np.asarray)[0, -1]
        assert logits[token] > logits.max() - 0.01 * np.abs(logits).max()
        ids = np.append(ids, [[token]], 1)


def test_models_have_the_parameters_of_the_originals():
    """Without the statistics of batch norms."""
    wanted = {"resnet50": 25_557_032, "bert": 109_482_240}  # of torchvision, and of google-bert/bert-base-uncased
    for name, parameters in wanted.items():
        module = example(name)
        weights = {
            each.name: int(np.prod(each.dims))
            for each in module.build(module.Config(), "float16").graph.initializer
            if each.data_type == onnx.TensorProto.FLOAT16 and "running" not in each.name and len(each.dims)
        }
        assert sum(weights.values()) == parameters, name
    gpt2 = example("gpt2")
    assert sum(np.prod(shape) for shape in gpt2.shapes(gpt2.Config()).values()) == 124_439_808  # openai-community/gpt2


@pytest.mark.parametrize("name", [name for name in NAMES if name != "gpt2"])
def test_an_example_agrees_with_onnxruntime(name, capsys):
    """Within a few roundings to float16 of the largest value; every layer that computes has a kernel."""
    assert example(name).main(["--emulate", "sm_87"]) < 5e-3
    out = capsys.readouterr().out
    assert "the largest difference from onnxruntime is" in out and "served by" in out
    computing = ("Conv ", "MatMul", "Gemm", "Attention", "Norm", "Pool", "Rotary ")
    for line in out.splitlines():
        if "array library" in line:
            assert not re.split(r"\s{2,}", f"{line} ")[1].startswith(computing), line


def test_an_example_reads_a_file(tmp_path):
    resnet50, bert = example("resnet50"), example("bert")
    onnx.save(resnet50.build(resnet50.SMALL, "float16"), tmp_path / "resnet50.onnx")
    with pytest.raises(ValueError, match=r"input 'images' has shape \(1, 3, 224, 224\), the model takes"):
        resnet50.main(["--emulate", "sm_87", "--model", str(tmp_path / "resnet50.onnx")])
    onnx.save(bert.build(bert.Config(layers=1, heads=2, width=64), "float16"), tmp_path / "bert.onnx")
    assert bert.main(["--emulate", "sm_87", "--model", str(tmp_path / "bert.onnx")]) < 5e-3


def test_missing_software_is_named(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "onnxruntime", None)
        with pytest.raises(SystemExit, match=r"which is missing: pip install onnxruntime$"):
            example("bert").main(["--emulate", "sm_87"])
    for installed in (True, False) if why_no_gpu() is not None else ():
        if not installed:
            monkeypatch.setitem(sys.modules, "cupy", None)
        for name in NAMES:
            with pytest.raises(SystemExit, match=r"^no GPU is reached \(.{5,150}\): use --emulate sm_87$"):
                example(name).main([])
