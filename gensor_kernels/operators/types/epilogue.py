"""Epilogue operations: applied to an accumulator before it is stored.

An epilogue is a list of at most :data:`MAX_STEPS` operations in the order of their application.  The codes are those of
``epilogue.cuh``; a test compares the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from gensor_kernels import spelling
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.shown import shown

from .dtypes import round_to

#: Steps a kernel's parameters have room for.
MAX_STEPS = 6

_erfc_of = np.frompyfunc(math.erfc, 1, 1)


def _erfc(v: np.ndarray) -> np.ndarray:
    return np.asarray(_erfc_of(v), dtype=np.float64)


class Operation(NamedTuple):
    """One operation v -> f(v, operand, scalar)."""

    #: number in ``epilogue.cuh``
    code: int
    #: "" for none, "n" for a vector over the columns, "mn" for a tensor of the output's shape (either may be broadcast
    #: by stride 0)
    operand: str
    #: whether a number is a run-time argument
    takes_scalar: bool
    #: NumPy float64 reference
    function: Callable[..., np.ndarray]
    #: bound on |df/dv| for operations without operand and scalar
    lipschitz: float = 1.0
    #: whether f is defined for complex v; a real operand or scalar then has an imaginary part of 0, as in NumPy
    of_complex: bool = False

    @property
    def takes_operand(self) -> bool:
        """True if a second tensor is read."""
        return bool(self.operand)


class Step(NamedTuple):
    """An operation by name with the operand (broadcastable to the output) and the scalar it takes."""

    name: str
    operand: np.ndarray | None = None
    scalar: complex = 1.0


def _mask(v: np.ndarray, x: np.ndarray, s: complex) -> np.ndarray:
    return np.where(x == 0, s, v)


def _gelu(v: np.ndarray, x: None, s: float) -> np.ndarray:
    # erfc keeps the left tail accurate, where 1 + erf cancels.
    return 0.5 * v * _erfc(-v / math.sqrt(2.0))


def _gelu_tanh(v: np.ndarray, x: None, s: float) -> np.ndarray:
    return 0.5 * v * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (v + 0.044715 * v**3)))


def _sigmoid(v: np.ndarray, x: None = None, s: float = 1.0) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-v))


# Maxima of the derivatives: gelu 1.1289 at v = sqrt(2), gelu_tanh 1.1290, silu 1.0998, each rounded up.
# NaN stays NaN through relu and relu6, as it does through np.maximum.
OPERATIONS: dict[str, Operation] = {
    "scale": Operation(1, "", True, lambda v, x, s: v * s, of_complex=True),
    "bias": Operation(2, "n", False, lambda v, x, s: v + x, of_complex=True),
    "add": Operation(3, "mn", False, lambda v, x, s: v + x, of_complex=True),
    "mul": Operation(4, "mn", False, lambda v, x, s: v * x, of_complex=True),
    "relu": Operation(5, "", False, lambda v, x, s: np.maximum(v, 0.0)),
    "relu6": Operation(6, "", False, lambda v, x, s: np.clip(v, 0.0, 6.0)),
    "gelu": Operation(7, "", False, _gelu, 1.13),
    "gelu_tanh": Operation(8, "", False, _gelu_tanh, 1.13),
    "silu": Operation(9, "", False, lambda v, x, s: v * _sigmoid(v), 1.1),
    "tanh": Operation(10, "", False, lambda v, x, s: np.tanh(v)),
    "sigmoid": Operation(11, "", False, _sigmoid, 0.25),
    "mask": Operation(12, "mn", True, _mask, of_complex=True),
    "cast": Operation(13, "", False, lambda v, x, s: v, of_complex=True),
}

#: Operations by other names.
SPELLINGS = {"swish": "silu", "residual": "add", "multiply": "mul", "add_bias": "bias"}

#: Operations of a prologue, applied to an operand as it is read (declaration/prologue.py); bias and mul have a vector
#: along k.
PROLOGUES = ("scale", "bias", "mul", "relu", "relu6", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid")
#: Vectors, and numbers of scale, that a prologue may have.
MAX_VECTORS, MAX_SCALES = 2, 1


#: Operation on the gate of a gated product (products/gated.py), by the product's name.
GATES = {"swiglu": "silu", "geglu": "gelu", "geglu_tanh": "gelu_tanh", "reglu": "relu"}


#: Norms of rows within the epilogue of a product (products/normed.py).
NORMS = ("layernorm", "rmsnorm")


def parse(text: str) -> tuple[str, ...]:
    """Return the operation names of an epilogue written as in shapes.csv: ``"bias_add_relu"``, ``"none"`` or ``""``.

    The longest name wins, so that ``"gelu_tanh"`` is one operation.  UnsupportedError names an unknown word.
    """
    words = [] if text.strip() in ("", "none") else text.strip().split("_")
    names: list[str] = []
    while words:
        fits = [length for length in (2, 1) if "_".join(words[:length]) in OPERATIONS]
        if not fits:
            unknown = spelling.unknown(words[0], OPERATIONS, SPELLINGS)
            raise UnsupportedError(f"operation {unknown} (operations are joined by _, as in bias_relu)")
        names.append("_".join(words[: fits[0]]))
        del words[: fits[0]]
    if len(names) > MAX_STEPS:
        raise UnsupportedError(f"epilogue {shown(text)} has {len(names)} operations, at most {MAX_STEPS} are served")
    return tuple(names)


def join(names: Sequence[str]) -> str:
    """Return the inverse of :func:`parse`."""
    return "_".join(names) or "none"


def wide(values: np.ndarray) -> np.ndarray:
    """``values`` as float64, or complex128 where they are complex."""
    return np.asarray(values, dtype=np.complex128 if np.iscomplexobj(values) else np.float64)


def step_function(step: Step, output_dtype: str) -> Callable[[np.ndarray], np.ndarray]:
    """Return the float64 function v -> f(v) of one step; ValueError if its operand is missing."""
    operation = OPERATIONS[step.name]
    if operation.takes_operand and step.operand is None:
        raise ValueError(f"epilogue operation {step.name!r} needs an operand")
    if step.name == "cast":
        return lambda v: round_to(output_dtype, v)
    operand = None if step.operand is None else wide(step.operand)
    return lambda v: operation.function(v, operand, step.scalar)


def apply(values: np.ndarray, steps: Sequence[Step], output_dtype: str) -> np.ndarray:
    """Return ``values`` (float64, complex128) after every step, not yet rounded to ``output_dtype``."""
    values = wide(values)
    with np.errstate(all="ignore"):
        for step in steps:
            values = step_function(step, output_dtype)(values)
    return values
