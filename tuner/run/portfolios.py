"""Portfolios: the few kernels of each class that serve sizes which no row names."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gensor_database.record import Kernel, Row, Verification
from gensor_database.store import Store
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.registry import FAMILIES, program_from_json
from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators import operator
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.build.cover import CLEAN, portfolio, preferring
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
        family = FAMILIES.get(each.kernel.family)
        if not each.usable or family is None or each.kernel.abi != family.abi:
            continue
        program = program_from_json(each.kernel.program)
        # A kernel compiled for one epilogue serves no other.
        if not candidate(family, program, sample).fixes_epilogue:
            programs[program] = each.kernel.digest
            clean[each.kernel.digest] = is_clean(store.rows(Verification, kernel_digest=each.kernel.digest))
    for digest, rows in (further or {}).items():
        programs.update((program_from_json(row.program), digest) for row in rows if isinstance(row, Kernel))
        clean[digest] = is_clean(row for row in rows if isinstance(row, Verification))
    shapes = list(dict.fromkeys([*(each.with_epilogue(()) for each in workloads), *usual(sample)]))
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
