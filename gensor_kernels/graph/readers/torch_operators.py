"""Our PyTorch operators (`torch.ops.gensor.*`) in exported programs: their translation to operators of ONNX."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

#: A tensor of the program that onnxscript traces.
Value: TypeAlias = Any
#: Operations of an epilogue that take a tensor, and those that take a number.
WITH_TENSOR = ("bias", "add", "mul", "mask")
WITH_NUMBER = ("scale", "mask")
#: Activations that halve the last axis of a product.
GATES = ("swiglu", "geglu", "geglu_tanh", "reglu")


def steps(
    names: Sequence[str] | None, operands: Sequence[Value] | None, scalars: Sequence[float]
) -> Iterator[tuple[Any, ...]]:
    """Yield the operations of an epilogue: a name with the next tensor, the next number, or both.

    Raises ValueError where there are more or fewer tensors and numbers than the names take.
    """
    names, tensors, numbers = names or (), list(operands or ()), list(scalars)
    for kind, given, takers in (("tensors", tensors, WITH_TENSOR), ("numbers", numbers, WITH_NUMBER)):
        wanted = sum(name in takers for name in names)
        if wanted != len(given):
            raise ValueError(f"the epilogue {list(names)} takes {wanted} {kind}, not {len(given)}")
    for name in names:
        found: list[Any] = [name]
        if name in WITH_TENSOR:
            found.append(tensors.pop(0))
        if name in WITH_NUMBER:
            found.append(numbers.pop(0))
        yield tuple(found)


def translations(torch: Any) -> dict[Any, Callable[..., Any]]:
    """Return a function of onnxscript for each of our operators, if they are registered, and for two of PyTorch's.

    PyTorch's own translation of these computes in the input's dtype, and casts the result.
    """
    aten = {torch.ops.aten.softmax.int: _cast_first(softmax), torch.ops.aten.log_softmax.int: _cast_first(log_softmax)}
    if not hasattr(torch.ops.gensor, "matmul"):
        return aten
    written: tuple[Callable[..., Any], ...] = (
        matmul,
        linear,
        conv2d,
        attention,
        softmax,
        log_softmax,
        layer_norm,
        rms_norm,
    )
    written += (max_pool2d, avg_pool2d, elementwise)
    return aten | {getattr(torch.ops.gensor, each.__name__).default: each for each in written}


def _cast_first(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the translation of an operator of PyTorch that casts to `dtype` before it computes."""

    def translate(x: Value, axis: int, dtype: int | None = None) -> Value:
        scalar = len(x.shape) == 0  # whose one axis PyTorch makes up
        x = x if dtype in (None, -1) else _op().Cast(x, to=dtype)
        y = function(_op().Reshape(x, _op().Constant(value_ints=[1])) if scalar else x, axis)
        return _op().Reshape(y, _op().Constant(value_ints=[])) if scalar else y

    return translate


def _op() -> Any:
    from onnxscript import opset23

    return opset23


def _first(results: Value | Sequence[Value]) -> Value:
    """Return the first result of an operator with several; the optimiser drops the others."""
    return results[0] if isinstance(results, (list, tuple)) else results


def _apply(y: Value, chain: Iterable[tuple[Any, ...]]) -> Value:
    """Append the operations of an epilogue to a tensor."""
    op = _op()
    for name, *more in chain:
        if name in GATES:
            raise ValueError(f"the gate {name!r} has no operator of ONNX: write it with two products")
        if name in ("bias", "add"):
            y = op.Add(y, more[0])
        elif name == "mul":
            y = op.Mul(y, more[0])
        elif name == "scale":
            y = op.Mul(y, op.CastLike(op.Constant(value_float=float(more[0])), y))
        elif name == "mask":
            fill = op.CastLike(op.Constant(value_float=float(more[1])), y)
            y = op.Where(op.Cast(more[0], to=9), y, fill)
        elif name == "relu6":
            low, high = (op.CastLike(op.Constant(value_float=each), y) for each in (0.0, 6.0))
            y = op.Clip(y, low, high)
        elif name in ("gelu", "gelu_tanh"):
            y = op.Gelu(y, approximate="tanh" if name == "gelu_tanh" else "none")
        elif name == "silu":
            y = op.Mul(y, op.Sigmoid(y))
        elif name in ("relu", "tanh", "sigmoid"):
            y = getattr(op, name.capitalize())(y)
        elif name != "cast":
            raise ValueError(f"the operation {name!r} has no operator of ONNX")
    return y


