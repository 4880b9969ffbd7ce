"""Verdicts as a table for people and as JUnit XML for build servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree as xml

from gensor_tuner.output import output, printable

from .verdicts import SLOWER, TOO_FEW, UNCHANGED, UNCLEAR, Verdict

#: Those that a person has to look at come first.
ORDER = (SLOWER, UNCLEAR, "machine slower", "vendor faster", "vendor slower", TOO_FEW, "faster", UNCHANGED)
HEADER = f"{'verdict':<15} {'ours':>8} {'control':>8} {'net':>8} {'runs':>7}  benchmark"


def lines(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """The table, one benchmark per line, and under it how many there are of each kind."""
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


def write_junit(path: Path, verdicts: Sequence[Verdict], moved: Mapping[str, Mapping[str, tuple[str, str]]]) -> None:
    """JUnit XML: a test case per benchmark, failed where it is slower, skipped where nothing can be said; what changed
    about each machine (machine -> condition -> before, after) as properties. ConfigError where it cannot be written."""
    failed = sum(each.verdict == SLOWER for each in verdicts)
    skipped = sum(each.verdict in (TOO_FEW, UNCLEAR) for each in verdicts)
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
        told = f"ours {_percent(each.ours)}, control {_percent(each.control)}, net {_percent(each.net)}: {each.why}"
        if each.verdict == SLOWER:
            xml.SubElement(case, "failure", {"type": SLOWER, "message": printable(told)})
        elif each.verdict in (TOO_FEW, UNCLEAR):
            xml.SubElement(case, "skipped", {"message": printable(each.why)})
        else:
            xml.SubElement(case, "system-out").text = printable(f"{each.verdict}: {told}")
    xml.indent(suites)
    with output(path, "--junit") as file:
        file.write(xml.tostring(suites, encoding="utf-8", xml_declaration=True).decode("utf-8"))
