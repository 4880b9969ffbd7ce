# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # A model, layer by layer
#
# This page writes a block of a transformer with the functions of the package. The block runs without a GPU on small
# sizes, its calls are recorded as a shapes file, and the same layers at full size are predicted for a Jetson Orin Nano
# and for an H100.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import gensor_kernels as gk
from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import lookup
from gensor_kernels.machine.roofline import bound_us
from gensor_tuner.search.walk import walk
from gensor_tuner.shapes.reader import read_shapes

# %% [markdown]
# Biases, activations and residuals are arguments of the products: no further launch, no trip through memory.

# %%


def block(x, weights, heads):
    """Return the output of a pre-norm transformer block for `x` (tokens, width)."""
    tokens, width = x.shape
    h = gk.layer_norm(x, width, weights["norm1"])
    qkv = gk.linear(h, weights["qkv"]).reshape(1, tokens, 3, heads, width // heads)
    q, k, v = (qkv[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
    mixed = gk.attention(q, k, v, causal=True).transpose(0, 2, 1, 3).reshape(tokens, width)
    x = gk.matmul(mixed, weights["out"].T, add=x)
    h = gk.layer_norm(x, width, weights["norm2"])
    h = gk.linear(h, weights["up"], activation="gelu_tanh")
    return gk.matmul(h, weights["down"].T, add=x)


def weights(width, rng):
    """Return random weights of a block."""
    shapes = {"norm1": (width,), "qkv": (3 * width, width), "out": (width, width), "norm2": (width,)}
    shapes |= {"up": (4 * width, width), "down": (width, 4 * width)}
    return {name: (rng.standard_normal(shape) * width**-0.5).astype(np.float16) for name, shape in shapes.items()}


rng = np.random.default_rng(0)
SHAPES = Path(gk.__file__).parents[1] / "examples" / "common_shapes.csv"  # of a clone
x, small = rng.standard_normal((32, 128)).astype(np.float16), weights(128, rng)
recorded = Path(tempfile.mkdtemp()) / "block.csv"
with gk.emulated("sm_87"), gk.record(recorded):
    y = block(x, small, heads=2)
print(y.shape, y.dtype, f"mean {float(y.mean()):+.3f}, deviation {float(y.std()):.3f}")
assert np.isfinite(y.astype(np.float32)).all()

# %% [markdown]
# The recording is a file for `gensor-tune --shapes`. It names every call with its sizes, dtypes and strides.

# %%
print("\n".join(line[:110] for line in recorded.read_text().splitlines()[:9]))

# %% [markdown]
# At full size: the layers of GPT-2 as the shipped list of common shapes has them, a prompt of 1,024 tokens and one step
# of decoding after it. The list also has the three calls that fused attention replaces; they are left out here.
# `count` says how often a layer occurs per step. The walk predicts every layer on two machines, with a small budget;
# `gensor-tune` takes more time, compiles, verifies and stores.

# %%
REPLACED = ("attn_qk", "attn_softmax", "attn_pv")
rows = {
    phase: [
        row
        for row in read_shapes(SHAPES)
        if row.name.startswith(f"gpt2_small_{phase}_b1_") and not row.name.endswith(REPLACED)
    ]
    for phase in ("prefill1024", "decode1024")
}
parts = ("orin-nano-8gb", "h100-sxm")
figure, grid = plt.subplots(2, 2, figsize=(10, 6), layout="constrained", sharey="row")
for down, (phase, layers) in enumerate(rows.items()):
    names = [row.name.split("_b1_")[1] for row in layers]
    for across, part in enumerate(parts):
        arch, axes = lookup(part), grid[down][across]
        best = [walk(Space(row.workload, arch), seed=1, budget=400).best[0][1] * 1e6 for row in layers]
        bounds = [bound_us(row.workload, arch) for row in layers]
        counts = [row.count for row in layers]
        axes.barh(names, [us * n for us, n in zip(best, counts, strict=True)], label="predicted")
        axes.barh(
            names, [us * n for us, n in zip(bounds, counts, strict=True)], height=0.3, label="no kernel is faster"
        )
        axes.set(title=f"{phase} on {part}", xlabel="µs per step")
        total, least = (sum(us * n for us, n in zip(times, counts, strict=True)) for times in (best, bounds))
        print(f"{phase:12} {part:14} {total / 1e3:8.2f} ms predicted, {total / least:.2f} times the bound")
grid[0][0].legend(loc="lower right")
plt.show()

# %% [markdown]
# The list for `gensor-tune` is a file of rows like the recorded ones:
#
# ```sh
# gensor-tune --arch sm_87 --shapes block.csv --budget 60
# gensor-tune report -o report.html
# ```
