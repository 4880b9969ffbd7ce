"""The command that installs what is missing: the one source of every hint to an extra of this package."""

from __future__ import annotations

from importlib import metadata

PACKAGE = "gensor-kernels"
#: Extras by the modules that they bring.
EXTRAS = {
    "cuda": "tune",
    "distributed": "fleet",
    "lightgbm": "learn",
    "matplotlib": "plot",
    "msgspec": "tune",
    "onnx": "onnx",
    "onnx_ir": "onnx",
    "onnxscript": "onnx",
    "pyarrow": "parquet",
    "sqlite_utils": "tune",
    "torch": "torch",
    "tqdm": "tune",
    "typer": "tune",
}


def command(extra: str) -> str:
    """Return the command that installs an extra.

    For an installed package, from a wheel or a clone, pip takes the extra's names from the installed metadata, so that
    the package itself need not be on an index. Without metadata the code runs from a clone.

    Examples
    --------
    >>> command("tune")
    "pip install 'gensor-kernels[tune]'"
    """
    try:
        metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        return f"pip install '.[{extra}]' in the clone of {PACKAGE}"
    return f"pip install '{PACKAGE}[{extra}]'"


def about(error: ImportError) -> str | None:
    """Return the sentence about a module that an extra brings, or None for any other module.

    Examples
    --------
    >>> about(ModuleNotFoundError("No module named 'typer'", name="typer"))
    "typer is not installed: pip install 'gensor-kernels[tune]'"
    """
    module = (error.name or "").partition(".")[0]
    return f"{module} is not installed: {command(EXTRAS[module])}" if module in EXTRAS else None
