"""The machine's own speed, measured by work without our code. `gensor-tune check` divides by it.

pytest benchmarks/bench_control.py
"""

import numpy as np


def test_control(benchmark):
    """Interpreter, arithmetic and memory in about the same shares as in the other benchmarks."""
    values = np.random.default_rng(0).standard_normal(20_000)

    def work():
        table = {number: str(number) for number in range(3_000)}
        total = sum(len(text) for text in table.values())
        return total + float(np.sort(values * values)[1_000] + np.log1p(np.abs(values)).sum())

    benchmark.extra_info["is_control"] = True
    benchmark(work)
