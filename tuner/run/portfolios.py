"""Portfolios: the few kernels of each class that serve sizes which no row names, and those of a database that ships.

An untuned size is served by kernels of its class and of classes that ask less of their operands, so a kernel is worth
as much as it lowers the predicted regret in all of them. In a database that ships, few kernels serve all classes
together, on all listed parts of the capability, within a limit of bytes: the kernel with the largest worth for its
bytes is taken first, the greedy rule of budgeted maximum coverage (Khuller, Moss and Naor, Information Processing
Letters 70, 1999).
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gensor_database.catalog import Catalog
from gensor_database.exchange import export
from gensor_database.record import Kernel, Portfolio, Record, Row, Verification
from gensor_database.store import Store
from gensor_kernels.dispatch.selection import library as shelf
from gensor_kernels.dispatch.selection import load
from gensor_kernels.dispatch.selection.library import Library
from gensor_kernels.dispatch.selection.predict import predict_divided
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.registry import FAMILIES, current_family, program_from_json
from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import Arch, peers
from gensor_kernels.operators import operator
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.build.cover import CLEAN, SPILL_FREE, UNSERVED, portfolio, preferring, regrets
from gensor_tuner.build.pool import Pool, candidate

PORTFOLIO = 16  # kernels of a class, at most


@dataclass(frozen=True)
class Offer:
    """Kernels of a class that may be in its portfolio.

    `names` orders them; `seconds` (sizes, kernels) are predicted for launches that divide k in the best of all ways.
    `clean` (kernels,) says whether executions on the emulator had no bank conflicts.
    """

    digests: list[str]
    names: list[str]
    seconds: np.ndarray
    clean: np.ndarray

    def best(self) -> list[str]:
        """Return the digests of the portfolio, the kernel that lowers the mean regret most first.

        A kernel with bank conflicts serves a size only where all others are predicted to take more than CLEAN times as
        long: the potential does not see all conflicts.
        """
        seconds = preferring(self.seconds, (self.clean, CLEAN))
        return [self.digests[column] for column in portfolio(seconds, self.names, PORTFOLIO)]


def usual(workload: Workload) -> list[Workload]:
    """Return the sizes at which portfolios of a Workload's class are compared, in addition to sizes that rows name."""
    sample = workload.with_epilogue(())
    return operator(sample.operator).usual(sample)


def offer(
    store: Store, arch: Arch, workloads: Sequence[Workload], further: Mapping[str, Sequence[Row]] | None = None
) -> Offer:
    """Return the usable kernels of a class for any epilogue, stored or among the rows `further`, by their digest."""
    sample = workloads[0].with_epilogue(())
    programs: dict[Program, str] = {}
    clean: dict[str, bool] = {}
    for each in store.kernels_for_class(sample.class_key(), arch.name):
        family = current_family(each.kernel.family, each.kernel.abi)
        if not each.usable or family is None:
            continue
        program = program_from_json(each.kernel.program)
        # A kernel compiled for one epilogue serves no other.
        if not candidate(family, program, sample).fixes_epilogue:
            programs[program] = each.kernel.digest
            clean[each.kernel.digest] = is_clean(store.rows(Verification, kernel_digest=each.kernel.digest))
    for digest, rows in (further or {}).items():
        programs.update((program_from_json(row.program), digest) for row in rows if isinstance(row, Kernel))
        clean[digest] = is_clean(row for row in rows if isinstance(row, Verification))
    asked = [each.with_epilogue(()) for each in workloads]
    if len(programs) == 1:  # nothing to compare it with
        alone = _predicted(programs, clean, asked, arch)
        if np.isfinite(alone.seconds).any():
            return alone
    return _predicted(programs, clean, [*asked, *usual(sample)], arch)


def _predicted(programs: dict[Program, str], clean: dict[str, bool], sizes: list[Workload], arch: Arch) -> Offer:
    shapes = list(dict.fromkeys(sizes))
    spaces = [Space(shape, arch) for shape in shapes]
    pool = Pool(shapes)
    for program in programs:
        # A family may serve only some sizes of a class.
        space = next((each for each in spaces if program.family in each.names), None)
        if space is not None:
            pool.add(space, [program], siblings=False)
    digests = [programs[each.program] for each in pool.candidates]
    return Offer(digests, pool.names, pool.relaunch_seconds(spaces), np.array([clean[each] for each in digests], bool))


