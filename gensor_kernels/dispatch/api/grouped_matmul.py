"""Groups of different rows: the public function. Imports little."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gensor_kernels.arrays import DeviceArray
from gensor_kernels.dispatch.calls.arguments import named_dtype, plain_operations
from gensor_kernels.dispatch.calls.ends import GroupNames, ends_of

from .current import current_runtime
from .interop import public

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import DTypeLike

    from gensor_kernels.arrays import ArrayLike
    from gensor_kernels.dispatch.calls.array import Activation, Items, Precision


@public
def grouped_matmul(
    x: ArrayLike,
    w: ArrayLike,
    offsets: ArrayLike | Sequence[int] | None = None,
    *,
    sizes: ArrayLike | Sequence[int] | None = None,
    bias: ArrayLike | None = None,
    activation: Activation | None = None,
    epilogue: Items | None = None,
    out: ArrayLike | None = None,
    dtype: DTypeLike | None = None,
    precision: Precision | None = None,
) -> DeviceArray:
    """Multiply groups of rows by one matrix per group, in one kernel.

    Row i of group g gives `activation(x[i] @ w[g] + bias)`. The groups may have
    different numbers of rows, as the tokens that a mixture of experts sorts by expert.

    The signature is like that of `torch._grouped_mm`, with further keywords.

    Parameters
    ----------
    x : array, shape (m, k)
        Rows, sorted by group.
    w : array, shape (groups, k, n)
        One matrix per group, with any strides: for weights stored as (groups, n, k),
        `w.transpose(0, 2, 1)`.
    offsets : array or sequence of int, shape (groups,), optional
        Ends of the groups: group g has the rows from `offsets[g - 1]` (from 0 for the
        first group) to `offsets[g]`, as in PyTorch's `torch._grouped_mm`.
    sizes : array or sequence of int, shape (groups,), optional
        Numbers of rows, in place of `offsets`. Groups may be empty.
    bias : array, optional
        Term added to the product; it broadcasts to the result.
    activation : str, optional
        Activation as in `matmul`, without gates.
    epilogue : list, optional
        Operations as in `matmul`, without gates and norms.
    out : array, shape (m, n), optional
        Array that receives the result.
    dtype : dtype, optional
        Dtype of the result, which may be wider than the operands' dtype as in `matmul`.
    precision : {None, "ieee", "tf32"}, optional
        Arithmetic of float32 as in `matmul`.

    Returns
    -------
    array, shape (m, n)
        A new array, or `out`. The product of rows after the last offset is 0.

    Raises
    ------
    ValueError
        If shapes do not fit; and, where they are checked, for offsets that descend or
        exceed m, for negative sizes, and for sizes of more than m rows.
    TypeError
        If an operand is not an array of this device.
    UnsupportedError
        If the epilogue has a gate or a norm.

    Notes
    -----
    Offsets and sizes that are arrays on the GPU stay there: no call waits for them, and
    they may change from call to call. int32 spares a conversion. A sequence or, on a
    GPU, a NumPy array is checked and copied to the device.

    Offsets and sizes in arrays of a GPU are not checked. An offset, as an int32,
    is clamped to 0..m, so kernels read and write nothing outside of the arrays. Where
    offsets descend or sizes are negative, a row of the result may hold its product with
    any of the matrices, 0, or what was in that memory before. Inside `emulated`, all
    offsets and sizes are checked.

    References
    ----------
    .. [1] T. Gale, D. Narayanan, C. Young and M. Zaharia, "MegaBlocks: Efficient Sparse
       Training with Mixture-of-Experts", arXiv:2211.15841.

    Examples
    --------
    >>> x = np.arange(6, dtype="float32").reshape(3, 2)
    >>> w = np.stack([np.eye(2, dtype="float32"), np.full((2, 2), 10, "float32")])
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.grouped_matmul(x, w, sizes=[1, 2])
    array([[ 0.,  1.],
           [50., 50.],
           [90., 90.]], dtype=float32)
    """
    from gensor_kernels.dispatch.functions.grouped_matmul import GROUPED_MATMUL

    runtime = current_runtime()
    steps = plain_operations("grouped_matmul", 1, bias, None, activation, epilogue)
    runtime.check(x, w, out, steps, precision)
    ends = ends_of(runtime.device, GroupNames("group", "x"), offsets, sizes, x.shape[0] if x.ndim else 0)
    given = None if dtype is None else named_dtype(dtype)
    return runtime.serve(GROUPED_MATMUL, (x, w, ends), given, out, steps, precision)
