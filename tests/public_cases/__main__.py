"""Draws calls of all public functions, computes each three ways, and lists those whose ways differ.

python -m tests.public_cases [--calls 20000] [--seed N] [--jobs 2] [NAME | NAME:SEED ...]
"""

import argparse
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests import conftest
from tests.campaign_size import SEED

from .ways import CASES, Call, Outcome, list_outcomes, nth_call, outcomes_of

CHUNK = 170


def main() -> int:
    """1 where ways differ."""
    parser = argparse.ArgumentParser(prog="python -m tests.public_cases", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("only", nargs="*", help="functions alone, or NAME:SEED, one call")
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    options = parser.parse_args()
    conftest.pytest_configure(None)
    single = [each.partition(":") for each in options.only if ":" in each]
    named = [each for each in options.only if ":" not in each] or [] if single else options.only or list(CASES)
    calls = [(n, *nth_call(n, options.seed)) for n in range(options.calls) if nth_call(n, 0)[0] in named]
    calls += [(-1, name, int(seed)) for name, _, seed in single]
    began, outcomes = time.perf_counter(), list[Outcome]()
    for _, outcome in _run(calls, options.jobs):
        outcomes.append(outcome)
        if outcome.wrong:
            print(outcome.wrong, flush=True)
    wrong = report(outcomes)
    print(f"{len(outcomes)} calls, {wrong} disagreements, {time.perf_counter() - began:.0f} s")
    return int(wrong > 0)


def _run(calls: Sequence[Call], jobs: int) -> Iterator[tuple[int, Outcome]]:
    if jobs == 1:
        yield from outcomes_of(calls)
        return
    chunks = [calls[first : first + CHUNK] for first in range(0, len(calls), CHUNK)]
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        for found in pool.map(list_outcomes, chunks):
            yield from found


def report(outcomes: Sequence[Outcome]) -> int:
    """Print a table of the functions; the number of disagreements."""
    table = defaultdict[str, Counter[str]](Counter)
    for each in outcomes:
        table[each.name].update(["drawn", f"kernel {each.ways['kernel']}", f"library {each.ways['library']}"])
        table[each.name]["wrong"] += bool(each.wrong)
    columns = ("drawn", "kernel ok", "kernel no kernel", "kernel refused", "library ok", "library refused", "wrong")
    print(f"{'':18s}" + "".join(f"{each:>18s}" for each in columns))
    for name in sorted(table):
        print(f"{name:18s}" + "".join(f"{table[name][each]:18d}" for each in columns))
    return sum(bool(each.wrong) for each in outcomes)


if __name__ == "__main__":
    sys.exit(main())
