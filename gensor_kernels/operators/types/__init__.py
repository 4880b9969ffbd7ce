"""Element types, epilogue operations, Workloads and memory layouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Declared(Protocol):
    """The part of an Operator from which a Workload computes its work."""

    def flops(self, workload: Any) -> int:
        """See Operator.flops."""

    def bytes_moved(self, workload: Any) -> int:
        """See Operator.bytes_moved."""


#: Finds an operator by name.  operators/__init__.py sets it: Workloads are below the declarations, which they cannot
#: import.
find_operator: Callable[[str], Declared]
