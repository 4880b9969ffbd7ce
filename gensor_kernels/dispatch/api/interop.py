"""Arrays of other libraries in calls: PyTorch's tensors, and what has `__cuda_array_interface__` or `__dlpack__`.
Inside `emulated` also NumPy's arrays of the other byte order, which are copied into the machine's own.

If a call with such arrays fails, it is made once more with this device's arrays on the same memory. Warm calls with the
device's own arrays do not come here (dispatch/direct.py). PyTorch is never imported: a caller who passes a tensor has
done that.

Every public function comes through here, so this is also where a call inside graph capture gets memory that lasts as
long as its graph: whatever the call allocates, by our hand or by the array library's.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from gensor_kernels.dispatch.calls.docstrings import complete, described, sections_of
from gensor_kernels.dispatch.direct import direct
from gensor_kernels.errors import ToolMissingError
from gensor_kernels.operators.types.dtypes import array_dtype

from . import current
from .misfit import misfit

if TYPE_CHECKING:
    import torch

    from gensor_kernels.arrays import DeviceArray
    from gensor_kernels.devices.device import Device

PublicFunction = TypeVar("PublicFunction", bound=Callable[..., Any])

CAI = "__cuda_array_interface__"
#: Tensors of these travel as integers: the interfaces between libraries have no word for them.
AS_INTEGERS = {"bfloat16": "int16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}
#: Elements and scales of block-scaled formats, which functions take as bytes.
AS_BYTES = {"float4_e2m1fn_x2": "uint8", "float8_e8m0fnu": "uint8"}


def public(function: PublicFunction) -> PublicFunction:
    """Return a public function that takes arrays of other libraries too, and whose warm calls take direct ways."""
    return direct(current, adopting(function))


def like(known: Callable[..., Any]) -> Callable[[PublicFunction], PublicFunction]:
    """Return `public` for functions whose docstrings leave out parameters and errors that `known` describes."""

    def decorate(function: PublicFunction) -> PublicFunction:
        _, sections = sections_of(inspect.getdoc(known) or "")
        names, shared = inspect.signature(function).parameters, described(sections.get("Parameters", ""))
        function.__doc__ = complete(inspect.getdoc(function), names, shared, sections.get("Raises", ""))
        return public(function)

    return decorate


def adopting(function: PublicFunction) -> PublicFunction:
    """Return `function`, which takes arrays of other libraries too. The result is of the first array's kind: a
    tensor where that is one, else the device's; with `out`, it is that."""

    @wraps(function)
    def adapt(*args: Any, **keywords: Any) -> Any:
        try:
            return _run_in_capture(function, args, keywords)
        except Exception as error:
            exchange = _exchange(args, keywords)
            if exchange is None:
                wrong = misfit(error, function, args, keywords)
                if wrong is None:
                    raise
                raise wrong from None
        return exchange.call(function, args, keywords)

    adapt.__signature__ = _plain(inspect.signature(function))  # type: ignore[attr-defined]
    return adapt  # type: ignore[return-value]


def _plain(signature: inspect.Signature) -> inspect.Signature:
    """Return a signature as `help` prints it in a line or two: docstrings have the types."""
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
    return inspect.Signature(bare)


def _run_in_capture(function: Callable[..., Any], args: Any, keywords: Any) -> Any:
    """Return the call; inside graph capture with memory that lasts."""
    try:
        device = current.current_runtime().device
    except ToolMissingError:  # errors of arguments come first
        return function(*args, **keywords)
    if not device.capturing():
        return function(*args, **keywords)
    with device.lasting():
        return function(*args, **keywords)


def _exchange(args: Any, keywords: Any) -> Exchange | None:
    """Return the arrays to exchange, or None if no argument is of another library."""
    named = [keywords[name] for name in keywords if name != "out"]
    arrays = list(arrays_in((*args, *named, keywords.get("out"))))
    if all(_library(each) in ("numpy", "cupy") and not _is_swapped(each) for each in arrays):
        return None
    device = current.current_runtime().device
    return Exchange(device, arrays) if any(is_foreign(each, device) for each in arrays) else None


