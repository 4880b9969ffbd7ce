"""GPT-2, prompt and decoding, with every layer's element-wise operations fused into its matrix product.

    python examples/gpt2.py --weights model.safetensors --ids 464,3616,286,1204 --new 20    # on a GPU, through CuPy
    python examples/gpt2.py --emulate sm_87                                    # small random weights, without a GPU

Weights are read under the names of https://huggingface.co/openai-community/gpt2 (.safetensors, or the same arrays in an
.npz); without a file they are random. Ids are tokens: bring a tokenizer of your own, such as tiktoken's.
GENSOR_RECORD=gpt2.csv in front of the command writes the shapes that gensor-tune then tunes.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

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


class GPT2:
    """A model; `weights` are float16 arrays of CuPy, or of NumPy within `gensor_kernels.emulated`."""

    def __init__(self, weights: Mapping[str, Any], config: Config):
        self.weights, self.config = weights, config

    def cache(self, batch: int) -> Cache:
        """Return an empty cache with room for the keys and values of a whole context."""
        c, like = self.config, self.weights["wte.weight"]
        shape = (2, c.layers, batch, c.heads, c.context, c.width // c.heads)
        xp = np if isinstance(like, np.ndarray) else _cupy()
        return Cache(xp.zeros(shape, like.dtype))

    def __call__(self, ids: Any, cache: Cache) -> Any:
        """Return logits (batch, vocabulary) of the next token, after the cached tokens and `ids` (batch, new)."""
        w, c = self.weights, self.config
        begin, cache.seen = cache.seen, cache.seen + ids.shape[1]
        x = w["wte.weight"][ids] + w["wpe.weight"][begin : cache.seen]
        for layer in range(c.layers):
            x = self.attend(f"h.{layer}.", x, cache.layer(layer), begin)
            x = self.think(f"h.{layer}.", x)
        return gk.matmul(self.norm("ln_f", x[:, -1]), w["wte.weight"].T)

    def attend(self, name: str, x: Any, cache: tuple[Any, Any], begin: int) -> Any:
        """Compute attention and its residual; queries, keys and values are views of one product."""
        c, (batch, new, width) = self.config, x.shape
        projected = self.project(name + "attn.c_attn", self.norm(name + "ln_1", x))
        split = projected.reshape(batch, new, 3, c.heads, width // c.heads).transpose(2, 0, 3, 1, 4)
        for stored, fresh in zip(cache, split[1:], strict=True):
            stored[:, :, begin : begin + new] = fresh
        keys, values = (stored[:, :, : begin + new] for stored in cache)
        mixed = gk.attention(split[0], keys, values, causal=True).transpose(0, 2, 1, 3).reshape(x.shape)
        return self.project(name + "attn.c_proj", mixed, add=x)

    def think(self, name: str, x: Any) -> Any:
        """Compute the two layers after attention, and their residual."""
        hidden = self.project(name + "mlp.c_fc", self.norm(name + "ln_2", x), activation="gelu_tanh")
        return self.project(name + "mlp.c_proj", hidden, add=x)

    def project(self, name: str, x: Any, **more: Any) -> Any:
        """Compute x @ w + b; keywords in `more` fuse further operations into the same kernel."""
        return gk.matmul(x, self.weights[name + ".weight"], bias=self.weights[name + ".bias"], **more)

    def norm(self, name: str, x: Any) -> Any:
        """Normalise over the width."""
        return gk.layer_norm(x, x.shape[-1], self.weights[name + ".weight"], self.weights[name + ".bias"])

    def generate(self, ids: Any, new: int) -> Iterator[Any]:
        """Yield the likeliest next tokens (batch,), one after the other; the prompt is read once."""
        cache = self.cache(len(ids))
        for _ in range(new):
            ids = gk.argmax(self(ids, cache), axis=-1)[:, None]
            yield ids[:, 0]


class Cache:
    """Keys and values (2, layers, batch, heads, context, head) of the tokens seen so far."""

    def __init__(self, stored: Any):
        self.stored, self.seen = stored, 0

    def layer(self, number: int) -> tuple[Any, Any]:
        """Return the keys and values of one layer."""
        return self.stored[0, number], self.stored[1, number]


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


def drawn(config: Config, seed: int = 0) -> dict[str, np.ndarray]:
    """Draw random weights, float16."""
    rng = np.random.default_rng(seed)
    return {
        name: (rng.standard_normal(shape) * (0.1 if len(shape) > 1 else 0.3)).astype(np.float16)
        for name, shape in shapes(config).items()
    }


def load(path: str) -> dict[str, np.ndarray]:
    """Load the weights of a file, as float16."""
    if path.endswith(".npz"):
        arrays = dict(np.load(path))
    else:
        from safetensors.numpy import load_file

        arrays = load_file(path)
    return {name.removeprefix("transformer."): array.astype(np.float16) for name, array in arrays.items()}


def _cupy() -> Any:
    """Return CuPy; where it is missing or reaches no GPU, end with a sentence."""
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # of the import, of the driver
        reason = str(error).strip().partition("\n")[0]
        sys.exit(f"no GPU is reached ({reason}): use --emulate sm_87")
    return cupy


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--weights", help="a .safetensors or .npz file (default: random weights)")
    made.add_argument("--ids", default="1,2,3,4", help="the prompt's tokens (default %(default)s)")
    made.add_argument("--new", type=int, default=8, help="tokens to generate (default %(default)s)")
    made.add_argument("--emulate", metavar="ARCH", help="run on the emulator, a small model unless --weights is given")
    options = made.parse_args(arguments)
    xp = np if options.emulate else _cupy()
    config = SMALL if options.emulate and not options.weights else Config()
    weights, ids = load(options.weights) if options.weights else drawn(config), options.ids.split(",")
    with gk.emulated(options.emulate) if options.emulate else contextlib.nullcontext():
        model = GPT2({name: xp.asarray(array) for name, array in weights.items()}, config)
        began, found = time.perf_counter(), []
        for token in model.generate(xp.asarray([[int(each) for each in ids]]), options.new):
            found.append(int(token[0]))
            print(found[-1], end=" ", flush=True)
        print(f"\n{len(found)} tokens in {time.perf_counter() - began:.2f} s")


if __name__ == "__main__":
    main()
