"""`gensor-tune own`: tune a user's kernel that a T1 file or a Python file describes."""

from __future__ import annotations

import runpy
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gensor_database.text import duration, span
from gensor_kernels.errors import ConfigError
from gensor_kernels.own import Kernel, from_t1
from gensor_tuner.output import note, say

from .tune import Best, tune
from .verify import assigned


def read_kernel(given: str) -> Kernel:
    """Return the kernel of a T1 file, or of FILE.py:NAME; ConfigError where there is none."""
    if given.endswith(".json"):
        return from_t1(Path(given))
    found = named(given, "kernel")
    if not isinstance(found, Kernel):
        raise ConfigError(f"{given} is a {type(found).__name__}, not a gensor_kernels.own.Kernel")
    return found


def named(given: str, what: str) -> Any:
    """Return what FILE.py:NAME names; ConfigError with the reason where there is nothing."""
    file, mark, name = given.rpartition(":")
    if not mark or not name.isidentifier():
        raise ConfigError(f"the {what} is given as FILE.py:NAME, not {given!r}")
    try:
        body = runpy.run_path(file)
    except Exception as error:
        lines = [each.lineno for each in traceback.extract_tb(error.__traceback__) if each.filename == file]
        place = f" at line {lines[-1]}" if lines else ""
        raise ConfigError(f"{file} cannot be run: {type(error).__name__}{place}: {error}") from error
    if name not in body:
        raise ConfigError(f"{file} has no {name}")
    return body[name]


def sizes_of(given: Sequence[str], default: Mapping[str, int]) -> dict[str, int]:
    """Return sizes from NAME=NUMBER texts, over those of the file; ConfigError for another text."""
    made = dict(default)
    for text in given:
        name, mark, value = text.partition("=")
        if not mark or not value.strip().isdigit():
            raise ConfigError(f"a size is given as NAME=NUMBER, not {text!r}")
        made[name.strip()] = int(value)
    return made


def run(
    kernel: str,
    arch: str,
    reference: str,
    db: Path,
    sizes: Sequence[str],
    check_at: Sequence[str],
    t4: Path | None,
    quiet: bool,
    **options: Any,
) -> None:
    """Tune with the options of `Kernel.tune`, store, and print the configurations."""
    described = read_kernel(kernel)
    wanted = sizes_of(sizes, described.sizes)
    shown: dict[str, int] = {}

    def progress(stage: str, done: int, of: int) -> None:
        tenth = 10 * done // max(of, 1)
        if not quiet and shown.get(stage) != tenth:
            shown[stage] = tenth
            note(f"{done} of {of} {stage}")

    best = tune(
        described,
        arch,
        wanted,
        named(reference, "reference"),
        check_at=sizes_of(check_at, wanted) if check_at else None,
        progress=progress,
        **options,
    )
    best.save(db)
    if t4 is not None:
        best.to_t4(t4)
    _show(best, db)


def _show(best: Best, db: Path) -> None:
    for line in str(best).splitlines():
        say(line)
    first, terms = best.found[0], best.explain()
    band = span(float(terms["low_us"]), float(terms["high_us"]))
    time = f"{duration(first.predicted_us)} (a prediction; {band} expected by times of two other kernels)"
    if first.timed is not None:
        time = f"{duration(first.timed.median_us)} (the median of {first.timed.rounds} rounds), {time}"
    counts = f"{best.tried} configurations compiled, {f'{best.measured} measured, ' if best.measured else ''}"
    say(
        f"best on {best.arch.part}: {time}, limited by {terms['limit']}; {counts}{len(best.found)} verified "
        f"and stored in {db}"
    )
    for reason, count in list(best.refused.items())[:3]:
        note(f"{count} not built: {reason}")
    for knobs, verdict in best.failed[:3]:
        note(f"{assigned(knobs)} is {verdict.outcome}: {verdict.detail}")
