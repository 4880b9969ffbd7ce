"""Portfolios: the few kernels of each class that serve sizes which no row names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gensor_database.record import Kernel, Portfolio, Record
from gensor_database.store import Store
from gensor_kernels.dispatch.selection.load import class_workload
from gensor_kernels.machine.arch import Arch, lookup
from gensor_kernels.machine.residual import Learnt
from gensor_kernels.operators import operator
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.programs.core.program import Program
from gensor_kernels.programs.registry import FAMILIES, program_from_json
from gensor_kernels.programs.space import Space
from gensor_tuner.build.cover import UNSERVED, portfolio, regrets
from gensor_tuner.build.pool import Pool, candidate

PORTFOLIO = 16  # kernels of a class, at most
_Class = tuple[str, str]  # part, key of the class


@dataclass(frozen=True)
class Offer:
    """Kernels of a class that may be in its portfolio.

    `names` orders them; `seconds` (sizes, kernels) are predicted for launches that divide k in the best of all ways.
    """

    digests: list[str]
    names: list[str]
    seconds: np.ndarray

    def best(self) -> list[str]:
        """Return the digests of the portfolio, the kernel that lowers the mean regret most first."""
        return [self.digests[column] for column in portfolio(self.seconds, self.names, PORTFOLIO)]

    def losses(self, digests: Sequence[str]) -> list[float]:
        """Return by how much the mean regret of these kernels grows without each of them."""
        ratio = regrets(self.seconds)
        ratio = np.minimum(ratio[np.isfinite(ratio).any(axis=1)], UNSERVED)
        if not ratio.size:
            return [0.0] * len(digests)
        unserved = np.full(len(ratio), UNSERVED)
        column = {digest: place for place, digest in enumerate(self.digests)}
        chosen = np.array([ratio[:, column[each]] if each in column else unserved for each in digests])
        means = [np.delete(chosen, place, axis=0).min(axis=0, initial=UNSERVED).mean() for place in range(len(chosen))]
        return [float(mean - chosen.min(axis=0).mean()) for mean in means]


def usual(workload: Workload) -> list[Workload]:
    """Return the sizes at which portfolios of a Workload's class are compared, beside sizes that rows name."""
    sample = workload.with_epilogue(())
    return operator(sample.operator).usual(sample)


def offer(
    store: Store,
    arch: Arch,
    workloads: Sequence[Workload],
    further: Mapping[str, Program] | None = None,
    learnt: Learnt | None = None,
) -> Offer:
    """Return the usable kernels of a class that serve any epilogue.

    Parameters
    ----------
    store : Store
        An open database.
    arch : Arch
        The part that they are predicted for.
    workloads : sequence of Workload
        Sizes of the class that count beside the usual ones, at least one.
    further : mapping from str to Program, optional
        Verified kernels that the database does not have, by digest.
    learnt : Learnt, optional
        A residual of the predictions.
    """
    sample = workloads[0].with_epilogue(())
    programs: dict[Program, str] = {}
    for each in store.kernels_for_class(sample.class_key(), arch.name):
        family = FAMILIES.get(each.kernel.family)
        if not each.usable or family is None or each.kernel.abi != family.abi:
            continue
        program = program_from_json(each.kernel.program)
        # A kernel compiled for one epilogue serves no other.
        if not candidate(family, program, sample).fixes_epilogue:
            programs[program] = each.kernel.digest
    programs.update((program, digest) for digest, program in (further or {}).items())
    shapes = list(dict.fromkeys([*(each.with_epilogue(()) for each in workloads), *usual(sample)]))
    spaces = [Space(shape, arch, learnt=learnt) for shape in shapes]
    pool = Pool(shapes)
    for program in programs:
        # A family may serve only some sizes of a class.
        space = next((each for each in spaces if program.family in each.names), None)
        if space is not None:
            pool.add(space, [program], siblings=False)
    return Offer([programs[each.program] for each in pool.candidates], pool.names, pool.relaunched(spaces))


def shorten(store: Store, arch: str) -> Iterator[str]:
    """Take kernels from portfolios, one after the other, first the kernel whose loss costs least for its bytes.

    The loss is the growth of a class's mean predicted regret over the sizes of its records and its usual sizes, the
    bytes are its machine code's. Each portfolio keeps a kernel, and kernels that records name: they stay in the file
    anyway. Kernels stay in the database; `export` leaves out those that nothing names.

    Parameters
    ----------
    store : Store
        An open, writable database.
    arch : str
        Capability, such as "sm_100".

    Yields
    ------
    str
        The key of the class that has lost a kernel.

    Examples
    --------
    >>> with Store.open(":memory:") as empty:
    ...     list(shorten(empty, "sm_100"))
    []
    """
    named: dict[_Class, list[str]] = defaultdict(list)
    for row in sorted(store.rows(Portfolio, arch=arch), key=lambda row: row.rank):
        named[row.part, row.class_key].append(row.kernel_digest)
    sizes: dict[str, list[Workload]] = defaultdict(list)
    recorded: set[str | None] = set()
    for record in sorted(store.rows(Record, arch=arch), key=lambda record: record.key):
        workload = Workload.from_json(record.key)
        sizes[workload.class_key()].append(workload)
        recorded.add(record.kernel_digest)
    offers: dict[_Class, Offer] = {}
    volume: dict[str, int] = {}
    for (part, class_key), digests in named.items():
        offers[part, class_key] = offer(store, lookup(part), sizes.get(class_key) or [class_workload(class_key)])
        volume.update((digest, _volume(store, digest)) for digest in digests if digest not in recorded)

    def cheapest(place: _Class) -> tuple[float, str] | None:
        digests = named[place]
        losses = zip(digests, offers[place].losses(digests), strict=True) if len(digests) > 1 else ()
        return min(((loss / volume[digest], digest) for digest, loss in losses if digest in volume), default=None)

    costs = {place: cheapest(place) for place in named}
    while open_places := [(cost, place) for place, cost in costs.items() if cost is not None]:
        (_, digest), place = min(open_places)
        named[place].remove(digest)
        costs[place] = cheapest(place)
        store.replace_portfolio(arch, *place, named[place])
        yield place[1]


def _volume(store: Store, digest: str) -> int:
    """Return the bytes of a kernel's machine code, at least 1."""
    kernel = store.get(Kernel, digest)
    binary = store.binary(kernel) if kernel is not None else None
    return len(binary.cubin) if binary is not None and binary.cubin else 1
