"""Portfolios: the few kernels of each class that serve sizes which no row names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gensor_database.record import Portfolio, Record
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

    def regret_of_first(self, digests: Sequence[str]) -> list[float]:
        """Return the mean regret of the first of these kernels, of the first two, and so on."""
        ratio = regrets(self.seconds)
        ratio = np.minimum(ratio[np.isfinite(ratio).any(axis=1)], UNSERVED)
        if not ratio.size:
            return [0.0] * len(digests)
        unserved = np.full(len(ratio), UNSERVED)
        column = {digest: place for place, digest in enumerate(self.digests)}
        chosen = [ratio[:, column[each]] if each in column else unserved for each in digests]
        return np.minimum.accumulate(np.array(chosen), axis=0).mean(axis=1).tolist()


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
    """Take the last kernels of portfolios, one after the other, first the kernel whose loss costs least.

    The loss is the growth of a class's mean predicted regret over the sizes of its records and its usual sizes. Each
    portfolio keeps its first kernel. Kernels stay in the database; `export` leaves out those that nothing names.

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
    rows: dict[_Class, list[Portfolio]] = defaultdict(list)
    for row in sorted(store.rows(Portfolio, arch=arch), key=lambda row: row.rank):
        rows[row.part, row.class_key].append(row)
    sizes: dict[str, list[Workload]] = defaultdict(list)
    for record in sorted(store.rows(Record, arch=arch), key=lambda record: record.key):
        workload = Workload.from_json(record.key)
        sizes[workload.class_key()].append(workload)
    regret: dict[_Class, list[float]] = {}
    for (part, class_key), ranked in rows.items():
        if len(ranked) > 1:
            named = sizes.get(class_key) or [class_workload(class_key)]
            offered = offer(store, lookup(part), named)
            regret[part, class_key] = offered.regret_of_first([row.kernel_digest for row in ranked])
    while losses := {place: found[-2] - found[-1] for place, found in regret.items() if len(found) > 1}:
        part, class_key = place = min(losses, key=lambda place: (losses[place], place))
        regret[place].pop()
        rows[place].pop()
        store.replace_portfolio(arch, part, class_key, rows[place])
        yield class_key
