# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Tracking regressions
#
# For anyone who wants to know whether a kernel became slower, or the machine. `gensor-tune check` compares runs of
# pytest-benchmark with earlier runs; the vendor's time in the same run is the control
# ([the statistic](../regressions.md)). The runs here are drawn: a kernel of 100 us and a vendor's call of 80 us,
# both with one per cent of noise.

# %%
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

rng, here = np.random.default_rng(0), Path(tempfile.mkdtemp())


def run(folder: str, day: int, ours: float = 1.0) -> tuple[float, float]:
    """Write one run, as `pytest --benchmark-json` does; `ours` is how much longer the kernel takes."""
    kernel, vendor = (float(us * np.exp(rng.normal(0, 0.01))) for us in (100 * ours, 80))
    benchmark = {
        "fullname": "bench_projection",
        "stats": {"median": kernel / 1e6},
        "extra_info": {"vendor_us": {"cupy": vendor}},
    }
    made = {
        "machine_info": {"gpu": {"name": "Orin Nano"}},
        "datetime": f"2026-01-{day:02}T12:00:00+00:00",
        "benchmarks": [benchmark],
    }
    (here / folder).mkdir(exist_ok=True)
    (here / folder / f"{day:02}.json").write_text(json.dumps(made))
    return kernel, vendor


def check(results: str) -> int:
    """Compare with the baseline; 1 means that a kernel of ours became slower."""
    gensor_tune = Path(sys.executable).with_name("gensor-tune")
    command = [gensor_tune, "check", "--baseline", "before", "--results", results]
    done = subprocess.run(command, cwd=here, capture_output=True, text=True)
    print(done.stdout + done.stderr)
    return done.returncode


# %% [markdown]
# Twenty runs before a change, five after it that change nothing, and five in which the kernel takes a fifth longer.

# %%
before = [run("before", day) for day in range(1, 21)]
same = [run("same", day) for day in range(21, 26)]
slower = [run("slower", day, ours=1.2) for day in range(26, 31)]

figure, axes = plt.subplots(figsize=(8, 3))
for name, column in (("kernel", 0), ("vendor", 1)):
    axes.plot(range(1, 31), [times[column] for times in (*before, *same, *slower)], "o-", markersize=3, label=name)
axes.set_xlabel("day")
axes.set_ylabel("us")
axes.legend()
figure.tight_layout()
plt.show()

# %%
assert check("same") == 0

# %%
assert check("slower") == 1

# %% [markdown]
# In CI, `--junit` writes the verdicts as a test report. The page [tracking regressions](../regressions.md) has the
# error rates of this test with noisy and drifting controls.
