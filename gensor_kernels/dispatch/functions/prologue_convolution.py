"""Convolutions with a prologue: by kernels, and by the array library.

Transposed and depthwise ones too: each is the convolution of another Function, with an image after the prologue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gensor_kernels.dispatch.calls.conv_parameters import IMAGES, Parameters
from gensor_kernels.dispatch.calls.fallback import apply_steps
from gensor_kernels.operators.declaration import prologue
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.operators.windows import conv_prologue

from .base import AbstractCall, Inputs, KernelCall, LibraryCall, NeedsCopies, Result
from .convolution import CONVOLUTION, Convolution
from .fused_matmul import Prologue, vector_copy
from .window import DEPTHWISE, Depthwise

if TYPE_CHECKING:
    from gensor_kernels.dispatch.calls.array import Backend, DeviceArray


class PrologueParameters(NamedTuple):
    """The parameters of a call: of its prologue, and of the convolution."""

    prologue: Prologue
    convolution: Parameters


class PrologueConvolution(Convolution):
    """f(x) under a window, of an image, weights and vectors (channels,); `parameters` is a PrologueParameters.

    `plain` is the convolution without a prologue.
    """

    name = "conv2d with a prologue"
    folds = False  # the prologue's vectors are per channel
    plain: Convolution = CONVOLUTION

    def result(self, inputs: Inputs, parameters: PrologueParameters) -> Result:  # type: ignore[override]
        """Return the Result of the convolution."""
        return super().result(inputs[:2], parameters.convolution)

    def op(self, parameters: PrologueParameters) -> str:  # type: ignore[override]
        """Return the operator of the convolution: shapes files have the prologue in a column."""
        return self.plain.op(parameters.convolution)

    def lower(self, call: AbstractCall) -> KernelCall:
        """Lower the convolution; convert vectors of types that kernels do not read."""
        before: Prologue = call.parameters.prologue
        x, w, *vectors = call.given
        dtype = np.promote_types(x.dtype, w.dtype).name
        copies = [vector_copy(view, dtype) for view in vectors]
        try:
            found = super().lower(replace(call, inputs=(x, w), parameters=call.parameters.convolution))
        except NeedsCopies as staged:
            raise NeedsCopies(*staged.copies, *copies) from None
        if any(copies):
            raise NeedsCopies(None, None, *copies)
        workload = conv_prologue.from_views(before.names, found.workload, vectors)
        geometry = conv_prologue.prologue_geometry(found.geometry, workload, before.scale)
        return replace(found, workload=workload, geometry=geometry)

    def vendor_call(self, workload: Workload, arrays: Mapping[str, DeviceArray]) -> LibraryCall:
        """Return the arguments, with the scale of verification."""
        plain = super().vendor_call(workload, arrays)
        vectors = [arrays[name].reshape(-1) for name in prologue.VECTORS if name in arrays]
        before = Prologue(workload.prologue, prologue.VERIFIED_SCALE)
        return LibraryCall((*plain.inputs, *vectors), PrologueParameters(before, plain.parameters), plain.declared)

    def library(
        self, device: Backend, inputs: Inputs, p: Any, math: str | None, out: DeviceArray = None
    ) -> DeviceArray:
        """Apply operations to x in at least float32, round to its dtype, and convolve."""
        x, w, *vectors = inputs
        dtype, plain = np.promote_types(x.dtype, w.dtype), p.convolution
        vectors = [x.reshape(-1, *ones(plain)) for x in vectors]
        x = apply_steps(device, x.astype(dtype, copy=False), p.prologue.steps(vectors), dtype, dtype)
        return super().library(device, (x, w), plain, math)


class PrologueDepthwise(PrologueConvolution, Depthwise):
    """The same with one channel and one filter per group."""

    name = "depthwise_conv2d with a prologue"
    plain = DEPTHWISE


PROLOGUE_CONVOLUTION, PROLOGUE_DEPTHWISE = PrologueConvolution(), PrologueDepthwise()


def ones(p: Parameters) -> tuple[int, ...]:
    """Return the extents after the channels, of an operand that is broadcast to an image."""
    return (1,) * (3 - IMAGES[p.layout][3])
