"""The shapes that a model calls, behind its rewrites, as a shapes file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

import gensor_kernels
from gensor_kernels.errors import ModelError
from gensor_kernels.shown import shown


def extents_of(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return shapes by input, read from "x=1x3x224x224"; ModelError names a text of another form."""
    found = {}
    for text in texts:
        name, _, shape = text.rpartition("=")
        words = shape.lower().split("x")
        if not name or not all(word.isdecimal() for word in words):
            raise ModelError(f"--input {shown(text)}: expected a name and extents, as in x=1x3x224x224")
        found[name] = tuple(map(int, words))
    return found


def loaded(path: Path) -> Any:
    """Return the model of a file; ModelError where there is none."""
    try:
        return gensor_kernels.load(path)
    except OSError as error:
        raise ModelError(str(error)) from None


def drawn(model: Any, shapes: Mapping[str, Sequence[int]]) -> dict[str, np.ndarray]:
    """Return random inputs of a model, of these shapes or of the sizes that its file declares."""
    rng = np.random.default_rng(0)
    unknown = [name for name in shapes if name not in model.inputs]
    if unknown:
        raise ModelError(f"--input {unknown[0]}: the model's inputs are {', '.join(model.inputs)}")
    found = {}
    for name, spec in model.inputs.items():
        shape = shapes.get(name, spec.shape)
        if shape is None or not all(isinstance(each, int) for each in shape):
            raise ModelError(f"input {name} is {spec}: give its extents, as in --input {name}=1x128")
        values = rng.standard_normal(shape) if spec.dtype.kind not in "iub" else rng.integers(0, 2, shape)
        found[name] = np.asarray(values).astype(spec.dtype)
    return found


def layers(path: Path, emulate: str | None, shapes: Mapping[str, Sequence[int]]) -> Any:
    """Run a model once with random inputs, on the emulator of a part or on the GPU, and return its layers."""
    model = loaded(path)
    inputs = drawn(model, shapes)
    with gensor_kernels.emulated(emulate) if emulate else nullcontext():
        return model.explain(**model.placed(inputs))


def write(path: Path, out: Path, arch: str, shapes: Mapping[str, Sequence[int]]) -> None:
    """Run a model once on the emulator and write its calls as a shapes file; a file that is there is replaced."""
    model = loaded(path)
    inputs = drawn(model, shapes)
    beside = out.with_name(out.name + ".part")
    beside.unlink(missing_ok=True)
    try:
        with gensor_kernels.emulated(arch), gensor_kernels.record(beside):
            model(**inputs)
        os.replace(beside, out)
    finally:
        beside.unlink(missing_ok=True)
