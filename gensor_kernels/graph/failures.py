"""Errors out of a model's file: whatever goes wrong in a node or in a library becomes a ModelError of one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from gensor_kernels.errors import GensorError, ModelError

#: Prefixes of packages whose errors are the GPU's, not the model's.
OF_THE_GPU = ("cupy", "cuda")
#: Characters of another library's text; onnx-ir writes whole graphs.
LONGEST = 300
#: Advice about a node that cannot be computed.
REMEDY = "correct its inputs or its attributes, or export the model again"


def fail(what: str, error: BaseException, remedy: str = "") -> NoReturn:
    """Raise ModelError in place of another error: `what` failed ("node 'a' (Conv) cannot be computed"), and the remedy.

    Errors of this package, of the operating system and of the GPU are raised unchanged.
    """
    if isinstance(error, (GensorError, OSError)) or type(error).__module__.startswith(OF_THE_GPU):
        raise error
    bare = type(error) in (KeyError, AttributeError, AssertionError, StopIteration)
    text = f"{type(error).__name__}: {first_line(error)}" if bare else first_line(error)
    raise ModelError("; ".join(filter(None, (f"{what}: {text.rstrip('.')}", remedy)))) from error


@contextmanager
def failing(what: str, remedy: str = "export the model again") -> Iterator[None]:
    """Turn errors into a ModelError as `fail` does, by the cause of an error of a pass over a model."""
    try:
        yield
    except GensorError:
        raise
    except Exception as error:
        fail(what, error.__cause__ or error, remedy)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, of at most LONGEST characters."""
    text = str(error).strip().removeprefix("[ShapeInferenceError] ")  # of onnx
    return (text or type(error).__name__).partition("\n")[0][:LONGEST]
