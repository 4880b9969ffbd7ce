"""Element-wise programs: their lowering, and the same by the array library, step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.arrays import Dtype
from gensor_kernels.dispatch.calls.arguments import Operands
from gensor_kernels.operators.expression.program import (
    BOOL,
    FLOATS,
    NARROW,
    NUMPY,
    TYPES,
    Program,
    Step,
    constant,
    make,
    parse,
)
from gensor_kernels.operators.expression.values import FUNCTIONS
from gensor_kernels.operators.pointwise.views import workload_from_views
from gensor_kernels.operators.types.dtypes import array_dtype
from gensor_kernels.operators.types.workload import Workload

from .base import AbstractCall, Function, Inputs, KernelCall, LibraryCall, Result, Steps, memory_order

if TYPE_CHECKING:
    from gensor_kernels.dispatch.calls.array import Backend, DeviceArray

#: Names of floats that are computed in float32.
_NARROW = tuple(TYPES[code] for code in NARROW)


@dataclass(frozen=True)
class Parameters:
    """The program of a call, as text."""

    program: str

    @property
    def operator(self) -> str:
        """The operator's name in shapes files."""
        return f"pointwise{len(parse(self.program).inputs)}"


class Pointwise(Function):
    """Calls of element-wise programs; `parameters` is a Parameters."""

    stands_in = False  # there is no product in it at which the library could be faster

    def __init__(self, name: str, one_call: bool):
        self.name, self.one_call = name, one_call

    def result(self, inputs: Inputs, parameters: Parameters) -> Result:
        """Return the shape that the inputs broadcast to, in the order of memory of those that have it.

        Several results are entries along a first axis.
        """
        shape = np.broadcast_shapes(*(tuple(each.shape) for each in inputs))
        whole = [each for each in inputs if tuple(each.shape) == shape]
        orders = {memory_order(each.strides) for each in whole if not each.flags.c_contiguous}
        plain = any(each.flags.c_contiguous for each in whole)
        order = orders.pop() if len(orders) == 1 and not plain else None
        program = parse(parameters.program)
        if len(program.outputs) > 1:
            shape, order = (len(program.outputs), *shape), None if order is None else (0, *(each + 1 for each in order))
        return Result(shape, array_dtype(TYPES[program.result]), order)

    def lower(self, call: AbstractCall) -> KernelCall:
        """Merge axes as far as all arrays allow."""
        return KernelCall(*workload_from_views(parse(call.parameters.program), call.given, call.out))

    def vendor_call(self, workload: Workload, arrays: Mapping[str, DeviceArray]) -> LibraryCall:
        """Return the call of the inputs, which broadcast; of float64 arrays in the place of others in float64."""
        program = parse(workload.program)
        inputs = [arrays[f"x{index}"] for index in range(len(program.inputs))]
        pairs = list(zip(inputs, program.inputs, strict=True))
        if any(code in ("f4", *NARROW) and each.dtype == np.float64 for each, code in pairs):
            program = _widened(program)
        typed = [_typed(each, array_dtype(TYPES[code])) for each, code in zip(inputs, program.inputs, strict=True)]
        return LibraryCall(tuple(typed), Parameters(program.text))

    def library(self, device: Backend, inputs: Inputs, p: Parameters, math: str | None, out: DeviceArray = None) -> Any:
        """Return the result of a call of the library for each step, or a tuple of several; numbers of 8 and 16 bits are
        computed in float32."""
        program = parse(p.program)
        values: list[Any] = [_wide(each) for each in inputs]
        for step in program.steps:
            values.append(_compute(device, step, values))
        dtype = array_dtype(TYPES[program.result])
        found = tuple([values[each].astype(dtype, copy=False) for each in program.outputs])
        return found if len(found) > 1 else found[0]

    def finish(
        self,
        device: Backend,
        value: Any,
        steps: Steps,
        parameters: Any,
        dtype: Dtype,
        out: DeviceArray = None,
    ) -> Any:
        """Return several results as they are."""
        return value if isinstance(value, tuple) else super().finish(device, value, steps, parameters, dtype, out)


