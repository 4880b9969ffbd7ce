"""GPT-2 with caches of keys and values on the device: the prompt in one call, then one token per call.

    python examples/gpt2.py --weights model.safetensors --ids 464,3616,286,1204 --new 20    # on a GPU, through CuPy
    python examples/gpt2.py --emulate sm_87                                    # small random weights, without a GPU

Weights are read under the names of https://huggingface.co/openai-community/gpt2 (.safetensors, or the same arrays in an
.npz); without a file they are random. Ids are tokens: bring a tokenizer of your own, such as tiktoken's. The logits of
the last token are compared with onnxruntime's in float32. GENSOR_RECORD=gpt2.csv before the command writes the
shapes that gensor-tune then tunes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from common import INT64, Builder, compare, device, language_arguments, onnxruntime_results, print_tokens

import gensor_kernels as gk


@dataclass(frozen=True)
class Config:
    """Sizes of a model; the defaults are the smallest GPT-2."""

    layers: int = 12
    heads: int = 12
    width: int = 768
    vocabulary: int = 50257
    context: int = 1024


SMALL = Config(layers=2, heads=2, width=64, vocabulary=96, context=32)


def build(config: Config, weights: Mapping[str, np.ndarray], dtype: str = "float16") -> onnx.ModelProto:
    """Return the model: logits (batch, vocabulary) of the next token, after `ids` (batch, new) at `position` (batch,).

    Inputs `keys.N` and `values.N` (batch, context, width) are the caches of layer N, and so are results with an
    apostrophe. A call appends to them, and attends to their first position + new rows.
    """
    c, add = config, Builder(dtype, weights)
    sizes = shapes(config)

    def weight(name: str) -> str:
        return add.weight(name, *sizes[name])

    def project(name: str, x: str) -> str:
        return add("Add", add("MatMul", x, weight(name + ".weight")), weight(name + ".bias"))

    def norm(name: str, x: str) -> str:
        return add("LayerNormalization", x, weight(name + ".weight"), weight(name + ".bias"), epsilon=1e-5)

    steps = add("Range", add.integer(0), add("Gather", add("Shape", "ids"), add.integer(1)), add.integer(1))
    places = add("Add", add("Unsqueeze", "position", add.integers(1)), steps)
    seen = add("Add", "position", add("Shape", "ids", start=1))
    x = add("Add", add("Gather", weight("wte.weight"), "ids"), add("Gather", weight("wpe.weight"), places))
    for layer in range(c.layers):
        name = f"h.{layer}."
        qkv = project(name + "attn.c_attn", norm(name + "ln_1", x))
        q, *fresh = add("Split", qkv, results=3, axis=2, num_outputs=3)
        caches = [
            add("TensorScatter", f"{kind}.{layer}", each, "position", results=[f"{kind}.{layer}'"], axis=1)
            for kind, each in zip(("keys", "values"), fresh, strict=True)
        ]
        heads = {"q_num_heads": c.heads, "kv_num_heads": c.heads}
        mixed = add("Attention", q, *caches, "", "", "", seen, is_causal=1, **heads)
        x = add("Add", x, project(name + "attn.c_proj", mixed))
        hidden = add("Gelu", project(name + "mlp.c_fc", norm(name + "ln_2", x)), approximate="tanh")
        x = add("Add", x, project(name + "mlp.c_proj", hidden))
    last = add("Gather", norm("ln_f", x), add.integer(-1), axis=1)
    add("Gemm", last, weight("wte.weight"), results=["logits"], transB=1)
    cache = ("batch", c.context, c.width)
    kept = [f"{kind}.{layer}" for layer in range(c.layers) for kind in ("keys", "values")]
    inputs = {"ids": (INT64, "batch", "new"), "position": (INT64, "batch"), **dict.fromkeys(kept, cache)}
    return add.model(inputs, {"logits": ("batch", c.vocabulary), **{f"{name}'": cache for name in kept}})


def generate(session: Any, ids: Any, new: int) -> Iterator[tuple[Any, Any]]:
    """Yield the likeliest next tokens (batch,) and their logits, one after the other; the prompt is read once."""
    position = np.zeros(len(ids), np.int64)
    for _ in range(new):
        logits = session(ids, position)
        position = position + ids.shape[1]
        ids = gk.argmax(logits, axis=-1)[:, None]
        yield ids[:, 0], logits


def shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of a model's weights."""
    w = config.width
    vectors = {"ln_1.weight": w, "ln_1.bias": w, "ln_2.weight": w, "ln_2.bias": w}
    layers = {"attn.c_attn": (w, 3 * w), "attn.c_proj": (w, w), "mlp.c_fc": (w, 4 * w), "mlp.c_proj": (4 * w, w)}
    found: dict[str, tuple[int, ...]] = {"wte.weight": (config.vocabulary, w), "wpe.weight": (config.context, w)}
    for layer in range(config.layers):
        found |= {f"h.{layer}.{name}": (extent,) for name, extent in vectors.items()}
        found |= {f"h.{layer}.{name}.weight": shape for name, shape in layers.items()}
        found |= {f"h.{layer}.{name}.bias": shape[1:] for name, shape in layers.items()}
    return found | {"ln_f.weight": (w,), "ln_f.bias": (w,)}


def draw(config: Config, seed: int = 0) -> dict[str, np.ndarray]:
    """Draw random weights, float16."""
    rng = np.random.default_rng(seed)
    return {
        name: (rng.standard_normal(shape) * (0.1 if len(shape) > 1 else 0.3)).astype(np.float16)
        for name, shape in shapes(config).items()
    }


def load(path: str) -> dict[str, np.ndarray]:
    """Load the weights of a file."""
    if path.endswith(".npz"):
        arrays = dict(np.load(path))
    else:
        from safetensors.numpy import load_file

        arrays = load_file(path)
    return {name.removeprefix("transformer."): array for name, array in arrays.items()}


def reference(config: Config, weights: Mapping[str, np.ndarray], ids: np.ndarray) -> np.ndarray:
    """Return the logits of the last token by onnxruntime, in float32."""
    model = build(config, weights, "float32")
    caches = {each.name for each in model.graph.input} - {"ids", "position"}
    empty = np.zeros((len(ids), config.context, config.width), np.float32)
    given = {"ids": ids, "position": np.zeros(len(ids), np.int64), **dict.fromkeys(caches, empty)}
    return onnxruntime_results(model, given)[0]


def main(given: Sequence[str] | None = None) -> None:
    """Run the command."""
    options = language_arguments(__doc__, given, new=8)
    config = SMALL if options.emulate and not options.weights else Config()
    with device(options.emulate) as xp:
        weights = load(options.weights) if options.weights else draw(config)
        session = gk.load(build(config, weights)).session(batch=1)
        tokens = generate(session, xp.asarray(options.ids), options.new)
        ids, logits = print_tokens(xp, session, options.ids, tokens)
    compare("logits", logits, reference(config, weights, ids[:, :-1]))


if __name__ == "__main__":
    main()
