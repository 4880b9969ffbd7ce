"""Results of the driver: their numbers (CUresult, the same as the runtime's here), and how they reach Python."""

from __future__ import annotations

#: CUDA Driver API, "Data types used by CUDA driver": CUresult.
NAMES = {
    1: "INVALID_VALUE",
    2: "OUT_OF_MEMORY",
    101: "INVALID_DEVICE",
    200: "INVALID_IMAGE",
    209: "NO_BINARY_FOR_GPU",
    218: "INVALID_PTX",
    400: "INVALID_HANDLE",
    500: "NOT_FOUND",
    600: "NOT_READY",
    700: "ILLEGAL_ADDRESS",
    701: "LAUNCH_OUT_OF_RESOURCES",
    702: "LAUNCH_TIMEOUT",
    716: "MISALIGNED_ADDRESS",
    719: "LAUNCH_FAILED",
    720: "COOPERATIVE_LAUNCH_TOO_LARGE",
    801: "NOT_SUPPORTED",
    900: "STREAM_CAPTURE_UNSUPPORTED",
    901: "STREAM_CAPTURE_INVALIDATED",
    902: "STREAM_CAPTURE_MERGE",
    905: "STREAM_CAPTURE_ISOLATION",
    906: "STREAM_CAPTURE_IMPLICIT",
    907: "CAPTURED_EVENT",
    912: "INVALID_CLUSTER_SIZE",
}


class Status(Exception):
    def __init__(self, number: int, why: str = ""):
        super().__init__(f"CUDA_ERROR_{NAMES[number]}: {why or 'see cuda.h'}")
        self.number = number


class UndefinedError(AssertionError):
    """A mistake of a caller that a driver does not notice: no code under test may catch it."""


def raising(api: type[Exception], name: str) -> type[Exception]:
    """Return a class of errors of CuPy's `api` that needs no driver to name a status."""

    def __init__(self, status: Status) -> None:
        RuntimeError.__init__(self, str(status))
        self.status = status.number

    return type(name, (api,), {"__init__": __init__, "__module__": api.__module__})
