"""Files that a call passes through: `python -m benchmarks.call_path`.

Traces three calls and counts the project's files whose functions run, and the moves between files (calls and returns).
Imports do not count: an earlier call has imported the modules, and the bodies of modules are left out.

    cold-matmul     first call of a shape on the emulator: its class is served, its kernel is not loaded yet
    warm-matmul     repeated call on CuPy arrays into `out` (no GPU: stub device, fake allocator)
    row             one row of a shapes file through the tuner
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from unittest import mock

import numpy as np

import gensor_kernels
from gensor_database.store import Store
from gensor_kernels.dispatch.plans.trial import HOT_RUN
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul
from gensor_tuner.run.class_run import Options
from gensor_tuner.run.tune import Run
from gensor_tuner.shapes.reader import read_shapes

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("database", "gensor_kernels", "tuner")
ARCH = "sm_87"


class Trace:
    """Records the files of all functions that run within it, in this and in new threads, and this thread's moves."""

    def __init__(self, root: Path = ROOT, folders: Sequence[str] = FOLDERS):
        self.files: set[str] = set()
        self.moves = 0
        self._root, self._folders = root, folders
        self._last: str | None = None
        self._names: dict[str, str | None] = {}
        self._thread = threading.get_ident()
        self._importing = threading.local()  # depth: the number of module bodies on the stack

    def __enter__(self) -> Trace:
        gc.collect()  # finalizers of earlier calls would run within this one
        threading.setprofile(self._event)
        sys.setprofile(self._event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _event(self, frame: FrameType, event: str, _: object) -> None:
        if event not in ("call", "return"):
            return
        depth = getattr(self._importing, "depth", 0)
        if frame.f_code.co_name == "<module>":
            self._importing.depth = depth + (1 if event == "call" else -1)
        elif depth == 0 and (name := self._name(frame)) is not None:
            self._visit(name if event == "call" else self._caller(frame))

    def _visit(self, name: str | None) -> None:
        if name is None:
            return
        self.files.add(name)
        if threading.get_ident() == self._thread:
            self.moves += self._last is not None and name != self._last
            self._last = name

    def _caller(self, frame: FrameType) -> str | None:
        """Return the file of the nearest function of the project below `frame` on the stack."""
        above = frame.f_back
        while above is not None and self._name(above) is None:
            above = above.f_back
        return self._name(above) if above is not None else None

    def _name(self, frame: FrameType) -> str | None:
        """Return the path of the function's file in the project, or None for other code."""
        name = frame.f_code.co_filename
        if name not in self._names:
            path = Path(name).resolve()
            inside = any(path.is_relative_to(self._root / folder) for folder in self._folders)
            self._names[name] = path.relative_to(self._root).as_posix() if inside else None
        return self._names[name]


def cold_matmul() -> Trace:
    """Trace the first call of a large float16 product, after a small product."""

    def operands(side: int) -> tuple[np.ndarray, np.ndarray]:
        return tuple(np.random.default_rng(0).standard_normal((2, side, side)).astype(np.float16))

    with gensor_kernels.emulated(ARCH):
        gensor_kernels.matmul(*operands(64))
        a, b = operands(512)
        with Trace() as trace:
            gensor_kernels.matmul(a, b)
    return trace


def warm_matmul() -> Trace:
    """Trace a call into `out` at new addresses, after as many calls of its shapes as end their trial."""
    import cupy

    from .host.without_gpu import fake_allocator, starter_kernels, stub_runtime

    def operands() -> list[cupy.ndarray]:
        return [cupy.empty((512, 512), np.float16) for _ in range(3)]

    with fake_allocator(), stub_runtime(starter_kernels(matmul.workload(512, 512, 512))):
        for _ in range(HOT_RUN + 2):
            a, b, out = operands()
            gensor_kernels.matmul(a, b, out=out)
        a, b, out = operands()
        with Trace() as trace:
            gensor_kernels.matmul(a, b, out=out)
    return trace


def row() -> Trace:
    """Trace a row of float32, after a row of float16."""
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder, "rows.db")) as store:
        _tune(store, Path(folder, "first.csv"), "matmul,fp16,1024,1024,1024")
        with Trace() as trace:
            _tune(store, Path(folder, "second.csv"), "matmul,fp32,512,1024,2048")
    return trace


def _tune(store: Store, shapes: Path, text: str) -> None:
    shapes.write_text(f"op,dtype,m,n,k\n{text}\n", encoding="utf-8")
    ((_, result),) = Run(lookup(ARCH), store, Options(jobs=1)).rows(list(read_shapes(shapes)))
    if result.status != "ok":
        raise SystemExit(f"benchmarks.call_path: {text}: {result.error}")


CASES: dict[str, Callable[[], Trace]] = {"cold-matmul": cold_matmul, "warm-matmul": warm_matmul, "row": row}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.call_path", description=__doc__.splitlines()[0])
    made.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), help="calls to trace (default: all)")
    made.add_argument("--list", action="store_true", help="list the files of each call")
    options = made.parse_args(arguments)
    print(f"{'call':<14}{'files':>6}{'moves':>8}")
    traces = {}
    # Settings, databases and caches of the user would change the path.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GENSOR_")}
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, kept, clear=True):
        os.environ |= {"GENSOR_CACHE_DIR": folder, "GENSOR_DB": str(Path(folder, "user.db")), "GENSOR_BACKGROUND": "0"}
        for name in options.only:
            if name == "warm-matmul" and importlib.util.find_spec("cupy") is None:
                print(f"{name:<14}skipped: CuPy is not installed")
                continue
            traces[name] = CASES[name]()
            print(f"{name:<14}{len(traces[name].files):>6}{traces[name].moves:>8}", flush=True)
    if options.list:
        for name, trace in traces.items():
            print("", f"{name}:", *(f"  {file}" for file in sorted(trace.files)), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
