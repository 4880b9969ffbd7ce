"""Rows of a database with the kernel of one workload."""

from gensor_database.record import Record
from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import lookup
from gensor_tuner.build.pool import candidate
from gensor_tuner.store.kernel_rows import kernel_rows

ARCH = lookup("sm_87")


def stored_kernel(workload, built_for=None, **values):
    """Return the rows of the first starter for `workload`, with the constants that fit `built_for`."""
    family = Space(workload, ARCH).families[0].family
    program = family.starters(workload, ARCH)[0].replace(**values)
    chosen = candidate(family, program, built_for or workload)
    parts = kernel_rows(chosen, compile_cubin(chosen.source(), ARCH.target), workload, ARCH)
    return [*parts, Record(workload.key(), ARCH.name, ARCH.part, family.abi, parts[-1].digest, 1.0, 1.0, "ok")]
