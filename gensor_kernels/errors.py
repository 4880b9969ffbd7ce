"""Every error this package raises on purpose; `StoreError` is defined in `gensor_database`."""

from __future__ import annotations


class GensorError(Exception):
    """Base of the errors of gensor-kernels: catching it catches them all."""


class ConfigError(GensorError):
    """A setting or a folder that cannot be used; the text says which variable to change."""


class UnsupportedError(GensorError):
    """What was asked for is valid, but no kernel family or device here can serve it.

    `reason` holds the sentence alone, for `explain` and for the `error` column of the tuner's table.
    """

    def __init__(self, reason: str):
        super().__init__(reason)
        self.reason = reason


class UnknownArchError(GensorError):
    """No such compute capability or part; the text lists the known ones."""


class BuildError(GensorError):
    """A kernel source did not compile; `log` holds what the compiler wrote."""

    def __init__(self, message: str, log: str = ""):
        super().__init__(message)
        self.log = log


class ToolMissingError(GensorError):
    """A compiler or library is absent; the text says what to install."""
