"""Executes the kernel sources on a CPU: every rule a GPU relies on is checked, every access counted."""

from .build import FOLDER, build, build_many, library_digest
from .run import FAULTS, AddressSpace, Buffer, Counters, KernelFault, run

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
