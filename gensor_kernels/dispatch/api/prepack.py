"""Weights laid out in memory as products with few rows read them fastest. Imports little."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gensor_kernels.dispatch.calls.whole import whole
from gensor_kernels.shown import no_array, shown

from .current import current_runtime
from .interop import adopting

if TYPE_CHECKING:
    from gensor_kernels.arrays import ArrayLike
    from gensor_kernels.dispatch.calls.array import DeviceArray
    from gensor_kernels.dispatch.plans.runtime import Runtime
    from gensor_kernels.operators.types.workload import View

#: A layout must be predicted to be faster by this factor before weights are copied.
WORTHWHILE = 1.05


@adopting
def prepack(w: ArrayLike, *, axis: int = -2, rows: int = 1) -> DeviceArray:
    """Lay out weights in memory as products with few rows read them fastest.

    The signature is its own: no other library has this function.

    Parameters
    ----------
    w : array, shape (..., k, n)
        Weight matrix.
    axis : int, default -2
        Axis that the product sums over: -2 for `x @ w`, -1 for `linear(x, w)` and
        `w @ x`.
    rows : int, default 1
        Number of rows of the other operand.

    Returns
    -------
    array, shape (..., k, n)
        A copy with the last two axes in the other order in memory, if the product is
        predicted to be at least 5 % faster with it; otherwise `w` itself. Shape, dtype
        and values are those of `w`, and any function takes the result.

    Raises
    ------
    ValueError
        If `w` has fewer than two axes, or `axis` is not one of its last two.
    TypeError
        If `w` is not an array of this device.

    Notes
    -----
    A copy is predicted to be faster for int8, and on A100 and H100 where rows are
    misaligned (their length is not a multiple of 16 bytes) and the other axis is aligned.
    Aligned weights of 16 bits and more are as fast in either order.

    Examples
    --------
    Rows of 2049 elements are misaligned, columns of 2048 elements are aligned:

    >>> w = np.zeros((2048, 2049), "float16")
    >>> with gensor_kernels.emulated("sm_90"):
    ...     packed = gensor_kernels.prepack(w)
    >>> w.strides, packed.strides
    ((4098, 2), (2, 4096))
    >>> packed.shape == w.shape
    True
    """
    runtime = current_runtime()
    if not runtime.device.is_array(w):
        raise TypeError(no_array("w", w, runtime.device.xp.__name__))
    if w.ndim < 2 or axis not in (-1, -2, w.ndim - 1, w.ndim - 2):
        raise ValueError(
            f"prepack: w has the shape (..., k, n), axis is one of its last two: {tuple(w.shape)}, {shown(axis)}"
        )
    rows, transposed = whole("rows", rows, 1), axis in (-1, w.ndim - 1)
    if runtime.device.arch is None or 0 in w.shape or 1 in w.shape[-2:]:
        return w
    from gensor_kernels.operators.types.workload import contiguous

    *lead, first, last = (int(extent) for extent in w.shape)
    stored = contiguous((*lead, first, last), w.dtype.name)
    turned = _swap_axes(contiguous((*lead, last, first), w.dtype.name))
    now, known = _view(runtime, w), dict[Any, float]()
    for view in (now, stored, turned):
        if view not in known:
            known[view] = _seconds(runtime, view, transposed, rows)
    if min(known[stored], known[turned]) * WORTHWHILE > known[now]:
        return w
    xp = runtime.device.xp
    if known[stored] <= known[turned]:
        return xp.ascontiguousarray(w)
    return xp.ascontiguousarray(xp.swapaxes(w, -1, -2)).swapaxes(-1, -2)


def _swap_axes(view: View) -> View:
    """Return a view with its last two axes in the other order."""
    from gensor_kernels.operators.types.workload import View

    shape, strides = ((*x[:-2], x[-1], x[-2]) for x in (view.shape, view.strides))
    return View(shape, strides, view.dtype, view.alignment)


def _view(runtime: Runtime, w: DeviceArray) -> View | None:
    """Return the layout of an array in memory, None where kernels do not take it."""
    from gensor_kernels.dispatch.calls.problem import view_of
    from gensor_kernels.errors import UnsupportedError

    try:
        return view_of(w, runtime.pointer(w))
    except UnsupportedError:
        return None


def _seconds(runtime: Runtime, view: View | None, transposed: bool, rows: int) -> float:
    """Return the predicted seconds of the best default Program with weights laid out as `view`; infinity for None."""
    from gensor_kernels.dispatch.calls.problem import multiply
    from gensor_kernels.dispatch.selection.predict import few_seconds
    from gensor_kernels.errors import UnsupportedError
    from gensor_kernels.families.registry import FAMILIES
    from gensor_kernels.operators.products.matmul import default_output
    from gensor_kernels.operators.types.workload import contiguous

    arch = runtime.device.arch
    assert arch is not None
    if view is None:
        return float("inf")
    try:
        b = _swap_axes(view) if transposed else view
        *lead, k, n = b.shape
        x = contiguous((*lead, rows, k), b.dtype)
        c = contiguous((*lead, rows, n), default_output(b.dtype))
        math = runtime.precision(None) if b.dtype == "float32" else "ieee"
        workload = multiply(x, b, c, (), (), math).workload
    except UnsupportedError:
        return float("inf")
    found = [float("inf")]
    for family in FAMILIES.values():
        if family.serves(workload, arch) is None:
            found += few_seconds(family, family.starters(workload, arch), workload, arch)
    return min(found)
