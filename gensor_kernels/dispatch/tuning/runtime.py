"""A Runtime as tuning and the Plans see it: Protocols, so that the modules below the Runtime need not import it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from gensor_kernels.devices.device import Device
from gensor_kernels.dispatch.selection.library import Library
from gensor_kernels.operators.types.workload import Workload

from .writeback import Notes

#: The key by which calls that copy their arrays share a timing (copy_race.py).
Kind = tuple[Any, ...]


class Tuned(Protocol):
    """A Runtime as races and tuning see it."""

    device: Device
    library: Library
    notes: Notes
    #: the address of an array
    pointer: Callable[[Any], int]
    #: keys of the Workloads that have raced, and of those that were tuned
    raced: set[str]
    tuned: set[str]
    #: microseconds of calls with their copies, ours and the library's
    wholes: dict[Kind, tuple[float, float]]

    def renew(self, workload: Workload) -> None:
        """Plan calls again after a Workload was tuned."""

    def adapt(self, conditions: str) -> None:
        """Plan calls again under other conditions."""
