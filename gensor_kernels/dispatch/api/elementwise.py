"""elementwise: operations on every element of an array, in one kernel. Imports little."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gensor_kernels.dispatch.calls.arguments import plain_operations

from .current import current_runtime
from .interop import public
from .rows import rows_parameters

if TYPE_CHECKING:
    from gensor_kernels.arrays import ArrayLike
    from gensor_kernels.dispatch.calls.array import Items


@public
def elementwise(x: ArrayLike, epilogue: Items, out: ArrayLike | None = None) -> Any:
    """Apply up to six operations to every element of an array, in one kernel.

    The signature is its own: no other library has this function.

    Parameters
    ----------
    x : array, shape (..., n)
        Input.
    epilogue : list
        Operations in order, as in `matmul`: activations by name, `("scale", number)`,
        `("bias", array)` of shape (n,), and `("add", array)`, `("mul", array)` or
        `("mask", array, fill)` with arrays that broadcast to `x`.
    out : array, optional
        Array that receives the result.

    Returns
    -------
    array, shape of `x`
        A new array with the dtype of `x`, or `out`.

    Raises
    ------
    ValueError
        If shapes do not fit, or a name is unknown.
    TypeError
        If `x` is not an array of this device.
    UnsupportedError
        If the operations have a gate or a norm.

    Notes
    -----
    float16 and bfloat16 are computed in float32 and rounded once.

    Examples
    --------
    >>> x = np.array([[-1, 2], [3, 4]], "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.elementwise(x, [("add", x), "relu"])
    array([[0., 4.],
           [6., 8.]], dtype=float32)
    """
    runtime = current_runtime()
    runtime.require("x", x)
    steps = plain_operations("elementwise", 1, None, None, None, epilogue)
    function, parameters = rows_parameters("elementwise", (), x.ndim)
    return runtime.serve(function, (x,), parameters, out, steps)
