"""Count launches, memory and traffic of whole models: `python -m benchmarks.models [NAME ...] [--json FILE]`.

The models are exported networks of their full size (tests/graph/networks/exported) at batch 1 in float16 on an Orin
Nano. `gpt2_session` is the file of examples/gpt2.py, whose caches have a fixed size and are the session's state.
Kernels are chosen as in any call and counted instead of launched: no figure depends on the machine, and none is a time.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import gensor_kernels
from gensor_kernels.devices.emulator.device import EmulatorDevice
from gensor_kernels.graph.execution.folding import fold
from gensor_kernels.graph.execution.model import Model
from gensor_kernels.graph.execution.plan import Plan
from gensor_kernels.graph.ir.graph import Graph, Node
from gensor_kernels.graph.lowerings.base import IN_PLACE
from gensor_kernels.graph.readers.onnx_file import Source
from tests.graph.networks import comparison, exported_graphs

EXAMPLES = Path(__file__).parents[1] / "examples"
#: Models, and the most fused operators per run that the project aims at.
MODELS: dict[str, int | None] = {
    **{"resnet50": 56, "mobilenet_v2": 56, "bert_base": 12 * 7 + 5, "gpt2_step": 12 * 7 + 4},
    **{"gpt2_session": 12 * 7 + 4, "vit_b_16": 12 * 7 + 5},
    **dict.fromkeys(("gpt2", "llama", "llama_step", "t5_encoder", "t5_step", "yolo")),
}
SIZES = {"batch": 1, "tokens": 128, "past": 127, "source": 128}
#: Operators that a view of the same memory computes.
VIEWS = frozenset(["Expand", "Flatten", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"])


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

    patches = mock.patch.object(EmulatorDevice, "load", load), mock.patch.object(EmulatorDevice, "is_built", _always)
    with patches[0], patches[1]:
        yield _calls


def _always(device: EmulatorDevice, code: Any) -> bool:
    return True


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

        comparison.keep_all(plan, inputs, kept, watch)
        values = {**plan.graph.constants, **plan.state, **inputs, **kept}
        copies = [node for node, count in launches if not count and _copies(node, values)]
        for _ in range(2):
            call()
        layout = plan.layout
    operators = [(node, count) for node, count in launches if count]
    return {
        "operators": len(operators),
        "launches": sum(count for _, count in operators) - len(operators),
        "copies": len(copies),
        "copied_by": _count(copies),
        "arena_bytes": layout.nbytes if layout else None,
        "live_bytes": layout.live if layout else None,
        "fused_bytes": traffic(plan.graph),
    }


def _copies(node: Node, values: Mapping[str, np.ndarray]) -> bool:
    """Return whether the array library has written memory: new one, or a tensor that a session keeps."""
    if node.attributes.get(IN_PLACE):
        return True
    given = [values[name] for name in node.reads()]
    results = [values[name] for name in node.outputs if name]
    return any(each.size and not any(np.may_share_memory(each, other) for other in given) for each in results)


def _count(nodes: Sequence[Node]) -> dict[str, int]:
    found: dict[str, int] = {}
    for node in nodes:
        found[str(node)] = found.get(str(node), 0) + 1
    return found


def traffic(graph: Graph) -> int:
    """Return the bytes that nodes read and write, each tensor once per node; views move none."""

    def nbytes(name: str) -> int:
        spec = graph.spec(name)
        if spec is None or spec.shape is None or not all(isinstance(each, int) for each in spec.shape):
            return 0
        return math.prod(spec.shape) * spec.dtype.itemsize  # type: ignore[arg-type]

    total = 0
    for node in graph.nodes:
        if node.op in VIEWS:
            continue
        written = sum(nbytes(name) for name in node.outputs if name)
        # A gather reads what it selects.
        read = written if node.op == "Gather" else sum(nbytes(name) for name in set(node.reads()))
        total += written + read
    return total


def file_figures(model: Model, inputs: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Return the nodes of a file, views apart, and the bytes that they move one by one."""
    graph = model._source.graph({name: each.shape for name, each in inputs.items()})
    fold(graph)
    graph.tidy()
    return {"nodes": sum(node.op not in VIEWS for node in graph.nodes), "unfused_bytes": traffic(graph)}


def figures(name: str) -> dict[str, Any]:
    """Return all figures of a model."""
    found: dict[str, Any] = {"aim": MODELS.get(name)}
    if name.endswith("_session"):
        return found | of_session(name.removesuffix("_session"))
    proto = exported_graphs.draw(name, "float16")
    inputs = exported_graphs.inputs(proto, SIZES)
    model = Model(Source(proto), name)
    with gensor_kernels.emulated("sm_87"):
        found |= ours(model._plan(inputs), inputs, lambda: model(**inputs)) | file_figures(model, inputs)
    return found


def of_session(name: str) -> dict[str, Any]:
    """Return the figures of a session's step: one token of the file that an example builds.

    The bytes that it moves depend on how full its caches are, and are left out.
    """
    with mock.patch.object(sys, "path", [str(EXAMPLES), *sys.path]):
        example = importlib.import_module(name)
    config = example.Config()
    model = Model(Source(example.build(config, example.drawn(config))), name)
    step = np.zeros((1, 1), np.int64), np.array([SIZES["past"]])
    with gensor_kernels.emulated("sm_87"):
        session = model.session(batch=1)
        plan, inputs = session._planned(step, {})
        found = ours(plan, inputs, lambda: session(*step)) | file_figures(model, {**inputs, **session.state})
    return found | {"fused_bytes": None, "unfused_bytes": None}


def table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the figures as a table in Markdown."""
    lines = [
        "| model | fused operators (aim) | further launches: split or composed / copies | nodes of the file"
        " | arena / lower bound, MB | fused / unfused traffic, MB |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, row in rows.items():
        aim = f"{row['operators']} ({row['aim']})" if row["aim"] else str(row["operators"])
        memory = "-"
        if row["arena_bytes"] is not None:
            arena, live = row["arena_bytes"], row["live_bytes"]
            memory = f"{arena / 1e6:.2f} / {live / 1e6:.2f} ({arena / live:.3f})"
        fused, whole = row["fused_bytes"], row["unfused_bytes"]
        moved = f"{fused / 1e6:.1f} / {whole / 1e6:.1f}" if fused else "-"
        further = f"{row['launches']} / {row['copies']}"
        cells = [name, aim, further, str(row["nodes"]), memory, moved]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the figures of the chosen models as a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    options = parser.parse_args()
    rows = {name: figures(name) for name in options.names or MODELS}
    print(table(rows), end="")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
