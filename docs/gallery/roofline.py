# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # How the roofline explains a kernel
#
# The walk needs a prediction for every state, millions of times, without compiling. The potential is a roofline: a
# family counts the work of a Program (its *terms*), and the machine model says how long each resource takes. This page
# takes a prediction apart.

# %%
import matplotlib.pyplot as plt
import numpy as np

from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import lookup
from gensor_kernels.machine.roofline import arithmetic_peak, bound_us
from gensor_kernels.operators.products import matmul
from gensor_tuner.report.contents import shares
from gensor_tuner.search.walk import walk

arch = lookup("a100-80gb")
workload = matmul.workload(2048, 2048, 2048, dtype="float16")
space = Space(workload, arch)
program, seconds = walk(space, seed=1).best[0]
family = space.family(program.family)
point = family.point(program)

# %% [markdown]
# The terms of the best Program. Clocks are clocks of a streaming multiprocessor; bytes are bytes per thread block and
# iteration of the main loop.

# %%
for name, value in family.explain(point).items():
    print(f"{name:15} {value:,.4g}")

# %% [markdown]
# Where does the time go? Resources overlap, so the share of a resource is the time that it adds, averaged over every
# order of adding the resources (its Shapley value).

# %%
split = shares(family.terms(point[None]), arch)
figure, axes = plt.subplots(figsize=(8, 2.6), layout="constrained")
left = 0.0
for name, share in split.items():
    axes.barh(0, share, left=left, label=f"{name} {share:.0%}")
    left += share
axes.set(yticks=[], xlabel=f"share of {seconds * 1e6:.1f} µs (predicted)", xlim=(0, 1))
figure.legend(ncols=4, loc="outside lower center")
plt.show()

# %% [markdown]
# Each line shows the effect of one coordinate while the rest stays. Values that would not fit into shared memory or
# registers are not legal, and are missing from the lines.

# %%
names = ("block_m", "block_n", "block_k", "warp_m", "warp_n", "stages")
figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
for coordinate in (c for c in family.coordinates if c.name in names):
    place = [c.name for c in family.coordinates].index(coordinate.name)
    line = []
    for index, value in enumerate(coordinate.values):
        moved = np.array(point)
        moved[place] = index
        if family.legal(moved[None])[0]:
            line.append((value, float(family.potential(moved[None])[0]) * 1e6))
    if len(line) > 1:
        axes.plot(*zip(*line, strict=True), "o-", label=coordinate.name)
axes.set(xscale="log", yscale="log", xlabel="value of the coordinate", ylabel="predicted time (µs)")
axes.legend()
plt.show()

# %% [markdown]
# The classic picture: the rate of the best kernel against the arithmetic intensity, from products that read much to
# products that compute much. Every mark is a prediction; the lines are the limits of the data sheet.

# %%
sizes = [(16, 4096, 4096), (64, 4096, 4096), (256, 4096, 4096), (1024, 4096, 4096), (4096, 4096, 4096)]
peak, bandwidth = arithmetic_peak(workload, arch), arch.dram_gb_s * 1e9
figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
intensity = np.logspace(0, 4, 50)
axes.loglog(intensity, np.minimum(peak, bandwidth * intensity), "k-", label="roofline")
for m, n, k in sizes:
    product = matmul.workload(m, n, k, dtype="float16")
    best = walk(Space(product, arch), seed=1, budget=2000).best[0][1]
    assert best * 1e6 >= 0.99 * bound_us(product, arch)
    axes.plot(product.flops() / product.bytes_moved(), product.flops() / best, "o", label=f"{m} x {n} x {k}")
axes.set(xlabel="FLOP per byte of DRAM", ylabel="FLOP/s (predicted)")
axes.legend()
plt.show()
