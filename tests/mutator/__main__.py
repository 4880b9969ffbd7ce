"""The mutator: does the verifier notice every missing barrier, wait and predicate of the kernels?

Each mutant of the sources (engine/mutations.py) is compiled for the emulator and goes through the verification that
every shipped kernel has passed, `gensor_tuner.verify.verify`. A few small Programs per family and hardware generation
(programs/) make every site run; a mutant is caught when one of the Programs in which its site runs is refused. Every
survivor must be equivalent to the original: survivors.toml gives the proofs.

    python -m tests.mutator [--jobs 2] [--group simt] [--json FILE]
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence

from .engine.mutations import Site
from .engine.sweep import Result, is_equivalent, plan, run
from .programs import configurations


def main() -> int:
    """Run the sweep and print the mutants that were caught and that survived; 1 where a survivor has no proof."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutator", description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="mutants at a time (default: one per core)")
    parser.add_argument("--group", default="", help="only groups of Programs whose names contain this text")
    parser.add_argument("--json", default="", help="file for the outcome of every mutant")
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
    """Print caught and surviving mutants of each group."""
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
