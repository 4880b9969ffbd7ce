"""Saved models: the simplified model, the plans that were made, and all constants, mapped into memory.

A file is MAGIC, the length of a header, the header in JSON, and the bytes of arrays, each at a multiple of ALIGN; some
weights may stay in other files of its folder. It holds data alone, nothing that is executed. Plans belong to the
sources of this package and to a part: for others, the model is planned again.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import zlib
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gensor_kernels.errors import ModelError, UnsupportedError
from gensor_kernels.graph.conditions import sources
from gensor_kernels.graph.failures import failing
from gensor_kernels.graph.ir.graph import OPSET, Decision, Graph, Node, Spec, Step
from gensor_kernels.graph.ir.options import Options
from gensor_kernels.graph.layouts.laid_out import Layouts
from gensor_kernels.graph.readers.onnx_file import Source, library
from gensor_kernels.graph.readers.onnx_nodes import constants_of
from gensor_kernels.graph.readers.onnx_weights import Files, pack, unpack
from gensor_kernels.shown import shown

if TYPE_CHECKING:
    import onnx_ir as ir

MAGIC = b"GENSORM1"
ALIGN = 256
FIELDS = ("inputs", "defaults")
CUT = "the file was cut or changed; save the model again"
#: Another file that holds arrays: location in the folder, size, time of its last change, and (first byte, length,
#: digest) of each array.
Other = tuple[str, int, int, list[tuple[int, int, str]]]
#: Inputs with shapes and dtypes, the part, and whether times were ignored.
Key = tuple[tuple[tuple[str, tuple[int, ...], str], ...], str, bool]


class Stored(NamedTuple):
    """A plan as a file has it."""

    graph: dict[str, Any]
    layouts: list[Any] | None


class SavedSource(Source):
    """The simplified model of a file, read once a call needs a plan that the file does not have."""

    is_checked = True
    #: Whether the file is of the cache folder, which may replace it.
    is_kept = False

    def __init__(self, header: Mapping[str, Any], arrays: Arrays):
        self._arrays, self._kept, self._lifted = arrays, header["model"], header["lifted"]
        self._read: Graph | ir.Model | None = None
        self.inputs, self.defaults = ({name: arrays.spec(spec) for name, spec in header[each]} for each in FIELDS)
        self.outputs, self.weight_files = list(header["outputs"]), []
        self.places = arrays.places
        #: Places of weights in the ONNX file of a kept model.
        self.own_places: list[tuple[int, int]] = _tuples(header.get("places", []))
        self.bounds = {name: (float(least), float(most)) for name, (least, most) in header["bounds"].items()}
        self.remedy = header["remedy"]
        self._results = {name: _dtype(dtype) for name, dtype in header["results"].items()}
        self._overridden = {}
        #: Plans by key, for these sources of the package.
        self.plans: dict[Key, Stored] = {}
        if header["sources"] == sources():
            self.plans = {_key(each["key"]): Stored(each["graph"], each["layouts"]) for each in header["plans"]}

    def _current(self) -> Graph | ir.Model:
        if self._read is None:
            if "nodes" in self._kept:
                self._read = self._arrays.graph(self._kept)
            else:
                library(simplifies=True)
                self._read = unpack(*self._arrays.model(self._kept))
        return self._read

    def read_lifted(self) -> None:
        """Read the model before it was simplified, for calls that override defaults."""
        if self._parts is None and self._lifted is not None:
            onnx, (operators, weights, _) = library(), self._arrays.model(self._lifted)
            self._parts = onnx.load_model_from_string(operators), weights

    def _with_inputs(self, names: frozenset[str]) -> Graph | ir.Model:
        self.read_lifted()
        return super()._with_inputs(names)

    def plan(self, key: Hashable) -> tuple[Graph, Layouts | None] | None:
        """Return the graph of a stored plan and its layouts, or None."""
        found = self.plans.get(key)  # type: ignore[call-overload]
        if found is None:
            return None
        return self._arrays.graph(found.graph), None if found.layouts is None else Layouts(*found.layouts)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy the name of the file, or the model where the file is of the cache folder."""
        if not self.is_kept:
            return _reopen, (self._arrays.file,)
        self.read_lifted()
        whole, own = Source.__new__(Source), ("inputs", "defaults", "outputs", "weight_files", "bounds", "remedy")
        whole.__dict__ |= {name: getattr(self, name) for name in (*own, "_results", "_parts", "_overridden")}
        whole.__dict__ |= {"_model": self._current(), "is_checked": True}
        return _copy_source, (whole.__getstate__(),)


