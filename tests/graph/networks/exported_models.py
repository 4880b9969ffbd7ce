"""Networks of torch, torchvision and transformers on the emulator, compared with onnxruntime and float64.

`python -m tests.graph.networks.exported_models [NAME[:DTYPE] ...]` compares every fused node of whole models
and their results, with weights drawn by a seed. Without names it runs the full-size models: some take minutes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

import gensor_kernels
from gensor_kernels.dispatch.observe.explanation import Explanation
from gensor_kernels.graph.execution.model import Model
from gensor_kernels.graph.ir.graph import Node, Spec
from gensor_kernels.graph.readers.onnx_file import Source
from tests.graph.models import by_onnxruntime

from . import exported_graphs

#: Models by the name of their graph, and the dtypes in which they are compared.
MODELS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("resnet50", "mobilenet_v2", "yolo", "resnet50_traced", "bert_base_traced"), ("float32",)),
    **dict.fromkeys(("t5_encoder", "t5_step"), ("float32",)),
    **dict.fromkeys(("vit_b_16", "bert_base", "gpt2", "gpt2_step", "llama", "llama_step"), ("float32", "float16")),
}
#: Operators that make no new numbers: the array library copies elements, or makes a view.
MOVES = frozenset(
    "Cast Concat Expand Flatten Gather GatherElements GatherND Identity Layout Pad Reshape Resize ScatterND Slice"
    " Split Squeeze Tile Transpose Unsqueeze".split()
)
#: How often our error may be onnxruntime's.
MOST = 2.0


Arrays = Mapping[str, np.ndarray]


class Difference(NamedTuple):
    """Errors of one tensor against float64, ours and onnxruntime's: root mean squares relative to the tensor's."""

    node: str
    ours_mean: float
    theirs_mean: float

    @property
    def ratio(self) -> float:
        """Our error over onnxruntime's, in the root mean square."""
        return self.ours_mean / self.theirs_mean if self.theirs_mean else float(self.ours_mean > 0)


def run_fused(
    model: Model, inputs: Arrays, known: Iterable[str], watch: Any = None
) -> tuple[dict[str, Node], dict[str, np.ndarray]]:
    """Return the fused nodes and their results, by the last tensor that they compute.

    The optimiser renames some tensors; `known` are the names of the file. `watch` as `Plan.run` takes it.
    """
    plan = model._plan(inputs)
    names = set(known)
    nodes = {name: node for node in plan.graph.nodes for name in node.outputs if name in names}
    kept: dict[str, np.ndarray] = {}
    keep_all(plan, inputs, kept, watch)
    return nodes, {name: kept[name] for name in nodes}


def keep_all(plan: Any, inputs: Arrays, kept: dict[str, np.ndarray], watch: Any = None) -> None:
    """Run a plan with all its tensors among the results; `watch` as `Plan.run` takes it."""
    outputs, ends = plan.graph.outputs, plan.ends
    names = [name for node in plan.graph.nodes for name in node.outputs if name]
    try:
        plan.graph.outputs, plan.ends = names, [()] * len(ends)
        kept.update(zip(names, plan.run(inputs, watch), strict=True))
    finally:
        plan.graph.outputs, plan.ends = outputs, ends


def tensors(model: onnx.ModelProto) -> set[str]:
    return {each for node in model.graph.node for each in node.output if each}


