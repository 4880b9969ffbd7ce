"""The public functions, and which device a call is for. Imports little: everything else waits for a first call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from .. import config, forking
from .arguments import FusedAsked, operations, unfused
from .foreign import adopting

if TYPE_CHECKING:
    from .runtime import Runtime

Product = TypeVar("Product", bound=Callable[..., Any])

_ONE = 1  # by identity: comparing an array with 1 would wait for the device
_emulated: ContextVar[Runtime | None] = ContextVar("gensor_kernels_emulated", default=None)
_lock = threading.Lock()
_emulators: dict[tuple[str, ...], Runtime] = {}
#: Those of the blocks of `emulated` that are open, in any thread.
_open: list[Runtime] = []


def _short(product: Product) -> Product:
    """A matrix product with a shorter way for plain calls of CuPy arrays; keywords and other arrays take the long one.

    It fills in no defaults of keywords and calls nothing but the Plan, or, where the addresses are those the Plan has
    placed its launch at, only that. The key is that of `Runtime.call`, of matrices without the lists' detour. Inside
    graph capture what allocates takes the long way too, and with it memory that lasts (foreign.py).
    """

    @wraps(product)
    def short(a: Any, b: Any, /, out: Any = None, **more: Any) -> Any:
        if more:
            return product(a, b, out, **more)
        runtime = _only or _emulated.get() or _current()
        try:
            type_a, type_b, pa, pb = a.dtype, b.dtype, a.data.ptr, b.data.ptr
            if out is None:
                types: Any = type_a if type_b is type_a else (type_a, type_b)
                key: Any = (types, *a._shape, *a._strides, None, *b._shape, *b._strides)
                pc = 0
            else:
                type_c, pc = out.dtype, out.data.ptr
                types = type_a if type_b is type_a and type_c is type_a else (type_a, type_b, type_c)
                try:  # matrices
                    m, k = a._shape
                    am, ak = a._strides
                    bk, n = b._shape
                    sk, sn = b._strides
                    cm, cn = out._shape
                    om, on = out._strides
                    key = (types, m, k, am, ak, None, bk, n, sk, sn, None, cm, cn, om, on)
                except ValueError:
                    key = types, *a._shape, *a._strides, None, *b._shape, *b._strides, None, *out._shape, *out._strides
            if runtime.where is not None:
                return product(a, b, out)
            plan = runtime.find(key)
        except (AttributeError, ValueError):  # other arrays; NumPy has no buffer of bfloat16
            return product(a, b, out)
        if plan is not None:
            place_a, place_b, place_c, function, grid, block, params, shared, _memory = plan.placed
            try:
                if pa == place_a and pb == place_b and pc == place_c:
                    function(grid, block, params, shared)
                    return out
                if not (pa | pb | pc) & 15 and (not (plan.allocates or out is None) or not runtime.device.capturing()):
                    return plan.run(a, b, out, (), pa, pb, pc)
            except runtime.troubles as error:
                plan = runtime.instead(key, plan, error, a, b, out, (), None, None)
                return plan.run(a, b, out, (), pa, pb, pc)
        return product(a, b, out)

    return short  # type: ignore[return-value]


@_short
@adopting
def matmul(
    a: Any,
    b: Any,
    /,
    out: Any = None,
    *,
    alpha: Any = 1,
    bias: Any = None,
    add: Any = None,
    activation: str | None = None,
    epilogue: Any = None,
    dtype: Any = None,
    precision: str | None = None,
    dtype_a: Any = None,
    dtype_b: Any = None,
    prologue: Any = None,
) -> Any:
    """Matrix product of two arrays with a fused epilogue: `activation(alpha * a @ b + bias + add)`.

    `a` (..., m, k) and `b` (..., k, n) are CuPy arrays (NumPy arrays inside `emulated`); shapes, broadcasting,
    one-dimensional operands, dtype promotion, `out` and errors are those of `cupy.matmul`. The result has shape
    (..., m, n).

    `alpha` is a number (complex for complex results); `bias` and `add` are arrays that broadcast to the result;
    `activation` is one of
    relu, relu6, gelu, gelu_tanh, silu, tanh, sigmoid. `epilogue` gives operations in any order instead:
    `[("bias", x), "relu", ("mul", y), ("scale", 0.5), ("mask", keep, fill), ("add", z), "cast"]`, up to six in a
    kernel. The epilogue is computed in the accumulator's type (float32 for float16 and bfloat16) and rounded once.

    Gates, as `activation` or in front in `epilogue`, where one bias may come before them: swiglu, geglu, geglu_tanh and
    reglu are `f(a @ g) * (a @ u)` in one kernel with f = silu, gelu, gelu_tanh, relu, where `b` (..., k, 2 n) is
    [g, u] side by side, `bias` (2 n,) likewise, and the result (..., m, n).

    `epilogue` may have one norm of the result's rows, "layernorm" or "rmsnorm", or ("layernorm", eps), with eps 1e-5
    and 1e-6 by default: `[("bias", x), ("add", residual), "layernorm", ("mul", weight), ("bias", shift)]`.

    `prologue` are operations on `a` as kernels read it: `prologue=[("mul", gamma), ("bias", beta), "relu"]` is
    `relu(a * gamma + beta) @ b` without that array in memory. They are written as in `epilogue`, of scale, bias, mul
    and the activations; arrays broadcast to `a`, and kernels take two of shape (k,), a scale, and six operations. They
    are computed in the accumulator's type and rounded once to the operands' dtype. What kernels do not take, and what
    stands beside a gate, a norm or `dtype_a`, is computed in front by the array library.

    `dtype`, or the dtype of `out`, may be wider than the operands': int32 for int8 gives the exact sums.
    `precision` is "ieee" or "tf32" for float32 operands; None follows CuPy's own TF32 switch. For float64 ones "ozaki"
    allows exact products of 8-bit slices on integer tensor cores, within the same bound on errors: many times faster
    on parts that multiply float64 slowly (RTX 4090, L4, Orin). For complex operands "3m"
    allows three real products in place of four: faster where multiplication is what takes the time, with errors small
    beside |a| |b| but not beside a small real or imaginary part. The operations of complex numbers are scale, bias,
    add, mul, mask and cast.

    `dtype_a` and `dtype_b` say what the bytes of an operand are where the array does not: "float8_e4m3fn" or
    "float8_e5m2" for arrays of uint8 (or of ml_dtypes' types), "int8" beside floating-point numbers. Kernels widen such
    an operand as they read it, exactly, to float16 or to the other operand's type, and sum in float32; nothing is
    copied. The result has the dtype of the wider operand, float32 where both have 8 bits, or `dtype`.

    Raises ValueError for shapes that do not fit and unknown names, TypeError for dtypes that cannot be cast and
    for operands that are no arrays of this device, UnsupportedError for operations that complex numbers lack.
    """
    runtime = _only or _emulated.get() or _current()
    if prologue is not None:
        from .prepared import matmul_behind

        asked, types = (alpha, bias, add, activation, epilogue), (dtype_a, dtype_b)
        return matmul_behind(runtime, a, b, asked, prologue, out, dtype, precision, types)
    if dtype_a is not None or dtype_b is not None:
        from .stored_products import typed_product

        steps = unfused("matmul of operands with dtype_a or dtype_b", alpha, bias, add, activation, epilogue)
        return typed_product(runtime, (a, b), out, steps, dtype, precision, (dtype_a, dtype_b))
    if bias is None and add is None and activation is None and epilogue is None and alpha is _ONE:
        return runtime.call(a, b, out, (), dtype, precision)
    try:
        steps = operations(alpha, bias, add, activation, epilogue)
    except FusedAsked:
        from .gates import fused

        return fused(runtime, a, b, (alpha, bias, add, activation, epilogue), out, dtype, precision)
    return runtime.call(a, b, out, steps, dtype, precision)


def current_runtime() -> Runtime:
    """The Runtime a call made here and now would use."""
    return _only or _emulated.get() or _current()


def _cuda() -> Runtime:
    """First use of a GPU: imports CuPy, and leaves the lookup of the current device's Runtime in its place.

    Devices outlive their Runtimes: captured graphs launch functions of modules that a device has loaded.
    """
    global _current
    from ..devices import cuda
    from .library import Library
    from .runtime import Runtime
    from .stored import library

    runtimes: dict[int, Runtime] = {}
    devices: dict[int, cuda.CudaDevice] = {}
    current_device = cuda.current_device()

    def lookup() -> Runtime:
        global _only
        number = current_device()
        runtime = runtimes.get(number)
        if runtime is None:
            with _lock:
                runtime = runtimes.get(number)
                if runtime is None:
                    if number not in devices:
                        devices[number] = cuda.CudaDevice(number)
                    device = devices[number]
                    runtime = runtimes[number] = Runtime(device, library(device.arch) if device.arch else Library())
                    _only = runtime if device.where is None and not _emulates else None
        return runtime

    _forget_devices.append(runtimes.clear)
    _current = lookup
    return lookup()


@forking.in_child
def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


_current: Callable[[], Runtime] = _cuda
#: The one Runtime there can be, so that nobody need ask which device is current: where there is one GPU, and nothing
#: was ever emulated.
_only: Runtime | None = None
_emulates = False
_forget_devices: list[Callable[[], None]] = []


def refresh() -> None:
    """Forgets every plan and what was read from databases and settings: the next call looks again.

    Inside `emulated` the databases that the environment names now are read at once. Loaded kernels stay loaded, because
    captured graphs may launch them.
    """
    global _only
    with _lock:
        _only = None
        _emulators.clear()
        for forget in _forget_devices:
            forget()
        inside = set(_open)
    for runtime in inside:
        runtime.refresh()


@contextmanager
def emulated(arch: str) -> Iterator[None]:
    """Within it, calls take NumPy arrays and run the kernels of `arch` ("sm_87", "h200") on the CPU.

    Slow, exact in what it executes, and strict: a call that no kernel serves raises UnsupportedError instead of
    going to an array library. Needs g++ (ToolMissingError). bfloat16 arrays have the dtype of `ml_dtypes`.
    """
    global _emulates, _only
    runtime = _emulator(arch)
    with _lock:
        _emulates, _only = True, None
        _open.append(runtime)
    token = _emulated.set(runtime)
    try:
        yield
    finally:
        _emulated.reset(token)
        with _lock:
            _open.remove(runtime)


def _emulator(name: str) -> Runtime:
    from ..devices.emulator.device import EmulatorDevice
    from ..machine.arch import lookup
    from .runtime import Runtime
    from .stored import library

    arch = lookup(name)
    # Databases are named by the environment: another environment, another Runtime.
    key = (arch.part, str(config.own_database()), str(config.site_database()))
    with _lock:
        if key not in _emulators:
            _emulators[key] = Runtime(EmulatorDevice(arch), library(arch))
        return _emulators[key]
