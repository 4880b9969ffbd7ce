"""Messages for a CuPy that cannot be imported or reaches no GPU: one sentence, with the command that helps."""

from __future__ import annotations

from importlib import metadata

from gensor_kernels.install import command


def install_cupy() -> str:
    """Return the command that installs CuPy."""
    return f"{command('cu12')} (or [cu13] for CUDA 13)"


def cupy_distributions() -> list[str]:
    """Return the names of installed packages that provide CuPy; more than one is an installation error."""
    names = {(each.metadata["Name"] or "").lower() for each in metadata.distributions()}
    return sorted(name for name in names if name == "cupy" or name.startswith("cupy-cuda"))


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def about_import(error: BaseException) -> str:
    """Return the message for an import of CuPy that failed with `error`."""
    found = cupy_distributions()
    if not found:
        return f"CuPy is not installed: {install_cupy()}"
    if len(found) > 1:
        advice = f"several CuPy packages are installed: pip uninstall -y {' '.join(found)}, then {install_cupy()}"
    elif isinstance(error, OSError):  # its cache folder, which it creates even where nothing needs caching
        advice = "set CUPY_CACHE_DIR to a writable folder first"
    else:
        advice = f"does {found[0]} match the installed CUDA? {install_cupy()}"
    return f"CuPy cannot be imported ({first_line(error)}): {advice}"


def about_device(error: BaseException) -> str:
    """Return the message for a CuPy that reaches no GPU."""
    return (
        f"CuPy reaches no GPU ({first_line(error)}): install the NVIDIA driver, and the CuPy that matches it; "
        "gensor_kernels.emulated(...) needs neither"
    )