def find_exchange(args: Any, keywords: Any) -> Exchange | None:
    """Return the exchange that a call with PyTorch's tensors needs, or None without a tensor among its arguments."""
    kind = tensor_type()
    if not any(isinstance(each, kind) for each in (*args, *keywords.values())):
        return None
    return _exchange(args, keywords)


def arrays_in(value: object) -> Iterator[Any]:
    """Yield the arrays of any library, in lists and tuples too, in their order."""
    if isinstance(value, (list, tuple)):
        for each in value:
            yield from arrays_in(each)
    elif not isinstance(value, np.generic) and (_has(value, CAI) or _has(value, "__dlpack__")):
        yield value


def _has(value: object, name: str) -> bool:
    """Return whether a value has an attribute, without reading it, which may raise or wait for a device."""
    return hasattr(type(value), name) or name in getattr(value, "__dict__", ())


def _library(value: object) -> str:
    return type(value).__module__.partition(".")[0]


def _is_swapped(value: object) -> bool:
    """Return whether it is a NumPy array whose bytes are not in the machine's order."""
    return isinstance(value, np.ndarray) and not value.dtype.isnative


def tensor_type() -> Any:
    """Return torch.Tensor where PyTorch is loaded, else a type of nothing."""
    return getattr(sys.modules.get("torch"), "Tensor", _Nothing)


class _Nothing:
    pass


def is_foreign(value: Any, device: Device) -> bool:
    """Return whether it is an array to give to this device's library; NumPy's and CuPy's are taken for mistakes."""
    if isinstance(value, tensor_type()):
        return True
    if device.is_array(value):
        return False
    if _library(value) in ("numpy", "cupy"):
        return bool(device.emulated) and _is_swapped(value)
    if _has(value, CAI) and not device.emulated:
        return True
    try:
        return _has(value, "__dlpack__") and int(value.__dlpack_device__()[0]) in device.dlpack_kinds
    except Exception:  # whatever its library raises: then it stays what the function would not take
        return False


class Exchange:
    """One call: the arrays that came, and those that stand for them."""

    def __init__(self, device: Any, arrays: list[DeviceArray]):
        self.device, self.arrays = device, arrays
        self.tensors = [each for each in arrays if isinstance(each, tensor_type())]
        self.mixed = len(self.tensors) < len(arrays)
        self.like = arrays[0] if isinstance(arrays[0], tensor_type()) else None
        self.taken: dict[int, tuple[Any, Any]] = {}  # by id: (what came, what stands for it)

    def call(self, function: Callable[..., Any], args: Any, keywords: Any) -> Any:
        """Return the call on this device's arrays: with tensors among them on PyTorch's current stream."""
        for tensor in self.tensors:
            _check(tensor, self.device)
        if self.device.emulated or not self.tensors:
            return self._call(function, args, keywords)
        torch, first = sys.modules["torch"], self.tensors[0]
        stream = torch.cuda.current_stream(first.device)
        with self.device.running_on(stream.cuda_stream, first.device.index, self.mixed):
            result = self._call(function, args, keywords)
        for tensor in self.tensors:
            tensor.record_stream(stream)
        return result

    def _call(self, function: Callable[..., Any], args: Any, keywords: Any) -> Any:
        taken, named = self._take(args), {name: self._take(value) for name, value in keywords.items()}
        try:
            return self._give(_run_in_capture(function, taken, named))
        except Exception as error:
            wrong = misfit(error, function, taken, named)
            if wrong is None:
                raise
            raise wrong from None

    def _take(self, value: Any) -> Any:
        if type(value) in (list, tuple):
            return type(value)(self._take(each) for each in value)
        if _library(value) == "torch" and type(value).__name__ == "dtype":
            return array_dtype(str(value).removeprefix("torch."))
        if not (_has(value, CAI) or _has(value, "__dlpack__")) or not is_foreign(value, self.device):
            return value
        if id(value) not in self.taken:
            taken = _of_tensor(value, self.device) if isinstance(value, tensor_type()) else _of(value, self.device)
            self.taken[id(value)] = value, taken
        return self.taken[id(value)][1]

    def _give(self, result: Any) -> Any:
        """Return the result as the caller's kind of array; what came in goes back as it was."""
        if type(result) in (list, tuple):
            return type(result)(self._give(each) for each in result)
        for came, stands in self.taken.values():
            if result is stands:
                if _is_swapped(came) and came.flags.writeable:  # `out`; another array has its own values written again
                    came[...] = stands
                return came
        if self.like is None or not self.device.is_array(result) or any(result is each for each in self.arrays):
            return result
        return _tensor(result, self.like)


