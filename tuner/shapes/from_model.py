"""The shapes that a model calls, after its rewrites, as a shapes file."""

from __future__ import annotations

import csv
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

import gensor_kernels
from gensor_database.writing import written
from gensor_kernels.dispatch.api.current import rehearsed
from gensor_kernels.dispatch.observe import record_file
from gensor_kernels.errors import GensorError, ModelError
from gensor_kernels.shown import shown

from .reader import read_shapes

if TYPE_CHECKING:
    from gensor_kernels.graph.execution.model import Layers, Model

Shape = tuple[int, ...]
Dtype = Literal["float16", "bfloat16"] | None
#: Columns of a recording that say what served a call: they depend on the arch, and the tuner does not read them.
SERVED = ("tier", "part")
#: Extents that an example tries for sizes that a file leaves open, but for the first of each input, which is 1.
TRIED = (128, 224, 48, 32, 8, 1)
#: Calls of different sizes that one command may request.
MOST_SIZES = 1000


def extents_of(texts: Sequence[str]) -> dict[str, list[Shape]]:
    """Return the requested shapes by name; ModelError names a text of another form.

    Examples
    --------
    >>> extents_of(["x=1,8x3x224x224", "sequence=128,512"])
    {'x': [(1, 3, 224, 224), (8, 3, 224, 224)], 'sequence': [(128,), (512,)]}
    """
    found: dict[str, list[Shape]] = {}
    for text in texts:
        name, _, shape = text.rpartition("=")
        lists = [words.split(",") for words in shape.lower().split("x")]
        if not name or not all(word.isdecimal() and len(word) < 12 for words in lists for word in words):
            form = "NAME=EXTENTS: extents are joined by x, several for one by commas"
            raise ModelError(f"--input {shown(text)}: expected {form}")
        found.setdefault(name, []).extend(product(*(dict.fromkeys(map(int, words)) for words in lists)))
    return found


def signatures(model: Model, asked: Mapping[str, Sequence[Shape]]) -> list[dict[str, Shape]]:
    """Return the shapes of all inputs for every requested combination that the model accepts, at least one."""
    sizes = {each for spec in model.inputs.values() for each in spec.shape or () if isinstance(each, str)}
    for name, shapes in asked.items():
        if name not in model.inputs and (name not in sizes or any(len(shape) != 1 for shape in shapes)):
            further = f", and its sizes {', '.join(sorted(sizes))}" if sizes else ""
            raise ModelError(f"--input {name}: the model's inputs are {', '.join(model.inputs)}{further}")
    found: list[dict[str, Shape]] = []
    for combination in product(*asked.values()):
        each = _bound(model, dict(zip(asked, combination, strict=True)))
        if each is not None and each not in found:
            found.append(each)
        if len(found) > MOST_SIZES:
            raise ModelError(f"--input asks for more than {MOST_SIZES} combinations of sizes")
    if not found:
        given = "; ".join(f"{name} is {spec}" for name, spec in model.inputs.items())
        raise ModelError(f"--input: no combination of these extents fits the model's inputs ({given})")
    return found


def _bound(model: Model, given: Mapping[str, Shape]) -> dict[str, Shape] | None:
    """Return the shapes of all inputs, None where one size would have two values."""
    values: dict[Any, int] = {name: shape[0] for name, shape in given.items() if name not in model.inputs}
    for name, spec in model.inputs.items():
        if name not in given or spec.shape is None:
            continue
        if len(given[name]) != len(spec.shape):
            also = f"; give one number for its value, as {name}=1" if spec.shape == () else ""
            raise ModelError(f"--input {name}: {len(given[name])} extents, but the input is {spec}{also}")
        for declared, extent in zip(spec.shape, given[name], strict=True):
            known = values.setdefault(declared, extent) if isinstance(declared, str) else declared
            if known not in (None, extent):
                return None
    found: dict[str, Shape] = {}
    for name, spec in model.inputs.items():
        declared = given.get(name, spec.shape)
        shape = [values.get(each, each) for each in declared or ()]
        known = tuple(each for each in shape if isinstance(each, int))
        if declared is None or len(known) < len(shape):
            raise ModelError(f"input {name} is {spec}: give its extents{_example(model, values)}")
        found[name] = known
    return found


def _example(model: Model, values: Mapping[Any, int]) -> str:
    """Return the words of an error with options at which the model runs, which is tried; "" where none is known."""
    if any(spec.shape is None for spec in model.inputs.values()):
        return ""
    for extent in TRIED:
        sizes, shapes = dict(values), dict[str, Shape]()
        for name, spec in model.inputs.items():
            numbers = [1, *[extent] * len(spec.shape)]
            pairs = zip(spec.shape, numbers, strict=False)
            shapes[name] = tuple(
                sizes.setdefault(each, number) if isinstance(each, str) else number if each is None else each
                for each, number in pairs
            )
        if not model.infers(shapes):  # which takes less time than a run
            continue
        try:
            with rehearsed("sm_87"):
                model.explain(**drawn(model, shapes, zeros=True))
        except (GensorError, ValueError, TypeError):
            continue
        new = {name: shape for name, shape in shapes.items() if shape != model.inputs[name].shape}
        changed = [f"{name}={'x'.join(map(str, shape))}" for name, shape in new.items()]
        return f", as in {' '.join(f'--input {shlex.quote(each)}' for each in changed)}"
    return ""


