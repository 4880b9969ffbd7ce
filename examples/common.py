"""Parts that the example models share: building an ONNX graph, running it, and checking it with onnxruntime."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import gensor_kernels as gk


class Builder:
    """Nodes and weights of an ONNX graph of one dtype; calling it adds a node.

    Weights that are not given are drawn: normal numbers that keep the variance of what is summed up.
    """

    def __init__(self, dtype: str = "float32", weights: Mapping[str, np.ndarray] | None = None, seed: int = 0):
        self.dtype, self.given, self.rng = np.dtype(dtype), weights or {}, np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}

    def __call__(self, op: str, *inputs: str, results: int | Sequence[str] = 1, **attributes: Any) -> Any:
        """Add a node; return the name of its result, or a tuple of names."""
        names = [f"{op}_{len(self.nodes)}.{each}" for each in range(results)] if isinstance(results, int) else results
        self.nodes.append(helper.make_node(op, inputs, names, name=f"{op}_{len(self.nodes)}", **attributes))
        return names[0] if len(names) == 1 else tuple(names)

    def weight(self, name: str, *shape: int, summed: int | None = None, around: float = 0.0) -> str:
        """Add a weight by its name; drawn, it has a deviation of summed ** -0.5, or of 0.1 around a mean."""
        if name not in self.constants:
            drawn = self.given.get(name)
            if drawn is None:
                drawn = around + self.rng.standard_normal(shape) * (summed**-0.5 if summed else 0.1)
            self.constants[name] = np.asarray(drawn, self.dtype)
        return name

    def integers(self, *values: int) -> str:
        """Add a vector of integers."""
        name = "ints_" + "_".join(map(str, values))
        self.constants[name] = np.array(values, np.int64)
        return name

    def integer(self, value: int) -> str:
        """Add an integer."""
        self.constants[f"int_{value}"] = np.array(value, np.int64)
        return f"int_{value}"

    def model(self, inputs: Mapping[str, Sequence[Any]], outputs: Mapping[str, Sequence[Any]]) -> onnx.ModelProto:
        """Return the model; inputs and outputs are shapes, after a dtype if it differs from the model's."""
        graph = helper.make_graph(
            *(self.nodes, "model", self._describe(inputs), self._describe(outputs)),
            [numpy_helper.from_array(value, name) for name, value in self.constants.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)

    def _describe(self, tensors: Mapping[str, Sequence[Any]]) -> list[onnx.ValueInfoProto]:
        found = []
        for name, shape in tensors.items():
            typed = bool(shape) and isinstance(shape[0], np.dtype)
            kind = helper.np_dtype_to_tensor_dtype(shape[0] if typed else self.dtype)
            found.append(helper.make_tensor_value_info(name, kind, shape[1:] if typed else shape))
        return found


INT64 = np.dtype("int64")


def arguments(text: str | None, given: Sequence[str] | None, **more: Any) -> argparse.Namespace:
    """Parse the command line: `more` are further options, as keywords of add_argument."""
    made = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, keywords in more.items():
        made.add_argument(f"--{name}", **keywords)
    made.add_argument("--emulate", metavar="ARCH", help="run on the emulator, without a GPU")
    return made.parse_args(given)


@contextlib.contextmanager
def device(arch: str | None) -> Iterator[Any]:
    """Yield the array library to use: NumPy inside the emulator of an arch, else CuPy."""
    if arch:
        with gk.emulated(arch):
            yield np
        return
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # of the import, of the driver
        reason = str(error).strip().partition("\n")[0]
        sys.exit(f"no GPU is reached ({reason}): use --emulate sm_87")
    yield cupy


def onnxruntime_results(model: onnx.ModelProto | str, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Compute a model by onnxruntime on the CPU."""
    try:
        import onnxruntime
    except ImportError:
        sys.exit("results are compared with onnxruntime, which is missing: pip install onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    source = model if isinstance(model, str) else model.SerializeToString()
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return session.run(None, dict(inputs))


def compare(name: str, found: Any, wanted: np.ndarray) -> float:
    """Print and return the largest difference, as a share of the largest value."""
    found = found.get() if hasattr(found, "get") else found
    wanted = wanted.astype(np.float64)
    error = float(np.abs(found.astype(np.float64) - wanted).max() / np.abs(wanted).max())
    print(f"{name}: the largest difference from onnxruntime is {error:.1e} of the largest value")
    return error


def check(text: str | None, given: Sequence[str] | None, build: Any, inputs: Any) -> float:
    """Run a model once, print its layers, and compare its results with onnxruntime's; return the largest difference.

    The model is the file of the command line, or `build(small, dtype)` with random weights: in float16 for this
    package, in float32 for onnxruntime. `inputs(small)` are its inputs by name.
    """
    options = arguments(text, given, model={"metavar": "FILE", "help": "an ONNX file (default: random weights)"})
    small = bool(options.emulate)
    with device(options.emulate) as xp:
        model = gk.load(options.model) if options.model else gk.load(build(small, "float16"))
        arrays = inputs(small and not options.model)
        placed = {name: xp.asarray(each.astype(model.inputs[name].dtype)) for name, each in arrays.items()}
        results = model(**placed)
        print(model.explain(**placed))
    found = results if isinstance(results, tuple) else (results,)
    reference = options.model or build(small, "float32")
    exact = {name: each if each.dtype.kind != "f" else each.astype(np.float32) for name, each in arrays.items()}
    if options.model:
        exact = {name: each.astype(model.inputs[name].dtype) for name, each in arrays.items()}
    wanted = onnxruntime_results(reference, exact)
    return max(compare(*each) for each in zip(model.outputs, found, wanted, strict=True))


def language_arguments(text: str | None, given: Sequence[str] | None, new: int) -> argparse.Namespace:
    """Parse the command line of a language model that generates `new` tokens by default; `ids` are (1, tokens)."""
    options = arguments(
        *(text, given),
        weights={"help": "a .safetensors or .npz file (default: random weights)"},
        ids={"default": "1,2,3,4", "help": "the prompt's tokens (default %(default)s)"},
        new={"type": int, "default": new, "help": "tokens to generate (default %(default)s)"},
    )
    options.ids = np.array([[int(each) for each in options.ids.split(",")]])
    return options


def print_tokens(xp: Any, session: Any, ids: np.ndarray, tokens: Iterable[tuple[Any, Any]]) -> tuple[np.ndarray, Any]:
    """Print tokens during generation, and the layers of a step; return all ids and the last logits."""
    began, count, logits = time.perf_counter(), ids.shape[1], None
    for token, logits in tokens:  # noqa: B007
        ids = np.append(ids, [[int(token[0])]], 1)
        print(ids[0, -1], end=" ", flush=True)
    print(f"\n{ids.shape[1] - count} tokens in {time.perf_counter() - began:.2f} s")
    print(session.explain(xp.asarray(ids[:, -1:]), np.array([ids.shape[1] - 1])))
    return ids, logits
