"""Why bits of executed PTX differ from the emulator's: classes of cases, and what takes each cause away.

On a CPU that has fused multiply-adds all bits are equal but for four causes:

functions         exponentials, error functions, hyperbolic tangents and logarithms: libm's here, CUDA's in the PTX, and
                  on a GPU with an approximation whose bits the ISA leaves open
complex products  of a complex epilogue: which of the two products of an imaginary part NVRTC fuses with the sum differs
                  from one place to the next
steps compiled in a product that a prologue or a fixed epilogue adds something to in its next step: NVRTC unrolls the
                  loops of both steps and fuses them, g++ does not
tensor sums       of floats: the ISA leaves order and rounding open. The executor rounds the exact sum once; the
                  emulator cuts it as V100's tensor cores do
"""

import re
from collections.abc import Iterable
from itertools import pairwise

from gensor_kernels.operators.attention.forms import FORMS as ATTENTION
from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.types.epilogue import GATES
from gensor_kernels.operators.types.workload import Workload

FUNCTIONS, PRODUCTS, STEPS, SUMS = "functions", "complex products", "steps compiled in", "tensor sums"
#: The class of cases for which no cause is known: all of their bits must be equal.
NONE = "no cause"

_CURVES = {"gelu", "gelu_tanh", "silu", "tanh", "sigmoid"}
_OPERATORS = {"softmax", "log_softmax", "logsumexp", *ATTENTION}


def causes(workload: Workload, opcodes: Iterable[str], *, fixed: bool = False) -> str:
    """Return the causes that a case's Workload and its kernel give, joined; NONE without any.

    `opcodes` are those of the kernel, `fixed` says whether its epilogue is compiled in.
    """
    steps = {*workload.epilogue, *workload.prologue, GATES.get(workload.operator.removeprefix("bias_"), "")}
    found = []
    if workload.operator in _OPERATORS or steps & _CURVES:
        found.append(FUNCTIONS)
    if facts(workload.accumulator).is_complex and steps & {"scale", "mul"}:
        found.append(PRODUCTS)
    compiled = [workload.prologue, workload.epilogue if fixed else ()]
    if any(
        first in ("scale", "mul") and then in ("bias", "add") for each in compiled for first, then in pairwise(each)
    ):
        found.append(STEPS)
    if any(each.startswith(("mma.", "wgmma.mma_async")) and ".f32" in each for each in opcodes):
        found.append(SUMS)
    return " and ".join(found) or NONE


#: Behind the intrinsics: a function in place of all others, and products that are an fma. None has an addition or ends
#: in a product, which could be fused.
_PLAIN = """
template <class T>
DEVICE T plain_(T x) {
    return x < T(0) ? T(1) / fma_(x, T(-0.5), T(1)) : fma_(x, T(0.5), T(1));
}
template <class T>
DEVICE complex_t<T> plain_product(complex_t<T> a, complex_t<T> b) {
    return complex_t<T>{fma_(a.re, b.re, -(a.im * b.im)), fma_(a.re, b.im, a.im * b.re)};
}
template <class T>
DEVICE T plain_product(T a, T b) {
    return fma_(a, b, T(1));
}
DEVICE i32 plain_product(i32 a, i32 b) {
    return a * b;
}
DEVICE c64 operator*(c64 a, c64 b) {
    return plain_product(a, b);
}
DEVICE c128 operator*(c128 a, c128 b) {
    return plain_product(a, b);
}
"""


def plain(source: str) -> str:
    """Return a bound source without all causes but tensor sums: its results are wrong, its bits must be equal."""
    intrinsics, end, rest = source.partition("#include <gensor_emulator.h>\n#endif\n")
    if not end:
        raise ValueError("a source without intrinsics")
    rest = re.sub(r"\b(exp|exp2|erf|tanh|log)_\(", "plain_(", rest)
    return intrinsics + end + _PLAIN + re.sub(r"v\[i\] \* (x\[i\]|scalar)", r"plain_product(v[i], \1)", rest)
