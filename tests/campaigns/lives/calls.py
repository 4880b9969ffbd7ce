"""Fifty kinds of calls whose results are exact in float32, kernels for them, and what each must give."""

from dataclasses import replace

import numpy as np

from gensor_kernels.dispatch.calls.arguments import Operation
from gensor_kernels.operators.products import matmul as operator
from tests.doubles.kernels import aligned, kernels

LAYOUTS = ((False, False), (True, False), (False, True))
KINDS = 50
EACH = 2  # kernels of a class


def stock():
    """Kernels by digest: the default Programs of every layout, and of less demanding ones that fit too."""
    found = {}
    for trans_a, trans_b in LAYOUTS:
        wanted = operator.workload(64, 64, 64, dtype="float32", trans_a=trans_a, trans_b=trans_b)
        narrow = replace(wanted, alignment=tuple((name, 4) for name, _ in wanted.alignment))
        for each in (wanted, narrow):
            found |= dict(sorted(kernels(each).items())[:EACH])
    return found


class Kind:
    """One kind of call: operands of small whole numbers, and the result."""

    def __init__(self, index):
        rng = np.random.default_rng(index)
        m, n, k = (4 * int(size) for size in rng.integers(2, 14, 3))
        lead = (2,) if index % 7 == 3 else ()
        trans_a, trans_b = LAYOUTS[index % 3]
        self.a, self.b = draw(rng, lead, m, k, trans_a), draw(rng, lead, k, n, trans_b)
        self.steps, value = (), np.matmul(self.a, self.b)
        if index % 4 == 1:
            bias = aligned((n,))
            bias[...] = rng.integers(-4, 5, n)
            self.steps, value = (Operation("bias", bias), Operation("relu")), np.maximum(value + bias, 0)
        self.expected, self.with_out = value, index % 5 == 2

    def call(self, runtime):
        """One call; its result."""
        out = aligned(self.expected.shape) if self.with_out else None
        found = runtime.call(self.a, self.b, out, self.steps, None, None)
        assert out is None or found is out
        return found


def draw(rng, lead, rows, columns, transposed):
    """Whole numbers from -4 to 4, in C order or transposed."""
    array = aligned((*lead, columns, rows)).swapaxes(-1, -2) if transposed else aligned((*lead, rows, columns))
    array[...] = rng.integers(-4, 5, array.shape)
    return array
