"""Executes the kernel sources on a CPU: every rule a GPU relies on is checked, every access counted."""

from .build import build, build_many, library_digest
from .run import FAULTS, Counters, KernelFault, run

__all__ = ["FAULTS", "Counters", "KernelFault", "build", "build_many", "library_digest", "run"]
