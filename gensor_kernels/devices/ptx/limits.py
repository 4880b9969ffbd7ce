"""Limits of a launch: those of the PTX ISA's directives (chapter 11) and of a compute capability."""

from __future__ import annotations

from gensor_kernels.machine.arch import archs

from .translation.parse import Entry, Module

#: bytes of shared memory that a module may declare; more is dynamic
STATIC_BYTES = 48 * 1024
MOST_THREADS, REGISTERS = 1024, 64 * 1024
#: bytes of parameters, since PTX 8.1 and sm_70, and before
PARAMETERS, OLD_PARAMETERS = 32764, 4096


def refusal(module: Module, entry: Entry, threads: int, shared_bytes: int, params_bytes: int) -> str:
    """Return why a device would refuse a launch; empty where it would not. `shared_bytes` are dynamic."""
    sm = int(module.target.strip("sm_af"))
    most = next(each.smem_per_block for each in archs() if each.name == f"sm_{sm}")
    static = sum(each.bytes for each in entry.shared)
    parameters = PARAMETERS if module.version >= (8, 1) and sm >= 70 else OLD_PARAMETERS
    registers = -(-entry.most_registers // 8) * 8 * threads
    wrong = {
        f"{threads} threads": not 0 < threads <= MOST_THREADS,
        f"{threads} threads, whose .maxntid is {entry.most_threads}": 0 < entry.most_threads < threads,
        f"{threads} threads, whose .reqntid is {entry.threads}": entry.threads not in (0, threads),
        f"{registers} registers in a block": registers > REGISTERS,
        f"{static} bytes of static shared memory": static > STATIC_BYTES,
        f"{static + shared_bytes} bytes of shared memory": static + shared_bytes > most,
        f"{params_bytes} bytes of parameters": params_bytes > parameters,
    }
    return next((text for text, applies in wrong.items() if applies), "")
