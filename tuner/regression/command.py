"""The command `gensor-tune check`: reads runs, prints verdicts as a table, and writes JUnit XML for build servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree as xml

from gensor_tuner.output import beside, note, output, plural, printable, say

from .runs import Run, UnusableError, read
from .verdicts import (
    FAILING,
    FEWEST_AFTER,
    FEWEST_BEFORE,
    SLOWER,
    TOO_FEW,
    UNCHANGED,
    UNCLEAR,
    Verdict,
    changed_conditions,
    compare,
)


def check(
    baseline: Path, results: Sequence[Path], junit: Path | None, tolerance: float, allow_unclear: bool = False
) -> int:
    """Compare results with a baseline; return 1 where a benchmark of ours is slower, or may be, else 0.

    Without `results`, the newest runs of the baseline are compared with its older ones. With `allow_unclear`,
    inconclusive benchmarks pass. Raises UnusableError for too few runs, ConfigError where `junit` cannot be written.
    """
    old, new = _sides(baseline, results)
    verdicts = compare(old, new, tolerance)
    moved, failing = _changes(old, new), (SLOWER,) if allow_unclear else FAILING
    if junit is not None:
        write_junit(junit, verdicts, moved, failing)
    for line in lines(verdicts):
        say(line, file=beside(junit))
    for machine, changes in sorted(moved.items()):
        for name, (before, after) in changes.items():
            note(f"{machine}: {name} was {before}, is {after}")
    if all(each.verdict == TOO_FEW for each in verdicts):
        raise UnusableError(
            f"no benchmark has {FEWEST_BEFORE} runs in {baseline} and {FEWEST_AFTER} new ones on the same machine: "
            "with fewer, one bad run would decide"
        )
    unclear = sum(each.verdict == UNCLEAR for each in verdicts)
    if unclear and not allow_unclear:
        note(
            f"{unclear} {plural('benchmark', unclear)} may have become slower, but the runs cannot say: add runs, or "
            "take a steadier control; --allow-unclear lets them pass"
        )
    return 1 if any(each.verdict in failing for each in verdicts) else 0


def _sides(baseline: Path, results: Sequence[Path]) -> tuple[list[Run], list[Run]]:
    """Return old and new runs; a run on both sides counts as new."""
    old = read(baseline)
    if not results:
        return old[:-FEWEST_AFTER], old[-FEWEST_AFTER:]
    found = {run.path.resolve(): run for path in results for run in read(path)}
    return [run for run in old if run.path.resolve() not in found], list(found.values())


def _changes(old: Sequence[Run], new: Sequence[Run]) -> dict[str, dict[str, tuple[str, str]]]:
    both = {run.machine for run in old} & {run.machine for run in new}
    sides = {machine: [[run for run in side if run.machine == machine] for side in (old, new)] for machine in both}
    return {machine: changed_conditions(*side) for machine, side in sides.items()}


#: Verdicts that need a person's attention come first.
ORDER = (SLOWER, UNCLEAR, "machine slower", "vendor faster", "vendor slower", TOO_FEW, "faster", UNCHANGED)
HEADER = f"{'verdict':<15} {'ours':>8} {'control':>8} {'net':>8} {'runs':>7}  benchmark"


def lines(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Yield the table, one benchmark per line, then the number of benchmarks by verdict."""
    yield HEADER
    for each in sorted(verdicts, key=lambda each: (ORDER.index(each.verdict), each.machine, each.name)):
        figures = " ".join(f"{_percent(value):>8}" for value in (each.ours, each.control, each.net))
        why = f": {each.why}" if each.verdict != UNCHANGED else ""
        runs = f"{each.before}/{each.after}"
        yield f"{each.verdict:<15} {figures} {runs:>7}  {printable(each.name)}{printable(why)}"
    counts = Counter(each.verdict for each in verdicts)
    yield ", ".join(f"{counts[name]} {name}" for name in ORDER if counts[name])


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:+.1%}"


def write_junit(
    path: Path,
    verdicts: Sequence[Verdict],
    moved: Mapping[str, Mapping[str, tuple[str, str]]],
    failing: Sequence[str] = FAILING,
) -> None:
    """Write JUnit XML: a test case per benchmark, failed by `failing` verdicts; `moved` conditions are properties."""
    failed = sum(each.verdict in failing for each in verdicts)
    skipped = sum(each.verdict in (TOO_FEW, UNCLEAR) and each.verdict not in failing for each in verdicts)
    counts = {"tests": str(len(verdicts)), "failures": str(failed), "errors": "0", "skipped": str(skipped)}
    suites = xml.Element("testsuites", counts)
    suite = xml.SubElement(suites, "testsuite", {"name": "gensor-tune check", **counts})
    properties = xml.SubElement(suite, "properties")
    for machine, changes in sorted(moved.items()):
        for name, (old, new) in changes.items():
            said = {"name": printable(f"{machine}: {name}"), "value": printable(f"{old} -> {new}")}
            xml.SubElement(properties, "property", said)
    for each in verdicts:
        case = xml.SubElement(suite, "testcase", {"classname": printable(each.machine), "name": printable(each.name)})
        figures = f"ours {_percent(each.ours)}, control {_percent(each.control)}, net {_percent(each.net)}: {each.why}"
        if each.verdict in failing:
            xml.SubElement(case, "failure", {"type": each.verdict, "message": printable(figures)})
        elif each.verdict in (TOO_FEW, UNCLEAR):
            xml.SubElement(case, "skipped", {"message": printable(each.why)})
        else:
            xml.SubElement(case, "system-out").text = printable(f"{each.verdict}: {figures}")
    xml.indent(suites)
    with output(path, "--junit") as file:
        file.write(xml.tostring(suites, encoding="utf-8", xml_declaration=True).decode("utf-8"))
