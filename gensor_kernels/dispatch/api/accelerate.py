"""`accelerate`: existing CuPy code through this package, without a change to it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import update_wrapper
from importlib import import_module
from typing import Any, NamedTuple

from gensor_kernels import dispatch, forking

_lock = threading.Lock()
_users = 0


@contextmanager
def accelerate() -> Iterator[None]:
    """Send the products of existing CuPy code through this package.

    Within the context, `cupy.matmul`, `@`, `cupy.dot`, `ndarray.dot`, `cupy.einsum`,
    `cupy.tensordot`, `cupy.inner` and `cupy.vdot` of any code come here. Afterwards,
    the functions are CuPy's again.

    Returns
    -------
    context manager
        It holds for all threads while any block is open. Blocks may be nested.

    Raises
    ------
    ToolMissingError
        If CuPy is not installed.

    Notes
    -----
    The meaning of a call does not change. CuPy serves, as before, operands that are not
    CuPy arrays, keyword arguments other than `out`, an `out` of another dtype than the
    result, and any call that no kernel serves faster. Names imported before (`from cupy
    import matmul`) stay CuPy's.

    Examples
    --------
    On a GPU:

    >>> x = cupy.ones((2, 3))  # doctest: +SKIP
    >>> with gensor_kernels.accelerate():  # doctest: +SKIP
    ...     y = x @ x.T  # gensor_kernels.matmul(x, x.T)

    CuPy's functions are replaced only within the block:

    >>> import cupy
    >>> before = cupy.matmul
    >>> with gensor_kernels.accelerate():
    ...     cupy.matmul is before
    False
    >>> cupy.matmul is before
    True
    """
    _enter()
    try:
        yield
    finally:
        _leave()


def _enter() -> None:
    global _users
    from gensor_kernels.devices import originals
    from gensor_kernels.devices.cuda import import_cupy

    cupy = import_cupy()
    with _lock:
        if _users == 0:
            try:
                for owner, name, ours, fits in _routes(cupy):
                    _replace(owner, name, ours, fits)
            except BaseException:  # half of the names, say, and Ctrl-C
                originals.restore()
                raise
        _users += 1


def _leave() -> None:
    global _users
    from gensor_kernels.devices import originals

    with _lock:
        _users -= 1
        if _users == 0:
            originals.restore()


@forking.in_child
def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


Fits = Callable[[tuple[Any, ...], dict[str, Any]], bool]


def _routes(cupy: Any) -> list[tuple[Any, str, Callable[..., Any], Fits]]:
    """Return (where a function is, its name, ours, whether arguments are ones ours takes to mean the same)."""
    array = cupy.ndarray

    def pair(args: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
        *given, out = args if len(args) == 3 and not keywords else (*args, keywords.get("out"))
        if len(given) != 2 or not all(type(each) is array for each in given) or not keywords.keys() <= {"out"}:
            return False
        return out is None or (type(out) is array and out.dtype == cupy.result_type(*given))

    def contraction(args: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
        arrays = [each for each in args[1:] if type(each) is array]
        return bool(args) and type(args[0]) is str and len(arrays) == len(args) - 1 and keywords.keys() <= {"optimize"}

    def axes(args: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
        return len(args) in (2, 3) and all(type(each) is array for each in args[:2]) and keywords.keys() <= {"axes"}

    def two(args: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
        return len(args) == 2 and all(type(each) is array for each in args) and not keywords

    return [
        (cupy, "matmul", dispatch.matmul, pair),
        (cupy, "dot", dispatch.dot, pair),
        (cupy, "einsum", dispatch.einsum, contraction),
        (cupy, "tensordot", dispatch.tensordot, axes),
        (cupy, "inner", dispatch.inner, two),
        (cupy, "vdot", dispatch.vdot, two),
        (array, "dot", dispatch.dot, pair),
        (array, "__matmul__", dispatch.matmul, two),
    ]


def _replace(owner: Any, name: str, ours: Callable[..., Any], fits: Fits) -> None:
    """Puts a function in the place of `owner.name` that calls ours where it means the same.

    That `cupy.ndarray` is a Python class, whose methods can be replaced, is not documented: it was read in CuPy 13.3.0,
    13.6.0, 14.0.0 and 14.2.0 (cupy/_core/core.pyx).
    """
    from gensor_kernels.devices import originals

    original, within = getattr(owner, name), originals.within.get

    def route(*args: Any, **keywords: Any) -> Any:
        # The library's way and a race's call of it must not come back to ours; and a name that somebody imported
        # within a block is CuPy's again after it.
        if not _users or within() or not fits(args, keywords):
            return original(*args, **keywords)
        return ours(*args, **keywords)

    update_wrapper(route, original)
    route.__name__, route.__module__ = name, "cupy"
    if isinstance(owner, type):  # a method must be a function
        route.__qualname__ = f"{owner.__qualname__}.{name}"
        originals.replace(owner, name, route)
    else:
        route.__qualname__ = name
        originals.replace(owner, name, Routed(route, original, name))


class Routed:
    """A function in the place of one of CuPy's, with the attributes of that; pickled by its name in `cupy`."""

    def __init__(self, call: Callable[..., Any], original: Any, name: str):
        update_wrapper(self, original)
        self._call, self.__name__, self.__qualname__, self.__module__ = call, name, name, "cupy"

    def __call__(self, /, *args: Any, **keywords: Any) -> Any:
        """Call ours, or CuPy's."""
        return self._call(*args, **keywords)

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["__wrapped__"], name)

    def __repr__(self) -> str:
        return repr(self.__wrapped__)

    def __reduce__(self) -> tuple[Any, ...]:
        """Name it: to read this takes CuPy alone, and finds what stands under the name then."""
        return getattr, (_Named("cupy"), self.__name__)


class _Named(NamedTuple):
    """A module as a pickle names it."""

    module: str

    def __reduce__(self) -> tuple[Any, ...]:
        return import_module, tuple(self)
