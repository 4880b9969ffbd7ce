"""A device that computes what Params say, reading and writing memory where a kernel would, with NumPy.

So a result proves the arguments it was launched with: addresses, strides, sizes and epilogue. The launches are compared
with those that the kernel's Program asks for at these sizes, which proves that the Plan was made for them.
"""

import ctypes
import threading
from collections import Counter
from dataclasses import replace

import numpy as np

from gensor_kernels.devices.device import Arguments
from gensor_kernels.operators.types.epilogue import OPERATIONS
from gensor_kernels.programs.core import params
from gensor_kernels.programs.registry import FAMILIES

from .racing import RacingDevice

RELU, BIAS = OPERATIONS["relu"].code, OPERATIONS["bias"].code


class ExactDevice(RacingDevice):
    """float32 products with biases and relu. `kernels` are those that may be launched, by digest.

    `errors` is what was wrong with launches, whoever caught it; `salted`: results tell which kernel computed them.
    """

    def __init__(self, kernels=(), salted=False):
        super().__init__()
        self.local = Arguments()
        self.salted, self.errors, self.launches = salted, [], Counter()
        self.wanted = {}
        self.of_code = {kernel.code.digest: kernel for kernel in dict(kernels).values()}
        self._count = threading.Lock()

    def sampled(self, calls):
        for call in calls:
            call()
        with self._count:
            self.races.append(len(calls) - 1)
        # The library, each kernel in turn: another winner each time.
        times = [1000.0 if index != len(self.races) % len(calls) else 500.0 for index in range(len(calls))]
        return [[time * 0.99, time, time * 1.01] for time in times]

    def load(self, code, launches):
        def launch(arguments, arrays, steps, workspace):
            with self._count:
                self.launches[code.digest] += 1
            try:
                self._execute(code, tuple(launches), bytes(arguments[0]))
            except AssertionError as error:
                self.errors.append(error)
                raise

        return launch

    def _execute(self, code, launches, packed):
        numbers = params._HEAD.unpack_from(packed)
        pointers, strides, (m, n, k, batch), steps = numbers[:5], numbers[5:25], numbers[25:29], numbers[36]
        kernel = self.of_code[code.digest]
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
        c[...] = result * (1 + int(kernel.digest[:4], 16) * 2.0**-23) if self.salted else result

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