def giving(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    made = onnx.ModelProto()
    made.CopyFrom(model)
    del made.graph.output[:]
    made.graph.output.extend(onnx.ValueInfoProto(name=each) for each in names)
    return made


def onnxruntime(model: onnx.ModelProto, names: Sequence[str], inputs: Arrays) -> dict[str, np.ndarray]:
    return dict(zip(names, by_onnxruntime(giving(model, names), inputs), strict=True))


def reference(model: onnx.ModelProto, names: Sequence[str], inputs: Arrays) -> dict[str, np.ndarray]:
    with np.errstate(all="ignore"):
        return dict(zip(names, ReferenceEvaluator(giving(model, names)).run(None, dict(inputs)), strict=True))


def difference(node: str, exact: np.ndarray, ours: np.ndarray, theirs: np.ndarray) -> Difference:
    """Return the errors of one tensor; a result that is not finite where the exact one is has an infinite error."""
    assert ours.shape == theirs.shape == exact.shape, f"{node}: {ours.shape}, {theirs.shape}, {exact.shape}"
    right = exact.astype(np.float64)
    finite = np.isfinite(right)
    scale = float(np.sqrt(np.mean(np.square(right[finite])))) if finite.any() else 1.0
    found = []
    for each in (ours, theirs):
        wide = each.astype(np.float64)
        same = np.where(finite, np.isfinite(wide), (wide == right) | np.isnan(wide) & np.isnan(right))
        error = np.abs(wide[finite] - right[finite]) / (scale or 1.0)
        mean = float(np.sqrt(np.mean(error**2))) if error.size else 0.0
        found.append(mean if same.all() else np.inf)
    return Difference(node, *found)


class Computed(NamedTuple):
    """A fused node: its operators, its result, and what served each call of our functions."""

    operators: str
    result: Spec | None
    served: tuple[Explanation, ...]


class Comparison(NamedTuple):
    """A model at one dtype: each fused node's errors, those of the results, and what serves the nodes.

    In float16, `unrounded` compares the results with an onnxruntime that keeps float32 between nodes, as it does.
    """

    nodes: list[Difference]
    results: list[Difference]
    unrounded: list[Difference]
    fallbacks: list[str]


def compare(name: str, dtype: str = "float32", seed: int = 1) -> Comparison:
    """Run a model, and compare all fused nodes with onnxruntime and with float64.

    All three have the same weights and inputs, which are numbers of `dtype`; all tensors of float16 are rounded.
    """
    proto = exported_graphs.draw(name, dtype)
    inputs = exported_graphs.inputs(proto, seed=seed)
    layers: list[Computed] = []

    def watch(node: Node, served: tuple[Explanation, ...], *_: Any) -> None:
        layers.append(Computed(str(node), model._plan(inputs).graph.spec(node.outputs[0]), served))

    with gensor_kernels.emulated("sm_87"):
        model = Model(Source(proto), name)
        nodes, ours = run_fused(model, inputs, tensors(proto), watch)
    results = [each.name for each in proto.graph.output]
    unrounded: dict[str, np.ndarray] = {}
    if dtype == "float16":
        single = {key: each.astype(np.float32) if each.dtype.kind == "f" else each for key, each in inputs.items()}
        theirs = onnxruntime(exported_graphs.rounding(proto), list(ours), single)
        unrounded = onnxruntime(proto, results, inputs)
    else:
        theirs = onnxruntime(proto, list(ours), inputs)
    wide = {key: each.astype(np.float64) if each.dtype.kind == "f" else each for key, each in inputs.items()}
    exact = reference(exported_graphs.cast(proto, "float64"), list(ours), wide)
    found = {key: difference(str(nodes.get(key, "result")), exact[key], ours[key], theirs[key]) for key in ours}
    return Comparison(
        [found[key]._replace(node=f"{key} ({nodes[key]})") for key in nodes if exact[key].dtype.kind == "f"],
        [found[key]._replace(node=key) for key in results],
        [difference(key, exact[key], ours[key], other) for key, other in unrounded.items()],
        list(fallbacks(layers)),
    )


def judge(name: str, dtype: str) -> Comparison:
    """Compare a model as `compare` does; where something is wrong on one draw of inputs, on eight draws together.

    A step of a small model has 64 numbers per node, whose errors follow from few rounded scores: which of two equally
    precise programs is nearer depends on the draw.
    """
    found = compare(name, dtype)
    if not wrong(found, dtype):
        return found
    draws = [found, *(compare(name, dtype, seed=seed) for seed in range(2, 9))]
    return found._replace(
        nodes=pool([each.nodes for each in draws]),
        results=pool([each.results for each in draws]),
        unrounded=pool([each.unrounded for each in draws]),
    )


def pool(draws: Sequence[Sequence[Difference]]) -> list[Difference]:
    return [
        Difference(
            same[0].node,
            float(np.sqrt(np.mean([each.ours_mean**2 for each in same]))),
            float(np.sqrt(np.mean([each.theirs_mean**2 for each in same]))),
        )
        for same in zip(*draws, strict=True)
    ]


def fallbacks(layers: Iterable[Computed]) -> Iterator[str]:
    """Yield the operators that compute floating-point numbers by the array library."""
    for layer in layers:
        if layer.result is None or layer.result.dtype.kind != "f":
            continue  # positions, sizes, masks
        if layer.served:
            served = all(each.family is not None for each in layer.served)
        else:
            served = set(layer.operators.split(" + ")) <= MOVES
        if not served:
            yield layer.operators


def allowance(theirs: float, dtype: str) -> float:
    """Return the error that ours may have: twice onnxruntime's, which counts as half a rounding at least."""
    return MOST * max(theirs, float(np.finfo(dtype).eps) / 4)


def wrong(found: Comparison, dtype: str) -> list[Difference]:
    """Return nodes and results whose error is larger than what is allowed."""
    every = (*found.nodes, *found.results, *found.unrounded)
    return [each for each in every if not each.ours_mean <= allowance(each.theirs_mean, dtype)]


def main(chosen: list[str]) -> int:
    """Print a line for each model; return 1 if a result is wrong, or an operator is not served by kernels."""
    failed = False
    for each in chosen or [f"{name}:{dtype}" for name, dtypes in MODELS.items() for dtype in dtypes]:
        name, _, dtype = each.partition(":")
        start, dtype = time.perf_counter(), dtype or "float32"
        found = compare(name, dtype)
        bad = wrong(found, dtype)
        print(
            f"{name} {dtype}: {len(found.nodes)} nodes, result {max(each.ratio for each in found.results):.2f} times "
            f"onnxruntime's error; wrong: {len(bad)}; by the array library: "
            f"{', '.join(sorted(set(found.fallbacks))) or 'none'}; {time.perf_counter() - start:.0f} s",
            *(f"  {each.node}: {each.ours_mean:.2e}, onnxruntime {each.theirs_mean:.2e}" for each in bad[:8]),
            sep="\n",
            flush=True,
        )
        failed |= bool(bad) or bool(found.fallbacks)
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
