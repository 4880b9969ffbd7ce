"""Calls of the public functions, to be captured, and kernels for all of them."""

from dataclasses import replace

import numpy as np

import gensor_kernels as gk
from gensor_kernels.dispatch.selection import library
from gensor_kernels.dispatch.selection.predict import predict
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.families.space import Space

from .strict.arrays import Array
from .strict.stored import cubin


class Stock(library.Library):
    """A kernel for every Workload but programs: one that splits k or streams, if `wanted` says so, else one that needs
    least."""

    def __init__(self, arch, wanted):
        super().__init__(library.Contents())
        self.arch, self.wanted, self.made = arch, wanted, {}

    def record(self, workload):
        if workload.program:
            return None
        key = workload.key()
        if key not in self.made:
            self.made[key] = self._drawn(workload)
        return self.made[key]

    def _programs(self, workload):
        for each in Space(workload, self.arch).families:
            for program in each.family.starters(workload, self.arch):
                own = program.by_name
                yield from (program.replace(**{self.wanted: 4}) for _ in [0] if self.wanted in own)
                yield program

    def _drawn(self, workload):
        programs = dict.fromkeys(self._programs(workload))
        found = [library.generate(program, workload, self.arch) for program in programs]
        legal = [k for k, s in zip(found, predict(found, workload, self.arch), strict=True) if s != float("inf")]
        legal = [kernel for kernel in legal if kernel.fits_epilogue(workload)]

        def need(kernel):
            wants = dict(kernel.program.values).get(self.wanted, 0) > 1
            return wants, FAMILIES[kernel.program.family].workspace(kernel.program, workload)[0]

        best = (max if self.wanted else min)(legal, key=need)
        launches = FAMILIES[best.program.family].launches(best.program, workload)
        code = replace(best.code, cubin=cubin(best.code.target, best.code.text, launches))
        return library.Kernel(best.digest, best.program, workload, lambda: code)


def filled(shape, dtype):
    return Array(shape, dtype).set(np.arange(np.prod(shape)).reshape(shape) % 7 - 3)


def half(*shape):
    return filled(shape, np.float16)


def single(*shape):
    return filled(shape, np.float32)


class Numba:
    def __init__(self, array):
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "strides": array.strides,
            "typestr": array.dtype.str,
            "data": (array.data.ptr, False),
            "version": 2,
        }
        self.array = array


def matmul_over(wide):
    """A product into memory that it reads."""
    a, out, b = wide[:128], wide[64:192], half(128, 128)
    return lambda: gk.matmul(a, b, out=out)


def image():
    return half(2, 32, 14, 14)


def attention(queries, keys, *mask):
    q, k, v = half(1, 2, queries, 64), half(1, 2, keys, 64), half(1, 2, keys, 64)
    return lambda: gk.attention(q, k, v, *mask)


def of(function, *arrays, **keywords):
    return lambda: function(*arrays, **keywords)


