"""Executes the kernel sources on a CPU: every rule a GPU relies on is checked, every access counted."""

from .build import FOLDER, build, build_many, library_digest
from .counters import FAULTS, Counters, KernelFault
from .run import AddressSpace, Buffer, run

__all__ = [
    "FAULTS",
    "FOLDER",
    "AddressSpace",
    "Buffer",
    "Counters",
    "KernelFault",
    "build",
    "build_many",
    "library_digest",
    "run",
]
