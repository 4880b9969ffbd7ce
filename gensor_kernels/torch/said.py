"""Warnings that are given once for each text."""

from __future__ import annotations

import threading
import warnings

from gensor_kernels import forking

_said: set[str] = set()
_lock = threading.Lock()


@forking.in_child
def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


def say_eager(reason: str) -> None:
    """Warn that a graph runs eagerly, unless this reason was given before."""
    say(f"a graph of torch.compile runs eagerly: {reason}")


def say(text: str) -> None:
    """Warn, unless this text was said before."""
    with _lock:
        if text in _said:
            return
        _said.add(text)
    warnings.warn(text, UserWarning, stacklevel=3)


def forget() -> None:
    """Say everything again."""
    with _lock:
        _said.clear()