def _activate(y: Value, activation: str | None) -> Value:
    return y if activation is None else _apply(y, [(activation,)])


def matmul(
    a: Value,
    b: Value,
    epilogue: Sequence[str] | None = None,
    operands: Sequence[Value] | None = None,
    scalars: Sequence[float] = (),
) -> Value:
    """Translate gensor::matmul."""
    return _apply(_op().MatMul(a, b), steps(epilogue, operands, scalars))


def linear(x: Value, w: Value, bias: Value = None, activation: str | None = None) -> Value:
    """Translate gensor::linear."""
    op = _op()
    y = op.MatMul(x, op.Transpose(w, perm=[1, 0]))
    return _activate(y if bias is None else op.Add(y, bias), activation)


def conv2d(
    x: Value,
    w: Value,
    bias: Value = None,
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
    add: Value = None,
    activation: str | None = None,
) -> Value:
    """Translate gensor::conv2d."""
    op = _op()
    more = {"strides": pair(stride), "dilations": pair(dilation), "pads": pair(padding) * 2, "group": groups}
    y = op.Conv(x, w, bias, **more)
    return _activate(y if add is None else op.Add(y, add), activation)


def attention(
    q: Value, k: Value, v: Value, mask: Value = None, causal: str | None = None, scale: float | None = None
) -> Value:
    """Translate gensor::attention."""
    if causal == "lower_right":
        raise ValueError("causal='lower_right' has no operator of ONNX: use 'upper_left', or a mask")
    more = {} if scale is None else {"scale": float(scale)}
    return _first(_op().Attention(q, k, v, mask, is_causal=int(causal is not None), **more))


def softmax(x: Value, axis: int = -1) -> Value:
    """Translate gensor::softmax."""
    return _op().Softmax(x, axis=axis)


def log_softmax(x: Value, axis: int = -1) -> Value:
    """Translate gensor::log_softmax."""
    return _op().LogSoftmax(x, axis=axis)


def layer_norm(
    x: Value, normalized_shape: Sequence[int], weight: Value = None, bias: Value = None, eps: float = 1e-5
) -> Value:
    """Translate gensor::layer_norm."""
    factors = _ones(x, normalized_shape) if weight is None else weight
    return _first(_op().LayerNormalization(x, factors, bias, axis=-len(normalized_shape), epsilon=float(eps)))


def rms_norm(x: Value, normalized_shape: Sequence[int], weight: Value = None, eps: float | None = None) -> Value:
    """Translate gensor::rms_norm."""
    import ml_dtypes

    factors = _ones(x, normalized_shape) if weight is None else weight
    term = float(ml_dtypes.finfo(x.dtype.numpy()).eps) if eps is None else float(eps)
    return _op().RMSNormalization(x, factors, axis=-len(normalized_shape), epsilon=term)


def _ones(x: Value, extents: Sequence[int]) -> Value:
    op = _op()
    shape = op.Constant(value_ints=[int(each) for each in extents])
    return op.CastLike(op.Expand(op.Constant(value_float=1.0), shape), x)


def max_pool2d(
    x: Value,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    ceil_mode: bool = False,
) -> Value:
    """Translate gensor::max_pool2d."""
    more = _pooling(kernel_size, stride, padding, ceil_mode)
    return _first(_op().MaxPool(x, dilations=pair(dilation), **more))


def avg_pool2d(
    x: Value,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Value:
    """Translate gensor::avg_pool2d."""
    more = _pooling(kernel_size, stride, padding, ceil_mode)
    return _op().AveragePool(x, count_include_pad=int(count_include_pad), **more)


def _pooling(kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], ceil_mode: bool) -> dict[str, Any]:
    found = {"kernel_shape": pair(kernel), "strides": pair(stride or kernel), "pads": pair(padding) * 2}
    return {**found, "ceil_mode": int(ceil_mode)}


def pair(values: Sequence[int]) -> list[int]:
    """Return two numbers where PyTorch takes one for both."""
    return [int(each) for each in values] * (2 if len(values) == 1 else 1)


def elementwise(
    x: Value, epilogue: Sequence[str], operands: Sequence[Value] | None = None, scalars: Sequence[float] = ()
) -> Value:
    """Translate gensor::elementwise."""
    return _apply(x, steps(epilogue, operands, scalars))
