"""Every fused node of a model on the emulator, compared with the same tensor of onnxruntime and of float64."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx

from gensor_kernels.graph.execution.model import Model
from gensor_kernels.graph.ir.graph import Node
from tests.graph.models import by_onnxruntime

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
    from onnx.reference import ReferenceEvaluator

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
