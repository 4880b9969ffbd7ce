"""A small Llama: rotary embeddings, grouped queries, gates, RMS norms, and caches of keys and values on the device.

    python examples/llama.py --new 20                         # on a GPU, through CuPy
    python examples/llama.py --emulate sm_87                  # a smaller model, without a GPU

Weights are random, or those of --weights (.safetensors or .npz) under the names that `sizes` gives, (in, out) each. The
logits of the last token are compared with onnxruntime's in float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from common import INT64, Builder, compare, device, language_arguments, onnxruntime_results, print_tokens
from gpt2 import generate, load

import gensor_kernels as gk


@dataclass(frozen=True)
class Config:
    """Sizes of a model; the defaults are those of TinyLlama with two of its layers."""

    layers: int = 2
    heads: int = 32
    kv_heads: int = 4
    width: int = 2048
    hidden: int = 5632
    vocabulary: int = 32000
    context: int = 2048

    @property
    def head(self) -> int:
        """Elements of a head."""
        return self.width // self.heads


SMALL = Config(heads=4, kv_heads=2, width=64, hidden=96, vocabulary=96, context=24)


def rotations(config: Config) -> dict[str, np.ndarray]:
    """Return the cosines and sines of the angles of every position, (context, head / 2)."""
    half = config.head // 2
    angles = np.arange(config.context)[:, None] * 10_000.0 ** -(np.arange(half) / half)
    return {"cosines": np.cos(angles), "sines": np.sin(angles)}


def build(config: Config, weights: Mapping[str, np.ndarray] | None = None, dtype: str = "float16") -> onnx.ModelProto:
    """Return the model, with the inputs and results of gpt2.py; rows of the caches have kv_heads * head columns."""
    c = config
    add = Builder(dtype, {**(weights or {}), **rotations(c)})
    columns, half = c.kv_heads * c.head, c.head // 2
    cosines, sines = (add.weight(name, c.context, half) for name in ("cosines", "sines"))

    def project(name: str, x: str, rows: int, out: int) -> str:
        return add("MatMul", x, add.weight(name, rows, out, summed=rows))

    def norm(name: str, x: str) -> str:
        return add("RMSNormalization", x, add.weight(name, c.width, around=1.0), epsilon=1e-5)

    steps = add("Range", add.integer(0), add("Gather", add("Shape", "ids"), add.integer(1)), add.integer(1))
    places = add("Add", add("Unsqueeze", "position", add.integers(1)), steps)
    seen = add("Add", "position", add("Shape", "ids", start=1))
    x = add("Gather", add.weight("embedding", c.vocabulary, c.width, summed=1), "ids")
    for layer in range(c.layers):
        name = f"layers.{layer}."
        qkv = project(name + "qkv", norm(name + "norm_1", x), c.width, c.width + 2 * columns)
        # Queries and keys are next to each other, so that one rotation turns both.
        qk, v = add("Split", qkv, add.integers(c.width + columns, columns), results=2, axis=2)
        turned = add("RotaryEmbedding", qk, cosines, sines, places, num_heads=c.heads + c.kv_heads)
        q, k = add("Split", turned, add.integers(c.width, columns), results=2, axis=2)
        caches = [
            add("TensorScatter", f"{kind}.{layer}", each, "position", results=[f"{kind}.{layer}'"], axis=1)
            for kind, each in (("keys", k), ("values", v))
        ]
        heads = {"q_num_heads": c.heads, "kv_num_heads": c.kv_heads}
        mixed = add("Attention", q, *caches, "", "", "", seen, is_causal=1, **heads)
        x = add("Add", x, project(name + "out", mixed, c.width, c.width))
        normed = norm(name + "norm_2", x)
        gate = add("Swish", project(name + "gate", normed, c.width, c.hidden))
        gated = add("Mul", gate, project(name + "up", normed, c.width, c.hidden))
        x = add("Add", x, project(name + "down", gated, c.hidden, c.width))
    last = add("Gather", norm("norm", x), add.integer(-1), axis=1)
    add("MatMul", last, add.weight("head", c.width, c.vocabulary, summed=c.width), results=["logits"])
    cache = ("batch", c.context, columns)
    kept = [f"{kind}.{layer}" for layer in range(c.layers) for kind in ("keys", "values")]
    inputs = {"ids": (INT64, "batch", "new"), "position": (INT64, "batch"), **dict.fromkeys(kept, cache)}
    return add.model(inputs, {"logits": ("batch", c.vocabulary), **{f"{name}'": cache for name in kept}})


def reference(config: Config, weights: Mapping[str, np.ndarray] | None, ids: np.ndarray) -> np.ndarray:
    """Return the logits of the last token by onnxruntime, in float32."""
    empty = np.zeros((len(ids), config.context, config.kv_heads * config.head), np.float32)
    caches = {f"{kind}.{layer}": empty for layer in range(config.layers) for kind in ("keys", "values")}
    given = {"ids": ids, "position": np.zeros(len(ids), np.int64), **caches}
    return onnxruntime_results(build(config, weights, "float32"), given)[0]


def main(given: Sequence[str] | None = None) -> float:
    """Run the command; return the largest difference of logits."""
    options = language_arguments(__doc__, given, new=4)
    config = SMALL if options.emulate and not options.weights else Config()
    with device(options.emulate) as xp:
        weights = load(options.weights) if options.weights else None
        session = gk.load(build(config, weights)).session(batch=1)
        tokens = generate(session, xp.asarray(options.ids), options.new)
        ids, logits = print_tokens(xp, session, options.ids, tokens)
    return compare("logits", logits, reference(config, weights, ids[:, :-1]))


if __name__ == "__main__":
    main()