#: Name -> a function that makes the call's arrays and gives the call.
CALLS = {
    "matmul": lambda: of(gk.matmul, half(64, 1024), half(1024, 64)),
    "float32": lambda: of(gk.matmul, single(128, 256), single(256, 128)),
    "out": lambda: of(gk.matmul, half(64, 1024), half(1024, 64), out=half(64, 64)),
    "one row": lambda: of(gk.matmul, half(1, 1024), half(1024, 256)),
    "integers": lambda: of(gk.matmul, filled((128, 128), np.int8), filled((128, 128), np.int8), dtype="int32"),
    "converted": lambda: of(gk.matmul, single(128, 256), half(256, 128)),
    "wider out": lambda: of(gk.matmul, half(128, 256), half(256, 128), out=Array((128, 128), np.float64)),
    "overlap": lambda: matmul_over(half(256, 128)),
    "unaligned": lambda: of(gk.matmul, half(128 * 256 + 1)[1:].reshape(128, 256), half(256, 128)),
    "bias and gelu": lambda: of(gk.matmul, half(64, 1024), half(1024, 64), bias=half(64), activation="gelu"),
    "double bias": lambda: of(gk.matmul, half(64, 256), half(256, 64), bias=filled((64,), np.float64)),
    "long epilogue": lambda: of(gk.matmul, half(64, 256), half(256, 64), epilogue=["relu", "tanh"] * 4),
    "gate": lambda: of(gk.matmul, half(128, 256), half(256, 256), activation="swiglu"),
    "norm": lambda: of(gk.matmul, half(128, 256), half(256, 128), epilogue=["rmsnorm"]),
    "prologue": lambda: of(gk.matmul, half(128, 256), half(256, 128), prologue=["gelu"]),
    "matrix in front": lambda: of(gk.matmul, half(64, 256), half(256, 64), prologue=[("bias", half(64, 256))]),
    "double in front": lambda: of(
        gk.matmul, half(64, 256), half(256, 64), prologue=[("mul", filled((256,), np.float64))]
    ),
    "another library's": lambda: of(gk.matmul, Numba(half(64, 1024)), Numba(half(1024, 64))),
    "linear": lambda: of(gk.linear, half(128, 256), half(512, 256), half(512), "relu"),
    "quantised": lambda: of(gk.linear, half(128, 256), filled((512, 256), np.int8), scales=half(512)),
    "grouped": lambda: of(
        gk.grouped_matmul, half(128, 256), half(4, 256, 128), sizes=Array((4,), np.int32).set([32] * 4)
    ),
    "einsum": lambda: of(gk.einsum, "ij,jk->ki", half(128, 256), half(256, 128)),
    "einsum of three": lambda: of(gk.einsum, "ij,jk,kl->il", half(64, 256), half(256, 128), half(128, 64)),
    "summed first": lambda: of(gk.einsum, "ijx,jk->ik", half(128, 256, 8), half(256, 128)),
    "too many axes": lambda: of(
        gk.einsum, "abcdefx,fedcbay->xy", half(4, 4, 4, 4, 4, 4, 16), half(4, 4, 4, 4, 4, 4, 16)
    ),
    "einsum prologue": lambda: of(gk.einsum, "ij,jk->ik", half(128, 256), half(256, 128), prologue=["relu"]),
    "tensordot": lambda: of(gk.tensordot, half(128, 256), half(256, 128), 1),
    "dot": lambda: of(gk.dot, half(128, 256), half(256, 128)),
    "inner": lambda: of(gk.inner, half(128, 256), half(64, 256)),
    "vdot": lambda: of(gk.vdot, half(128, 256), half(128, 256)),
    "define": lambda: of(gk.define("ij,jk->ik", epilogue=["relu"]), half(128, 256), half(256, 128)),
    "conv2d": lambda: of(gk.conv2d, image(), half(32, 32, 3, 3), padding=1),
    "conv2d float32": lambda: of(gk.conv2d, single(2, 32, 14, 14), single(32, 32, 3, 3), padding=1),
    "conv2d NHWC": lambda: of(gk.conv2d, half(2, 14, 14, 32), half(32, 3, 3, 32), half(32), layout="NHWC"),
    "conv2d 1x1": lambda: of(gk.conv2d, image(), half(32, 32, 1, 1)),
    "conv2d prologue": lambda: of(gk.conv2d, image(), half(32, 32, 3, 3), prologue=["relu"]),
    "depthwise": lambda: of(gk.conv2d, image(), half(32, 1, 3, 3), groups=32),
    "conv3d": lambda: of(gk.conv3d, half(1, 32, 4, 10, 10), half(32, 32, 3, 1, 1)),
    "conv1d": lambda: of(gk.conv1d, half(2, 32, 100), half(32, 32, 3), padding=1),
    "transposed": lambda: of(gk.conv_transpose2d, image(), half(32, 32, 3, 3), stride=2),
    "max_pool2d": lambda: of(gk.max_pool2d, image(), 2),
    "global_avg_pool2d": lambda: of(gk.global_avg_pool2d, image()),
    "sum": lambda: of(gk.sum, single(64, 4096), axis=1),
    "whole sum": lambda: of(gk.sum, single(64, 4096)),
    "var": lambda: of(gk.var, single(64, 4096), axis=0),
    "logsumexp": lambda: of(gk.logsumexp, single(64, 4096), axis=1),
    "softmax": lambda: of(gk.softmax, single(64, 4096)),
    "softmax of columns": lambda: of(gk.softmax, single(64, 4096), axis=0),
    "rms_norm": lambda: of(gk.rms_norm, single(64, 4096), (4096,), weight=single(4096)),
    "attention": lambda: attention(128, 128),
    "attention split": lambda: attention(1, 4096),
    "attention mask": lambda: attention(128, 128, half(1, 2, 128, 128)),
    "attention sinks": lambda: of(gk.attention, *(half(1, 2, 128, 64) for _ in "qkv"), sinks=half(2)),
    "attention lse": lambda: of(
        gk.attention, *(half(1, 2, rows, 64) for rows in (4, 4096, 4096)), sinks=half(2), return_lse=True
    ),
    "attention pair": lambda: of(
        gk.attention,
        *(half(1, 2, 128, 64) for _ in "qkv"),
        return_lse=True,
        out=(half(1, 2, 128, 64), single(1, 2, 128)),
    ),
    "prepack": lambda: of(gk.prepack, half(257, 129)),
}
#: Functions of CuPy that the double lacks: the library alone cannot serve these calls over it.
UNSERVED = {"quantised", "grouped", "conv2d", "conv2d float32", "conv2d NHWC", "conv2d 1x1", "conv2d prologue"}
UNSERVED |= {"depthwise", "conv1d", "conv3d", "transposed", "attention", "attention split", "attention mask", "define"}
UNSERVED |= {"attention sinks", "attention lse", "attention pair"}
