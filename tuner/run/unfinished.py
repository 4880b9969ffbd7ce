"""Walks and compilations of classes that are not stored yet: an interrupted run leaves them to the next one.

They are kept in the cache folder, in one file per database, only from an interruption to the end of the run that goes
on. Both follow from their keys alone, so that a run that takes them from the file stores the same rows.
"""

from __future__ import annotations

import base64
import json
from collections import ChainMap
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gensor_database.record import text_digest
from gensor_database.trust import make_folder
from gensor_database.writing import written
from gensor_kernels.build.nvrtc import Binary
from gensor_kernels.build.resources import EntryResources
from gensor_kernels.config import cache_dir
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.programs.registry import program_from_json
from gensor_kernels.programs.validation import MALFORMED
from gensor_tuner.search.trace import Leg, Trail
from gensor_tuner.strategies.parallel import Found

FOLDER = "unfinished"


class Unfinished:
    """Finished walks and binaries by their keys (`walk_key`, `binary_key`); those of an interrupted run included."""

    def __init__(self, path: Path):
        self.path = path
        walks, binaries = _read(path)
        self.walks: ChainMap[str, Found] = ChainMap({}, walks)
        self.binaries: ChainMap[str, Binary] = ChainMap({}, binaries)

    @classmethod
    def of(cls, database: Path) -> Unfinished:
        """Return what an interrupted run into `database` has left."""
        folder = cache_dir() / FOLDER
        make_folder(folder)
        return cls(folder / f"{text_digest(str(database.absolute()))[:32]}.json")

    def forget(self) -> None:
        """Drop this run's own walks and binaries: their class is stored."""
        self.walks.maps[0].clear()
        self.binaries.maps[0].clear()

    def save(self) -> None:
        """Write everything for the next run."""
        walks = {key: _walk_json(found) for key, found in dict(self.walks).items()}
        binaries = {key: _binary_json(binary) for key, binary in dict(self.binaries).items()}
        if walks or binaries:
            with written(self.path) as file:
                json.dump({"walks": walks, "binaries": binaries}, file)

    def done(self) -> None:
        """Delete the file: everything is stored."""
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


def _read(path: Path) -> tuple[dict[str, Found], dict[str, Binary]]:
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        walks = {key: _walk(each) for key, each in kept["walks"].items()}
        return walks, {key: _binary(each) for key, each in kept["binaries"].items()}
    except (OSError, *MALFORMED):  # absent, or of another version
        return {}, {}


def _walk_json(found: Found) -> dict[str, Any]:
    places: dict[str, int] = {}  # most legs are in the space of one Workload: its key is written once

    def place(workload: Workload | None) -> int | None:
        return None if workload is None else places.setdefault(workload.key(), len(places))

    trails = [
        [t.family, t.graph, t.start, [[leg.seed, leg.path, place(leg.workload)] for leg in t.legs]]
        for t in found.trails
    ]
    best = [[program.to_json(), seconds] for program, seconds in found.best]
    more = {"evaluations": found.evaluations, "seconds": found.seconds}
    return {"best": best, "trails": trails, "workloads": list(places), **more}


def _walk(kept: dict[str, Any]) -> Found:
    trails = []
    workloads = {place: Workload.from_json(key) for place, key in enumerate(kept["workloads"])}
    for family, graph, start, legs in kept["trails"]:
        made = tuple(Leg(seed, path, workloads.get(place)) for seed, path, place in legs)
        trails.append(Trail(family, graph, tuple(start), made))
    best = tuple((program_from_json(program), seconds) for program, seconds in kept["best"])
    return Found(best, tuple(trails), kept["evaluations"], kept["seconds"])


def _binary_json(binary: Binary) -> dict[str, Any]:
    return {**asdict(binary), "cubin": base64.b64encode(binary.cubin).decode()}


def _binary(kept: dict[str, Any]) -> Binary:
    entries = {name: EntryResources(**figures) for name, figures in kept["entries"].items()}
    return Binary(**{**kept, "cubin": base64.b64decode(kept["cubin"]), "entries": entries})
