"""`accelerate`: existing CuPy code through this package, without a change to it."""

from __future__ import annotations

import atexit
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import update_wrapper
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from gensor_kernels import config, forking
from gensor_kernels.errors import ToolMissingError
from gensor_kernels.shown import shown

if TYPE_CHECKING:
    from .reached import Reached
    from .routes import Route

_lock = forking.lock(sys.modules[__name__], "_lock", threading.RLock)
#: How many open blocks have selected each function.
_selected: dict[str, int] = {}
#: The functions that stand in the place of CuPy's, by where that is.
_routed: dict[tuple[Any, str], Replacement] = {}


@contextmanager
def accelerate(*functions: str, report: bool = False) -> Iterator[Reached | None]:
    """Send calls of existing CuPy code through this package.

    Within the context, CuPy's functions and methods of arrays in the table below come
    here, whatever code calls them. Afterwards, they are CuPy's again.

    Parameters
    ----------
    *functions : str
        Names of functions ("matmul", "softmax") and of groups ("products",
        "reductions", "scans", "special", "signal"); by default all.
    report : bool, default False
        Whether the calls are counted: the context manager then gives an object whose
        text says which functions were reached, what served their calls, and how much
        faster. Counting costs some microseconds per call.

    Returns
    -------
    context manager
        It holds for all threads while any block is open. Blocks may be nested.

    Raises
    ------
    ValueError
        If there is no such function or group.
    ToolMissingError
        If CuPy is not installed.

    Notes
    -----
    ==========  ====================================================================
    products    `cupy.matmul` and `@`, `dot`, `einsum`, `tensordot`, `inner`, `vdot`
    reductions  `cupy.sum`, `mean`, `prod`, `max`, `min`, `argmax`, `argmin`, `var`,
                `std`, `linalg.norm`; the methods of arrays of these names; `nansum`,
                `nanmean`, `nanmax`, `nanmin`
    scans       `cupy.cumsum`, `cumprod`, and the methods of these names
    special     `cupyx.scipy.special.softmax` and `logsumexp`
    signal      `cupyx.scipy.signal.fftconvolve` and `oaconvolve`
    ==========  ====================================================================

    The meaning of a call does not change, nor do its errors. CuPy serves, as before,
    operands that are not CuPy arrays, arguments that ours do not have, an `out` of
    another dtype than the result, dtypes without kernels, and any call that no kernel
    serves faster. Names imported before (`from cupy import matmul`) stay CuPy's.

    Examples
    --------
    On a GPU:

    >>> x = cupy.ones((2, 3))  # doctest: +SKIP
    >>> with gensor_kernels.accelerate():  # doctest: +SKIP
    ...     y = x @ x.T  # gensor_kernels.matmul(x, x.T)
    >>> with gensor_kernels.accelerate("matmul", report=True) as report:  # doctest: +SKIP
    ...     y = x @ x.T
    >>> print(report)  # doctest: +SKIP

    CuPy's functions are replaced only within the block:

    >>> import cupy
    >>> before = cupy.matmul
    >>> with gensor_kernels.accelerate():
    ...     cupy.matmul is before
    False
    >>> cupy.matmul is before
    True
    """
    from gensor_kernels.devices.cuda import import_cupy

    names, cupy = find_names(functions), import_cupy()
    with _replaced(cupy, names), _counting() if report else nullcontext() as reached:
        yield reached


