"""Models in the cache folder: what `load` has read and planned, for the next process that loads the same file.

An entry is a saved model (saved.py). Its name is a digest of the file's contents, of options and fixed inputs, and of
the sources and packages that turn these into plans; its plans also belong to a part, to databases and to settings.
An entry that cannot be read counts as absent.
"""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gensor_kernels import config
from gensor_kernels.dispatch.api.current import current_runtime
from gensor_kernels.errors import GensorError
from gensor_kernels.graph.conditions import conditions, is_kept, kept_file, protect

from . import saved

if TYPE_CHECKING:
    from gensor_kernels.graph.ir.graph import Graph
    from gensor_kernels.graph.ir.options import Options
    from gensor_kernels.graph.layouts.laid_out import Layouts
    from gensor_kernels.graph.readers.onnx_file import Source, Values

    from .plan import Plan

#: Bytes of the largest model, and of an entry's arrays, and of all entries; those that were opened last stay.
LARGEST, MOST_BYTES = 2**28, 2**30
#: Plans of an entry.
MOST_PLANS = 4
#: Nanoseconds within which a second change of a file may leave its time as it was.
TICK = 2 * 10**9
#: Errors of a file that is no entry: cut, changed, of another user or version.
UNREADABLE = (GensorError, OSError, ValueError, KeyError, TypeError, AttributeError, IndexError)


class Entry:
    """The kept model and plans of one ONNX file."""

    def __init__(self, model: Path, content: str, facts: os.stat_result, file: Path):
        self._model, self._content, self._facts, self._file = model, content, facts, file
        self._plans: dict[saved.Key, tuple[Graph, Layouts | None]] = {}

    def is_of_file(self) -> bool:
        """Return whether the ONNX file is still the one whose contents name the entry."""
        with suppress(OSError):
            now, then = self._model.stat(), self._facts
            same = (now.st_ino, now.st_size, now.st_mtime_ns) == (then.st_ino, then.st_size, then.st_mtime_ns)
            return same and (time.time_ns() - now.st_mtime_ns > TICK or _digest(self._model)[0] == self._content)
        return False

    def read(self) -> saved.SavedSource | None:
        """Return the kept model, or None."""
        try:
            if not is_kept(self._file):
                return None
            source, *_ = saved.read(self._file, verifies=True) or (None,)
            if source is not None:
                source.is_kept = True
                source.places = [(self._model.resolve(), first, length) for first, length in source.own_places]
        except UNREADABLE as error:
            config.logger().info("%s is not used: %s", self._file, error)
            return None
        return source

    def conditions(self) -> str:
        """Return what plans depend on besides the model, or "" where they are not kept."""
        try:
            return conditions(current_runtime())
        except (GensorError, ImportError):
            return ""

    def keep(self, source: Source, name: str, options: Options, key: saved.Key, plan: Plan) -> None:
        """Write a plan next to those that were kept before, as far as there is room."""
        stored = source.plans if isinstance(source, saved.SavedSource) else {}
        full = sum(each[1] == key[1] for each in stored) >= MOST_PLANS or len(self._plans) >= MOST_PLANS
        outside = source.weight_files or any(file != self._model.resolve() for file, *_ in source.places)
        if not key[1] or full or outside:
            return
        self._plans[key] = plan.graph, plan.layouts
        with suppress(*UNREADABLE, MemoryError):
            plans = {each: found for each in stored if (found := source.plan(each)) is not None} | self._plans
            newest = dict([*plans.items()][-MOST_PLANS:])
            notes = {"places": [place for _, *place in source.places]}
            saved.save(source, name, options, newest, self._file, most=LARGEST, notes=notes)
            protect(self._file)
            _make_room(self._file)


def find(model: Path, options: Options, inputs: Values | None) -> Entry | None:
    """Return the entry of an ONNX file, there or not, or None where none is kept."""
    if not config.keeps_plans():
        return None
    try:
        if model.stat().st_size > LARGEST:
            return None
        content, facts = _digest(model)
        fixed = {name: np.asarray(value) for name, value in (inputs or {}).items()}
        if any(array.dtype.hasobject for array in fixed.values()):
            return None
        about = [(name, each.dtype.name, each.shape, each.tobytes().hex()) for name, each in sorted(fixed.items())]
        return Entry(model, content, facts, kept_file([content, list(options), about], ".gensor"))
    except UNREADABLE:
        return None


def _digest(file: Path) -> tuple[str, os.stat_result]:
    found = hashlib.sha256()
    with file.open("rb") as stream:
        facts = os.fstat(stream.fileno())
        while block := stream.read(1 << 20):
            found.update(block)
    return found.hexdigest(), facts


def _make_room(newest: Path) -> None:
    """Delete the entries that were opened least recently where all have more than MOST_BYTES."""
    files = [(each.stat(), each) for each in newest.parent.iterdir() if each != newest]
    room = MOST_BYTES - newest.stat().st_size
    for facts, file in sorted(files, key=lambda each: each[0].st_mtime_ns, reverse=True):
        room -= facts.st_size
        if room < 0:
            file.unlink(missing_ok=True)