def _reopen(file: Path) -> SavedSource:
    found = read(file)
    if found is None:
        raise ModelError(f"{file}: no saved model is there")
    return found[0]


def _copy_source(state: dict[str, Any]) -> Source:
    made = Source.__new__(Source)
    made.__setstate__(state)
    return made


def save(
    source: Source,
    name: str,
    options: Options,
    plans: Mapping[Key, tuple[Graph, Layouts | None]],
    path: str | os.PathLike[str],
    external_weights: bool = False,
    most: float = math.inf,
    notes: Mapping[str, Any] | None = None,
) -> None:
    """Write a model, its plans and further fields into a file, which replaces one of this name at once.

    ValueError for arrays of more than `most` bytes.
    """
    writer, kept = Writer(), source._current()
    if external_weights:
        writer.refer(source.places, Path(path).resolve().parent)
    text = [name for name, array in constants_of(kept).items() if array.dtype.kind in "OSU"]
    if text:
        raise UnsupportedError(f"constant {shown(text[0])} is text, which is not saved")
    if isinstance(source, SavedSource):
        source.read_lifted()
    header = {
        **{"name": name, "options": list(options), "opset": OPSET, "sources": sources()},
        **{each: [(name, writer.spec(spec)) for name, spec in getattr(source, each).items()] for each in FIELDS},
        "outputs": source.outputs,
        **{"bounds": dict(source.bounds), "remedy": source.remedy},
        "results": {name: dtype.name for name, dtype in source._results.items()},
        "model": writer.graph(kept) if isinstance(kept, Graph) else writer.model(*pack(kept)),
        "lifted": source._parts and writer.model(source._parts[0].SerializeToString(), source._parts[1], {}),
        "plans": [
            {"key": key, "graph": found, "layouts": layouts and list(vars(layouts).values())}
            for key, (graph, layouts) in plans.items()
            if (found := writer.graph(graph)) is not None
        ],
        **(notes or {}),
    }
    writer.write({**header, "files": writer.files}, Path(path), most)


def read(file: Path, verifies: bool = False) -> tuple[SavedSource, str, Options] | None:
    """Return the source, the name and the options of a model that `save` wrote, or None for other files.

    ModelError for a file that was cut, for one with operators of another version of the standard and, where it
    `verifies` all bytes, for arrays that were changed.
    """
    if not file.is_file():
        return None
    with open(file, "rb") as stream:
        if stream.read(len(MAGIC)) != MAGIC:
            return None
        length, data = int.from_bytes(stream.read(8), "little"), stream.read(32)
        if length > file.stat().st_size:
            raise ModelError(f"{file}: {CUT}")
        text = stream.read(length)
    if hashlib.sha256(text).digest() != data:
        raise ModelError(f"{file}: {CUT}")
    with failing(f"{file} is no saved model", "save the model again"):
        header = json.loads(text)
        if header["opset"] != OPSET:
            raise ModelError(f"{file}: operators of version {header['opset']} of the standard; save the model again")
        arrays = Arrays(file, _aligned(len(MAGIC) + 40 + length), header["files"])
        if verifies and zlib.crc32(arrays.bytes.data) != header["checksum"]:
            raise ModelError(f"{file}: {CUT}")
        source = SavedSource(header, arrays)
        return source, header["name"], Options(*header["options"])


