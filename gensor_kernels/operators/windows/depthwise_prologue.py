"""Depthwise convolutions after a prologue; conv_prologue.py makes their Workloads."""

from __future__ import annotations

from dataclasses import dataclass

from gensor_kernels.operators.declaration import prologue

from . import depthwise
from .sliding import Sliding


@dataclass(frozen=True)
class PreparedDepthwise(prologue.Prepared, Sliding):
    """A depthwise convolution after a prologue."""


OPERATORS = prologue.prepared(PreparedDepthwise, depthwise.OPERATOR)
