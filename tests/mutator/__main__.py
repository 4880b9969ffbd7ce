"""The mutator: does the verifier notice every missing barrier, wait and predicate of the kernels?

Each mutant of the sources (see `mutations`) is compiled for the emulator and goes through `gensor_tuner.verify.verify`,
the very schedule every shipped kernel passed. A few small Programs per family and generation of hardware make every
site run; a mutant counts as caught when one of the Programs in which its site runs is refused. What survives must be
equivalent to the original: `mutator_survivors` gives the reasons.

    python -m tests.mutator [--jobs 2] [--group simt] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from gensor_kernels.build.source import flatten

from . import mutations
from .mutations import Mutant, Site
from .programs import Configuration, configurations
from .survivors import is_equivalent

Work = tuple[str, Mutant, list[Configuration]]  # group, mutant, the Programs in which its site runs

CPU_SECONDS = 30  # of one mutant, its compilation included: a loop without end counts as caught


@dataclass(frozen=True)
class Result:
    """What became of one mutant: the configuration that caught it and how, or "" where all let it pass."""

    group: str
    mutant: str
    guard: bool
    caught_by: str
    how: str


def _attempt(mutant: Mutant, configurations: Sequence[Configuration]) -> tuple[str, str]:
    for configuration in configurations:
        verdict = configuration.verify(mutant.apply)
        if verdict.outcome == "not_compiled":  # that would be no mutant but a mistake in how it was made
            raise AssertionError(f"{mutant.name} does not compile: {verdict.detail}")
        if verdict.outcome != "ok":
            return configuration.name, f"{verdict.outcome}: {verdict.detail.splitlines()[0]}"
    return "", ""


def _in_child(work: Callable[[], tuple[str, str]]) -> tuple[int, int]:
    """Starts `work` in a child process, since a mutant may crash or never end; (process, pipe to read)."""
    read, write = os.pipe()
    process = os.fork()
    if process:
        os.close(write)
        return process, read
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        os.write(write, json.dumps(work()).encode())
        os._exit(0)
    except BaseException as error:
        os.write(write, json.dumps(("?", f"mutator: {error!r}"[:2000])).encode())
        os._exit(1)


def _outcome(process: int, read: int) -> tuple[str, str]:
    _, status = os.waitpid(process, 0)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    if os.WIFSIGNALED(status):
        return "any", f"died of signal {os.WTERMSIG(status)}"
    caught_by, how = json.loads(text)
    if caught_by == "?":
        raise AssertionError(how)
    return caught_by, how


def run(work: Iterable[Work], jobs: int) -> Iterator[Result]:
    """Tries every mutant, `jobs` at a time; results in order."""
    running: list[tuple[str, Mutant, int, int]] = []

    def finish() -> Result:
        group, mutant, process, read = running.pop(0)
        return Result(group, mutant.name, mutant.site.is_guard, *_outcome(process, read))

    for group, mutant, live in work:
        running.append((group, mutant, *_in_child(partial(_attempt, mutant, live))))
        if len(running) >= jobs:
            yield finish()
    while running:
        yield finish()


def plan(
    chosen: Sequence[Configuration],
) -> tuple[dict[str, list[Site]], list[Work]]:
    """The sites of each group that no Program reaches, and the mutants of all others."""
    live: dict[tuple[str, Site], list[Configuration]] = {}
    for configuration in chosen:
        for site in configuration.live():
            live.setdefault((configuration.group, site), []).append(configuration)
    dead = {}
    for configuration in chosen:
        every = mutations.sites(flatten(configuration.candidate.family.source))
        dead[configuration.group] = [site for site in every if (configuration.group, site) not in live]
    work = [(group, mutant, where) for (group, site), where in live.items() for mutant in mutations.mutants(site)]
    return dead, work


def main() -> int:
    """Runs the whole sweep and prints what was caught."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--group", default="")
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    began = time.perf_counter()
    dead, work = plan([each for each in configurations() if options.group in each.group])
    results = []
    for result in run(work, options.jobs):
        results.append(result)
        print(f"{result.group}: {result.mutant}: {result.caught_by or 'SURVIVES'} {result.how}"[:220], file=sys.stderr)
    report(dead, results)
    print(f"{len(results)} mutants in {time.perf_counter() - began:.0f} s")
    if options.json:
        with open(options.json, "w") as out:
            json.dump([vars(result) for result in results], out, indent=1)
    return int(any(not each.caught_by and not is_equivalent(each.group, each.mutant) for each in results))


def report(dead: dict[str, list[Site]], results: Sequence[Result]) -> None:
    """Prints caught and surviving mutants of each group."""
    for group, unreached in dead.items():
        mine = [each for each in results if each.group == group]
        for kind, guard in (("barriers and waits", False), ("guards", True)):
            of_kind = [each for each in mine if each.guard == guard]
            caught = sum(bool(each.caught_by) for each in of_kind)
            print(f"{group:14s} {kind:20s} {caught}/{len(of_kind)} caught")
        for each in mine:
            if not each.caught_by:
                print(f"    survives: {each.mutant}")
        for site in unreached:
            print(f"    not reached: {site.name}")


if __name__ == "__main__":
    sys.exit(main())
