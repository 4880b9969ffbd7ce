"""Contractions with the names, arguments and rules of CuPy's, other than matmul. Imports little."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from gensor_kernels.dispatch.observe.dry_run import asking

from .current import current_runtime
from .interop import public

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import DTypeLike

    from gensor_kernels.arrays import ArrayLike
    from gensor_kernels.dispatch.calls.array import DeviceArray, Items
    from gensor_kernels.dispatch.contractions.spec import Form
    from gensor_kernels.dispatch.plans.runtime import Runtime

    from .define import Defined


@public
def einsum(
    *operands: str | ArrayLike | Sequence[Any],
    dtype: DTypeLike | None = None,
    optimize: bool | str | Sequence[Any] = False,
    conjugate: int | Sequence[int] = (),
    prologue: Items | None = None,
    out: ArrayLike | None = None,
) -> DeviceArray:
    """Compute a sum of products in Einstein's notation.

    The signature is that of `cupy.einsum`, with the keywords `conjugate`, `prologue`
    and `out`.

    Parameters
    ----------
    *operands : str and arrays
        Either subscripts and operands, `einsum("ij,jk->ik", a, b)`, or operands and
        lists of axes, `einsum(a, [0, 1], b, [1, 2], [0, 2])`, the last list being
        optional. Subscripts follow `numpy.einsum`: axes of one element broadcast,
        ellipses, repeated and summed letters, and the implied output have the same
        meaning.
    dtype : dtype, optional
        Dtype of the result; by default the promoted dtype of the operands.
    optimize : {False, True, "greedy", "optimal"}, tuple or list, default False
        Order in which three and more operands are contracted. False goes from the last
        operand to the first, as CuPy does; True and "greedy" take a cheap order,
        "optimal" the cheapest order; `("greedy", limit)` or `("optimal", limit)` bounds
        the elements of an intermediate; a list from `numpy.einsum_path` is followed.
    conjugate : int or sequence of int, default ()
        Operands, numbered from 0, that are conjugated. Kernels conjugate as they read;
        `.conj()` would make a copy.
    prologue : list, optional
        Operations on the first operand as kernels read it, as in `matmul`; their arrays
        broadcast to it.
    out : array, optional
        Array that receives the result, with its shape and dtype and any strides.

    Returns
    -------
    array
        A new array or a transposed view of a new array. It is a view of the operand
        where there is one operand and nothing is summed, as in CuPy. Or `out`.

    Raises
    ------
    ValueError
        If subscripts, shapes or `out` do not fit.
    TypeError
        If `optimize` is not one of the forms above.

    Notes
    -----
    Two operands are one product of kernels on the arrays in place; more
    axes than kernels take cost one copy. Three and more operands are contracted
    pairwise, each intermediate in the dtype of the result. One operand, and products
    without a sum, go to the array library.

    float16 and bfloat16 are summed in float32 and rounded once. int8 wraps around as in
    `cupy.einsum`.

    References
    ----------
    .. [1] D. G. A. Smith and J. Gray, "opt_einsum - A Python package for optimizing
       contraction order for einsum-like expressions", J. Open Source Softw. 3 (2018).

    Examples
    --------
    Scores of attention, without a transposed copy of the keys:

    >>> q = np.arange(8, dtype="float32").reshape(1, 2, 1, 4)
    >>> k = np.ones((1, 3, 1, 4), "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     scores = gensor_kernels.einsum("bihd,bjhd->bhij", q, k)
    >>> scores.shape
    (1, 1, 2, 3)
    >>> scores[0, 0]
    array([[ 6.,  6.,  6.],
           [22., 22., 22.]], dtype=float32)
    """
    if (
        len(operands) == 3
        and type(operands[0]) is str
        and type(optimize) is bool
        and type(conjugate) is tuple
        and not conjugate
        and prologue is None
    ):
        runtime = current_runtime()
        text, a, b = operands
        is_array = runtime.device.is_array
        if is_array(a) and is_array(b):
            return runtime.contract(text, a, b, out, dtype)
    from .chain import contract_chain

    return contract_chain(current_runtime(), operands, dtype, optimize, conjugate, prologue, out)


@public
def tensordot(
    a: ArrayLike,
    b: ArrayLike,
    axes: int | Sequence[int] | Sequence[Sequence[int]] = 2,
    *,
    prologue: Items | None = None,
) -> DeviceArray:
    """Sum products over given axes of two arrays.

    The signature is that of `cupy.tensordot`, with the keyword `prologue`.

    Parameters
    ----------
    a, b : array
        Operands.
    axes : int or pair of axes, default 2
        Number of axes to sum over, the last of `a` with the first of `b`; or a pair of
        axes, or of sequences of axes, the first for `a` and the second for `b`.
    prologue : list, optional
        Operations on `a` as kernels read it, as in `einsum`.

    Returns
    -------
    array
        The axes of `a` that are left, then those of `b`, in the promoted dtype.

    Raises
    ------
    ValueError
        If the extents of summed axes differ.
    TypeError
        If an operand is not an array of this device.

    Examples
    --------
    >>> a = np.arange(6, dtype="float32").reshape(2, 3)
    >>> b = np.ones((2, 3), "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.tensordot(a, b, axes=(1, 1))
    array([[ 3.,  3.],
           [12., 12.]], dtype=float32)
    """
    if prologue is not None:
        from .prologue import contraction

        return contraction(current_runtime(), tensordot_form(axes), a, b, prologue)
    return current_runtime().contract(tensordot_form(axes), a, b, None, None)


def tensordot_form(axes: Any) -> Form:
    """Return the form of a tensordot: `axes` as a number or a pair of tuples."""
    return "tensordot", axes if type(axes) is int else _axes(axes)


def _axes(axes: Any) -> Any:
    try:
        first, second = axes
    except TypeError:
        return operator.index(axes)
    except ValueError:
        raise ValueError("axes must be a number or a pair of axes") from None
    return _places(first), _places(second)


def _places(axes: Any) -> tuple[int, ...]:
    return tuple(map(operator.index, axes)) if hasattr(axes, "__len__") else (operator.index(axes),)


@public
def dot(a: ArrayLike, b: ArrayLike, out: ArrayLike | None = None) -> DeviceArray:
    """Compute the dot product of two arrays.

    The sum is over the last axis of `a` and the last but one axis of `b`, or the only
    axis of `b`.

    The signature is that of `cupy.dot`.

    Parameters
    ----------
    a : array, shape (..., k)
        Left operand. An operand without axes scales the other operand.
    b : array, shape (..., k, n) or (k,)
        Right operand.
    out : array, optional
        Array that receives the result, with its shape and dtype and any strides.

    Returns
    -------
    array
        Array of shape `a.shape[:-1] + b.shape[:-2] + b.shape[-1:]` for operands with
        two and more axes, or `out`.

    Raises
    ------
    ValueError
        If the shapes or `out` do not fit.
    TypeError
        If an operand is not an array of this device.

    Examples
    --------
    >>> a = np.arange(6, dtype="float32").reshape(2, 3)
    >>> b = np.ones(3, "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.dot(a, b)
    array([ 3., 12.], dtype=float32)
    """
    return current_runtime().contract(("dot",), a, b, out, None)


@public
def inner(a: ArrayLike, b: ArrayLike) -> DeviceArray:
    """Sum products over the last axes of two arrays.

    The signature is that of `cupy.inner`.

    Parameters
    ----------
    a, b : array, shape (..., k)
        Operands.

    Returns
    -------
    array
        Array of shape `a.shape[:-1] + b.shape[:-1]`.

    Raises
    ------
    ValueError
        If the last axes differ in extent.
    TypeError
        If an operand is not an array of this device.

    Examples
    --------
    >>> a = np.arange(6, dtype="float32").reshape(2, 3)
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.inner(a, a)
    array([[ 5., 14.],
           [14., 50.]], dtype=float32)
    """
    return current_runtime().contract(("inner",), a, b, None, None)


@public
def vdot(a: ArrayLike, b: ArrayLike) -> DeviceArray:
    """Compute the dot product of two arrays as vectors.

    The signature is that of `cupy.vdot`.

    Parameters
    ----------
    a : array
        First operand, which is conjugated where it is complex. Kernels conjugate as
        they read.
    b : array
        Second operand, with as many elements as `a`.

    Returns
    -------
    array, shape ()
        Sum of `conj(a) * b` over all elements.

    Raises
    ------
    ValueError
        If the operands differ in size.
    TypeError
        If an operand is not an array of this device.

    Examples
    --------
    >>> a = np.array([1 + 2j, 3j], "complex64")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.vdot(a, a)
    array(14.+0.j, dtype=complex64)
    """
    runtime = current_runtime()
    runtime.check(a, b, None, (), None)
    if a.shape != b.shape:
        a, b = _flat(runtime, a), _flat(runtime, b)
    return runtime.contract(("vdot",), a, b, None, None)


@public
def outer(a: ArrayLike, b: ArrayLike, out: ArrayLike | None = None) -> DeviceArray:
    """Multiply every element of one array by every element of another.

    The signature is that of `cupy.outer`. Nothing is summed, so on a GPU the array
    library computes it.

    Parameters
    ----------
    a, b : array
        Operands, taken as vectors.
    out : array, shape (a.size, b.size), optional
        Array that receives the result, with the dtype of the result.

    Returns
    -------
    array, shape (a.size, b.size)
        A new array, or `out`.

    Raises
    ------
    ValueError
        If `out` has another shape or dtype than the result.
    TypeError
        If an operand is not an array of this device.

    Examples
    --------
    >>> a = np.arange(3, dtype="float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.outer(a, a)
    array([[0., 0., 0.],
           [0., 1., 2.],
           [0., 2., 4.]], dtype=float32)
    """
    runtime = current_runtime()
    runtime.check(a, b, out, (), None)
    return runtime.contract(("outer",), _flat(runtime, a), _flat(runtime, b), out, None)


def _flat(runtime: Runtime, array: DeviceArray) -> DeviceArray:
    """Return an array as a vector, or an empty vector of its size in a dry run."""
    if array.ndim != 1 and asking.get():
        return runtime.device.empty((array.size,), array.dtype)
    return array.ravel()


def define(expression: str, epilogue: Items = (), prologue: Items = ()) -> Defined:
    """Define an operator: a sum of products of two arrays with fused operations.

    The signature is its own: no other library has this function.

    Parameters
    ----------
    expression : str
        Axes of both operands and of the result, as words separated by spaces or as
        single letters: "b h i d, b h j d -> b h i j" or "ij,jk->ik". Axes that the
        result lacks are summed.
    epilogue : sequence, default ()
        Up to six operations on the result, in order: activations by name,
        `("scale", number)`, `("bias", axes)`, `("add", axes)`, `("mul", axes)` or
        `("mask", axes, fill)`. `axes` names the axes of the operation's array, which
        are some of the axes of the result.
    prologue : sequence, default ()
        Operations on the first operand as kernels read it: activations by name,
        `("scale", number)`, `("bias", axes)` or `("mul", axes)`, with some of the axes
        of that operand.

    Returns
    -------
    callable
        Function of the two operands, the arrays of the prologue and the arrays of the
        epilogue, in this order. It returns a new array, or a transposed view of a new
        array, in the promoted dtype of the operands. It raises ValueError for arrays
        that do not fit.

    Raises
    ------
    ValueError
        If the expression or an operation cannot be understood.

    Notes
    -----
    Sums and the epilogue of float16 and bfloat16 are computed in float32.

    Examples
    --------
    Masked scores of attention:

    >>> scores = gensor_kernels.define(
    ...     "b h i d, b h j d -> b h i j",
    ...     epilogue=[("scale", 0.5), ("mask", "i j", -1)],
    ... )
    >>> q = np.ones((1, 1, 2, 4), "float32")
    >>> keep = np.array([[1, 0], [1, 1]], "int8")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     scores(q, q, keep)
    array([[[[ 2., -1.],
             [ 2.,  2.]]]], dtype=float32)
    """
    from .define import Defined

    return Defined(expression, tuple(epilogue), tuple(prologue))
