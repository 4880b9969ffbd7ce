"""BERT: sentences of different lengths in a batch, masked where they are padded.

    python examples/bert.py --model bert.onnx          # on a GPU, through CuPy
    python examples/bert.py --emulate sm_87            # a small model with random weights, without a GPU

A file has the inputs input_ids, attention_mask and token_type_ids, as Hugging Face's exporter writes it
(optimum-cli export onnx --model bert-base-uncased bert). Without a file, weights are random. Results are compared with
onnxruntime's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from common import INT64, Builder, check
from onnx import TensorProto


@dataclass(frozen=True)
class Config:
    """Sizes of a model; the defaults are BERT-base."""

    layers: int = 12
    heads: int = 12
    width: int = 768
    vocabulary: int = 30522
    context: int = 512


SMALL = Config(layers=2, heads=2, width=64, vocabulary=96, context=32)


def build(config: Config, dtype: str = "float32") -> onnx.ModelProto:
    """Return the model: hidden states (batch, tokens, width), and the pooled first ones (batch, width)."""
    c, add = config, Builder(dtype)

    def project(name: str, x: str, rows: int, out: int) -> str:
        product = add("MatMul", x, add.weight(name + ".weight", rows, out, summed=rows))
        return add("Add", product, add.weight(name + ".bias", out))

    def norm(name: str, x: str, **more: Sequence[str]) -> str:
        parts = (add.weight(f"{name}.{part}", c.width, around=mean) for part, mean in (("weight", 1.0), ("bias", 0.0)))
        return add("LayerNormalization", x, *parts, epsilon=1e-12 if dtype == "float32" else 1e-6, **more)

    tokens = add("Gather", add("Shape", "input_ids"), add.integer(1))
    places = add("Range", add.integer(0), tokens, add.integer(1))
    x = add("Gather", add.weight("words", c.vocabulary, c.width), "input_ids")
    x = add("Add", x, add("Gather", add.weight("types", 2, c.width), "token_type_ids"))
    x = add("Add", x, add("Gather", add.weight("positions", c.context, c.width), places))
    x = norm("norm", x)
    keep = add("Unsqueeze", add("Cast", "attention_mask", to=TensorProto.BOOL), add.integers(1, 2))
    batch, count = (add("Shape", "input_ids", start=axis, end=axis + 1) for axis in (0, 1))
    keep = add(
        "Expand", keep, add("Concat", batch, add.integers(1), count, count, axis=0)
    )  # onnxruntime wants all rows
    for layer in range(c.layers):
        name, last = f"layers.{layer}.", layer == c.layers - 1
        qkv = project(name + "qkv", x, c.width, 3 * c.width)
        q, k, v = add("Split", qkv, results=3, axis=2, num_outputs=3)
        mixed = add("Attention", q, k, v, keep, q_num_heads=c.heads, kv_num_heads=c.heads)
        x = norm(name + "norm_1", add("Add", x, project(name + "out", mixed, c.width, c.width)))
        hidden = add("Gelu", project(name + "fc", x, c.width, 4 * c.width))
        projected = add("Add", x, project(name + "projection", hidden, 4 * c.width, c.width))
        x = norm(name + "norm_2", projected, **({"results": ["hidden"]} if last else {}))
    first = add("Gather", x, add.integer(0), axis=1)
    add("Tanh", project("pooler", first, c.width, c.width), results=["pooled"])
    ids = (INT64, "batch", "tokens")
    inputs = dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), ids)
    return add.model(inputs, {"hidden": ("batch", "tokens", c.width), "pooled": ("batch", c.width)})


def main(given: Sequence[str] | None = None) -> float:
    """Run the command; return the largest difference."""

    def sentences(small: bool) -> dict[str, np.ndarray]:
        """Two sentences, of 16 and of 11 tokens."""
        c, rng = SMALL if small else Config(), np.random.default_rng(1)
        keep = np.arange(16) < np.array([[16], [11]])
        ids = np.where(keep, rng.integers(1, c.vocabulary, keep.shape), 0)
        return {"input_ids": ids, "attention_mask": keep.astype(np.int64), "token_type_ids": np.zeros_like(ids)}

    return check(__doc__, given, lambda small, dtype: build(SMALL if small else Config(), dtype), sentences)


if __name__ == "__main__":
    main()
