"""Errors out of a model's file: whatever goes wrong in a node or in a library becomes a ModelError of one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from gensor_kernels.errors import GensorError, ModelError

#: How names of packages begin whose errors are the GPU's, not the model's.
OF_THE_GPU = ("cupy", "cuda")
#: Characters of another library's text; onnx-ir writes whole graphs.
LONGEST = 300
#: What to do about a node that cannot be computed.
REMEDY = "correct its inputs or its attributes, or export the model again"


def fail(what: str, error: BaseException, remedy: str = "") -> NoReturn:
    """Raise ModelError in place of another error, for work that a model's file has caused.

    Errors of this package, of the operating system and of the GPU are raised as they are.

    Parameters
    ----------
    what : str
        What failed: "node 'a' (Conv) cannot be computed".
    error : BaseException
    remedy : str, optional
        What to do.
    """
    if isinstance(error, (GensorError, OSError)) or type(error).__module__.startswith(OF_THE_GPU):
        raise error
    bare = type(error) in (KeyError, AttributeError, AssertionError, StopIteration)
    text = f"{type(error).__name__}: {first_line(error)}" if bare else first_line(error)
    raise ModelError("; ".join(filter(None, (f"{what}: {text.rstrip('.')}", remedy)))) from error


@contextmanager
def failing(what: str, remedy: str = "export the model again") -> Iterator[None]:
    """Turn errors into a ModelError, as `fail` does; those of passes over a model have their cause inside."""
    try:
        yield
    except GensorError:
        raise
    except Exception as error:
        fail(what, error.__cause__ or error, remedy)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, as far as a reader takes it in."""
    text = str(error).strip().removeprefix("[ShapeInferenceError] ")  # of onnx
    return (text or type(error).__name__).partition("\n")[0][:LONGEST]