def loaded(
    path: Path, dtype: str | None = None, asked: Mapping[str, Sequence[Shape]] = {}
) -> tuple[Model, dict[str, Sequence[Shape]]]:
    """Return the model of a file, with float32 tensors in `dtype` where given, and the requested shapes of its inputs.

    A number for an input without axes becomes its value. ModelError where there is no such file.
    """
    values = _values(path, {name: shapes[0][0] for name, shapes in asked.items() if [*map(len, shapes)] == [1]})
    try:
        model = gensor_kernels.load(path, inputs=values, dtype=cast(Dtype, dtype))
    except OSError as error:
        raise ModelError(str(error)) from None
    return model, {name: shapes for name, shapes in asked.items() if name not in values}


def _values(path: Path, numbers: Mapping[str, int]) -> dict[str, int]:
    """Return the numbers that are values of a model's inputs, not extents."""
    if not numbers:
        return {}
    try:
        import onnx

        declared = onnx.load_model(path, load_external_data=False).graph.input
    except Exception:  # load has the message
        return {}
    kinds = {each.name: each.type.tensor_type for each in declared}
    return {
        name: number
        for name, number in numbers.items()
        if name in kinds and kinds[name].HasField("shape") and not kinds[name].shape.dim
    }


def drawn(model: Model, shapes: Mapping[str, Shape], zeros: bool = False) -> dict[str, np.ndarray]:
    """Return random inputs of a model, or zeros, which take no time."""
    rng = np.random.default_rng(0)
    found = {}
    for name, spec in model.inputs.items():
        if zeros:
            values: Any = np.zeros(shapes[name], spec.dtype)
        elif spec.dtype.kind in "iub":
            values = rng.integers(0, 2, shapes[name])
        else:
            values = rng.standard_normal(shapes[name], np.float32)
        found[name] = np.asarray(values).astype(spec.dtype, copy=False)
    return found


def layers(
    path: Path,
    emulate: str | None,
    asked: Mapping[str, Sequence[Shape]],
    timed: bool = False,
    dtype: str | None = None,
) -> Layers:
    """Return the layers of a model for one combination of sizes, predicted for `emulate` or run on the GPU."""
    model, shapes = loaded(path, dtype, asked)
    found = signatures(model, shapes)
    if len(found) > 1:
        raise ModelError(f"--input asks for {len(found)} combinations of sizes: a model is run at one")
    with rehearsed(emulate) if emulate else nullcontext():
        inputs = model.placed(drawn(model, found[0], zeros=emulate is not None))
        return model.profile(**inputs) if timed else model.explain(**inputs)


def write(
    path: Path, out: Path, arch: str, asked: Mapping[str, Sequence[Shape]], dtype: str | None = None
) -> list[str]:
    """Write the calls of a model, dispatched for `arch`, as a shapes file; return the names of its files of weights."""
    (model, asked), names = loaded(path, dtype, asked), dict[str, list[str]]()
    found = signatures(model, asked)
    with tempfile.TemporaryDirectory() as folder:
        calls = Path(folder) / "calls.csv"
        with rehearsed(arch), gensor_kernels.record(calls):
            for shapes in found:
                for layer in model.explain(**drawn(model, shapes, zeros=True)):
                    for served in layer.served:
                        for each in served.steps or (served,):
                            if each.workload and layer.name not in (seen := names.setdefault(each.workload, [])):
                                seen.append(layer.name)
        counts = record_file.read(calls)
        rows = [row.workload for row in read_shapes(calls)] if counts else []
    _save(out, counts, [names.get(row.key(), []) if row else [] for row in rows])
    return list(model.weight_files)


def _save(out: Path, counts: Mapping[record_file.Cells, int], names: Sequence[Sequence[str]]) -> None:
    """Write rows with the names of their layers: the first one names a row, all of them are a note."""
    rows = []
    for (cells, count), layers in zip(counts.items(), names, strict=True):
        plain = {name: value for name, value in cells if name not in SERVED}
        written_names = [" ".join(each.split()) for each in layers]
        rows.append({"name": next(iter(written_names), ""), **plain, "count": count, "layers": " ".join(written_names)})
    first = ["name", *(each for each in record_file.COLUMNS if each not in SERVED)]
    header = list(dict.fromkeys([*first, *sorted({name for row in rows for name in row} - {"layers"}), "layers"]))
    with written(out) as file:
        table = csv.DictWriter(file, header, restval="", lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
