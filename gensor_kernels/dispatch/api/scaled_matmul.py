"""Products of operands stored in 8 bits: scaled_matmul, and matmul with `dtype_a` or `dtype_b`. Imports little."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gensor_kernels.arrays import Dtype
from gensor_kernels.dispatch.calls.arguments import named_dtype, plain_operations
from gensor_kernels.operators.types.dtypes import WIDENED, canonical
from gensor_kernels.shown import shown

from .current import current_runtime
from .interop import public

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from gensor_kernels.arrays import ArrayLike
    from gensor_kernels.dispatch.calls.arguments import Operation
    from gensor_kernels.dispatch.calls.array import Activation, DeviceArray, Items
    from gensor_kernels.dispatch.plans.runtime import Runtime


@public
def scaled_matmul(
    a: ArrayLike,
    b: ArrayLike,
    scale_a: ArrayLike,
    scale_b: ArrayLike,
    *,
    bias: ArrayLike | None = None,
    activation: Activation | None = None,
    epilogue: Items | None = None,
    out: ArrayLike | None = None,
    dtype: DTypeLike | None = None,
    dtype_a: DTypeLike | None = None,
    dtype_b: DTypeLike | None = None,
) -> DeviceArray:
    """Multiply 8-bit floats that have a scale for each block of 128 elements.

    The result is `activation(x @ y + bias)`, where `x` is `a` with every 128 elements of
    a row times their scale, and `y` is `b` with every 128 x 128 elements times their
    scale, as DeepSeek-V3 [1]_ and DeepGEMM [2]_ store activations and weights.

    The signature is its own: it is like `torch._scaled_mm` with scales of
    blocks.

    Parameters
    ----------
    a : array, shape (..., k)
        Rows of 8-bit floats.
    b : array, shape (k, n)
        Matrix of 8-bit floats: for weights stored as (n, k), `w.T`.
    scale_a : array, shape (..., ceil(k / 128))
        Scales of `a`: `a[..., j]` is multiplied by `scale_a[..., j // 128]`.
    scale_b : array, shape (ceil(k / 128), ceil(n / 128))
        Scales of `b`: `b[i, j]` is multiplied by `scale_b[i // 128, j // 128]`.
    bias : array, optional
        Term added to the product; it broadcasts to the result.
    activation : str, optional
        Activation as in `matmul`, without gates.
    epilogue : list, optional
        Operations as in `matmul`, without gates and norms.
    out : array, shape (..., n), optional
        Array that receives the result.
    dtype : dtype, optional
        Dtype of the result; by default the dtype of `out`, or float32. Kernels write
        float32, float16 and bfloat16.
    dtype_a, dtype_b : {"float8_e4m3fn", "float8_e5m2"}, optional
        Element type of an operand that is an array of uint8.

    Returns
    -------
    array, shape (..., n)
        A new array, or `out`.

    Raises
    ------
    ValueError
        If shapes do not fit, or a name is unknown.
    TypeError
        If an operand holds no 8-bit floats or is not an array of this device, if scales
        are not floating-point numbers, or if a dtype cannot be cast.
    UnsupportedError
        If the epilogue has a gate or a norm; inside `emulated`, if no kernel serves the
        call.

    Notes
    -----
    Kernels need a GPU of compute capability 9.0 and a k that is a multiple of 16; they
    read rows of `a` and columns of `b` that are contiguous and begin at multiples of
    16 bytes. Other arrays are copied first. Scales of another dtype are converted to
    float32. Without a kernel, CuPy multiplies the scaled operands in float32.

    Kernels multiply 128 elements of k on the tensor cores, multiply that sum by both
    scales in float32, and add it to a float32 sum.

    References
    ----------
    .. [1] DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv:2412.19437, section 3.3.2.
    .. [2] DeepGEMM, https://github.com/deepseek-ai/DeepGEMM.

    Examples
    --------
    The bytes 0x38 and 0x40 are 1 and 2 in float8_e4m3fn:

    >>> a, w = np.full((2, 256), 0x38, "uint8"), np.full((3, 256), 0x40, "uint8")
    >>> scale_a = np.array([[1, 0.5], [10, 0]], "float32")
    >>> scale_w = np.array([[1, 0.25]], "float32")
    >>> types = {"dtype_a": "float8_e4m3fn", "dtype_b": "float8_e4m3fn"}
    >>> with gensor_kernels.emulated("sm_90"):
    ...     gensor_kernels.scaled_matmul(a, w.T, scale_a, scale_w.T, **types)
    array([[ 288.,  288.,  288.],
           [2560., 2560., 2560.]], dtype=float32)
    """
    from gensor_kernels.dispatch.functions.low_precision_matmul import BLOCK_SCALED_MATMUL, ElementTypes

    runtime, inputs = current_runtime(), (a, b, scale_a, scale_b)
    steps = plain_operations("scaled_matmul", 1, bias, None, activation, epilogue)
    first, second = _stored_name("dtype_a", dtype_a), _stored_name("dtype_b", dtype_b)
    runtime.check_inputs(inputs, out, steps)
    types = ElementTypes(first, second, _result_dtype(dtype, out))
    return runtime.serve(BLOCK_SCALED_MATMUL, inputs, types, out, steps)


def mixed_matmul(
    runtime: Runtime,
    a: DeviceArray,
    b: DeviceArray,
    given: tuple[DTypeLike | None, DTypeLike | None],
    out: DeviceArray,
    steps: tuple[Operation, ...],
    dtype: DTypeLike | None,
    precision: str | None,
) -> DeviceArray:
    """Compute a matmul with `dtype_a` or `dtype_b`, which are `given`."""
    from gensor_kernels.dispatch.functions.low_precision_matmul import MIXED_MATMUL, ElementTypes

    first, second = _stored_name("dtype_a", given[0]), _stored_name("dtype_b", given[1])
    runtime.check(a, b, out, steps, precision)
    types = ElementTypes(first, second, _result_dtype(dtype, out))
    return runtime.serve(MIXED_MATMUL, (a, b), types, out, steps, precision)


def _stored_name(argument: str, dtype: DTypeLike | None) -> str | None:
    """Return the name of a `dtype_a` or `dtype_b`; ValueError if kernels widen no such type."""
    if isinstance(dtype, str):
        name: str | None = canonical(dtype) or dtype  # without ml_dtypes: its types may be stored in uint8
    else:
        name = None if dtype is None else named_dtype(dtype).name
    if name is not None and name not in WIDENED:
        raise ValueError(f"{argument} must be one of {', '.join(WIDENED)}, not {shown(name)}")
    return name


def _result_dtype(dtype: DTypeLike | None, out: DeviceArray) -> Dtype | None:
    """Return the dtype of the result where it is given, by itself or by `out`."""
    if dtype is None:
        return None if out is None else named_dtype(out.dtype)
    return named_dtype(dtype)
