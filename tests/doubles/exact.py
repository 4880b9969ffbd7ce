"""Launches that compute the product in Params with NumPy, reading and writing memory where a kernel would.

A result therefore proves the arguments of its launch: addresses, strides, sizes and epilogue. The launches are compared
with those of the kernel's Program at these sizes, which proves that the Plan was made for them.
"""

import ctypes
from dataclasses import replace
from itertools import count

import numpy as np

from gensor_kernels.families.core import params
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.operators.types.epilogue import OPERATIONS

from .device import Race

RELU, BIAS = OPERATIONS["relu"].code, OPERATIONS["bias"].code


class Turns(Race):
    """The library and each kernel win races in turn: another winner each time."""

    def __init__(self):
        super().__init__()
        self.number = count(1)

    def __call__(self, calls):
        winner = next(self.number) % len(super().__call__(calls))
        return [500.0 if index == winner else 1000.0 for index in range(len(calls))]


class Exact:
    """Execution of float32 products with biases and relu. `kernels` may be launched, by digest.

    `errors` collects failed checks even where the caller catches them.
    """

    def __init__(self, kernels=()):
        self.errors, self.wanted = [], {}
        self.of_code = {kernel.code.digest: kernel for kernel in dict(kernels).values()}

    def __call__(self, device, code, launches):
        kernel, asked = self.of_code[code.digest], tuple(launches)

        def launch(arguments, arrays, steps, workspace):
            try:
                self._execute(kernel, asked, bytes(arguments[0]))
            except AssertionError as error:
                self.errors.append(error)
                raise

        return launch

    def _execute(self, kernel, launches, packed):
        numbers = params._HEAD.unpack_from(packed)
        pointers, strides, (m, n, k, batch), steps = numbers[:5], numbers[5:25], numbers[25:29], numbers[36]
        assert launches == self._launches(kernel, m, n, k, batch), (kernel.program, m, n, k, batch)
        inner = numbers[29:31]
        shape = (batch // (inner[0] * inner[1]), *inner)
        a, b, c = (
            memory(pointers[each], (*shape, *core), strides[5 * each : 5 * each + 5])
            for each, core in enumerate([(m, k), (k, n), (m, n)])
        )
        result = np.matmul(a, b)
        for index in range(steps):
            pointer, *where, _, operation, _ = params._STEP.unpack_from(packed, params.step_offset(index))
            assert operation in (RELU, BIAS)
            result = np.maximum(result, 0) if operation == RELU else result + memory(pointer, result.shape, where)
        c[...] = result

    def _launches(self, kernel, m, n, k, batch):
        key = kernel.digest, m, n, k, batch
        if key not in self.wanted:
            sizes = dict(m=m, n=n, k=k, batch=batch)
            served = replace(kernel.serves, sizes=tuple((name, sizes[name]) for name, _ in kernel.serves.sizes))
            self.wanted[key] = tuple(FAMILIES[kernel.program.family].launches(kernel.program, served))
        return self.wanted[key]


def memory(address, shape, strides):
    """float32 memory at an address; strides in elements, none negative."""
    first = np.frombuffer((ctypes.c_float * 1).from_address(address), np.float32)
    return np.lib.stride_tricks.as_strided(first, shape, [4 * stride for stride in strides])
