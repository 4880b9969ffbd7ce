"""What CuPy's users asked for in public: one file per request, with its reproducer and what this package does about it.

The first line of a file says what was asked, with its link; the paragraph after it begins with Served, Partly or Not.
`call` is the user's call. It runs inside `accelerate`, unless `ours` is what one writes with this package instead.
`meant` is the result by NumPy where `call` does not give it. `ARRAYS` are types and shapes, `SMALL` those for an
emulator. `BY` is the kernel family that serves the latter on an Orin Nano, or CuPy. With `TF32` CuPy's switch is on.

tests/benchmarks/test_requests.py asserts routes and results without a GPU, `python -m benchmarks.device --only felt`
compares times on one.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

import gensor_kernels
from gensor_kernels.devices import cupy_internals

#: The largest extent of an array for an emulator.
MOST = 96
_TEXT = re.compile(r"(?P<asked>.+): (?P<link>https://\S+)\n\n(?P<state>Served|Partly|Not): (?P<done>.+)", re.DOTALL)


def find_requests() -> dict[str, Any]:
    """Return the module of each request by name."""
    return {each.name: import_module(f"{__name__}.{each.name}") for each in pkgutil.iter_modules(__path__)}


def text_of(request: Any) -> dict[str, str]:
    """Return what a file says: `asked`, `link`, `state` and `done`, each in a line."""
    found = _TEXT.fullmatch(request.__doc__.strip())
    assert found is not None, f"{request.__name__}: its text has another form"
    return {name: " ".join(text.split()) for name, text in found.groupdict().items()}


def draw_arrays(request: Any, small: bool) -> list[np.ndarray]:
    """Return drawn arrays on the host: normal numbers, or integers from -30 on up to 30."""
    rng = np.random.default_rng(0)
    declared = getattr(request, "SMALL", request.ARRAYS) if small else request.ARRAYS
    shapes = [[min(each, MOST) if small else each for each in shape] for _, *shape in declared]
    return [
        rng.integers(-30, 30, shape).astype(dtype) if "int" in dtype else rng.standard_normal(shape, "f").astype(dtype)
        for (dtype, *_), shape in zip(declared, shapes, strict=True)
    ]


def tolerance(request: Any) -> float | None:
    """Return the tolerance of a result, or None for its dtype's: TF32 rounds operands to 10 bits."""
    return 2.0**-9 if hasattr(request, "TF32") else None


def compute_meant(request: Any, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Return the result by NumPy, of floats in float64."""
    wide = [each.astype(np.float64) if each.dtype.kind == "f" else each for each in arrays]
    return np.asarray(getattr(request, "meant", request.call)(np, *wide))


def serving(request: Any, cupy: Any, arrays: Sequence[Any]) -> AbstractContextManager[Callable[[], Any]]:
    """Return a context that gives the call through this package."""
    if hasattr(request, "ours"):
        return nullcontext(partial(request.ours, cupy, *arrays))
    return accelerated(partial(request.call, cupy, *arrays))


@contextmanager
def accelerated(call: Callable[[], Any]) -> Iterator[Callable[[], Any]]:
    """Give a call of CuPy's inside `accelerate`."""
    with gensor_kernels.accelerate():
        yield call


@contextmanager
def switched(request: Any, cupy: Any) -> Iterator[None]:
    """Within it, CuPy's switch for TF32 is as the request has it."""
    set_switch = cupy_internals.tf32_switch(cupy)[2] if hasattr(request, "TF32") else bool
    set_switch(True)
    try:
        yield
    finally:
        set_switch(False)


def table() -> str:
    """Return the requests as a table in Markdown, those that are served first."""
    texts = {name: text_of(request) for name, request in find_requests().items()}
    lines = ["| request | asked | state | here |", "| --- | --- | --- | --- |"]
    for name, text in sorted(texts.items(), key=lambda each: ("Served Partly Not".find(each[1]["state"]), each[0])):
        project, number, *_ = name.split("_")
        done = text["done"][:1].upper() + text["done"][1:].rstrip(".")
        lines.append(f"| [{project} {number}]({text['link']}) | {text['asked']} | {text['state']} | {done} |")
    return "\n".join(lines) + "\n"
