"""Limits of a launch: those of the PTX ISA's directives (chapter 11) and of a compute capability."""

from gensor_kernels.families.core.family import Launch
from tests.ptx.translation.parse import Entry, Module

#: bytes of shared memory of a block, static and dynamic (CUDA C++ Programming Guide, "Technical Specifications")
SHARED_BYTES = {
    75: 64 * 1024,
    80: 163 * 1024,
    86: 99 * 1024,
    87: 163 * 1024,
    89: 99 * 1024,
    90: 227 * 1024,
    100: 227 * 1024,
    120: 99 * 1024,
}
#: bytes of shared memory that a module may declare; more is dynamic
STATIC_BYTES = 48 * 1024
MOST_THREADS, REGISTERS = 1024, 64 * 1024
#: bytes of parameters, since PTX 8.1 and sm_70, and before
PARAMETERS, OLD_PARAMETERS = 32764, 4096


def refusal(module: Module, entry: Entry, launch: Launch, params_bytes: int) -> str:
    """Return why a device would refuse a launch; empty where it would not."""
    sm, threads = int(module.target.strip("sm_af")), launch.block
    static = sum(each.bytes for each in entry.shared)
    parameters = PARAMETERS if module.version >= (8, 1) and sm >= 70 else OLD_PARAMETERS
    registers = -(-entry.most_registers // 8) * 8 * threads
    wrong = {
        f"{threads} threads": not 0 < threads <= MOST_THREADS,
        f"{threads} threads, whose .maxntid is {entry.most_threads}": 0 < entry.most_threads < threads,
        f"{threads} threads, whose .reqntid is {entry.threads}": entry.threads not in (0, threads),
        f"{registers} registers in a block": registers > REGISTERS,
        f"{static} bytes of static shared memory": static > STATIC_BYTES,
        f"{static + launch.shared_bytes} bytes of shared memory": static + launch.shared_bytes > SHARED_BYTES[sm],
        f"{params_bytes} bytes of parameters": params_bytes > parameters,
    }
    return next((text for text, applies in wrong.items() if applies), "")
