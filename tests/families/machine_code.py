"""Machine code of contraction Programs."""

import pytest

from gensor_kernels.build.nvrtc import Binary, compile_cubin
from gensor_kernels.build.resources import disassemble
from gensor_kernels.build.sass import Sass
from gensor_kernels.families.core.family import Family
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.build.pool import candidate


def machine_code(family: Family, workload: Workload, part: str, **values: int) -> tuple[Binary, Sass]:
    """Return the binary of the first starter with other values, which spills nothing, and its main kernel's code."""
    program = family.starters(workload, lookup(part))[0].replace(**values)
    binary = compile_cubin(candidate(family, program, workload).source(), lookup(part).target)
    assert binary.error is None and binary.spill_bytes == binary.stack_bytes == 0, binary.log
    # ptxas says so where every product waits, or where it ignores the exchange of registers.
    assert "Potential Performance Loss" not in binary.log and "setmaxnreg" not in binary.log, binary.log
    sass = disassemble(binary.cubin, binary.target)
    if sass is None:
        pytest.skip("nvdisasm is not installed")
    return binary, sass[family.name]
