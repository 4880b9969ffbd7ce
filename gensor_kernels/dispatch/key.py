"""Keys of calls, and the calls that are looked up by them. Imports little: a first call loads the rest.

A key is what two calls must share for one Plan to serve both: a flat tuple of numbers where time matters, because each
entry costs time to build, to hash and to compare. CuPy's `_shape` and `_strides` are the lists that its properties make
tuples of at every read, at twice the price. Each array's lists, of equal lengths, are followed by None, so that no two
different calls have equal keys. Every key is built here: of matrix products by `short` and `Calls.call`, which share
their keys, of contractions by `contract`, of all other Functions by `serve`, and of calls that are made of several by
`key_of_several`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import wraps
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from gensor_kernels.dispatch.kept import Key
from gensor_kernels.shown import no_array, shown

from .calls.arguments import PRECISIONS, Operands, Operation, is_whole

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from gensor_kernels.devices.device import Device

    from .calls.array import DeviceArray
    from .contractions.spec import Form
    from .functions.base import Function

Product = TypeVar("Product", bound=Callable[..., Any])
Steps = tuple[Operation, ...]


def short(current: ModuleType, product: Product, leaves: bool = False) -> Product:
    """Return a matrix product with a shorter way for plain calls of CuPy arrays; keywords and other arrays take the
    long one. `current` is the module that finds the Runtime (api/current.py). With `leaves` it returns None for a call
    that goes to the array library whatever happens, so that a caller who has been asked for the library's own function
    can call that (accelerated/accelerate.py).

    It fills in no defaults of keywords and calls nothing but the Plan, or, where the addresses are those the Plan has
    placed its launch at, only that. Inside graph capture what allocates takes the long way too, and with it memory that
    lasts (api/interop.py).
    """

    @wraps(product)
    def short_way(a: DeviceArray, b: DeviceArray, /, out: DeviceArray = None, **more: Any) -> DeviceArray:
        if more:
            return product(a, b, out, **more)
        runtime = current.only or current.inside.get() or current.lookup()
        if runtime.where is not None:
            return product(a, b, out)
        try:
            type_a, type_b, pa, pb = a.dtype, b.dtype, a.data.ptr, b.data.ptr
            if out is None:
                types: Any = type_a if type_b is type_a else (type_a, type_b)
                key: Any = (types, *a._shape, *a._strides, None, *b._shape, *b._strides)
                pc = 0
            else:
                type_c, pc = out.dtype, out.data.ptr
                types = type_a if type_b is type_a and type_c is type_a else (type_a, type_b, type_c)
                try:  # matrices, without the lists' detour
                    m, k = a._shape
                    am, ak = a._strides
                    bk, n = b._shape
                    sk, sn = b._strides
                    cm, cn = out._shape
                    om, on = out._strides
                    key = (types, m, k, am, ak, None, bk, n, sk, sn, None, cm, cn, om, on)
                except ValueError:
                    key = types, *a._shape, *a._strides, None, *b._shape, *b._strides, None, *out._shape, *out._strides
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
                    if leaves and plan.tier == 4 and plan.leaves():
                        return None
                    if not plan.launches:
                        return plan.serve((a, b), out, ())
                    result = plan.at(out, pa, pb, pc)
                    return plan.run(a, b, out, (), pa, pb, pc) if result is None else result
            except runtime.troubles as error:
                plan = runtime.instead(key, plan, error)
                return plan.serve((a, b), out, ())
        return product(a, b, out)

    return short_way  # type: ignore[return-value]


def key_of_several(name: str, arrays: Sequence[DeviceArray], *about: Any) -> tuple[Any, ...]:
    """Return the key of a call that is made of several, whatever the addresses of its arrays."""
    return (name, *about, *((array.shape, array.strides, array.dtype) for array in arrays))


class Calls:
    """Calls on one device.

    A call whose key is known costs one look-up and the run of its Plan; `first` serves any other.

    Attributes
    ----------
    pointer : Callable
        Address of an array; see Device.
    where : Callable or None
        Device of an array's memory, unless there is only one device.
    find : Callable
        Plan of a key, or None.
    ways, way : dict, Callable
        Direct ways of public functions by their keys (dispatch/direct.py), and their look-up: False while no way is
        used.
    troubles : tuple of type
        Errors of launches for which the array library steps in.
    """

    device: Device
    pointer: Callable[[Any], int]
    where: Callable[[Any], int] | None
    find: Callable[[Any], Any]
    ways: dict[Any, Any]
    way: Callable[[Any], Any]
    troubles: tuple[type[Exception], ...]

    def first(
        self, key: Key, function: Function, operands: Operands, parameters: Any, precision: str | None
    ) -> DeviceArray:
        """Serve a call whose key is not known."""
        raise NotImplementedError

    def instead(self, key: Key, plan: Any, error: Exception) -> Any:
        """Return the Plan that serves in the place of one that raised `error`, or raise that."""
        raise NotImplementedError

    def call(
        self,
        a: DeviceArray,
        b: DeviceArray,
        out: DeviceArray,
        steps: Steps,
        dtype: DTypeLike | None,
        precision: str | None,
    ) -> DeviceArray:
        """Compute `a @ b` with the epilogue `steps`, into `out` or a new array. `short` does the same."""
        pc, odd = 0, None
        try:
            type_a, type_b = a.dtype, b.dtype
            if out is None:
                types: Any = type_a if type_b is type_a else (type_a, type_b)
                key: tuple[Any, ...] = (types, *a._shape, *a._strides, None, *b._shape, *b._strides)
                pa, pb = a.data.ptr, b.data.ptr
                if (pa | pb) & 15:
                    odd = pa & 15, pb & 15, 0
            else:
                type_c = out.dtype
                types = type_a if type_b is type_a and type_c is type_a else (type_a, type_b, type_c)
                key = (types, *a._shape, *a._strides, None, *b._shape, *b._strides, None, *out._shape, *out._strides)
                pa, pb, pc = a.data.ptr, b.data.ptr, out.data.ptr
                if (pa | pb | pc) & 15:
                    odd = pa & 15, pb & 15, pc & 15
            if odd is not None or dtype is not None or precision is not None:
                key += ((odd, dtype, precision),)
            if steps:
                key += self._about(steps)
            if self.where is not None:
                key += self._places((a, b, out), steps)
            plan = self.find(key)
        except (AttributeError, TypeError):  # arrays that are not CuPy's
            self.check(a, b, out, steps, precision)
            pa, pb, pc = (0 if array is None else self.pointer(array) for array in (a, b, out))
            key = ("matmul", self._layouts((a, b, out)), dtype, precision, *self._about(steps))
            if self.where is not None:
                key += self._places((a, b, out), steps)
            plan = self.find(key)
        if plan is None:
            from .functions.matmul import MATMUL

            return self.first(key, MATMUL, Operands((a, b), out, steps), dtype, precision)
        try:
            return plan.run(a, b, out, steps, pa, pb, pc)
        except self.troubles as error:
            plan = self.instead(key, plan, error)
        return plan.serve((a, b), out, steps)

    def contract(
        self,
        form: Form,
        a: DeviceArray,
        b: DeviceArray,
        out: DeviceArray = None,
        dtype: DTypeLike | None = None,
        steps: Steps = (),
        math: str | None = None,
        leaves: bool = False,
    ) -> DeviceArray:
        """Compute the contraction of `a` and `b` that `form` names (contractions/spec.py), into `out` or a new array.

        The key begins with `form`, so that it equals no other function's. With `leaves`, see `serve`.
        """
        pc = 0
        try:
            pa, pb, type_a, type_b = a.data.ptr, b.data.ptr, a.dtype, b.dtype
            types: Any = type_a if type_b is type_a else (type_a, type_b)
            odd: Any = (pa & 15, pb & 15) if (pa | pb) & 15 else 0
            key: tuple[Any, ...] = (form, types, odd, dtype, *a._shape, *a._strides, None, *b._shape, *b._strides)
            if out is not None:
                pc = out.data.ptr
                key += (None, out.dtype, pc & 15, *out._shape, *out._strides)
        except (AttributeError, ValueError):  # arrays that are not CuPy's; NumPy has no buffer of bfloat16
            self.check(a, b, out, steps, None)
            pa, pb, pc = (0 if array is None else self.pointer(array) for array in (a, b, out))
            key = (form, dtype, self._layouts((a, b, out)))
        try:
            if steps or math is not None:
                key += (None, math, *self._about(steps))
            if self.where is not None:
                key += self._places((a, b, out), steps)
            plan = self.find(key)
        except (AttributeError, TypeError):
            self.check(a, b, out, steps, None)
            raise
        if leaves and plan is not None and plan.tier == 4 and plan.leaves():
            return None
        if plan is None:
            from .functions.contraction import CONTRACTION, Spec

            return self.first(key, CONTRACTION, Operands((a, b), out, steps), Spec(form, dtype), math)
        try:
            return plan.run(a, b, out, steps, pa, pb, pc)
        except self.troubles as error:
            plan = self.instead(key, plan, error)
        return plan.serve((a, b), out, steps)

    def serve(
        self,
        function: Function,
        inputs: tuple[DeviceArray, ...],
        parameters: Hashable,
        out: DeviceArray = None,
        steps: Steps = (),
        precision: str | None = None,
        leaves: bool = False,
    ) -> DeviceArray:
        """Compute a call of any Function but a product or contraction, into `out` or a new array.

        With `leaves`, which is for calls outside of graph capture, it returns None as `short` does.
        """
        a, pa, pc = inputs[0], 0, 0
        try:
            if len(inputs) == 1 and hasattr(a, "_shape"):  # a CuPy array
                pa = a.data.ptr
                key: tuple[Any, ...] = (parameters, a.dtype, pa & 15, *a._shape, *a._strides, None, function.name)
                if out is not None:
                    pc = out.data.ptr
                    key += (out.dtype, pc & 15, *out._shape, *out._strides)
                if steps or precision is not None:
                    key += (None, precision, *self._about(steps))
            else:
                key = (function.name, parameters, precision, self._layouts((*inputs, out)), *self._about(steps))
            if self.where is not None:
                key += self._places((*inputs, out), steps)
            plan = self.find(key)
        except (AttributeError, TypeError):
            self.check_call(function, Operands(inputs, out, steps), precision)
            raise
        if plan is None:
            return self.first(key, function, Operands(inputs, out, steps), parameters, precision)
        if leaves and plan.tier == 4 and plan.leaves():
            return None
        try:
            return plan.run(a, None, out, steps, pa, 0, pc) if pa else plan.serve(inputs, out, steps)
        except self.troubles as error:
            plan = self.instead(key, plan, error)
        return plan.serve(inputs, out, steps)

    def _about(self, steps: Steps) -> tuple[Any, ...]:
        """Return the part of a key for an epilogue: alignment for addresses, for scalars whether they are whole."""
        parts: list[Any] = []
        for name, operand, scalar in steps:
            if operand is not None:
                parts += (name, operand.shape, operand.strides, operand.dtype, self.pointer(operand) & 15)
            else:
                parts.append(name)
            if scalar != 0.0 or type(scalar) is complex:
                parts += (is_whole(scalar), type(scalar) is complex)
        return tuple(parts)

    def _layouts(self, arrays: tuple[DeviceArray, ...]) -> tuple[Any, ...]:
        """Return the part of a key for arrays of any library."""
        pointer = self.pointer
        return tuple(None if x is None else (x.shape, x.strides, x.dtype, pointer(x) & 15) for x in arrays)

    def _places(self, arrays: tuple[DeviceArray, ...], steps: Steps) -> tuple[Any, ...]:
        """Return the devices whose memory arrays are in."""
        where = self.where
        assert where is not None
        every = (*arrays, *(step.operand for step in steps))
        return tuple(None if array is None else where(array) for array in every)

    # ---- arguments that have no key

    def check(self, a: DeviceArray, b: DeviceArray, out: DeviceArray, steps: Steps, precision: str | None) -> None:
        """Raise TypeError or ValueError, in words, for arguments of another kind than this device's arrays."""
        if precision not in PRECISIONS:
            raise ValueError(f"precision must be one of {', '.join(map(repr, PRECISIONS))}, not {shown(precision)}")
        self.require("a", a)
        self.require("b", b)
        self._require_others(out, steps)

    def check_call(self, function: Function, operands: Operands, precision: str | None) -> None:
        """Raise TypeError or ValueError for arguments of a Function."""
        if function.arguments:
            a, b = operands.inputs
            self.check(a, b, operands.out, operands.steps, precision)
        else:
            self.check_inputs(*operands)

    def check_inputs(self, inputs: Sequence[DeviceArray], out: DeviceArray, steps: Steps) -> None:
        """Raise TypeError for inputs that are no arrays of this device."""
        for value in inputs:
            if value is not None:
                self.require("an operand", value)
        self._require_others(out, steps)

    def require(self, name: str, value: DeviceArray) -> None:
        """Raise TypeError for an argument that is no array of this device."""
        if not self.device.is_array(value):
            raise TypeError(no_array(name, value, self.device.xp.__name__))

    def _require_others(self, out: DeviceArray, steps: Steps) -> None:
        for step in steps:
            if step.operand is not None:
                self.require(step.name, step.operand)
        if out is not None:
            self.require("out", out)
