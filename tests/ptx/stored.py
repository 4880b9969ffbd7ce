"""Items that the command executes: the kernels of the shipped databases, or the small Programs of the mutator."""

import json
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gensor_database.record import Binary, Kernel, text_digest
from gensor_database.store import Store
from gensor_kernels.families.core.source import bind
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.build.pool import Candidate
from gensor_tuner.store.check import derive
from tests.mutator.programs import configurations

DATABASES = Path(__file__).resolve().parents[2] / "database" / "pretuned"


@dataclass(frozen=True)
class Item:
    """One Program to execute: a name, its arch and compile target, and the bound source."""

    name: str
    arch: str
    target: str
    candidate: Candidate
    workload: Workload
    source: str


def stored(arch: str = "", family: str = "", folder: Path = DATABASES) -> Iterator[Item]:
    """Yield a kernel per distinct source, constants and target of the databases in a folder, by their digest."""
    for path in sorted(folder.glob(f"{arch or 'sm_*'}.db")):
        with Store.open(path, readonly=True, immutable=True) as store:
            seen = set()
            for kernel in sorted(store.rows(Kernel), key=lambda each: each.digest):
                binary = store.binary(kernel)
                if kernel.family not in FAMILIES or family not in kernel.family or binary is None:
                    continue
                digest = text_digest(f"{binary.source_digest} {binary.constants} {binary.target}")
                if digest not in seen:
                    seen.add(digest)
                    yield _item(store, kernel, binary, digest)


def _item(store: Store, kernel: Kernel, binary: Binary, digest: str) -> Item:
    candidate, workload = derive(FAMILIES[kernel.family], kernel, binary)
    source = store.source(binary)
    assert source is not None, f"{kernel.digest} has no source"
    text = bind(source.text.decode(), json.loads(binary.constants))
    return Item(digest, kernel.arch, binary.target, candidate, workload, text)


def small(arch: str = "", family: str = "") -> Iterator[Item]:
    """Yield the mutator's small Programs, which have every form of launch, in every family."""
    for each in configurations():
        if arch in ("", each.arch) and family in each.family:
            candidate = each.candidate
            name = f"{each.group}: {each.name}"
            yield Item(name, each.arch, lookup(each.arch).target, candidate, each.workload, candidate.source())


def spread(items: list[Item], seed: int) -> list[Item]:
    """Return all items in an order that soon has met every family and dtype."""
    groups: dict[object, list[Item]] = defaultdict(list)
    shuffled = random.Random(seed).sample(items, len(items))
    for item in shuffled:
        groups[item.candidate.family.name, item.workload.dtypes].append(item)
    turns = [(turn, n) for group in groups.values() for turn, n in enumerate(group)]
    return [item for _, item in sorted(turns, key=lambda turn: turn[0])]