def is_clean(rows: Iterable[Verification]) -> bool:
    """Return whether no execution of a kernel had bank conflicts; ``rows`` are its verifications."""
    counted = (json.loads(row.counters).get("counters", {}) for row in rows)
    return not any(each.get("bank_conflicts") for each in counted)


#: Bytes of a database that ships: eight of them share one wheel.
LARGEST = 10 * 2**20
#: Bytes that a kernel's rows take with their indices, its row in a portfolio, and a byte of machine code in a pack.
ROWS_BYTES, PLACE_BYTES, PACKED = 3000.0, 400.0, 0.2
#: The least gain in mean regret, over all classes together, for which a kernel is taken.
LEAST_GAIN = 1e-3


def ship(store: Store, arch: Arch, target: Path, drawn: Sequence[Workload] = (), limit: int = LARGEST) -> Counter[str]:
    """Choose the portfolios of all classes together, and export them as the database that ships; count its rows.

    The portfolios of `store`, a writable database, are replaced for the part. In classes that have kernels, the sizes
    `drawn` count in addition to those of records and the usual sizes. The file `target` has at most `limit` bytes, but
    kernels that records name stay even where they alone take more.
    """
    order = ranked(store, arch, drawn)
    while True:
        place(store, arch, order)
        counts = export(store, target, arch.name)
        excess: float = target.stat().st_size - limit
        if excess <= 0 or not order:
            return counts
        while excess > 0 and order:
            excess -= order.popitem()[1]


def place(store: Store, arch: Arch, digests: Iterable[str]) -> None:
    """Make these kernels the portfolios of their classes, in this order."""
    classes: dict[str, list[str]] = {
        row.class_key: [] for row in store.rows(Portfolio, arch=arch.name) if row.part == arch.part
    }
    keys = {stored.kernel.digest: stored.kernel.class_key for stored in Catalog((store,), arch.name).kernels()}
    for digest in digests:
        classes.setdefault(keys[digest], []).append(digest)
    for class_key, chosen in classes.items():
        store.replace_portfolio(arch.name, arch.part, class_key, chosen)


def library_of(store: Store, arch: Arch) -> Library:
    """Return what dispatch would read from this database alone."""
    abis = {name: family.abi for name, family in FAMILIES.items()}
    return Library(load.contents(Catalog((store,), arch.name, abis), arch), arch=arch)


def ranked(store: Store, arch: Arch, drawn: Sequence[Workload] = ()) -> dict[str, float]:
    """Return the kernels that lower the predicted regret of untuned sizes, and the bytes that each takes.

    Kernels are given by digest, in the order in which they lower it most for their bytes.

    The regret of a class is the mean over the sizes of its records, its usual sizes and its `drawn` ones, of the best
    kernel that dispatch may launch for them, divided by the best of all stored kernels, over the listed parts of the
    capability (`_counted`). Kernels that spill or have bank conflicts serve sizes only where others are
    predicted to take SPILL_FREE or CLEAN times as long. Kernels that records name are in the file anyway, and cost no
    more than a row.
    """
    parts = {part: library_of(store, part) for part in peers(arch)}
    library = parts[arch]
    kernels = {name: each for name, each in sorted(library.contents.kernels.items()) if each.epilogue_codes == 0}
    column = {digest: index for index, digest in enumerate(kernels)}
    known = _kernels_of(store, arch, kernels)
    records = sorted(store.rows(Record, arch=arch.name), key=lambda record: record.key)
    sizes: dict[str, list[Workload]] = defaultdict(list)
    for workload in (*(Workload.from_json(each.key) for each in records), *drawn):
        sizes[workload.class_key()].append(workload.with_epilogue(()))
    served = _Served()
    classes = [each.serves.class_key() for each in kernels.values()]
    for class_key in sorted(set(classes)):
        sample = load.class_workload(class_key)
        shelves = library.shelves(sample)
        few = [each for shelf in shelves for each in (*shelf.portfolio, *shelf.others) if each.digest in column]
        # Without any other size, the smallest keeps a kernel for the class.
        asked = list(dict.fromkeys([*sizes[class_key], *usual(sample)])) or [sample]
        columns = np.array([column[each.digest] for each in few], np.intp)
        preferences = (known.spill_free[columns], SPILL_FREE), (known.clean[columns], CLEAN)
        each = [regrets(preferring(_seconds(few, asked, own, part), *preferences)) for part, own in parts.items()]
        served.add(np.stack(each, axis=2), columns)
    digests = list(kernels)
    return {digests[index]: float(known.cost[index]) for index in served.order(known.cost, classes)}


