"""Digests of what plans and predicted times follow from besides a model: what other processes keep is of equal ones."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sys
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from gensor_database import packaged_digest, trust
from gensor_kernels import config
from gensor_kernels.graph.ir.graph import OPSET

if TYPE_CHECKING:
    from gensor_kernels.dispatch.plans.runtime import Runtime

#: Folder in the cache folder.
FOLDER = "plans"
PACKAGES = ("numpy", "ml_dtypes", "onnx", "onnx-ir", "onnxscript")


@cache
def sources() -> str:
    """Return a digest of everything that turns a model into a plan, random for a package without sources."""
    root = Path(__file__).parents[1]
    files = sorted([*root.rglob("*.py"), *root.rglob("*.toml")])
    found = hashlib.sha256(f"{OPSET}".encode() if files else secrets.token_bytes())
    for file in files:
        found.update(file.read_bytes())
    return found.hexdigest()


@cache
def packages() -> tuple[str, ...]:
    """Return Python's version and those of the packages that read and compute models."""
    found = [sys.version]
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found.append(f"{name} {version(name)}")
    return tuple(found)


def conditions(runtime: Runtime) -> str:
    """Return a digest of the part, the databases and the settings under which times are predicted.

    It is "" where another process could not find the same.
    """
    arch, state = runtime.device.arch, runtime.library.state()
    if arch is None or state is None or runtime.pins is not None or not config.keeps_plans():
        return ""
    settings = config.tune_mode(), config.disabled(), config.deterministic(), runtime.device.emulated
    about = [arch.values(), packaged_digest(arch.name), state, settings]
    return hashlib.sha256(json.dumps(about, default=sorted, sort_keys=True).encode()).hexdigest()


def kept_file(about: object, ending: str) -> Path:
    """Return the path of a kept file, there or not; GensorError or OSError without a cache folder."""
    folder = config.cache_dir() / FOLDER
    trust.make_folder(folder)
    name = hashlib.sha256(json.dumps([about, sources(), packages()]).encode()).hexdigest()
    return folder / f"{name}{ending}"


def protect(file: Path) -> None:
    """Let nobody else write to a kept file, under any umask."""
    os.chmod(file, 0o600)


def is_kept(file: Path) -> bool:
    """Return whether a kept file is there and only the user can have written it; it counts as read now."""
    try:
        if not trust.is_own(os.lstat(file)):
            return False
        os.utime(file)
    except OSError:
        return False
    return True
