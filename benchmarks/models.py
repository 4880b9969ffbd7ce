"""Count launches and memory of whole models: `python -m benchmarks.models [NAME ...]`.

The models are exported networks of their full size (tests/graph/networks/exported) at batch 1 in float16 on an Orin
Nano. `gpt2_session` is the file of examples/gpt2.py, whose caches have a fixed size and are the session's state.
WHEEL/FILE is a file of tests/graph/networks/test_third_party.py in its own dtype, `wheels` all of them. Kernels are
chosen as in any call and counted instead of launched: no figure depends on the machine, and none is a time.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx

import gensor_kernels
from gensor_kernels.devices.emulator.device import EmulatorDevice
from gensor_kernels.graph.execution.model import Model
from gensor_kernels.graph.execution.plan import Plan
from gensor_kernels.graph.ir.graph import Node
from gensor_kernels.graph.lowerings.base import IN_PLACE
from gensor_kernels.graph.readers.folding import fold
from gensor_kernels.graph.readers.onnx_file import Source
from tests.graph.networks import exported_graphs, exported_models, test_third_party

EXAMPLES = Path(__file__).parents[1] / "examples"
MODELS = (
    *("resnet50", "mobilenet_v2", "bert_base", "gpt2_step", "gpt2_session", "vit_b_16"),
    *("gpt2", "llama", "llama_step", "t5_encoder", "t5_step", "yolo"),
)
#: Files in wheels of others.
WHEELS = {f"{each.wheel}/{each.name}": each for each in test_third_party.FILES}
SIZES = {"batch": 1, "tokens": 128, "past": 127, "source": 128}
#: Operators that a view of the same memory computes.
VIEWS = frozenset(["Expand", "Flatten", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"])
#: Fused operators, the further launches of those that are split or composed, copies, and megabytes of the arena next to
#: the bound of live tensors.
COLUMNS = ["model", "operators", "further_launches", "copies", "onnxruntime_nodes", "nodes", "arena_mb", "live_mb"]

#: Launches of every call since `counting` began: kernels that one model has loaded also serve the next model.
_calls: list[int] = []


@contextmanager
def counting() -> Iterator[list[int]]:
    """Give a list that gets the number of launches of every call, in place of the launches."""
    _calls.clear()

    def load(device: EmulatorDevice, code: Any, launches: Sequence[Any]) -> Any:
        def launcher(arguments: Any, arrays: Any, steps: Any, workspace: Any) -> None:
            arrays[0][...] = 0
            _calls.append(len(launches))

        return launcher

    with mock.patch.multiple(EmulatorDevice, load=load, is_built=lambda device, code: True):
        yield _calls


def ours(plan: Plan, inputs: Mapping[str, np.ndarray], call: Callable[[], Any]) -> dict[str, Any]:
    """Return what a run of a plan launches, and its memory after two calls."""
    with counting() as calls:
        kept: dict[str, np.ndarray] = {}
        launches: list[tuple[Node, int]] = []
        seen = 0

        def watch(node: Node, *_: Any) -> None:
            nonlocal seen
            launches.append((node, sum(calls[seen:])))
            seen = len(calls)

        exported_models.keep_all(plan, inputs, kept, watch)
        values = {**plan.graph.constants, **plan.state, **inputs, **kept}
        copies = [node for node, count in launches if not count and _copies(node, values)]
        for _ in range(2):
            call()
        layout = plan.layout
    operators = [(node, count) for node, count in launches if count]
    return {
        "operators": len(operators),
        "further_launches": sum(count for _, count in operators) - len(operators),
        "copies": len(copies),
        "arena_mb": layout and f"{layout.nbytes / 1e6:.2f}",
        "live_mb": layout and f"{layout.live / 1e6:.2f}",
    }


def _copies(node: Node, values: Mapping[str, np.ndarray]) -> bool:
    """Return whether the array library has written memory: new one, or a tensor that a session keeps."""
    if node.attributes.get(IN_PLACE):
        return True
    given = [values[name] for name in node.reads()]
    results = [values[name] for name in node.outputs if name]
    return any(each.size and not any(np.may_share_memory(each, other) for other in given) for each in results)


def nodes(model: Model, inputs: Mapping[str, np.ndarray]) -> int:
    """Return the number of a file's nodes, views apart."""
    graph = model._source.graph({name: each.shape for name, each in inputs.items()})
    fold(graph)
    graph.tidy()
    return sum(node.op not in VIEWS for node in graph.nodes)


def figures(name: str) -> dict[str, Any]:
    """Return all figures of a model."""
    if name.endswith("_session"):
        return of_session(name.removesuffix("_session"))
    if name in WHEELS:
        proto = test_third_party.read(WHEELS[name])
        inputs = test_third_party.drawn(test_third_party.session(proto), WHEELS[name])
    else:
        proto = exported_graphs.draw(name, "float16")
        inputs = exported_graphs.inputs(proto, SIZES)
    fixed = {key: value for key, value in inputs.items() if not value.ndim}
    model = Model(Source(proto, inputs=fixed), name)
    if any(each.op_type == "If" for each in proto.graph.node):  # onnxruntime crashes where it inlines some branches
        proto = test_third_party.without_branches(proto, fixed)
    theirs = onnxruntime_nodes(proto, inputs)
    inputs = {key: value for key, value in inputs.items() if key not in fixed}
    with gensor_kernels.emulated("sm_87"):
        found = ours(model._plan(inputs), inputs, lambda: model(**inputs))
        return found | {"nodes": nodes(model, inputs), "onnxruntime_nodes": theirs}


def onnxruntime_nodes(proto: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> int:
    """Return the number of nodes, views apart, of the graph that onnxruntime optimises for a CPU and these shapes.

    Of float16 it is that of the same file in float32, which a CPU computes without casts.
    """
    import onnxruntime

    proto = exported_graphs.cast(proto, "float32")
    for each in proto.graph.input:
        if each.name in inputs:
            sizes = each.type.tensor_type.shape
            del sizes.dim[:]
            for extent in inputs[each.name].shape:
                sizes.dim.add(dim_value=extent)
    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.optimized_model_filepath = 4, f"{folder}/optimised.onnx"
        onnxruntime.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])
        graph = onnx.load(options.optimized_model_filepath).graph
    return sum(each.op_type not in VIEWS for each in graph.node)


def of_session(name: str) -> dict[str, Any]:
    """Return the figures of a session's step: one token of the file that an example builds."""
    with mock.patch.object(sys, "path", [str(EXAMPLES), *sys.path]):
        example = importlib.import_module(name)
    config = example.Config()
    model = Model(Source(example.build(config, example.draw(config))), name)
    step = np.zeros((1, 1), np.int64), np.array([SIZES["past"]])
    with gensor_kernels.emulated("sm_87"):
        session = model.session(batch=1)
        plan, inputs = session._plan_for(step, {})
        found = ours(plan, inputs, lambda: session(*step))
        return found | {"nodes": nodes(model, {**inputs, **session.state})}


def main() -> None:
    """Print the figures of the chosen models as CSV."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MODELS)}, or `wheels`")
    options = parser.parse_args()
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for name in WHEELS if options.names == ["wheels"] else options.names or MODELS:
        writer.writerow({"model": name, **figures(name)})


if __name__ == "__main__":
    main()