class Traceable(Pointwise):
    """Calls of a program that was traced; where no kernel serves, the function that was traced is called."""

    def __init__(self, name: str, one_call: bool, compute: Callable[[Inputs], DeviceArray]):
        super().__init__(name, one_call)
        self._compute = compute

    def by_library(
        self, device: Backend, operands: Operands, parameters: Any, result: Result, math: str | None
    ) -> DeviceArray:
        """Call the function."""
        return operands.give(self._compute(operands.inputs))

    def count_passes(
        self, device: Backend, operands: Operands, parameters: Any, result: Result, math: str | None
    ) -> DeviceArray:
        """Count a call of the library for each step."""
        return super().by_library(device, operands, parameters, result, math)


class _Host:
    """NumPy in the place of a device."""

    xp = np

    @staticmethod
    def erfc(x: np.ndarray) -> np.ndarray:
        return (1 - FUNCTIONS["erf"].numpy(x)).astype(x.dtype)


def on_host(program: str, inputs: Inputs) -> Any:
    """Return the result of a program of NumPy's arrays, or a tuple of several."""
    return COMPOSED.library(_Host, inputs, Parameters(program), None)  # type: ignore[arg-type]


def _widened(program: Program) -> Program:
    """Return a program with float64 in place of all floats."""

    def wide(code: str) -> str:
        return "f8" if code in FLOATS else code

    steps = [step._replace(dtype=wide(step.dtype)) for step in program.steps]
    return make(tuple(map(wide, program.inputs)), steps, *program.outputs)


def _typed(array: DeviceArray, dtype: np.dtype[Any]) -> DeviceArray:
    """Return an array of a Workload in the type of a program, which may have the same bits."""
    return array.view(dtype) if array.dtype.itemsize == dtype.itemsize else array.astype(dtype)


def _wide(x: DeviceArray) -> DeviceArray:
    """Return floats of 8 and 16 bits as float32, other arrays as they are."""
    return x.astype(np.float32) if x.dtype.name in _NARROW else x


def _held(code: str) -> np.dtype[Any]:
    """Return the dtype that values of a type are computed in."""
    return np.dtype(np.float32 if code in NARROW else TYPES[code])


def _compute(device: Backend, step: Step, values: list[Any]) -> Any:
    if step.name == "const":
        return _held(step.dtype).type(constant(step))
    given = [values[each] for each in step.arguments]
    if step.name == "cast":
        dtype = array_dtype(TYPES[step.dtype])
        return _wide(given[0].astype(dtype, copy=False))
    with np.errstate(all="ignore"):
        found = _by_name(device, step, given)
    return found if step.result == BOOL or found.dtype == _held(step.dtype) else found.astype(_held(step.dtype))


def _by_name(device: Backend, step: Step, given: list[Any]) -> Any:
    xp, x = device.xp, given[0]
    composed: dict[str, Callable[[], Any]] = {
        "erf": lambda: 1 - device.erfc(x),
        "sigmoid": lambda: 1 / (1 + xp.exp(-x)),
        "rsqrt": lambda: 1 / xp.sqrt(x),
        "truncdiv": lambda: _truncated(xp, *given),
    }
    if step.name in composed:
        return composed[step.name]()
    return getattr(xp, NUMPY.get(step.name, step.name))(*given)


def _truncated(xp: Any, a: Any, b: Any) -> Any:
    """Return quotients of integers, rounded towards zero."""
    down = xp.floor_divide(a, b)
    return down + ((a - down * b != 0) & ((a < 0) != (b < 0))).astype(down.dtype)


#: A program of several steps, and one whose only step is a function of the library.
COMPOSED, ONE_CALL = Pointwise("pointwise", False), Pointwise("pointwise of one call", True)
#: Steps that the library computes by several calls.
SEVERAL = ("erf", "sigmoid", "rsqrt", "truncdiv")


@lru_cache(maxsize=1024)
def function_of(program: str) -> Pointwise:
    """Return the Function of a program."""
    operations, outputs = parse(program).operations, parse(program).outputs
    one_call = len(operations) == len(outputs) == 1 and operations[0].name not in SEVERAL
    return ONE_CALL if one_call else COMPOSED
