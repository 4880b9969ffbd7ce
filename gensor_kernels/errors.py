"""Every error this package raises on purpose; `gensor_database` defines their base and the errors of databases."""

from __future__ import annotations

from gensor_database.errors import GensorError as GensorError

from .shown import printable

#: Errors of text from other people's files that this version does not write.
MALFORMED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, GensorError)


class ConfigError(GensorError):
    """A setting or a folder cannot be used; the text names the variable to change."""


class PinError(GensorError):
    """A call has no pinned kernel that can serve it, or a file is no list of kernels.

    Examples
    --------
    >>> with open("text.json", "w") as file:
    ...     _ = file.write("text")
    >>> with gensor_kernels.deterministic(pin="text.json"):  # doctest: +ELLIPSIS
    ...     pass
    Traceback (most recent call last):
        ...
    gensor_kernels.errors.PinError: ...text.json is no list of pinned kernels: ...
    """


class UnsupportedError(GensorError):
    """No kernel family or device can serve a valid call.

    Attributes
    ----------
    reason : str
        The sentence alone, for `explain` and for the `error` column of the tuner's
        table.

    Examples
    --------
    The emulator has no array library to fall back to:

    >>> a = np.ones((2, 2), "int64")
    >>> with gensor_kernels.emulated("sm_87"):  # doctest: +ELLIPSIS
    ...     gensor_kernels.matmul(a, a)
    Traceback (most recent call last):
        ...
    gensor_kernels.errors.UnsupportedError: no kernel serves this call: ...
    """

    def __init__(self, reason: str):
        self.reason = printable(reason)
        super().__init__(self.reason)


class ModelError(GensorError):
    """A file is no model that can be loaded, or a model's operators do not fit its inputs.

    Examples
    --------
    >>> with open("text.onnx", "w") as file:
    ...     _ = file.write("text")
    >>> gensor_kernels.load("text.onnx")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    gensor_kernels.errors.ModelError: text.onnx: no valid ONNX model: ...
    """

    def __init__(self, message: str):
        super().__init__(printable(message))


class UnknownArchError(GensorError):
    """No compute capability or part has this name; the text has similar names.

    Examples
    --------
    >>> with gensor_kernels.emulated("sm_88"):
    ...     pass
    Traceback (most recent call last):
        ...
    gensor_kernels.errors.UnknownArchError: unknown arch 'sm_88': did you mean sm_80, sm_86, sm_87, sm_89?
    """


class BuildError(GensorError):
    """A kernel source did not compile.

    Attributes
    ----------
    log : str
        Output of the compiler.
    """

    def __init__(self, message: str, log: str = ""):
        super().__init__(message)
        self.log = log


class MachineError(GensorError):
    """This machine cannot build kernels now: no space, no memory, or a broken compiler."""


class ToolMissingError(MachineError):
    """A compiler or library is missing; the text says what to install."""
