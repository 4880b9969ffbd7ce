"""Kernel Tuner's own search strategies on a measured space, in its simulation mode; an optional comparison."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gensor_kernels.install import command

from .measured_space import Space, kernel_of

#: One strategy of each kind: those that Kernel Tuner's publications recommend, and the classics.
STRATEGIES = ("genetic_algorithm", "greedy_ils", "diff_evo", "simulated_annealing", "random_sample")
RUNS = 32  # runs of a configuration behind its published time


def missing() -> str | None:
    """Return why Kernel Tuner cannot be used; None where it can."""
    try:
        import kernel_tuner  # noqa: F401
    except ImportError:
        return f"Kernel Tuner is not installed and is left out: {command('compare')}"
    return None


class Simulator:
    """A measured space as a cache file of Kernel Tuner; a context manager that owns the file."""

    def __init__(self, space: Space):
        self.axes = kernel_of(space.columns).NAMES
        rows = np.stack([space.columns[name] for name in self.axes], axis=1).tolist()
        self.values = {name: np.unique(space.columns[name]).tolist() for name in self.axes}
        self.times = {tuple(row): float(ms) for row, ms in zip(rows, space.time_ms, strict=True)}
        self._folder = tempfile.TemporaryDirectory()
        self._cache = Path(self._folder.name) / "cache.json"

    def __enter__(self) -> Simulator:
        free = {"compile_time": 0.0, "verification_time": 0, "strategy_time": 0, "framework_time": 0}
        cache = {
            ",".join(map(str, row)): dict(zip(self.axes, row, strict=True))
            | {"time": ms, "times": [ms], "benchmark_time": RUNS * ms, "timestamp": "2026-01-01T00:00:00+00:00"}
            | free
            for row, ms in self.times.items()
        }
        head = {"device_name": "replayed", "kernel_name": "Xgemm", "problem_size": 4096, "objective": "time"}
        keys = {"tune_params_keys": list(self.axes), "tune_params": self.values}
        self._cache.write_text(json.dumps(head | keys | {"cache": cache}), encoding="utf-8")
        return self

    def __exit__(self, *reason: object) -> None:
        self._folder.cleanup()

    def search(self, strategy: str, evaluations: int, seed: int) -> tuple[np.ndarray, float]:
        """Return (milliseconds of the configurations in the order of evaluation, CPU seconds of the strategy)."""
        from kernel_tuner import tune_kernel

        random.seed(seed)
        np.random.seed(seed)
        began = time.process_time()
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.chdir(self._folder.name) if hasattr(contextlib, "chdir") else contextlib.nullcontext(),
        ):
            results, _ = tune_kernel(
                "Xgemm",
                "__global__ void Xgemm() {}",
                4096,
                [],
                self.values,
                restrictions=self._allowed,
                strategy=strategy,
                strategy_options={"max_fevals": evaluations},
                simulation_mode=True,
                cache=os.fspath(self._cache),
                quiet=True,
            )
        took = time.process_time() - began
        return np.array([self.times[self._key(each)] for each in results[:evaluations]]), took

    def _key(self, row: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(int(row[name]) for name in self.axes)

    def _allowed(self, row: Mapping[str, int]) -> bool:
        return self._key(row) in self.times
