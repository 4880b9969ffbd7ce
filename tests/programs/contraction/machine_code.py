"""Machine code of contraction kernels that are given by their constants."""

import pytest

from gensor_kernels.build.nvrtc import Binary, compile_cubin
from gensor_kernels.build.resources import disassemble
from gensor_kernels.build.sass import Sass
from tests.programs.workloads.contraction_harness import Kernel


def machine_code(kernel: Kernel, target: str) -> tuple[Binary, Sass]:
    """Return a kernel class, compiled without spills or complaints of ptxas, and the instructions of its kernel."""
    binary = compile_cubin(kernel.source(), target)
    assert binary.error is None and binary.spill_bytes == binary.stack_bytes == 0, binary.log
    # ptxas says so where it puts every product behind a wait, or ignores the exchange of registers.
    assert "Potential Performance Loss" not in binary.log and "setmaxnreg" not in binary.log, binary.log
    sass = disassemble(binary.cubin, binary.target)
    if sass is None:
        pytest.skip("nvdisasm is not installed")
    return binary, sass[kernel.family]
