"""Products of operands stored in 8 bits and 4: scaled_matmul, and matmul with `dtype_a` or `dtype_b`; conversions to
and from block-scaled formats. Imports little."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.arrays import Dtype
from gensor_kernels.dispatch.calls.arguments import named_dtype, plain_operations, wider_result
from gensor_kernels.dispatch.calls.whole import real
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.types.dtypes import WIDENED, canonical
from gensor_kernels.shown import no_array, shown

from .current import current_runtime
from .interop import adopting, public

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
    format: str | None = None,
    alpha: complex | ArrayLike = 1,
    bias: ArrayLike | None = None,
    activation: Activation | None = None,
    epilogue: Items | None = None,
    out: ArrayLike | None = None,
    dtype: DTypeLike | None = None,
    dtype_a: DTypeLike | None = None,
    dtype_b: DTypeLike | None = None,
) -> DeviceArray:
    """Multiply 8-bit or 4-bit floats that have a scale for each block of elements.

    The result is `activation(alpha * x @ y + bias)`, where `x` is `a` with every 128
    elements of a row times their scale, and `y` is `b` with every 128 x 128 elements
    times their scale, as DeepSeek-V3 [1]_ and DeepGEMM [2]_ store activations and
    weights. With a `format`, both are block-scaled along k, as `quantize` returns them.

    The signature is its own: it is like `torch._scaled_mm` with scales of
    blocks.

    Parameters
    ----------
    a : array, shape (..., k), of 4 bits (..., k / 2)
        Rows of floats.
    b : array, shape (k, n), of 4 bits (k / 2, n)
        Matrix of floats: for weights stored as (n, k), `w.T`.
    scale_a : array, shape (..., ceil(k / 128))
        Scales of `a`: `a[..., j]` is multiplied by `scale_a[..., j // 128]`. With a
        `format`, the shape is (..., ceil(k / block)).
    scale_b : array, shape (ceil(k / 128), ceil(n / 128))
        Scales of `b`: `b[i, j]` is multiplied by `scale_b[i // 128, j // 128]`. With a
        `format`, the shape is (ceil(k / block), n).
    format : {"mxfp8", "mxfp8_e5m2", "mxfp4", "nvfp4"}, optional
        Block-scaled format of both operands.
    alpha : number or array, shape (), default 1
        Factor of the product: for NVFP4 the product of both tensors' scales.
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
    scales in float32, and add it to a float32 sum. Kernels of a `format` need compute
    capability 8.0 and rows along k of multiples of 4 bytes. They do the same with 32
    elements of MX formats; elements of NVFP4 are multiplied by their scales first, which
    is exact. From capability 12.0 the tensor cores multiply both with their scales, of
    which those of NVFP4 must not be negative.

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

    runtime = current_runtime()
    inputs: tuple[DeviceArray, ...] = (a, b, scale_a, scale_b)
    steps = plain_operations("scaled_matmul", alpha, bias, None, activation, epilogue)
    if format is not None:
        if dtype_a is not None or dtype_b is not None:
            raise ValueError(f"scaled_matmul: {shown(format)} names the types of both operands")
        runtime.check_inputs(inputs, out, steps)
        given = (inputs[0], inputs[1].T, inputs[3].T, inputs[2])
        own = _result_dtype(dtype, out) or np.dtype(np.float32)
        return formatted(runtime, "scaled_matmul", given, steps, out, format, own)
    first, second = _stored_name("dtype_a", dtype_a), _stored_name("dtype_b", dtype_b)
    runtime.check_inputs(inputs, out, steps)
    types = ElementTypes(first, second, _result_dtype(dtype, out))
    return runtime.serve(BLOCK_SCALED_MATMUL, inputs, types, out, steps)


