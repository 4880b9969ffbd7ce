"""The computation of a single node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.graph.failures import REMEDY, fail
from gensor_kernels.graph.lowerings import LOWERINGS
from gensor_kernels.shown import shown

if TYPE_CHECKING:
    from gensor_kernels.graph.ir.graph import Node
    from gensor_kernels.graph.lowerings.base import Run


def compute(run: Run, node: Node) -> tuple[Any, ...]:
    """Return the results of a node; errors are ModelError or UnsupportedError and name the node."""
    run.node = node
    try:
        found = LOWERINGS[node.op](run, node, *(run.values[each] if each else None for each in node.inputs))
    except UnsupportedError as error:
        text = error.reason
        if text.startswith("node "):
            raise
        raise UnsupportedError(f"node {shown(node.name)} ({node}): {text}") from None
    except Exception as error:
        fail(f"node {shown(node.name)} ({node}) cannot be computed", error, REMEDY)
    results = found if isinstance(found, tuple) else (found,)
    # NumPy makes scalars of arrays without axes.
    return tuple(np.asarray(each) if isinstance(each, np.generic) else each for each in results)
