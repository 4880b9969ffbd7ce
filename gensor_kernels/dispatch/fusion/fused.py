"""Functions of arrays as one kernel: what a Python function computes element by element is traced into a program."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels import config
from gensor_kernels.dispatch.api import current
from gensor_kernels.dispatch.api.current import current_runtime
from gensor_kernels.dispatch.api.interop import adopting, public
from gensor_kernels.dispatch.direct import direct
from gensor_kernels.errors import UnsupportedError

if TYPE_CHECKING:
    from gensor_kernels.operators.expression.program import Program

#: Kinds of calls of one function that are traced: one with ever new numbers must not grow without bound.
MOST_KINDS = 256
#: Arguments that are part of a kind of call: numbers among them are constants of its program.
_PLAIN = (bool, int, float, np.generic, str, type(None))
#: A traced kind: the call of its arrays, and which arguments these are; a function that is called as it is has None.
Kind = tuple[Callable[..., Any], tuple["int | str", ...]] | None


class Fused:
    """A function that `fuse` made; call it as the function.

    Attributes
    ----------
    function : callable
        The function as it was.
    """

    def __init__(self, function: Callable[..., Any]):
        self.function = function
        self._kinds: dict[Hashable, Kind] = {}
        self._is_direct, self._direct = True, direct(current, self._compute)
        functools.update_wrapper(self, function)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Compute the function: in one launch where a kernel serves, else as it is written.

        Parameters
        ----------
        *arguments, **named
            Arguments of the function: arrays, numbers, strings and None.

        Returns
        -------
        array or tuple of arrays
            What the function returns.
        """
        return (self._direct if self._is_direct else self._compute)(*arguments, **named)

    def _compute(self, *arguments: Any, **named: Any) -> Any:
        """Find the kind of a call, which is traced if it is new, and make the call."""
        try:
            key = (*map(_about, arguments), *((name, _about(each)) for name, each in named.items()))
            kind = self._kinds[key]
        except KeyError:
            kind = self._learn(key, arguments, named)
        except (TypeError, AttributeError):  # an argument that cannot be hashed, or is no array
            kind = None
        if kind is None:
            return self.function(*arguments, **named)
        call, places = kind
        try:
            return call(*[arguments[each] if isinstance(each, int) else named[each] for each in places])
        except UnsupportedError:  # inside `emulated`, where no array library steps in
            return self.function(*arguments, **named)

    def _learn(self, key: Hashable, arguments: tuple[Any, ...], named: dict[str, Any]) -> Kind:
        """Trace a new kind of call."""
        self._is_direct = False  # direct ways are of calls that always do the same
        if len(self._kinds) >= MOST_KINDS or not _are_served((*arguments, *named.values())):
            return None
        try:
            found = _trace(self.function, arguments, named)
        except Exception as error:  # whatever the function did with what is no array: it may work with one
            config.logger().info("%s is called as it is written: %s", self.function, error)
            found = None
        self._kinds[key] = found
        self._is_direct = None not in self._kinds.values()
        return found


def _about(value: Any) -> tuple[Any, ...]:
    """Return what a kind of call has of an argument; 0.0 and -0.0 are equal, but other constants."""
    if isinstance(value, np.generic):
        return type(value), value.tobytes()
    if isinstance(value, float):
        return float, value.hex()
    return (type(value), value) if isinstance(value, _PLAIN) else (type(value), tuple(value.shape), value.dtype)


def _are_served(values: tuple[Any, ...]) -> bool:
    """Return whether arguments that are no numbers are arrays of the current device, if there is one."""
    arrays = [each for each in values if not isinstance(each, _PLAIN)]
    try:
        return bool(arrays) and all(map(current_runtime().device.is_array, arrays))
    except Exception:  # without a GPU
        return False