class _Known(NamedTuple):
    """Facts of kernels (kernels,): no bank conflicts, no spills, and the bytes that a file has for each."""

    clean: np.ndarray
    spill_free: np.ndarray
    cost: np.ndarray


def _kernels_of(store: Store, arch: Arch, digests: Iterable[str]) -> _Known:
    recorded = {row.kernel_digest for row in store.rows(Record, arch=arch.name)}
    stored = {each.kernel.digest: each.binary() for each in Catalog((store,), arch.name).kernels()}
    clean, spill_free, cost = [], [], []
    for digest in digests:
        binary = stored[digest]
        clean.append(is_clean(store.rows(Verification, kernel_digest=digest)))
        spill_free.append(binary is not None and not binary.spill_bytes)
        own = ROWS_BYTES + PACKED * (len(binary.cubin) if binary is not None else 0)
        cost.append(PLACE_BYTES + (0.0 if digest in recorded else own))
    return _Known(np.array(clean, bool), np.array(spill_free, bool), np.array(cost))


def _seconds(kernels: list[shelf.Kernel], sizes: list[Workload], library: Library, arch: Arch) -> np.ndarray:
    """Return predicted seconds (sizes, kernels) of launches that divide k in the best of all ways."""
    return np.array([[each for _, each in predict_divided(kernels, size, arch, library)] for size in sizes])


class _Served:
    """Which kernels serve which sizes of all classes, and with which regret on each part: a sparse matrix."""

    def __init__(self) -> None:
        self._parts: list[tuple[np.ndarray, ...]] = []  # rows, columns, regrets and weights
        self._count = 0

    def add(self, regret: np.ndarray, columns: np.ndarray) -> None:
        """Add the sizes of a class, which weigh 1 together: their regrets (sizes, kernels, parts); inf serves not."""
        regret = np.atleast_3d(regret)
        usable = regret[np.isfinite(regret).any(axis=(1, 2))]
        # A part without any kernel for a size does not count.
        usable = np.where(np.isfinite(usable).any(axis=1, keepdims=True), usable, 1.0)
        row, place = np.nonzero(np.isfinite(usable).any(axis=2))
        regrets, weights = np.minimum(usable[row, place], UNSERVED), np.full(len(row), 1 / max(len(usable), 1))
        self._parts.append((row + self._count, columns[place], regrets, weights))
        self._count += len(usable)

    def order(self, cost: np.ndarray, keys: list[str]) -> list[int]:
        """Return columns, each time the one with the largest gain over its cost; at most PORTFOLIO of a class."""
        if not self._count:
            return []
        row, column, regret, weight = map(np.concatenate, zip(*self._parts, strict=True))
        current = np.full((self._count, regret.shape[1]), UNSERVED)
        open_columns, taken, found = np.full(len(cost), True), Counter[str](), list[int]()
        while True:
            lower = (_counted(current)[row] - _counted(np.minimum(current[row], regret))) * weight
            gain = np.where(open_columns, np.bincount(column, lower, len(cost)), 0.0)
            pick = int(np.argmax(np.where(gain >= LEAST_GAIN, gain / cost, 0.0)))
            if gain[pick] < LEAST_GAIN:
                return found
            found.append(pick)
            open_columns[pick] = False
            taken[keys[pick]] += 1
            if taken[keys[pick]] == PORTFOLIO:
                open_columns &= np.array([key != keys[pick] for key in keys])
            mine = column == pick
            current[row[mine]] = np.minimum(current[row[mine]], regret[mine])


def _counted(regret: np.ndarray) -> np.ndarray:
    """Return what counts of regrets (sizes, parts): the mean of the worst part's and of all parts' mean.

    The worst part's alone would not fall where two kernels are needed, one for each of two parts.
    """
    counted: np.ndarray = (regret.max(axis=1) + regret.mean(axis=1)) / 2
    return counted
