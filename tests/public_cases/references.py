"""The right results by NumPy, SciPy and ONNX, and the bounds of tolerance/base.py for a kernel's error."""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np
from scipy import special

from gensor_kernels.operators.tolerance import base as tolerance_base
from gensor_kernels.operators.tolerance.base import Magnitude
from gensor_kernels.operators.types.dtypes import ACCUMULATORS, encode, facts, join_parts
from gensor_kernels.operators.types.epilogue import Step

from . import onnx_ops
from .drawing import FLOATS, Draw

#: Whether results are those of NumPy's functions: float16 and bfloat16 are rounded before an epilogue.
by_library = ContextVar("by_library", default=False)

Product = Callable[[np.ndarray, np.ndarray], np.ndarray]

#: Activations, by ONNX.
ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda x: onnx_ops.run("Relu", x),
    "relu6": lambda x: onnx_ops.run("Clip", x, np.float64(0.0), np.float64(6.0)),
    "gelu": lambda x: x * special.ndtr(x),  # ONNX's has the error function in single precision
    "gelu_tanh": lambda x: 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x * onnx_ops.run("Sigmoid", x),
    "tanh": lambda x: onnx_ops.run("Tanh", x),
    "sigmoid": lambda x: onnx_ops.run("Sigmoid", x),
}
OPERATIONS: dict[str, Callable[[np.ndarray, Step], np.ndarray]] = {
    "scale": lambda x, step: x * step.scalar,
    "bias": lambda x, step: x + step.operand,
    "add": lambda x, step: x + step.operand,
    "mul": lambda x, step: x * step.operand,
    "mask": lambda x, step: np.where(step.operand != 0, x, step.scalar),
}


def wide(array: np.ndarray) -> np.ndarray:
    """In float64, or complex128."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def apply_steps(values: np.ndarray, bound: np.ndarray, steps: Sequence[Step], dtype: str) -> tuple[np.ndarray, Any]:
    """Values after epilogue operations, and their bound: arithmetic of float32, or float64 for float64."""
    u = facts("float64" if dtype == "float64" else "float32").unit_roundoff
    for step in steps:
        if step.operand is not None:
            step = Step(step.name, wide(step.operand), step.scalar)
        known = OPERATIONS.get(step.name)
        after = known(values, step) if known else ACTIVATIONS[step.name](values)
        bound = tolerance_base.step_bound(step, values, after, bound, u, dtype)
        bound = np.where(np.isnan(bound) | ~np.isfinite(values), u * np.abs(after), bound)
        values = after
    return values, bound


def apply_prologue(x: np.ndarray, prologue: Sequence[Step], own: np.dtype[Any]) -> tuple[np.ndarray, np.ndarray]:
    """`x` after a prologue, rounded to its dtype once, and the bound of a kernel's difference from it."""
    values, bound = apply_steps(x, np.zeros_like(x), prologue, own.name)
    low, middle, high = (wide(each.astype(own)) for each in (values - bound, values, values + bound))
    away = np.maximum(np.abs(low - middle), np.abs(high - middle))
    return middle, np.where(np.isfinite(middle), away, 0.0)


def sum_bound(values: np.ndarray, total: np.ndarray, terms: int, dtype: str, accumulator: str, **more: Any) -> Any:
    """The bound of sums of `terms` products each, whose absolute values sum up to `total`."""
    size = Magnitude(total, total)
    return tolerance_base.accumulation_bound(
        values, size, terms, dtype=dtype, accumulator=accumulator, structured=True, **more
    )


def agree(
    found: np.ndarray, values: np.ndarray, bound: np.ndarray, output: str, accumulator: str,
    steps: Sequence[Step] = (), math: str = "ieee",
) -> None:  # fmt: skip
    """The result is an array of `output` within the bound of the right values, NaN and infinities included."""
    wanted = tolerance_base.expect(values, bound, steps, accumulator=accumulator, output=output, math=math)
    assert found.shape == wanted.values.shape and found.dtype.name == wanted.dtype, (found, wanted)
    stored = encode("bfloat16", found.astype(np.float64)) if found.dtype.name == "bfloat16" else found
    verdict = tolerance_base.check(np.asarray(stored), wanted)
    assert verdict.ok, verdict.message


