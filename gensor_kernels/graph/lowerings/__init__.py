"""How each operator of the ONNX standard is computed: by a function of this package, or by the array library."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.graph.failures import REMEDY, fail
from gensor_kernels.shown import shown

from . import (
    arrays,
    attention,
    caches,
    contractions,
    elementwise,
    images,
    quantised,
    recurrent,
    resize,
    rows,
    signals,
    windows,
)

if TYPE_CHECKING:
    from gensor_kernels.graph.ir.graph import Node

    from .base import Run, Tensor

MODULES = (
    *(arrays, attention, caches, contractions, elementwise, images),
    *(quantised, recurrent, resize, rows, signals, windows),
)
#: Lowerings by operator.
LOWERINGS = {operator: lowering for module in MODULES for operator, lowering in module.LOWERINGS.items()}


def lower(run: Run, node: Node) -> tuple[Tensor, ...]:
    """Return the results of a node."""
    found = LOWERINGS[node.op](run, node, *(run.values[each] if each else None for each in node.inputs))
    return found if isinstance(found, tuple) else (found,)


def compute(run: Run, node: Node) -> tuple[Tensor, ...]:
    """Return the results of a node; errors are ModelError or UnsupportedError and name the node."""
    run.node = node
    try:
        results = lower(run, node)
    except UnsupportedError as error:
        text = error.reason
        if text.startswith("node "):
            raise
        raise UnsupportedError(f"node {shown(node.name)} ({node}): {text}") from None
    except Exception as error:
        fail(f"node {shown(node.name)} ({node}) cannot be computed", error, REMEDY)
    # NumPy makes scalars of arrays without axes.
    return tuple(np.asarray(each) if isinstance(each, np.generic) else each for each in results)
