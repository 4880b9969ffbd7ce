"""From what a caller wrote to what is computed: NumPy's rules for shapes, dtypes and error texts.

Only `shape` and `dtype` of arrays are read here, no data.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from gensor_kernels.arrays import Dtype
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.types.dtypes import array_dtype
from gensor_kernels.operators.types.epilogue import GATES, NORMS, OPERATIONS
from gensor_kernels.shown import shown

from .whole import real

if TYPE_CHECKING:
    from .array import DeviceArray

PRECISIONS = (None, "ieee", "tf32", "3m", "ozaki")
#: Other arithmetic for real types.
MATH_OF = {"float32": "tf32", "float64": "ozaki"}

#: Dtypes of results, other than that of the inputs, that a kernel writes from its accumulator.
WIDER_RESULTS = {
    "float16": ("float32",),
    "bfloat16": ("float32",),
    "int8": ("int32", "float32", "float16", "bfloat16"),
}


class Operation(NamedTuple):
    """One epilogue operation: its name, the array it reads (or None) and its scalar."""

    name: str
    operand: Any = None
    scalar: complex = 0.0


class Operands(NamedTuple):
    """The arrays of a call and its epilogue: inputs, `out` or None, and the operations that follow."""

    inputs: Sequence[Any]
    out: Any
    steps: tuple[Operation, ...]

    def arrays(self) -> list[DeviceArray]:
        """Return all arrays, those of the epilogue included."""
        every = (*self.inputs, self.out, *(step.operand for step in self.steps))
        return [array for array in every if array is not None]

    def give(self, value: DeviceArray) -> DeviceArray:
        """Return a computed result, in `out` where there is one."""
        if self.out is None or value is self.out:
            return value
        self.out[...] = value
        return self.out


@dataclass(frozen=True)
class Product:
    """Shapes and dtypes of one matrix product.

    `shape` and `dtype` are the result's; `inputs` is the dtype both operands are brought to; `sizes` is
    (m, n, k) with 1 for the axis a one-dimensional operand lacks; `batch` the broadcast leading axes.
    `math` is the mode products are formed in, `conjugated` says which operands are conjugated.
    `plain`: the array library's matmul computes it without an epilogue; `one_call`: without converting operands.
    """

    shape: tuple[int, ...]
    batch: tuple[int, ...]
    sizes: tuple[int, int, int]
    inputs: Dtype
    dtype: Dtype
    math: str
    plain: bool
    one_call: bool
    conjugated: tuple[bool, bool] = (False, False)


#: What `activation=` takes: made once, because making one costs as much as a dictionary lookup ten times. Rounding to
#: the result's dtype is no activation.
ACTIVATIONS = {
    name: Operation(name)
    for name, each in OPERATIONS.items()
    if not each.takes_operand and not each.takes_scalar and name != "cast"
}
_new = tuple.__new__


class FusedEpilogue(Exception):
    """Raised for an epilogue with a gate or a norm (functions/fused_matmul.py)."""


def operations(
    alpha: Any = 1,
    bias: DeviceArray = None,
    add: DeviceArray = None,
    activation: str | None = None,
    epilogue: Any = None,
) -> tuple[Operation, ...]:
    """Return the epilogue of `activation(alpha * a@b + bias + add)`, or of `alpha` and an explicit list.

    Raises ValueError for unknown names and for a list together with bias, add or activation (their order
    is undefined), TypeError for scalars that are no numbers (a mask's fill: no real ones) and for a list that is
    none; FusedEpilogue for one with a gate or a norm. Operands are not looked at here.
    """
    steps = [] if type(alpha) is int and alpha == 1 else _scale(alpha)
    if epilogue is not None:
        if bias is not None or add is not None or activation is not None:
            raise ValueError("epilogue= gives the whole order: put bias, add and activation into it")
        if isinstance(epilogue, str) or not isinstance(epilogue, Iterable):
            raise TypeError(f"epilogue must be a list such as [('bias', x), 'relu'], not {shown(epilogue)}")
        return (*steps, *(_parse_item(item) for item in epilogue))
    if bias is not None:
        steps.append(_new(Operation, ("bias", bias, 0.0)))
    if add is not None:
        steps.append(_new(Operation, ("add", add, 0.0)))
    if activation is not None:
        step = ACTIVATIONS.get(activation) if isinstance(activation, str) else None
        if step is None:
            if isinstance(activation, str) and activation in GATES:
                raise FusedEpilogue
            raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, not {shown(activation)}")
        steps.append(step)
    return tuple(steps)


def plain_operations(function: str, *given: Any) -> tuple[Operation, ...]:
    """Return `operations` of a function whose kernels have neither gates nor norms: UnsupportedError for these."""
    try:
        return operations(*given)
    except FusedEpilogue:
        raise UnsupportedError(f"{function} takes no gates and no norms") from None


def _scale(alpha: Any) -> list[Operation]:
    if type(alpha) in (int, float):
        return [] if alpha == 1 else [Operation("scale", None, real("alpha", alpha))]
    if getattr(alpha, "shape", None) == () and not isinstance(alpha, np.generic):
        return [Operation("mul", alpha)]  # a 0-d array stays on its device
    return [Operation("scale", None, _factor("alpha", alpha))]


def _factor(name: str, value: Any) -> complex:
    """Return a number as a float, or as a complex where it is one."""
    if isinstance(value, numbers.Complex) and not isinstance(value, numbers.Real):
        return complex(value)
    return _scalar(name, value)


def _scalar(name: str, value: Any) -> float:
    if not isinstance(value, (numbers.Real, np.bool_)):
        raise TypeError(f"{name} must be a real number, not {type(value).__name__}")
    return real(name, value)


def _parse_item(item: Any) -> Operation:
    """Read one entry of `epilogue=`: "relu", ("scale", 2.0), ("bias", array) or ("mask", array, fill)."""
    name, *values = item if isinstance(item, (tuple, list)) and item else (item,)
    if not isinstance(name, str):
        raise TypeError(f"an epilogue operation is a name, or a tuple such as ('bias', x), not {shown(item)}")
    operation = OPERATIONS.get(name)
    if operation is None:
        if name in GATES or name in NORMS:
            raise FusedEpilogue
        raise ValueError(f"epilogue operation {name!r} is not one of {', '.join(OPERATIONS)}")
    expected = int(operation.takes_operand) + int(operation.takes_scalar)
    if len(values) != expected:
        plural = "" if expected == 1 else "s"
        raise ValueError(f"epilogue operation {name!r} takes {expected} value{plural}, not {len(values)}")
    step = Operation(name, values[0]) if operation.takes_operand else Operation(name)
    read = _scalar if operation.takes_operand else _factor
    return step._replace(scalar=read(name, values[-1])) if operation.takes_scalar else step


def named_dtype(dtype: DTypeLike) -> Dtype:
    """Return the dtype that a caller names in any spelling, in the machine's byte order, as NumPy's results are."""
    if isinstance(dtype, str):
        return array_dtype(dtype).newbyteorder("=")
    try:
        return np.dtype(dtype).newbyteorder("=")
    except (TypeError, ValueError):
        raise TypeError(f"{shown(dtype)} is no dtype: expected a name such as 'float32', or a numpy.dtype") from None


def resolve(
    a: DeviceArray,
    b: DeviceArray,
    out: DeviceArray,
    steps: tuple[Operation, ...],
    dtype: Any = None,
    math: str = "ieee",
    conjugated: tuple[bool, bool] = (False, False),
) -> Product:
    """Return shapes and dtypes of a matrix product; raise what NumPy raises for operands that do not fit.

    The result's dtype is `dtype`, else NumPy's promotion of the operands, else a wider one (see `wider_result`) of
    `out`. `conjugated` says which operands are, where they are complex.
    """
    batch, sizes, shape = product_shapes(a.shape, b.shape)
    promoted = np.promote_types(a.dtype, b.dtype)
    result = promoted if out is None else wider_result(promoted, out.dtype) or promoted
    if dtype is not None:
        result = named_dtype(dtype)
        for index, operand in enumerate((a, b)):
            _check_cast(operand.dtype, result, f"input {index}")
    inputs = promoted if result == promoted or result.name in WIDER_RESULTS.get(promoted.name, ()) else result
    first, second = conjugated
    conjugated = first and a.dtype.kind == "c", second and b.dtype.kind == "c"
    # CuPy has no batched bfloat16, and converts batched float16 to float32 and back.
    plain = result == promoted and not (batch and result.name == "bfloat16") and not any(conjugated)
    one_call = plain and not (batch and result.name == "float16")
    found = Product(shape, batch, sizes, inputs, result, math_of(inputs, math), plain, one_call, conjugated)
    check_product(found, out, steps)
    return found


def wider_result(promoted: Dtype, out: Dtype) -> Dtype | None:
    """Return the dtype of `out` if the result is not rounded to the operands' promoted dtype first, else None.

    Unlike in NumPy, `out` may have the dtype of an accumulator that is wider than the operands (int8, float16,
    bfloat16).
    """
    return out if out.name in WIDER_RESULTS.get(promoted.name, ()) else None


def math_of(inputs: Dtype, allowed: str) -> str:
    """Return the mode that products of these inputs are formed in where `allowed` is allowed."""
    takes = "3m" if inputs.kind == "c" else MATH_OF.get(inputs.name, "ieee")
    return allowed if allowed == takes else "ieee"


def check_product(product: Product, out: DeviceArray, steps: tuple[Operation, ...]) -> None:
    """Raise what NumPy raises for an `out` or an epilogue that does not fit a matrix product."""
    check_operands(steps, product.shape)
    if out is not None:
        _check_cast(product.dtype, out.dtype, "output")
        if tuple(out.shape) != product.shape:
            raise ValueError(f"matmul: Output operand 0 has shape {tuple(out.shape)}, the result {product.shape}")
    check_steps(steps, product.dtype)


def check_steps(steps: tuple[Operation, ...], result: Dtype) -> None:
    """Raise TypeError for complex numbers in a real epilogue, UnsupportedError for operations that they lack."""
    for name, operand, scalar in steps:
        if result.kind == "c":
            if not OPERATIONS[name].of_complex:
                raise UnsupportedError(f"epilogue operation {name!r} is not defined for complex numbers")
        elif type(scalar) is complex or (operand is not None and operand.dtype.kind == "c"):
            raise TypeError(f"{name} takes no complex number where the result is {result}")


def _check_cast(source: Dtype, target: Dtype, what: str) -> None:
    if not np.can_cast(source, target, "same_kind"):
        raise TypeError(
            f"Cannot cast ufunc 'matmul' {what} from {source!r} to {target!r} with casting rule 'same_kind'"
        )


def check_operands(steps: tuple[Operation, ...], shape: tuple[int, ...]) -> None:
    """Raise ValueError for an epilogue's array that does not broadcast to the result's shape."""
    for name, operand, _ in steps:
        extents = () if operand is None else tuple(operand.shape)
        pairs = zip(reversed(extents), reversed(shape), strict=False)
        if len(extents) > len(shape) or any(extent not in (1, whole) for extent, whole in pairs):
            raise ValueError(f"{name} of shape {extents} does not broadcast to the result's shape {shape}")


def is_whole(scalar: complex) -> bool:
    """Return whether an int32 holds a scalar exactly."""
    return not isinstance(scalar, complex) and -(2.0**31) <= scalar < 2.0**31 and scalar.is_integer()


# ---- shapes of a matrix product

SIGNATURE = "(n?,k),(k,m?)->(n?,m?)"


def product_shapes(
    a: tuple[int, ...], b: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, int, int], tuple[int, ...]]:
    """Return (batch axes, (m, n, k), result shape) of operands of shapes `a` and `b`."""
    for index, shape in enumerate((a, b)):
        if not shape:
            raise ValueError(
                f"matmul: Input operand {index} does not have enough dimensions "
                f"(has 0, gufunc core with signature {SIGNATURE} requires 1)"
            )
    k, inner = a[-1], b[-2 if len(b) > 1 else 0]
    if k != inner:
        raise ValueError(
            f"matmul: Input operand 1 has a mismatch in its core dimension 0, with gufunc signature "
            f"{SIGNATURE} (size {inner} is different from {k})"
        )
    try:
        batch = np.broadcast_shapes(a[:-2], b[:-2])
    except ValueError:
        raise ValueError(
            "operands could not be broadcast together with remapped shapes [original->remapped]: "
            f"{_signature_of(a)} {_signature_of(b)}"
        ) from None
    rows, columns = a[-2:-1] if len(a) > 1 else (), b[-1:] if len(b) > 1 else ()
    return batch, (rows[0] if rows else 1, columns[0] if columns else 1, k), (*batch, *rows, *columns)


def _signature_of(shape: tuple[int, ...]) -> str:
    return f"({','.join(map(str, shape))})->({','.join((*map(str, shape[:-2]), 'newaxis', 'newaxis'))})"
