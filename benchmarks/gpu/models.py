"""The layers of whole models, from the e2e files of a folder of shapes (--workloads).

Rows of a `set` are one model at one batch size; `count` is the number of times that a layer occurs. Every layer is
timed once, as in `timing`, even if several models have it; the summary adds the times. Models with the fewest new
layers come first, so that a short budget covers some whole models.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from gensor_database.record import Kernel
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.output import class_text, sizes_text
from gensor_tuner.shapes.reader import Row, read_shapes

from .harness.session import Item, Session
from .shipped import Stored, load, rejected, stored
from .timing import Bench, predictions

STEP = "models"
PATTERN = "e2e_*.csv"
ALTERNATIVES = "merged"  # files of layers that replace others: never added to them
MOST_KERNELS = 3
REHEARSED = 2

#: A model's layers: (key of the workload or why there is none, count).
Layers = list[tuple[str, int]]


def items(session: Session) -> Iterator[Item]:
    """Yield the list of the models' layers, then every layer."""
    models = read_models(session.workloads) if session.workloads else {}
    if not models:
        yield Item("layers", lambda: {"outcome": "skipped", "reason": "--workloads names no folder with e2e files"})
        return
    layers = {name: [(_key(row), row.count) for row in rows] for name, rows in models.items()}
    yield Item("layers", lambda: {"models": layers}, always=True)
    bench, records = Bench(session), {each.workload.key(): each for each in stored(session)}
    timed = {end["asked"] for end in session.journal.results().values() if "asked" in end}
    for workload in _order(session, models, timed):
        name = f"{sizes_text(workload)} {'_'.join(workload.epilogue) or 'none'} {class_text(workload)}"
        yield Item(f"{name} {_short(workload)}", partial(layer, bench, workload, records.get(workload.key())))


def read_models(folder: Path) -> dict[str, list[Row]]:
    """Return rows by set; a set may extend over several files."""
    found: dict[str, list[Row]] = {}
    for path in sorted(folder.glob(PATTERN)):
        if ALTERNATIVES in path.name:
            continue
        for row in read_shapes(path):
            found.setdefault(row.notes.get("set", path.stem), []).append(row)
    return found


def _key(row: Row) -> str:
    return row.workload.key() if row.workload is not None else row.unsupported or row.error or ""


def _short(workload: Workload) -> str:
    """Return a digest that tells layers with the same text apart: their strides differ, for example."""
    import hashlib

    return hashlib.sha256(workload.key().encode()).hexdigest()[:8]


def _order(session: Session, models: dict[str, list[Row]], timed: set[str]) -> Iterator[Workload]:
    """Yield layers that are not timed yet, model by model, models with the fewest new layers first."""
    open_layers = {
        name: {row.workload.key(): row.workload for row in rows if row.workload is not None}
        for name, rows in models.items()
    }
    given = 0
    while open_layers:
        name = min(open_layers, key=lambda each: (len(open_layers[each].keys() - timed), each))
        for key, workload in open_layers.pop(name).items():
            if key in timed:
                continue
            timed.add(key)
            given += 1
            if session.emulate and given > REHEARSED:
                return
            yield workload


def layer(bench: Bench, workload: Workload, record: Stored | None) -> dict[str, Any]:
    """Time one layer with its own kernel, or with the best of its class."""
    chosen = record if record is not None and record.short not in rejected(bench.session) else _best(bench, workload)
    if chosen is None:
        return {"outcome": "skipped", "reason": "no kernel of this class is stored", "asked": workload.key()}
    return bench.measure(chosen, most=MOST_KERNELS)


def _best(bench: Bench, workload: Workload) -> Stored | None:
    """Return the stored kernel of the class with the least predicted time."""
    session, bad = bench.session, rejected(bench.session)
    with session.store() as store:
        rows = store.rows(Kernel, arch=session.arch.name, class_key=workload.class_key())
        found = [each for row in rows if (each := load(store, row, workload)) is not None and each.short not in bad]
    seconds = predictions(session, workload, [each.candidate for each in found])
    best = min(range(len(found)), key=lambda index: (seconds[index], found[index].digest), default=None)
    return found[best] if best is not None and seconds[best] < float("inf") else None
