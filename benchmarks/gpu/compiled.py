"""torch.compile with mode="max-autotune" (Triton) on the same operators, one workload of each operator and type.

A compilation takes seconds to minutes, so that only the workload with the most work is taken, the largest first.
Skipped where PyTorch or Triton is not installed.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from functools import partial
from typing import Any

from .harness.session import Item, Session
from .shipped import Stored, rejected_kernels, stored_kernels
from .timing import Bench, item_name
from .vendors.registry import COMPILED, EAGER, TORCH

STEP = "compiled"
SECONDS = 180.0  # after which a compilation counts as hanging
MOST_KERNELS = 3
REHEARSED = 1


def items(session: Session) -> Iterator[Item]:
    """Yield one item per operator and type, or an item that says why there is none."""
    bench = Bench(session)
    reason = bench.vendors.missing.get(TORCH)
    if COMPILED not in session.vendors:
        reason = "--vendors does not name it"
    if reason is None and not session.emulate and importlib.util.find_spec("triton") is None:
        reason = "Triton is not installed"
    if reason is not None:
        yield Item("compiled", lambda: {"outcome": "skipped", "reason": reason}, always=True)
        return
    found = choose(session)
    for each in found[: REHEARSED if session.emulate else None]:
        yield Item(item_name(each), partial(measure, bench, each), limit=SECONDS)


def choose(session: Session) -> list[Stored]:
    """Return the record with the most work of each operator and type."""
    bad, best = rejected_kernels(session), dict[tuple[str, str], Stored]()
    for each in stored_kernels(session):
        group = each.workload.operator, each.workload.kind
        if each.short not in bad and (group not in best or each.workload.flops() > best[group].workload.flops()):
            best[group] = each
    return sorted(best.values(), key=lambda each: -each.workload.flops())


def measure(bench: Bench, each: Stored) -> dict[str, Any]:
    """Time all vendors; "skipped" where torch.compile has no such call."""
    found = bench.measure(each, (*EAGER, COMPILED), most=MOST_KERNELS)
    if COMPILED not in found["vendors_us"]:
        return found | {"outcome": "skipped", "reason": found["refused"].get(COMPILED, "it has no such call")}
    return found
