"""Shapes files of models that were tuned before: a second run reads no model.

An entry is named by the file's contents, the requested sizes and type, and the sources and packages that turn one into
the other. It lists the files that the model keeps its weights in, with their sizes and times.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import gensor_kernels
from gensor_database.writing import written
from gensor_kernels import config
from gensor_kernels.errors import GensorError

from . import from_model

PACKAGES = ("onnx", "onnx-ir", "onnxscript")


def write(
    model: Path, out: Path, arch: str, asked: Mapping[str, Sequence[from_model.Shape]], dtype: str | None = None
) -> None:
    """Write the shapes file of a model as `from_model.write` does, from the cache folder where it is there."""
    entry = _entry(model, arch, asked, dtype)
    if entry is not None:
        with suppress(OSError, ValueError, KeyError, TypeError):
            known = json.loads(entry.read_text(encoding="utf-8"))
            if known["weights"] == _state(model, known["weights"]):
                out.write_text(known["shapes"], encoding="utf-8")
                return
    weights = from_model.write(model, out, arch, asked, dtype)
    if entry is not None:
        with suppress(OSError):  # the next run reads the model again
            entry.parent.mkdir(parents=True, exist_ok=True)
            with written(entry) as file:
                json.dump({"weights": _state(model, weights), "shapes": out.read_text(encoding="utf-8")}, file)


def _entry(model: Path, arch: str, asked: Mapping[str, Sequence[from_model.Shape]], dtype: str | None) -> Path | None:
    """Return the file of an entry, None where there is no cache folder or no model."""
    try:
        digest = hashlib.sha256(json.dumps([arch, dict(asked), dtype, _sources()]).encode())
        with model.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
        return config.cache_dir() / "models" / f"{digest.hexdigest()}.json"
    except (OSError, GensorError):
        return None


def _sources() -> list[str]:
    """Return the digest of the package's sources, and the versions of the packages that read models."""
    digest = hashlib.sha256()
    root = Path(gensor_kernels.__file__).parent
    for path in sorted([*root.rglob("*.py"), *root.rglob("*.toml")]):
        digest.update(path.read_bytes())
    found = [digest.hexdigest()]
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found.append(version(name))
    return found


def _state(model: Path, names: Sequence[str] | Mapping[str, object]) -> dict[str, list[int]]:
    """Return size and time of change of files next to a model, by name."""
    stats = {name: (model.parent / name).stat() for name in names}
    return {name: [each.st_size, each.st_mtime_ns] for name, each in stats.items()}