def _trace(function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Kind:
    """Return a kind of call; NotTracedError, or whatever the function raises, where it has no program."""
    from gensor_kernels.dispatch.functions.pointwise import Parameters, Traceable, function_of

    from .traced import NotTracedError, Tracing, result_dtype

    device = current_runtime().device
    given: dict[int | str, Any] = dict(enumerate(arguments))
    given.update(named)
    places = tuple(each for each, value in given.items() if not isinstance(value, _PLAIN))
    arrays = [given[each] for each in places]
    tracing = Tracing(arrays)
    # Without arrays, which would stay alive.
    numbers = {each: value for each, value in given.items() if each not in places}
    count, names = len(arguments), tuple(named)

    def call(values: dict[int | str, Any]) -> Any:
        own = {**numbers, **values}
        return function(*(own[each] for each in range(count)), **{name: own[name] for name in names})

    program = tracing.program(call(dict(zip(places, tracing.arrays, strict=True))))
    # The library decides on dtypes: it computes the same of arrays without elements, which launches nothing.
    shapes = [tuple(0 if extent > 1 else extent for extent in each.shape) for each in arrays]
    if all(0 in shape for shape in shapes):
        empty = [device.empty(shape, each.dtype) for shape, each in zip(shapes, arrays, strict=True)]
        found = call(dict(zip(places, empty, strict=True)))
        for each in found if isinstance(found, tuple) else (found,):
            if not device.is_array(each) or each.dtype != result_dtype(program):
                raise NotTracedError(f"the library's result is {getattr(each, 'dtype', type(each))}")

    def serve(*inputs: Any) -> Any:
        return _split(program, current_runtime().serve(own, inputs, parameters))

    def compute(inputs: Sequence[Any]) -> Any:
        return call(dict(zip(places, inputs, strict=True)))

    own, parameters = Traceable("fused", function_of(program.text).one_call, compute), Parameters(program.text)
    return adopting(serve), places


def _split(program: Program, found: Any) -> Any:
    """Return the result of a program, or a tuple of several, which kernels write to one array."""
    return found if len(program.outputs) == 1 else tuple(found)


@public
def compute_program(program: str, *inputs: Any) -> Any:
    """Compute an element-wise program (operators/expression/program.py) of arrays, which broadcast."""
    from gensor_kernels.dispatch.functions.pointwise import Parameters, function_of
    from gensor_kernels.operators.expression.program import parse

    return _split(parse(program), current_runtime().serve(function_of(program), inputs, Parameters(program)))


def fuse(function: Callable[..., Any]) -> Fused:
    """Compute a function of arrays, element by element, in one launch.

    The function is called once for each kind of call (dtypes and shapes of its arrays,
    and its other arguments) with stand-ins that record what it does: operators, universal
    functions of NumPy and CuPy, `where`, `clip` and `astype`. Numbers become constants,
    those of variables outside of the function too. A function that cannot be recorded is
    called as it is written.

    Parameters
    ----------
    function : callable
        Takes arrays that broadcast, numbers, strings and None, and returns an array, or a
        tuple of up to four, of one dtype and of the shape to which the arrays broadcast.
        It must do nothing else: a call of a known kind does not run it.

    Returns
    -------
    Fused
        The function to call in its place.

    Raises
    ------
    TypeError
        If `function` cannot be called.

    Notes
    -----
    Floats of 16 and 8 bits are computed in float32 and rounded once. Arrays of a tuple are
    parts of one piece of memory.

    Examples
    --------
    >>> @gensor_kernels.fuse
    ... def damped(x, y, rate):
    ...     return np.where(x > y, np.exp(-rate * x), y)
    >>> x = np.array([[0, 1], [2, 3]], "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     damped(x, np.ones(2, "float32"), 0.5)
    array([[1.        , 1.        ],
           [0.36787945, 0.22313017]], dtype=float32)

    A step with momentum, which reads three arrays and writes two:

    >>> @gensor_kernels.fuse
    ... def step(weights, gradients, momentum):
    ...     momentum = 0.9 * momentum + gradients
    ...     return weights - 0.1 * momentum, momentum
    >>> with gensor_kernels.emulated("sm_87"):
    ...     step(x, np.ones_like(x), np.zeros_like(x))[0]
    array([[-0.1,  0.9],
           [ 1.9,  2.9]], dtype=float32)
    """
    if not callable(function):
        raise TypeError(f"fuse takes a function, not {type(function).__name__}")
    return Fused(function)
