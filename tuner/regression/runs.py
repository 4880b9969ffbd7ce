"""Readers for runs of benchmarks: JSON of pytest-benchmark, results.jsonl of `python -m benchmarks.device`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from gensor_kernels.errors import GensorError
from gensor_tuner.output import printable

JOURNAL = "results.jsonl"
#: Steps of benchmarks.device that time kernels and vendors.
TIMED_STEPS = ("timing", "models", "compiled")
#: Names used by nvidia-smi and benchmarks.device -> names for people.
CONDITIONS = {
    "driver_version": "driver",
    "cuda_driver": "CUDA driver",
    "clocks.sm": "SM clock, MHz",
    "clocks.mem": "memory clock, MHz",
    "clocks.max.sm": "largest SM clock, MHz",
    "power.limit": "power limit, W",
    "power_mode": "power mode",
    "cublas": "cuBLAS",
    "cupy": "CuPy",
    "torch": "PyTorch",
    "numpy": "NumPy",
    "python_version": "Python",
}


class UnusableError(GensorError):
    """Runs that cannot be read, or a place without any."""


@dataclass(frozen=True)
class Sample:
    """One benchmark in one run, in microseconds: ours, and controls by name (vendors' calls, or the machine's own)."""

    ours_us: float
    controls: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """One run: time (seconds since 1970), machine, conditions, and samples by name."""

    path: Path
    when: float
    machine: str
    conditions: Mapping[str, str]
    samples: Mapping[str, Sample]


def read(path: Path) -> list[Run]:
    """Return every run in a file or below a folder, oldest first; raise UnusableError where there is none."""
    if not path.exists():
        raise UnusableError(f"{path} does not exist")
    files = [path] if path.is_file() else sorted(each for each in path.rglob("*.json*") if each.is_file())
    runs = [run for each in files for run in _runs(each, asked=path.is_file())]
    if not runs:
        wanted = f"neither a JSON file of pytest-benchmark nor a {JOURNAL} of benchmarks.device"
        raise UnusableError(f"{path} has no run: {wanted}")
    return sorted(runs, key=lambda run: (run.when, str(run.path)))


def _runs(path: Path, asked: bool) -> Iterator[Run]:
    """Yield the run of one file; another kind of file is skipped unless it was `asked` for by name."""
    try:
        text = path.read_text(encoding="utf-8")
        run = _of_journal(path, text) if path.suffix == ".jsonl" else _of_pytest(path, json.loads(text))
    except OSError as error:
        raise UnusableError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        if asked:
            raise UnusableError(f"{path} is not a run of benchmarks: {printable(str(error), 120)}") from None
        return
    if run is not None:
        yield run
    elif asked:
        raise UnusableError(f"{path} holds no times")


def _of_pytest(path: Path, data: Any) -> Run | None:
    """Return the run in a --benchmark-json file of pytest-benchmark.

    A benchmark's `extra_info` may contain `vendor_us`, its controls by name; `control`, the name of another benchmark
    of the run that is its control; or `is_control`: true, which makes it the control of all benchmarks without one.
    """
    entries = {str(each["fullname"]): each for each in data["benchmarks"]}
    times = {name: us for name, each in entries.items() if (us := _positive(each["stats"]["median"] * 1e6))}
    machines = {name: times[name] for name, each in entries.items() if _info(each).get("is_control") and name in times}
    samples = {}
    for name, us in times.items():
        info = _info(entries[name])
        if name in machines:
            continue
        controls = _times(info.get("vendor_us"))
        named = [each for each in times if info.get("control") in (each, entries[each].get("name"))]
        controls |= {each: times[each] for each in named}
        samples[name] = Sample(us, controls or machines)
    info = data["machine_info"]
    gpu = info.get("gpu") or {}
    cpu = info.get("cpu") or {}
    machine = str(gpu.get("name") or f"{cpu.get('brand_raw') or info.get('machine')}, {cpu.get('count')} cores")
    when = datetime.fromisoformat(str(data["datetime"]).replace("Z", "+00:00")).timestamp()
    return Run(path, when, machine, _conditions({**info, **gpu}), samples) if samples else None


def _info(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    return entry.get("extra_info") or {}


def _of_journal(path: Path, text: str) -> Run | None:
    """Return the run in a journal of benchmarks.device; times of a rehearsal without a GPU are skipped."""
    ends = [event for line in text.splitlines() if (event := _event(line)).get("event") == "end"]
    facts: dict[str, Any] = {}
    for end in ends:
        facts = end if (end["step"], end["item"]) == ("facts", "environment") else facts
    samples = {}
    for end in ends:
        us = _positive(end.get("best_us"))
        if end["step"] in TIMED_STEPS and us and not end.get("emulated"):
            samples[f"{end['step']}: {end['item']}"] = Sample(us, _times(end.get("vendors_us")))
    if not samples:
        return None
    machine = f"{facts.get('gpu', 'unknown GPU')} ({facts.get('part', 'unknown part')})"
    when = max(float(end.get("at", 0.0)) for end in ends)
    return Run(path, when, machine, _conditions({**facts, **(facts.get("smi") or {})}), samples)


def _event(line: str) -> dict[str, Any]:
    """Return an event of the journal; {} for a line that a power failure cut short."""
    with suppress(ValueError):
        found = json.loads(line)
        return found if isinstance(found, dict) else {}
    return {}


def _positive(value: object) -> float | None:
    """Return a valid time, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) and value > 0 else None


def _times(found: Mapping[str, Any] | None) -> dict[str, float]:
    return {str(name): us for name, value in (found or {}).items() if (us := _positive(value))}


def _conditions(found: Mapping[str, Any]) -> dict[str, str]:
    """Return the conditions that explain a machine's times, as text."""
    return {said: printable(str(found[name]), 80) for name, said in CONDITIONS.items() if found.get(name)}
