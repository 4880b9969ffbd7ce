"""CuPy's own functions, also while `accelerate` has put others in their places.

One of them may call another, such as `einsum` does `matmul`: within a call of an original, all are CuPy's.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from types import ModuleType
from typing import Any
from weakref import WeakSet

_ABSENT: Any = object()
#: (owner, name) -> what stood there.
kept: dict[tuple[object, str], Any] = {}
#: Whether this thread or task is within a call of an original.
within: ContextVar[bool] = ContextVar("gensor_kernels_within_original", default=False)
#: Every `Original`, of which a name is forgotten where another function takes its place.
_views: WeakSet[Original] = WeakSet()


def replace(owner: object, name: str, value: object) -> None:
    """Put `value` in the place of `owner.name` until `restore`."""
    kept[owner, name] = vars(owner).get(name, _ABSENT)
    setattr(owner, name, value)
    _forget(name)


def restore(owner: object, name: str) -> None:
    """Put what was replaced back into its place; nothing happens where nothing was."""
    original = kept.get((owner, name), owner)
    if original is owner:
        return
    if original is not _ABSENT:
        setattr(owner, name, original)
    elif name in vars(owner):
        delattr(owner, name)
    kept.pop((owner, name))
    _forget(name)


def _forget(name: str) -> None:
    for view in list(_views):
        vars(view).pop(name, None)


class Original:
    """The `cupy` module with its own functions. A second look-up of a name is as quick as a module's."""

    def __init__(self, cupy: ModuleType):
        self._cupy = cupy
        self.__name__ = "cupy"
        _views.add(self)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._cupy, name)  # first: what is kept is kept until after it is back
        original = kept.get((self._cupy, name))
        value = found if original is None else partial(call, original)
        setattr(self, name, value)
        return value


def call(original: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
    """Call a function within which everything of CuPy's is its own."""
    token = within.set(True)
    try:
        return original(*args, **keywords)
    finally:
        within.reset(token)