def _aligned(place: int) -> int:
    return -(-place // ALIGN) * ALIGN


def _dtype(name: str) -> np.dtype[Any]:
    import ml_dtypes  # noqa: F401  its names become NumPy's

    return np.dtype(name)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _key(value: list[Any]) -> Key:
    key: Key = _tuples(value)
    return key


class Writer:
    """Collects arrays, each memory once, and describes graphs in JSON."""

    def __init__(self) -> None:
        self._parts: list[np.ndarray] = []
        #: Places by memory, or by digest where files are referred to: the first byte among the arrays of this file, or
        #: [number of another file, first byte].
        self._places: dict[Hashable, int | list[int]] = {}
        self._read: list[np.ndarray] = []
        self._end = 0
        self.files: list[Other] = []

    def refer(self, places: Sequence[tuple[Path, int, int]], folder: Path) -> None:
        """Let arrays whose bytes are at these places of files in a folder stay there; ValueError for other folders."""
        if not places:
            raise ValueError("no weights of the model are in a file: save it without external_weights")
        mapped: dict[Path, np.ndarray] = {}
        for file, offset, length in places:
            if file not in mapped:
                if folder not in file.parents:
                    raise ValueError(f"{file} is not in the folder of the saved model, {folder}, or below")
                mapped[file] = np.asarray(np.memmap(file, np.uint8, "r"))
                location, changed = file.relative_to(folder).as_posix(), file.stat().st_mtime_ns
                self.files.append((location, mapped[file].size, changed, []))
            number = [*mapped].index(file)
            digest = _digest(mapped[file][offset : offset + length])
            self._places[digest] = [number, offset]
            self.files[number][3].append((offset, length, digest))

    def array(self, array: np.ndarray) -> list[Any]:
        """Return [place, dtype, shape, order of its axes in memory, shape of the memory] of an array.

        The place is a number, or [number of another file, first byte there].
        """
        if array.dtype == object:
            raise TypeError("text")
        single = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in array.strides)
        part = array[(*single, ...)] if array.size else array
        # An axis of one element comes after another of its stride, so that both have this stride again.
        order = sorted(range(part.ndim), key=lambda axis: (-part.strides[axis], part.shape[axis] == 1, axis))
        key: Hashable = part.ctypes.data, part.shape, part.strides, part.itemsize
        if self.files or key not in self._places:
            packed = np.ascontiguousarray(part.transpose(order))
            key = _digest(packed.reshape(-1).view(np.uint8)) if self.files else key
            if key not in self._places:
                self._places[key] = self._end
                self._parts.append(packed)
                self._read.append(part)
                self._end = _aligned(self._end + packed.nbytes)
        return [self._places[key], array.dtype.name, list(array.shape), order, [part.shape[axis] for axis in order]]

    def model(self, operators: bytes, weights: Mapping[str, np.ndarray], notes: Mapping[str, Any]) -> dict[str, Any]:
        """Return a protobuf without weights, its weights and its notes as JSON."""
        arrays = {name: self.array(each) for name, each in weights.items()}
        return {"operators": self.array(np.frombuffer(operators, np.uint8)), "weights": arrays, "notes": notes}

    def spec(self, spec: Spec) -> list[Any]:
        """Return a Spec as a list."""
        return [spec.dtype.name, None if spec.shape is None else list(spec.shape)]

    def graph(self, graph: Graph) -> dict[str, Any] | None:
        """Return a graph as JSON, or None for one with values that JSON and arrays do not hold."""
        try:
            return {
                "nodes": [self._node(each) for each in graph.nodes],
                "inputs": {name: self.spec(spec) for name, spec in graph.inputs.items()},
                "outputs": graph.outputs,
                "constants": {name: self.array(each) for name, each in graph.constants.items()},
                "specs": {name: self.spec(spec) for name, spec in graph.specs.items()},
                "decisions": [list(each) for each in graph.decisions],
                "weight_bytes": graph.weight_bytes,
            }
        except TypeError:
            return None

    def _node(self, node: Node) -> list[Any]:
        attributes = {name: self._attribute(value) for name, value in node.attributes.items()}
        fields = [node.op, node.inputs, node.outputs, attributes, node.name, node.epilogue, node.joined, node.layout]
        json.dumps(fields)
        return fields

    def _attribute(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return {"array": self.array(value)}
        return value.item() if isinstance(value, np.generic) else value

    def write(self, header: Mapping[str, Any], path: Path, most: float) -> None:
        """Write the file under another name, and rename it; ValueError for arrays of more than `most` bytes."""
        if self._end > most:
            raise ValueError(f"{self._end} bytes")
        text = json.dumps({**header, "checksum": self._checksum()}).encode()
        unfinished = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        try:
            with open(unfinished, "wb") as file:
                file.write(MAGIC + len(text).to_bytes(8, "little") + hashlib.sha256(text).digest() + text)
                for part in self._parts:
                    file.write(bytes(_aligned(file.tell()) - file.tell()))
                    file.write(part.reshape(-1).view(np.uint8).data)
            os.replace(unfinished, path)
        finally:
            unfinished.unlink(missing_ok=True)

    def _checksum(self) -> int:
        found = end = 0
        for part in self._parts:
            found = zlib.crc32(part.reshape(-1).view(np.uint8).data, zlib.crc32(bytes(_aligned(end) - end), found))
            end = _aligned(end) + part.nbytes
        return found


def _digest(data: np.ndarray) -> str:
    return hashlib.sha256(data.data).hexdigest()


class Arrays:
    """The arrays of a file, mapped into memory, and graphs of them."""

    def __init__(self, file: Path, start: int, others: Sequence[Other]):
        self.file, files = file.resolve(), Files(file.resolve().parent)
        self._others: list[np.ndarray] = []
        #: Arrays in other files, as of `Source.places`.
        self.places: list[tuple[Path, int, int]] = []
        for location, size, changed, places in others:
            path, found = files.map(f"{file}: weights", location)
            is_same = found.size == size and (
                path.stat().st_mtime_ns == changed
                or all(_digest(found[first : first + length]) == digest for first, length, digest in places)
            )
            if not is_same:
                again = "load the ONNX file, and save it again"
                raise ModelError(f"{file}: weights in {shown(location)} have changed since it was saved; {again}")
            self._others.append(found)
            self.places += [(path, first, length) for first, length, _ in places]
        whole = np.memmap(file, np.uint8, "r") if file.stat().st_size > start else np.zeros(0, np.uint8)
        self.bytes = np.asarray(whole)[start:]
        self._made: dict[str, np.ndarray] = {}

    def array(self, about: Sequence[Any]) -> np.ndarray:
        """Return the array that `Writer.array` has described; ModelError where the file does not have it."""
        key = json.dumps(about)
        if key not in self._made:
            place, name, shape, order, packed = about
            dtype = _dtype(name)
            size = math.prod(packed) * dtype.itemsize
            other, first = place if isinstance(place, list) else (None, place)
            whole = self.bytes if other is None else self._others[other]
            if dtype.hasobject or min([first, *packed]) < 0 or first + size > whole.size:
                raise ModelError(f"{self.file}: {CUT}")
            part = whole[first : first + size]
            array = part.view(dtype).reshape(packed).transpose(np.argsort(order).tolist())
            self._made[key] = array if list(array.shape) == shape else np.broadcast_to(array, shape)
        return self._made[key]

    def model(self, about: Mapping[str, Any]) -> tuple[bytes, dict[str, np.ndarray], dict[str, Any]]:
        """Return what `Writer.model` has described."""
        weights = {name: self.array(each) for name, each in about["weights"].items()}
        return self.array(about["operators"]).tobytes(), weights, about["notes"]

    def spec(self, about: Sequence[Any]) -> Spec:
        """Return the Spec that `Writer.spec` has described."""
        return Spec(_dtype(about[0]), _tuples(about[1]))

    def graph(self, about: Mapping[str, Any]) -> Graph:
        """Return the graph that `Writer.graph` has described."""
        graph = Graph(
            [self._node(each) for each in about["nodes"]],
            {name: self.spec(each) for name, each in about["inputs"].items()},
            list(about["outputs"]),
            {name: self.array(each) for name, each in about["constants"].items()},
            {name: self.spec(each) for name, each in about["specs"].items()},
            [Decision(*_tuples(each)) for each in about["decisions"]],
        )
        graph.weight_bytes = about["weight_bytes"]
        return graph

    def _node(self, fields: Sequence[Any]) -> Node:
        op, inputs, outputs, attributes, name, epilogue, joined, layout = fields
        made = {
            key: self.array(value["array"]) if isinstance(value, dict) else _tuples(value)
            for key, value in attributes.items()
        }
        steps = tuple(Step(*each) for each in epilogue)
        return Node(op, tuple(inputs), tuple(outputs), made, name, steps, tuple(joined), layout)
