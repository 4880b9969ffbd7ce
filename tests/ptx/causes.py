"""Why bits of executed PTX differ from the emulator's: classes of cases, and what takes each cause away.

On a CPU that has fused multiply-adds all bits are equal but for these causes:

functions    exponentials, error functions, hyperbolic tangents and logarithms: libm's here, CUDA's in the PTX, and on a
             GPU with an approximation whose bits the ISA leaves open
tensor sums  of floats: the ISA leaves order and rounding open. The executor rounds the exact sum once, and cuts it as a
             B200 does in tensor memory; the emulator cuts it as V100's tensor cores do
sums of two  of which either may be fused, such as sums of squares: NVRTC and g++ may choose differently. They rarely
products     do, so cases with such sums have no class
"""

import re
from collections.abc import Iterable

from gensor_kernels.operators.attention.forms import FORMS as ATTENTION
from gensor_kernels.operators.recurrent.recurrent import OPERATORS as RECURRENT
from gensor_kernels.operators.types.epilogue import GATES
from gensor_kernels.operators.types.workload import Workload

FUNCTIONS, SUMS = "functions", "tensor sums"
#: The class of cases for which no cause is known: all of their bits must be equal.
NONE = "no cause"

_SUMS = re.compile(r"(mma\.|wgmma\.mma_async).*\.f32|tcgen05\.mma.*kind::(?!i8)")
_CURVES = {"gelu", "gelu_tanh", "silu", "tanh", "sigmoid"}
_OPERATORS = {"softmax", "log_softmax", "logsumexp", *ATTENTION, *RECURRENT}


def causes(workload: Workload, opcodes: Iterable[str]) -> str:
    """Return the causes that a case's Workload and its kernel, of these opcodes, give, joined; NONE without any."""
    steps = {*workload.epilogue, *workload.prologue, GATES.get(workload.operator.removeprefix("bias_"), "")}
    found = []
    if workload.operator in _OPERATORS or steps & _CURVES:
        found.append(FUNCTIONS)
    if any(_SUMS.match(each) for each in opcodes):
        found.append(SUMS)
    return " and ".join(found) or NONE


#: Behind the intrinsics: a function in place of all others. It has no addition, and ends in no product, which could be
#: fused.
_PLAIN = """
template <class T>
DEVICE T plain_(T x) {
    return x < T(0) ? T(1) / fma_(x, T(-0.5), T(1)) : fma_(x, T(0.5), T(1));
}
"""


def plain(source: str) -> str:
    """Return a bound source without functions: its results are wrong, its bits must be equal but for tensor sums."""
    intrinsics, end, rest = source.partition("#include <gensor_emulator.h>\n#endif\n")
    if not end:
        raise ValueError("a source without intrinsics")
    return intrinsics + end + _PLAIN + re.sub(r"\b(exp|exp2|erf|tanh|log)_\(", "plain_(", rest)


def unfused(source: str) -> str:
    """Return a bound source in which g++ rounds products before sums, as NVRTC does by an option of `ptx_of`."""
    return f'#pragma GCC optimize("fp-contract=off")\n{source}'
