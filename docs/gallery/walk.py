# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Tune a product and look at its walk
#
# A tensor program is a state, a scheduling primitive is an edge, and a Markov chain walks from state to state
# ([Gensor](https://arxiv.org/abs/2502.11407)). This page walks the construction graph of one product for a Jetson Orin
# Nano, draws the walk, and runs the kernel without a GPU. All times are predictions of the roofline model.

# %%
import math
from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np

import gensor_kernels
from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import lookup
from gensor_kernels.machine.roofline import bound_us
from gensor_kernels.operators.products import matmul
from gensor_tuner.search.trace import visited
from gensor_tuner.search.walk import walk

arch = lookup("orin-nano-8gb")
workload = matmul.workload(512, 3072, 768, dtype="float16")
space = Space(workload, arch)
print(f"{workload.flops() / 1e9:.1f} GFLOP; no kernel can be faster than {bound_us(workload, arch):.0f} µs")
for family in space.families:
    print(f"{family.family.name:18} {len(family.coordinates):2} coordinates, {family.size:,} lattice points")

# %% [markdown]
# The lattice is far too large to enumerate. A walk evaluates a few thousand points of it: 64 chains draw their next
# action with a probability that grows with its benefit, the logarithm of the predicted time before over after.

# %%
found = walk(space, seed=7)
program, seconds = found.best[0]
print(f"{found.evaluations:,} Programs evaluated in {found.steps:,} steps")
print(f"best: {program.family}, predicted {seconds * 1e6:.1f} µs")
print({name: value for name, value in program.values if value not in (0, 1)})

# %% [markdown]
# The result carries its trail: the actions from a start to the best Program. A database record holds the same actions
# as text, and they can be followed again. `block_m`, `block_n` and `block_k` are the tile of a thread block, `stages`
# is the depth of its shared-memory ring.

# %%
times, actions = [], []
for family, action, point in visited(space, found.trails[0]):
    times.append(float(family.potential(point[None])[0]) * 1e6)
    actions.append(action or "start")
benefits = [math.log(before / after) for before, after in pairwise(times)]
assert math.isclose(times[-1], seconds * 1e6, rel_tol=1e-5)

figure, (above, below) = plt.subplots(2, 1, figsize=(8, 6), sharex=True, height_ratios=(2, 1), layout="constrained")
above.semilogy(times, "o-")
above.axhline(bound_us(workload, arch), ls="--", color="grey", label="no kernel can be faster")
above.set_ylabel("predicted time (µs)")
above.legend()
below.bar(range(1, len(times)), benefits, color=["tab:blue" if g >= 0 else "tab:red" for g in benefits])
below.set_ylabel("benefit g")
below.set_xticks(range(len(times)), actions, rotation=90, fontsize=7)
plt.show()

# %% [markdown]
# A walk is random, and equal seeds give equal walks. Four seeds show how much the result depends on chance.

# %%
results = [walk(space, seed=seed).best[0][1] * 1e6 for seed in range(4)]
print("best of four walks:", ", ".join(f"{us:.1f}" for us in sorted(results)), "µs")
assert max(results) < 1.25 * min(results)

# %% [markdown]
# `gensor_kernels.matmul` finds a kernel for the same product by itself. Inside `emulated` the kernel's source runs on
# the CPU, thread by thread, so that its result can be compared here.

# %%
rng = np.random.default_rng(0)
a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((24, 768), (768, 40)))
with gensor_kernels.emulated("orin-nano-8gb"):
    c = gensor_kernels.matmul(a, b)
    explanation = gensor_kernels.explain(gensor_kernels.matmul, a, b)
error = np.abs(c - a.astype(np.float64) @ b.astype(np.float64)).max()
print(f"largest error {error:.4f} of values up to {np.abs(c).max():.0f}")
assert error < 0.1
explanation