def _check(tensor: torch.Tensor, device: Device) -> None:
    """Raise for tensors whose values or gradients a kernel cannot see to."""
    if tensor.requires_grad and sys.modules["torch"].is_grad_enabled():
        raise RuntimeError(
            "gensor_kernels computes no gradients: call it under torch.no_grad(), or detach() tensors that require them"
        )
    if str(tensor.layout) != "torch.strided":
        raise TypeError(f"a tensor of layout {tensor.layout} is no array: to_dense() makes it one")
    if not (tensor.is_cpu if device.emulated else tensor.is_cuda):
        needed = "inside emulated(...) tensors are the host's" if device.emulated else "tensor.cuda() moves it to a GPU"
        raise TypeError(f"a tensor in the memory of {tensor.device}: {needed}")


def _of_tensor(tensor: torch.Tensor, device: Device) -> DeviceArray:
    """Return this device's array on a tensor's memory."""
    name = str(tensor.dtype).removeprefix("torch.")
    if tensor.is_conj() or tensor.is_neg():  # lazily conjugated and negated: the memory does not have it yet
        tensor = tensor.resolve_conj().resolve_neg()
    try:
        dtype = array_dtype(AS_BYTES.get(name, name))
    except (TypeError, AttributeError):
        raise TypeError(f"a tensor of {tensor.dtype} is no array of a type that is served") from None
    strides = tuple(step * dtype.itemsize for step in tensor.stride())
    number = tensor.device.index if tensor.is_cuda else 0
    return device.borrow(tensor.data_ptr(), tuple(tensor.shape), strides, dtype, tensor, number)


def _of(value: Any, device: Any) -> Any:
    """Return this device's array on the memory of an object with an interface, or with the values of a NumPy array."""
    if _is_swapped(value):
        native = value.astype(value.dtype.newbyteorder("="))
        native.flags.writeable = value.flags.writeable
        return native
    if device.emulated or not _has(value, CAI):
        return device.xp.from_dlpack(value)
    facts = value.__cuda_array_interface__
    if facts.get("mask") is not None:
        raise TypeError(f"a masked {type(value).__name__} is no array")
    dtype, shape, strides = np.dtype(facts["typestr"]), tuple(facts["shape"]), facts.get("strides")
    if not dtype.isnative:
        raise TypeError(f"an array of {facts['typestr']} is not in the device's byte order")
    if strides is None:
        strides = _strides_of(shape, dtype.itemsize)
    if facts.get("stream") is not None:
        device.wait_for(facts["stream"])
    return device.borrow(facts["data"][0], shape, tuple(strides), dtype, value, device.number)


def _strides_of(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    strides = []
    for extent in reversed(shape):
        strides.append(itemsize)
        itemsize *= extent
    return tuple(reversed(strides))


class _Interface:
    """A CuPy array for `torch.as_tensor`, which keeps this alive while the tensor lives."""

    def __init__(self, array: DeviceArray):
        self.array = array
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "strides": array.strides,
            "typestr": array.dtype.str,
            "data": (array.data.ptr, False),
            "version": 2,
        }


def _tensor(array: DeviceArray, like: torch.Tensor) -> torch.Tensor:
    """Return a tensor on a result's memory, on the device of `like`."""
    torch, name = sys.modules["torch"], array.dtype.name
    if 0 in array.shape:
        return torch.empty(array.shape, dtype=getattr(torch, name), device=like.device)
    plain = array.view(AS_INTEGERS[name]) if name in AS_INTEGERS else array
    if like.is_cuda:
        tensor = torch.as_tensor(_Interface(plain), device=like.device)
    else:
        takes = plain.flags.writeable and all(step >= 0 for step in plain.strides)
        tensor = torch.from_numpy(plain if takes else plain.copy())
    return tensor.view(getattr(torch, name)) if name in AS_INTEGERS else tensor
