"""Runs mutants, each in a child process, in the Programs in which their sites run."""

import json
import os
import resource
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from . import mutations
from .configuration import Configuration
from .mutations import Mutant, Site

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_PROOFS = tomllib.loads(Path(__file__).parents[1].joinpath("survivors.toml").read_text())["equivalent"]
#: Reasons why mutants that no test can catch behave like the original, by name, with the group first where only there.
EQUIVALENT = {mutant: each["reason"] for each in _PROOFS for mutant in each["mutants"]}
Work = tuple[str, Mutant, list[Configuration]]  # group, mutant, the Programs in which its site runs

CPU_SECONDS = 30  # for one mutant, with its compilation: an endless loop counts as caught


@dataclass(frozen=True)
class Result:
    """The outcome of one mutant: the configuration that caught it and how, both "" for a survivor."""

    group: str
    mutant: str
    guard: bool
    caught_by: str
    how: str


def is_equivalent(group: str, mutant: str) -> bool:
    """Return whether there is a proof for a mutant, for all Programs or for this group."""
    return mutant in EQUIVALENT or f"{group}: {mutant}" in EQUIVALENT


def _attempt(mutant: Mutant, configurations: Sequence[Configuration]) -> tuple[str, str]:
    for configuration in configurations:
        verdict = configuration.verify(mutant.apply)
        if verdict.outcome == "not_compiled":  # a mistake of the mutator
            raise AssertionError(f"{mutant.name} does not compile: {verdict.detail}")
        if verdict.outcome != "ok":
            return configuration.name, f"{verdict.outcome}: {verdict.detail.splitlines()[0]}"
    return "", ""


def _in_child(work: Callable[[], tuple[str, str]]) -> tuple[int, int]:
    """Start `work` in a child process, because a mutant may crash or never end; return (process, pipe to read)."""
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
    """Try every mutant, `jobs` at a time, and yield the results in order."""
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


def plan(chosen: Sequence[Configuration]) -> tuple[dict[str, list[Site]], list[Work]]:
    """Return the sites of each group that no Program reaches, and the mutants of all others."""
    live: dict[tuple[str, Site], list[Configuration]] = {}
    for configuration in chosen:
        for site in configuration.live():
            live.setdefault((configuration.group, site), []).append(configuration)
    dead = {}
    for configuration in chosen:
        every = mutations.sites(configuration.candidate.family.text)
        dead[configuration.group] = [site for site in every if (configuration.group, site) not in live]
    work = [(group, mutant, where) for (group, site), where in live.items() for mutant in mutations.mutants(site)]
    return dead, work
