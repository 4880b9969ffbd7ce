"""The light models in the wheel of onnx, with weights drawn by a seed, compared with onnxruntime.

`python -m tests.graph.networks.light_models [NAME ...]` compares every fused node of whole models on the emulator.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test
from onnx import numpy_helper

import gensor_kernels
from gensor_kernels.graph.execution.model import load

from . import comparison

FOLDER = Path(onnx.backend.test.__file__).parent / "data" / "light"
NAMES = (
    *("bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50"),
    *("shufflenet", "squeezenet", "vgg19", "zfnet512"),
)


def path_of(name: str) -> Path:
    """Return the file of a light model."""
    return FOLDER / f"light_{name}.onnx"


def expected(name: str) -> np.ndarray:
    """Return the result that the wheel has for a light model with its constant weights and an input of ones."""
    tensor = onnx.TensorProto()
    tensor.ParseFromString((FOLDER / f"light_{name}_output_0.pb").read_bytes())
    return numpy_helper.to_array(tensor)


def drawn(name: str, folder: Path, seed: int = 0) -> Path:
    """Write a light model with random weights in place of its constant ones, which keep activations near 1."""
    model = onnx.load(path_of(name))
    rng = np.random.default_rng(seed)
    shapes = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    nodes = [node for node in model.graph.node if node.op_type != "ConstantOfShape"]
    for node in model.graph.node:
        if node.op_type == "ConstantOfShape":
            shape = tuple(shapes[node.input[0]])
            if len(shape) > 1:
                weights = rng.standard_normal(shape) * np.sqrt(1.0 / max(np.prod(shape[1:]), 1))
            else:
                weights = rng.uniform(0.5, 1.5, shape)
            model.graph.initializer.append(numpy_helper.from_array(weights.astype(np.float32), node.output[0]))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    model.ir_version = 8  # older ones want every initializer among the inputs
    onnx.save(model, folder / f"{name}.onnx")
    return folder / f"{name}.onnx"


def errors(path: Path, seed: int = 1) -> dict[str, float]:
    """Return the error of every fused node compared with onnxruntime without its optimisations.

    Errors are relative to the largest element. Fused nodes keep the name of the last tensor that they compute.
    """
    model, proto = load(path), onnx.load(path)
    ((name, spec),) = model.inputs.items()
    x = np.random.default_rng(seed).standard_normal(tuple(int(each or 1) for each in spec.shape)).astype(spec.dtype)
    nodes, kept = comparison.fused(model, {name: x}, comparison.tensors(proto))
    theirs = comparison.onnxruntime(proto, list(nodes), {name: x})
    found: dict[str, float] = {}
    for result, node in nodes.items():
        scale = max(float(np.abs(theirs[result]).max()), 1e-30)
        error = float(np.abs(kept[result].astype(np.float64) - theirs[result]).max() / scale)
        found[f"{result} ({node})"] = error if np.isfinite(kept[result]).all() else np.inf
    return found


def distance(name: str) -> float:
    """Return the largest difference from the result that the wheel has for constant weights and an input of ones."""
    model = load(path_of(name))
    given = [np.ones(tuple(int(each or 1) for each in spec.shape or ()), spec.dtype) for spec in model.inputs.values()]
    return float(np.abs(model(*given) - expected(name)).max())


def main(names: list[str]) -> None:
    """Print the largest error of each model."""
    for name in names or NAMES:
        start = time.perf_counter()
        with gensor_kernels.emulated("sm_87"), tempfile.TemporaryDirectory() as folder:
            found = errors(drawn(name, Path(folder)))
            worst = max(found, key=found.__getitem__)
            constant = distance(name)
        seconds = time.perf_counter() - start
        print(f"{name}: {len(found)} nodes, worst error {found[worst]:.1e} at {worst};", end=" ")
        print(f"constant weights {constant:.1e}; {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
