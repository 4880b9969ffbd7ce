"""Whether the operands of a Workload fit into the memory of a part."""

from __future__ import annotations

from math import prod

from gensor_kernels.operators import operator
from gensor_kernels.operators.types.dtypes import element_bytes
from gensor_kernels.operators.types.workload import Workload

from .arch import GIB, Arch


def too_large(workload: Workload, arch: Arch) -> str | None:
    """Return the sentence about operands that exceed a part's memory, or None where they fit, or its size is unknown.

    Examples
    --------
    >>> from gensor_kernels.machine.arch import lookup
    >>> from gensor_kernels.operators.products import matmul
    >>> too_large(matmul.workload(65536, 65536, 65536, dtype="float16"), lookup("orin-nano-8gb"))
    'its operands (a 8 GiB, b 8 GiB, c 8 GiB) exceed the 8 GiB of orin-nano-8gb'
    """
    if not arch.memory_gb:
        return None
    sizes = {
        each.name: prod(each.shape) * element_bytes(workload.dtype[each.name])
        for each in operator(workload.operator).operands(workload)
    }
    if sum(sizes.values()) <= arch.memory_gb * GIB:
        return None
    listed = ", ".join(f"{name} {_amount(size)}" for name, size in sizes.items())
    return f"its operands ({listed}) exceed the {arch.memory_gb:.4g} GiB of {arch.part}"


def _amount(size: float) -> str:
    """Return a number of bytes for people."""
    for unit, scale in (("GiB", GIB), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= scale:
            return f"{size / scale:.4g} {unit}" if size < 10_000 * scale else f"{size / scale:,.0f} {unit}"
    return f"{size:.0f} bytes"