@adopting
def quantize(
    x: ArrayLike, format: str, *, alpha: float | ArrayLike | None = None
) -> tuple[DeviceArray, DeviceArray, DeviceArray | int]:
    """Round an array to a block-scaled format along its last axis.

    The signature is its own: no other library has all these formats in one function.

    Parameters
    ----------
    x : array, shape (..., k)
        Floating-point numbers; `k` is a multiple of the block.
    format : {"mxfp8", "mxfp8_e5m2", "mxfp4", "nvfp4"}
        Format: blocks of 32 elements of float8_e4m3fn, float8_e5m2 or float4_e2m1fn with
        scales of float8_e8m0fnu (MX formats of OCP [1]_), or blocks of 16 of
        float4_e2m1fn with scales of float8_e4m3fn and one scale of the tensor (NVIDIA's
        NVFP4 [2]_).
    alpha : number or array, shape (), optional
        Scale of the tensor, for NVFP4; by default max(|x|) / (6 * 448), of finite
        numbers.

    Returns
    -------
    elements : array of uint8, shape (..., k), of 4 bits (..., k / 2)
        Bits of elements; of 4 bits two in a byte, that of even index in the lower half,
        as PyTorch's float4_e2m1fn_x2 and NVIDIA's libraries have them.
    scales : array of uint8, shape (..., k / block)
        Bits of the scales of blocks, in the order of the blocks.
    alpha : array of float32, shape (), or 1
        Scale of the tensor; 1 for MX formats.

    Raises
    ------
    ValueError
        If the format is unknown, `k` is not a multiple of the block, or an MX format is
        given an `alpha`.
    TypeError
        If `x` is not an array of floating-point numbers of this device.

    Notes
    -----
    The scale of an MX block is 2^(floor(log2(max(|x|))) - emax), emax = 8, 15 and 2, so
    that its largest elements may saturate (section 6.3 of [1]_; NVIDIA's recipe for MXFP8
    rounds the exponent up instead). The scale of an NVFP4 block is max(|x|) / 6 / alpha,
    rounded to float8_e4m3fn. Elements are x / (scale * alpha) in float32, rounded to
    nearest, ties to even, and saturate. A block of an MX format with an infinity or NaN
    becomes NaN; so does one of NVFP4 with NaN. Elements that are NaN have no sign.

    A kernel rounds float32, float16 and bfloat16 in one launch, other numbers after a
    conversion to float32. The largest number of an NVFP4 tensor is found before, by CuPy.

    `ml_dtypes` has one element of 4 bits in a byte: with `w.view("uint8")` as `b`, the
    bytes here are `b[..., ::2] | b[..., 1::2] << 4`. Tensors of PyTorch's types are taken
    as they are.

    References
    ----------
    .. [1] Open Compute Project, "OCP Microscaling Formats (MX) Specification", 1.0, 2023.
    .. [2] NVIDIA, "Pretraining Large Language Models with NVFP4", arXiv:2509.25149.

    Examples
    --------
    >>> x = np.linspace(-3, 3, 32, dtype="float32")[None]
    >>> with gensor_kernels.emulated("sm_87"):
    ...     elements, scales, _ = gensor_kernels.quantize(x, "mxfp4")
    ...     gensor_kernels.dequantize(elements, scales, "mxfp4")[0, :9]
    array([-3. , -3. , -3. , -2. , -2. , -2. , -2. , -1.5, -1.5],
          dtype=float32)
    """
    from gensor_kernels.dispatch.functions.block_formats import QUANTISATION, Rounded, format_of, tensor_scale

    form, xp = format_of(format), _namespace(x=x)
    if x.dtype.kind != "f" and x.dtype.name != "bfloat16":
        raise TypeError(f"quantize takes floating-point numbers, not {x.dtype}")
    if x.ndim == 0 or x.shape[-1] % form.group:
        raise ValueError(f"quantize: rows of {format} are multiples of {form.group}, not of the shape {tuple(x.shape)}")
    numbers: DeviceArray = x
    numbers = numbers if x.dtype.itemsize < 4 else numbers.astype(np.float32, copy=False)
    scale: Any = 1
    if format == "nvfp4":
        scale = tensor_scale(xp, numbers) if alpha is None else _factor(alpha)
    elif alpha is not None:
        raise ValueError(f"quantize: {format} has no scale of the tensor")
    runtime = current_runtime()
    scales = runtime.device.empty((*x.shape[:-1], x.shape[-1] // form.group), np.dtype(np.uint8))
    inputs = (numbers, *(() if format != "nvfp4" else (scale.reshape(1),)), scales)
    try:
        return runtime.serve(QUANTISATION, inputs, Rounded(format), None, ()), scales, scale
    except UnsupportedError:  # an emulated device without a kernel
        return QUANTISATION.library(runtime.device, inputs, Rounded(format), None), scales, scale


@adopting
def dequantize(
    elements: ArrayLike,
    scales: ArrayLike,
    format: str,
    *,
    alpha: float | ArrayLike = 1,
    dtype: DTypeLike = "float32",
) -> DeviceArray:
    """Return the numbers of an array in a block-scaled format.

    The signature is its own, that of `quantize`.

    Parameters
    ----------
    elements : array, shape (..., k), of 4 bits (..., k / 2)
        Elements as `quantize` returns them: uint8 or, of 8 bits, their own dtype.
    scales : array, shape (..., ceil(k / block))
        Scales of blocks along the last axis: uint8, or their own dtype.
    format : {"mxfp8", "mxfp8_e5m2", "mxfp4", "nvfp4"}
        Format, as in `quantize`.
    alpha : number or array, shape (), default 1
        Scale of the tensor.
    dtype : dtype, default "float32"
        Dtype of the result.

    Returns
    -------
    array, shape (..., k)
        Element times scale times `alpha` in float32, rounded to `dtype`.

    Raises
    ------
    ValueError
        If the format is unknown, or shapes do not fit.
    TypeError
        If an array is not one of this device or has another dtype.

    Examples
    --------
    The nibbles 2 and 4 are 1 and 2; the scale 128 is 2:

    >>> elements, scales = np.full((1, 16), 0x42, "uint8"), np.array([[128]], "uint8")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.dequantize(elements, scales, "mxfp4", dtype="float16")[0, :4]
    array([2., 4., 2., 4.], dtype=float16)
    """
    from gensor_kernels.dispatch.functions.block_formats import check_stored, dequantise, format_of

    form, xp = format_of(format), _namespace(elements=elements, scales=scales)
    check_stored(f"dequantize: {format} arrays", elements, scales, form)
    numbers = dequantise(xp, elements, scales, form, np.dtype(np.float32))
    if not (isinstance(alpha, (int, float)) and alpha == 1):
        numbers = numbers * _factor(alpha)
    return numbers.astype(named_dtype(dtype), copy=False)


def _factor(alpha: Any) -> Any:
    """Return `alpha` as a float32 on the device; TypeError for what is neither a number nor an array of one."""
    device = current_runtime().device
    if device.is_array(alpha) and alpha.shape == ():
        return alpha.astype(np.float32, copy=False)
    return device.xp.asarray(real("alpha", alpha), dtype=np.float32)


def _namespace(**arrays: Any) -> Any:
    """Return the array library; TypeError for an argument that is no array of the device."""
    device = current_runtime().device
    for name, array in arrays.items():
        if not device.is_array(array):
            raise TypeError(no_array(name, array, device.xp.__name__))
    return device.xp


def formatted(
    runtime: Runtime,
    function: str,
    inputs: tuple[DeviceArray, ...],
    steps: tuple[Operation, ...],
    out: DeviceArray,
    format: str,
    dtype: Dtype | None,
) -> DeviceArray:
    """Return a product of (x, w, scales of w, scales of x or None) in a block-scaled format."""
    from gensor_kernels.dispatch.functions.block_formats import FORMATTED, Formatted, format_of

    format_of(format)
    runtime.check_inputs(inputs, out, steps)
    if dtype is None and out is not None:
        dtype = wider_result(inputs[0].dtype, out.dtype)
    return runtime.serve(FORMATTED[function], inputs, Formatted(format, dtype), out, steps)


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