def find_names(given: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the functions that are selected by their own names and those of groups."""
    from .routes import GROUPS, LEFT, NAMES, SYNONYMS

    found: dict[str, None] = {}
    for word in given:
        if not isinstance(word, str):
            raise TypeError(f"accelerate takes names of functions, not {shown(word)}")
        name = _spelt(word, (*NAMES, *GROUPS), SYNONYMS)
        if name is None:
            left = _spelt(word, LEFT)
            raise ValueError(f"{left} stays CuPy's: {LEFT[left]}" if left else _unknown(word))
        found |= dict.fromkeys(GROUPS.get(name, (name,)))
    return tuple(found) or NAMES


def _spelt(word: str, names: Any, synonyms: dict[str, str] | None = None) -> str | None:
    from gensor_kernels import spelling

    return spelling.find(word.removeprefix("cupy.").removeprefix("linalg."), names, synonyms)


def _unknown(word: str) -> str:
    from gensor_kernels import spelling

    from .routes import GROUPS, NAMES, SYNONYMS

    near = spelling.near(word, (*NAMES, *GROUPS), SYNONYMS)
    meant = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    groups = "; ".join(f"{name}: {', '.join(each)}" for name, each in GROUPS.items())
    return f"accelerate reaches no {shown(word)}; {meant}It takes names of functions and groups ({groups})"


@contextmanager
def _replaced(cupy: ModuleType, names: tuple[str, ...]) -> Iterator[None]:
    """Replace the functions of these names within a block."""
    with _lock:
        for name in names:
            _selected[name] = _selected.get(name, 0) + 1
        try:
            _replace(cupy)
        except BaseException:  # half of the names, say, and Ctrl-C
            _leave(names)
            raise
    try:
        yield
    finally:
        with _lock:
            _leave(names)


def _replace(cupy: ModuleType) -> None:
    """Replace the functions that are selected now and are not replaced yet."""
    from . import routes as known

    routes = known.find_routes(cupy)
    for name, functions, find in (
        (known.SPECIAL, known.ROWS, known.find_special_routes),
        (known.SIGNAL, known.CONVOLUTIONS, known.find_signal_routes),
    ):
        if any(map(_selected.get, functions)):
            module = sys.modules.get(name)
            if module is not None and all(hasattr(module, function) for function in functions):
                routes += find(cupy, module)
            else:
                _later.watch(name, cupy)
    for route in routes:
        if _selected.get(route.group) and (route.owner, route.name) not in _routed:
            _routed[route.owner, route.name] = Replacement(route)


def _leave(names: tuple[str, ...]) -> None:
    """Give back the functions that no open block has selected."""
    for name in names:
        _selected[name] -= 1
    for place, replacement in list(_routed.items()):
        if not _selected.get(replacement.group):
            replacement.end()
            del _routed[place]
    if not any(_selected.values()):
        _later.forget()


class _Later:
    """Replaces the functions of modules once a program has imported them."""

    def __init__(self) -> None:
        self._names, self._cupy = set[str](), sys

    def watch(self, name: str, cupy: ModuleType) -> None:
        """Wait for the import of a module."""
        self._names.add(name)
        self._cupy = cupy
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def forget(self) -> None:
        """Wait no longer."""
        self._names.clear()
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the module's own spec, whose loader replaces the functions after it has run the module."""
        if fullname not in self._names:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                with _lock:
                    _replace(self._cupy)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


_later = _Later()
#: The report that counts the calls, if one is open.
counting: Reached | None = None


@contextmanager
def _counting() -> Iterator[Reached]:
    """Count calls within a block in a new report; an inner block has its own."""
    global counting
    from gensor_kernels.dispatch.observe import record

    from .reached import Reached

    outer, counting = counting, Reached()
    record.add(counting)
    try:
        yield counting
    finally:
        record.remove(counting)
        counting = outer


class Replacement:
    """A function that stands in the place of one of CuPy's until `end`, and calls ours where that means the same."""

    def __init__(self, route: Route):
        from gensor_kernels.devices import originals
        from gensor_kernels.devices.cuda import import_cupy

        self.group, self._place = route.group, (route.owner, route.name)
        self._active = [True]
        original = getattr(route.owner, route.name)
        function = _function(route, original, import_cupy().ndarray, self._active, originals.within.get)
        update_wrapper(function, original)
        function.__name__, is_method = route.name, isinstance(route.owner, type)
        function.__module__ = "cupy" if is_method else route.owner.__name__
        function.__qualname__ = f"{route.owner.__qualname__}.{route.name}" if is_method else route.name
        # A method must be a function.
        originals.replace(*self._place, function if is_method else routed(function, original))

    def end(self) -> None:
        """Put CuPy's function back; a name that somebody has imported meanwhile is also CuPy's from now on."""
        from gensor_kernels.devices import originals

        self._active.clear()
        originals.restore(*self._place)


def _function(
    route: Route, original: Any, array: Any, active: list[bool], within: Callable[[], bool]
) -> Callable[..., Any]:
    from .routes import PRODUCT_TYPES as types

    serve, quick = route.serve, route.quick
    what = f"{'ndarray' if isinstance(route.owner, type) else route.owner.__name__}.{route.name}"

    def function(*args: Any, **keywords: Any) -> Any:
        # The library's way and a race's call of it must not come back to ours.
        if active and not within():
            try:
                if counting is not None:
                    found = counting.serve(what, serve, args, keywords)
                elif quick is not None and len(args) == 2 and not keywords:
                    a, b = args
                    ours = type(a) is array and type(b) is array and (a.dtype.char in types or b.dtype.char in types)
                    found = quick(a, b) if ours else None
                else:
                    found = serve(args, keywords)
                if found is not None:
                    return found
            except (TypeError, ValueError) as error:  # CuPy's own errors are in its own words
                config.logger().debug("%s is left to CuPy: %s", what, error)
        return original(*args, **keywords)

    return function


class Routed:
    """A function in the place of one of CuPy's, with the attributes of that; pickled by its name in its module."""

    def __init__(self, function: Callable[..., Any], original: Any):
        update_wrapper(self, original)  # type: ignore[arg-type]
        self.__name__, self.__qualname__, self.__module__ = function.__name__, function.__name__, function.__module__

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["__wrapped__"], name)

    def __repr__(self) -> str:
        return repr(self.__wrapped__)

    def __reduce__(self) -> tuple[Any, ...]:
        """Name it: to read this takes CuPy alone, and finds what stands under the name then."""
        return getattr, (_Named(self.__module__), self.__name__)


def routed(function: Callable[..., Any], original: Any) -> Any:
    """Return a Routed whose call is that of `function`: its class has it as `__call__`, without a call in between."""
    return type("Routed", (Routed,), {"__call__": staticmethod(function)})(function, original)


class _Named(NamedTuple):
    """A module as a pickle names it."""

    module: str

    def __reduce__(self) -> tuple[Any, ...]:
        return import_module, tuple(self)


def accelerate_process(report: bool = False) -> None:
    """Open a block until the process ends where `GENSOR_ACCELERATE` is set; warn once where that cannot be done."""
    functions = config.accelerated()
    if functions is None:
        return
    block = accelerate(*functions, report=report)
    try:
        block.__enter__()
    except (ToolMissingError, ValueError) as error:
        config.warn_once(f"GENSOR_ACCELERATE: nothing is accelerated: {error}")
    else:
        atexit.register(block.__exit__, None, None, None)  # while the modules that it needs are whole