def product_agrees(
    found: np.ndarray, f: Product, a: np.ndarray, b: np.ndarray, terms: int, steps: Sequence[Step] = (),
    math: str = "ieee", conjugate: Sequence[int] = (), prologue: Sequence[Step] = (),
) -> None:  # fmt: skip
    """The result is that of a bilinear `f` of `a` and `b`, sums of `terms` products each.

    Integers are exact, and wrap around. Operands of a prologue's steps broadcast to `a`.

    Complex products are four real ones, as IEEE's infinities require; BLAS multiplies them by 1 + 0i as well.
    """
    if found.dtype.kind in "biu":
        whole = f(a.astype(np.int64), b.astype(np.int64))
        return np.testing.assert_array_equal(found, whole > 0 if found.dtype.kind == "b" else whole.astype(found.dtype))
    dtype = np.promote_types(a.dtype, b.dtype).name
    accumulator, part = ACCUMULATORS[dtype], facts(dtype).part or dtype
    x, y = wide(a), wide(b)
    x, away = apply_prologue(x, prologue, a.dtype) if prologue else (x, None)
    total = f(np.abs(x), np.abs(y))

    def bound_of(values: np.ndarray, several: int) -> np.ndarray:
        return sum_bound(values, total, several, part, facts(accumulator).part or accumulator, math=math)

    if dtype.startswith("complex"):
        first, second = (-each.imag if i in conjugate else each.imag for i, each in enumerate((x, y)))
        both = [f(x.real, y.real) - f(first, second), f(x.real, second) + f(first, y.real)]
        values, bound = (join_parts(np.stack(w, -1)) for w in (both, [bound_of(v, 2 * terms) for v in both]))
        if math == "3m":
            bound = join_parts(8.0 * np.stack([bound.real, bound.imag], -1))
        infinities = "3m" if by_library.get() else math  # as BLAS has them
        return agree(found, values, bound, found.dtype.name, accumulator, steps, infinities)
    values = f(x, y)
    bound = bound_of(values, terms) + (0.0 if away is None else f(away, np.abs(y)))
    if by_library.get() and steps and dtype in ("float16", "bfloat16"):
        bound = bound + facts(dtype).unit_roundoff * (np.abs(values) + bound)
    values, bound = apply_steps(values, bound, steps, dtype)
    agree(found, values, bound, found.dtype.name, accumulator, math=math)


def scaled_agrees(found: np.ndarray, x: np.ndarray, y: np.ndarray, block: int, steps: Sequence[Step]) -> None:
    """The result is that of 8-bit floats that were multiplied by their scales, which `block` elements of k share.

    A block's sum is rounded three times more: the scales' product, the scaled sum, and its addition.
    """
    k = x.shape[-1]
    total, values = np.abs(x) @ np.abs(y), x @ y
    bound = sum_bound(values, total, k + 3 * -(-k // block), "float8_e4m3fn", "float22")
    values, bound = apply_steps(values, bound, steps, "float32")
    agree(found, values, bound, found.dtype.name, "float32")


LINEAR = [("mul", "bias"), ("scale", "mul"), ("bias",), ("scale",)]


def prologue(
    draw: Draw, dtype: str, extent: int, trailing: int = 0, share: float = 0.25, *, curves: bool = True
) -> tuple[list[Any] | None, list[Step]]:
    """A prologue for this share of calls: its items as a caller writes them, and as steps.

    Vectors have `extent` elements, along the axis of the operand that `trailing` axes follow. Integers and complex
    numbers have no prologue. Without `curves`, a device without a library computes it where kernels do not.
    """
    items: list[Any] = []
    steps: list[Step] = []
    if dtype not in FLOATS or not draw.often(share):
        return None, steps
    for name in draw.pick([*LINEAR, ()] if curves else LINEAR):
        if name == "scale":
            items.append((name, 0.5))
            steps.append(Step(name, None, 0.5))
            continue
        kind = draw.pick([dtype, dtype if dtype == "float64" else "float32"])
        vector = draw.array((extent,), kind, special=False)
        items.append((name, vector))
        steps.append(Step(name, vector.reshape(-1, *[1] * trailing)))
    if curves and (not items or draw.often(0.6)):
        items.append(draw.pick(list(ACTIVATIONS)))
        steps.append(Step(items[-1]))
    draw.traits.add("prologue")
    return items, steps
